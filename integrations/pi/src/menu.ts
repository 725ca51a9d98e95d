// Words and choices of the menu. Nothing here talks to pi or to the engine.
import { type PromptEntry, type RecordData, textOf } from "./conversation.ts";
import { changes, type Plan, type Row, withheld } from "./types.ts";

/** A prompt that can be chosen. `turn` is missing where no checkpoint can be used, and `why` says so. */
export type Choice = { entry: string; text: string; turn?: number; why?: string; label: string };

const oneLine = (text: string, width: number): string => {
  const line = text.replace(/\s+/g, " ").trim();
  const points = [...line];
  return points.length > width ? `${points.slice(0, width - 1).join("")}…` : line;
};

const clock = (time: Date): string => `${String(time.getHours()).padStart(2, "0")}:${String(time.getMinutes()).padStart(2, "0")}`;

/** Prompts of the branch, newest first, with their checkpoints. Rows of branches that were left are not among them. */
export function choices(prompts: readonly PromptEntry[], rows: readonly Row[], kept: ReadonlyMap<string, RecordData>, workspace: string): Choice[] {
  const byEntry = new Map<string, Row>();
  for (const row of rows) if (row.kind === "prompt" && row.entry !== null && row.turn !== null) byEntry.set(row.entry, row);
  return prompts
    .map((entry, index) => {
      const row = byEntry.get(entry.id);
      const text = textOf(entry.message);
      const record = kept.get(entry.id);
      let why: string | undefined;
      if (!row) why = record && record.workspace !== workspace ? `recorded in ${record.workspace}` : "no checkpoint";
      else if (!row.restorable) why = row.state === "complete" ? "cannot be restored" : `checkpoint ${row.state}`;
      const at = clock(new Date(entry.timestamp));
      const label = `${index + 1}. ${at}  ${oneLine(text, 60) || "(no text)"}${why ? `  [${why}]` : ""}`;
      const choice: Choice = { entry: entry.id, text, label };
      if (why !== undefined) choice.why = why;
      else if (row?.turn != null) choice.turn = row.turn;
      return choice;
    })
    .reverse();
}

export type ActionId = "both" | "conversation" | "code" | "from" | "upto" | "never";
const ACTIONS: readonly [ActionId, string][] = [
  ["both", "Restore code and conversation"],
  ["conversation", "Restore conversation"],
  ["code", "Restore code"],
  ["from", "Summarize from here"],
  ["upto", "Summarize up to here"],
  ["never", "Never mind"],
];

/** The six choices in their order; those about code only where there is something to change, or to decide about. */
export function actions(plan: Plan | undefined): { id: ActionId; label: string }[] {
  const touched = plan ? changes(plan).length + withheld(plan).length : 0;
  return ACTIONS.filter(([id]) => touched > 0 || (id !== "both" && id !== "code")).map(([id, label]) => ({
    id,
    label: plan && (id === "both" || id === "code") ? `${label}  (${summary(plan)})` : label,
  }));
}

const VERBS: readonly [string, string][] = [
  ["create", "back"],
  ["overwrite", "changed back"],
  ["delete", "removed"],
  ["mode", "mode"],
];

/** `3 files: 1 back, 2 removed`, and what stays as it is. */
export function summary(plan: Plan): string {
  const items = changes(plan);
  const files = items.filter((item) => item.action !== "mkdir" && item.action !== "rmdir");
  const parts = VERBS.map(([action, word]) => [files.filter((item) => item.action === action).length, word] as const)
    .filter(([count]) => count > 0)
    .map(([count, word]) => `${count} ${word}`);
  const kept = withheld(plan).length;
  if (items.length === 0) return kept > 0 ? `${kept} to decide about` : "nothing";
  const count = files.length > 0 ? `${files.length} file${files.length === 1 ? "" : "s"}: ${parts.join(", ")}` : `${items.length} folders`;
  return kept > 0 ? `${count}; ${kept} kept` : count;
}

/** One line for a path of a plan. Control characters of names never reach the terminal. */
export const line = (item: { action: string; path: string; reason: string | null }): string =>
  `${item.action.padEnd(9)} ${item.path.replace(/[\u0000-\u001f\u007f-\u009f]/g, "?")}${item.reason ? `  (${item.reason})` : ""}`;

/** The plan as it is shown before it is applied: what changes first, then what stays and why. */
export function preview(plan: Plan, most = 14): string {
  const all = [...changes(plan), ...withheld(plan)];
  const lines = all.slice(0, most).map((item) => `  ${line(item)}`);
  if (all.length > most) lines.push(`  … and ${all.length - most} more`);
  return [...lines, ...(plan.warnings ?? []).map((warning) => `  note: ${warning}`)].join("\n");
}

/** What a command line asks for: `/rewind [N [ACTION]] [-- PATH…]`, `/rewind undo`, `/rewind redo`. */
export type Asked =
  | { kind: "menu" }
  | { kind: "undo" | "redo" }
  | { kind: "rewind"; number: number; action?: ActionId; onlyTurn: boolean; paths: string[] }
  | { kind: "wrong"; message: string };

const WORDS: Record<string, ActionId> = { all: "both", both: "both", conversation: "conversation", code: "code", from: "from", upto: "upto" };
export const USAGE = "/rewind · /rewind N [all|conversation|code|from|upto] [only] [-- PATH…] · /rewind undo · /rewind redo";

export function parse(argument: string): Asked {
  const [head = "", ...rest] = argument.split(/(?:^|\s)--(?:\s|$)/);
  const words = head.split(/\s+/).filter(Boolean);
  const paths = rest.join(" -- ").split(/\s+/).filter(Boolean);
  const [first, ...more] = words;
  if (first === undefined) return paths.length === 0 ? { kind: "menu" } : { kind: "wrong", message: USAGE };
  if ((first === "undo" || first === "redo") && more.length === 0) return { kind: first };
  const number = /^#?(\d{1,6})\.?$/.exec(first)?.[1];
  if (number === undefined) return { kind: "wrong", message: USAGE };
  const onlyTurn = more.includes("only");
  const [word, ...tooMany] = more.filter((w) => w !== "only");
  if (tooMany.length > 0 || (word !== undefined && !Object.hasOwn(WORDS, word))) return { kind: "wrong", message: USAGE };
  const action = word === undefined ? undefined : WORDS[word];
  return { kind: "rewind", number: Number(number), onlyTurn, paths, ...(action ? { action } : {}) };
}
