// The command /rewind: choose a prompt, choose what to restore, see the plan, apply exactly that plan.
import type { ExtensionCommandContext, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { operations } from "./conversation.ts";
import { LIMITS } from "./engine.ts";
import { type ActionId, actions, type Choice, line, parse, preview, summary } from "./menu.ts";
import { EngineError } from "./rpc.ts";
import { say, type Session } from "./session.ts";
import { changes, done, exact, type Item, type Name, type Plan, withheld } from "./types.ts";

/** What is to happen to files, as parameters of the engine's plan and apply methods. */
export type Request = {
  title: string;
  plan: string;
  apply: string;
  params: Record<string, unknown>;
  /** The same for the prompt's own turn, where that is another thing. */
  only?: Request;
};

const told = (error: unknown): string => {
  const message = error instanceof Error ? error.message : String(error);
  return error instanceof EngineError && error.hint ? `${message} (${error.hint})` : message;
};

export function rewindTo(session: Session, turn: number, title: string, paths: string[] = []): Request {
  const params = { session: session.recorder.session, ...(paths.length > 0 ? { paths } : {}) };
  return {
    title,
    plan: "rewind/plan",
    apply: "rewind/apply",
    params: { ...params, to: `turn:${turn}` },
    only: { title: "Only what this prompt did", plan: "revert/plan", apply: "revert/apply", params: { ...params, to: `turn:${turn}` } },
  };
}

export const planned = (session: Session, request: Request): Promise<Plan> =>
  session.engine.call<Plan>(request.plan, request.params, LIMITS.work);

/** Applies a plan that was shown, by its digest: the engine refuses when the disk has moved since. */
async function applied(session: Session, ctx: ExtensionContext, request: Request, plan: Plan): Promise<Plan> {
  ctx.ui.setStatus("backstitch", "Backstitch: restoring files…");
  try {
    return await session.engine.call<Plan>(request.apply, { ...request.params, plan: plan.plan }, LIMITS.work);
  } finally {
    ctx.ui.setStatus("backstitch", undefined);
  }
}

/** Tells what became of a plan: last, because pi clears what was said before it moves. */
export function report(ctx: ExtensionContext, outcome: Plan): void {
  const failed = outcome.items.filter((item) => item.result === "failed");
  const kept = withheld(outcome);
  const names = kept.slice(0, 5).map((item) => `${item.path}${item.reason ? ` (${item.reason})` : ""}`);
  const rest = kept.length > 5 ? ` and ${kept.length - 5} more` : "";
  const tail = kept.length > 0 ? ` Not changed: ${names.join(", ")}${rest}.` : "";
  const level = failed.length > 0 ? "error" : kept.length > 0 ? "warning" : "info";
  const files = done(outcome).length;
  say(ctx, `${files === 0 ? "no file was changed." : `${files} ${files === 1 ? "path" : "paths"} put back; /rewind undo takes that back.`}${tail}`, level);
}

/** Ticks files off a plan. `undefined`: nothing was chosen. */
async function pickFiles(ctx: ExtensionContext, items: Item[]): Promise<Name[] | undefined> {
  const chosen = new Set<Item>();
  for (;;) {
    const go = `Done: ${chosen.size} of ${items.length}`;
    const rows = items.map((item) => `${chosen.has(item) ? "[x]" : "[ ]"} ${line(item)}`);
    const answer = await ctx.ui.select("Which files?", [go, ...rows]);
    if (answer === undefined) return undefined;
    if (answer === go) return chosen.size > 0 ? [...chosen].map(exact) : undefined;
    const item = items[rows.indexOf(answer)];
    if (item && !chosen.delete(item)) chosen.add(item);
  }
}

/**
 * Shows a plan and applies it when the person says so. `undefined`: nothing was changed. A plan that the disk outran is
 * made and shown again.
 */
export async function agree(session: Session, ctx: ExtensionContext, first: Request, ready?: Plan): Promise<Plan | undefined> {
  let request = first;
  let extra: Record<string, unknown> = {};
  let plan = ready;
  let forceable = false;
  let alone: Plan | undefined;
  for (;;) {
    const full = { ...request, params: { ...request.params, ...extra } };
    try {
      plan ??= await planned(session, full);
    } catch (error) {
      say(ctx, told(error), "warning");
      if (request === first && Object.keys(extra).length === 0) return undefined;
      [request, extra] = [first, {}];
      continue;
    }
    const touched = changes(plan);
    const held = withheld(plan);
    const conflicts = held.filter((item) => item.action === "conflict").length;
    const loose = held.filter((item) => item.reason === "unattributed").length;
    const outside = held.filter((item) => item.reason === "outside").length;
    const choices = new Map<string, () => Promise<Plan | "again" | undefined> | Plan | "again" | undefined>();
    const retry = (more: Record<string, unknown>) => () => {
      extra = { ...extra, ...more };
      plan = undefined;
      return "again" as const;
    };
    const shown = plan;
    if (touched.length > 0) choices.set(`Apply  (${summary(plan)})`, () => applied(session, ctx, full, shown));
    if (touched.length > 1)
      choices.set("Choose files…", async () => {
        const paths = await pickFiles(ctx, touched);
        if (paths) retry({ paths })();
        return "again" as const;
      });
    const only = request.only;
    if (only && (plan.takes_back?.length ?? 0) > 1) {
      // Nothing is offered that the engine would refuse.
      alone ??= await planned(session, only).catch(() => undefined);
      const found = alone;
      if (found && changes(found).length > 0)
        choices.set("Only what this prompt did", () => {
          [request, extra, plan] = [only, {}, found];
          return "again";
        });
    }
    if (conflicts > 0 && extra["on_conflict"] === undefined)
      choices.set(`Merge conflicts line by line  (${conflicts})`, retry({ on_conflict: "merge" }));
    if (conflicts > 0) choices.set(`Overwrite conflicts too  (${conflicts})`, retry({ on_conflict: "overwrite" }));
    if (loose > 0) choices.set(`Include changes made outside tool calls  (${loose})`, retry({ include_unattributed: true }));
    if (outside > 0) choices.set(`Include files outside this folder  (${outside})`, retry({ outside: true }));
    if (forceable) choices.set("Do it although another session is at work", retry({ force: true }));
    choices.set("Cancel", () => undefined);
    const body = preview(plan);
    const answer = await ctx.ui.select(`${request.title}${body ? `\n${body}` : "\n  nothing would change"}`, [...choices.keys()]);
    try {
      const outcome = answer === undefined ? undefined : await choices.get(answer)?.();
      if (outcome === "again") continue;
      return outcome;
    } catch (error) {
      say(ctx, told(error), "warning");
      if (!(error instanceof EngineError) || !["plan-changed", "busy", "conflict"].includes(error.code)) return undefined;
      forceable ||= error.code === "busy";
      plan = undefined;
    }
  }
}

/** Applies without a question: a typed command, or a policy that says always. */
export async function straight(session: Session, ctx: ExtensionContext, request: Request): Promise<Plan | undefined> {
  try {
    const plan = await planned(session, request);
    return changes(plan).length === 0 ? plan : await applied(session, ctx, request, plan);
  } catch (error) {
    say(ctx, told(error), "warning");
    return undefined;
  }
}

/** Moves the conversation to just before a prompt and puts its text into the editor. */
async function navigate(session: Session, ctx: ExtensionCommandContext, choice: Choice, summarize: boolean, filesChanged: boolean): Promise<boolean> {
  const also = filesChanged ? "Files were changed, the conversation was not" : "Nothing was changed";
  session.navigating = true;
  try {
    const { cancelled } = await ctx.navigateTree(choice.entry, { summarize });
    if (cancelled) {
      say(ctx, `the move of the conversation was cancelled. ${also}.`, "warning");
      return false;
    }
    ctx.ui.setEditorText(choice.text);
    return true;
  } catch (error) {
    say(ctx, `${told(error)}. ${also}.`, "error");
    return false;
  } finally {
    session.navigating = false;
  }
}

/** Replaces what stands before a prompt by a summary; the prompt and all after it stay. */
async function summarizeUpTo(session: Session, ctx: ExtensionCommandContext, choice: Choice): Promise<void> {
  session.boundary = choice.entry;
  try {
    const kept = await new Promise<string>((resolve, reject) => {
      ctx.compact({ onComplete: (result) => resolve(result.firstKeptEntryId), onError: reject });
    });
    if (kept !== choice.entry) say(ctx, "pi chose another boundary for the summary than this prompt.", "warning");
    else say(ctx, "what came before that prompt is now a summary.");
  } catch (error) {
    say(ctx, told(error), "error");
  } finally {
    session.boundary = undefined;
  }
}

async function carryOut(session: Session, ctx: ExtensionCommandContext, choice: Choice, action: ActionId, request: Request | undefined, plan: Plan | undefined): Promise<void> {
  const leaf = ctx.sessionManager.getLeafId();
  let outcome: Plan | undefined;
  if ((action === "both" || action === "code") && request) {
    // Nothing to agree to where nothing would change: the conversation moves all the same.
    const asks = plan !== undefined && (changes(plan).length > 0 || withheld(plan).length > 0);
    outcome = asks ? await agree(session, ctx, request, plan) : await straight(session, ctx, request);
    if (!outcome) return;
    const failed = outcome.items.some((item) => item.result === "failed");
    if (action === "both" && failed) {
      const go = ctx.hasUI && (await ctx.ui.confirm("Not all files could be put back", "Move the conversation all the same?"));
      if (!go) action = "code";
    }
  }
  let moved = false;
  if (action === "both" || action === "conversation" || action === "from") {
    moved = await navigate(session, ctx, choice, action === "from", outcome !== undefined && done(outcome).length > 0);
  } else if (action === "upto") await summarizeUpTo(session, ctx, choice);
  const noted = outcome !== undefined && session.note(outcome, done(outcome).map((item) => item.path), leaf);
  // A summary is an entry of its own, behind the place that was moved to.
  if (moved && !noted && action !== "from") session.hold();
  if (outcome) report(ctx, outcome);
}

/** Undo and redo of operations on files; undo offers the conversation as it was, too. */
async function walk(session: Session, ctx: ExtensionCommandContext, method: "undo" | "redo"): Promise<void> {
  const id = session.recorder.session;
  const request: Request = {
    title: method === "undo" ? "Undo the last restore of files" : "Redo it",
    plan: method,
    apply: method,
    params: { session: id },
  };
  let plan: Plan;
  try {
    plan = await session.engine.call<Plan>(method, { session: id, dry_run: true }, LIMITS.work);
  } catch (error) {
    return say(ctx, told(error), "warning");
  }
  request.params = { session: id, ...(plan.target ? { operation: plan.target } : {}) };
  const asked: Request = { ...request, params: request.params };
  const outcome = ctx.hasUI ? await agree(session, ctx, asked, plan) : await straight(session, ctx, asked);
  if (!outcome) return;
  const paths = done(outcome).map((item) => item.path);
  const leaf = ctx.sessionManager.getLeafId();
  const before = operations(ctx.sessionManager.getBranch()).find(({ data }) => data.operation === plan.target)?.data.leaf;
  if (method === "undo" && ctx.hasUI && before != null && !ctx.sessionManager.getBranch().some((entry) => entry.id === before)) {
    const back = "Conversation as it was, too";
    if ((await ctx.ui.select("Files are as they were.", [back, "Leave the conversation here"])) === back) {
      session.navigating = true;
      try {
        await ctx.navigateTree(before, { summarize: false });
        ctx.ui.setEditorText("");
      } catch (error) {
        say(ctx, `${told(error)}. Files were changed, the conversation was not.`, "error");
      } finally {
        session.navigating = false;
      }
    }
  }
  session.note(outcome, paths, leaf);
  report(ctx, outcome);
}

const UNDO = "Undo the last restore of files";

export async function rewind(session: Session, argument: string, ctx: ExtensionCommandContext): Promise<void> {
  await ctx.waitForIdle();
  const asked = parse(argument);
  if (asked.kind === "wrong") return say(ctx, asked.message, "warning");
  if (session.engine.down) return say(ctx, `${session.engine.down.message}: there is nothing to rewind to.`, "warning");
  if (asked.kind === "undo" || asked.kind === "redo") return walk(session, ctx, asked.kind);
  let list: Choice[];
  try {
    list = await session.choices(ctx);
  } catch (error) {
    return say(ctx, told(error), "warning");
  }
  if (asked.kind === "rewind") {
    const choice = list[list.length - asked.number];
    if (!choice) return say(ctx, `there is no prompt ${asked.number}; this conversation has ${list.length}.`, "warning");
    return act(session, ctx, choice, asked.action, asked.paths, asked.onlyTurn);
  }
  if (!ctx.hasUI) return;
  const undoable = await session.engine
    .call<Plan>("undo", { session: session.recorder.session, dry_run: true }, LIMITS.work)
    .then((plan) => changes(plan).length > 0)
    .catch(() => false);
  if (list.length === 0 && !undoable) return say(ctx, "nothing was recorded in this conversation yet.");
  const labels = list.map((choice) => choice.label);
  const answer = await ctx.ui.select("Rewind to before which prompt?", undoable ? [...labels, UNDO] : labels);
  if (answer === UNDO) return walk(session, ctx, "undo");
  const choice = answer === undefined ? undefined : list[labels.indexOf(answer)];
  if (choice) await act(session, ctx, choice, undefined, [], false);
}

async function act(session: Session, ctx: ExtensionCommandContext, choice: Choice, action: ActionId | undefined, paths: string[], onlyTurn: boolean): Promise<void> {
  let request: Request | undefined;
  let plan: Plan | undefined;
  if (choice.turn !== undefined) {
    const whole = rewindTo(session, choice.turn, `Files: take back what was done since “${choice.label}”`, paths);
    request = onlyTurn && whole.only ? whole.only : whole;
    if (action === undefined || ctx.hasUI) {
      try {
        plan = await planned(session, request);
      } catch (error) {
        say(ctx, told(error), "warning");
      }
    }
  }
  if (action === undefined) {
    if (!ctx.hasUI) return;
    const offered = actions(plan);
    const title = choice.why ? `${choice.label}\nFiles cannot be restored to here: ${choice.why}.` : choice.label;
    const answer = await ctx.ui.select(title, offered.map(({ label }) => label));
    action = offered.find(({ label }) => label === answer)?.id;
  } else if ((action === "both" || action === "code") && !request) {
    return say(ctx, `files cannot be restored to that prompt: ${choice.why}.`, "warning");
  }
  if (action === undefined || action === "never") return;
  await carryOut(session, ctx, choice, action, request, ctx.hasUI ? plan : undefined);
}
