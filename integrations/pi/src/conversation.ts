// What the conversation says: prompts on the branch, their keys, and our own entries among them.
import { createHash } from "node:crypto";
import { closeSync, openSync, readSync } from "node:fs";
import type { SessionEntry, SessionMessageEntry } from "@earendil-works/pi-coding-agent";

type Content = string | readonly { type: string; text?: string }[];
type Message = { role: string; content?: Content; timestamp?: number };
/** An entry that holds a prompt. */
export type PromptEntry = SessionMessageEntry & { message: Message };

/** Custom entries of this extension; pi never sends them to the model. */
export const RECORD = "backstitch-checkpoint";
export const OPERATION = "backstitch-operation";
/** Where the conversation was moved to; says nothing more. */
export const POSITION = "backstitch-position";

/** Bound to a prompt: where its checkpoint is kept. Copied along by forks. */
export type RecordData = { v: 1; entry: string; checkpoint: string; workspace: string };
/** An operation on files: what it changed, and where the conversation stood before. */
export type OperationData = { v: 1; operation: string; paths: string[]; leaf: string | null };

export function textOf(message: { content?: unknown }): string {
  const content = message.content as Content | undefined;
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((part: { type?: string; text?: string }) => (part.type === "text" ? (part.text ?? "") : "")).join("");
}

/** The key of a prompt's turn: the same for the same message, in this process and in any later one. */
export function turnKey(message: { content?: unknown; timestamp?: unknown }): string {
  const digest = createHash("sha256").update(textOf(message)).digest("hex").slice(0, 12);
  return `${String(message.timestamp ?? 0)}-${digest}`;
}

export function isPrompt(entry: SessionEntry): entry is PromptEntry {
  return entry.type === "message" && entry.message.role === "user";
}

/** Prompts of a branch, oldest first. */
export const prompts = (branch: readonly SessionEntry[]): PromptEntry[] => branch.filter(isPrompt);

function custom<T>(entries: readonly SessionEntry[], type: string, valid: (data: Partial<T>) => boolean): { id: string; data: T }[] {
  const found: { id: string; data: T }[] = [];
  for (const entry of entries) {
    if (entry.type !== "custom" || entry.customType !== type) continue;
    const data = entry.data as Partial<T> | null | undefined;
    if (data !== null && typeof data === "object" && valid(data)) found.push({ id: entry.id, data: data as T });
  }
  return found;
}

const isText = (value: unknown): value is string => typeof value === "string" && value !== "";

/** Records by the entry that they belong to; the first one stays. Whatever has another shape is not one. */
export function records(entries: readonly SessionEntry[]): Map<string, RecordData> {
  const found = new Map<string, RecordData>();
  const valid = (d: Partial<RecordData>) => d.v === 1 && isText(d.entry) && isText(d.checkpoint) && isText(d.workspace);
  for (const { data } of custom<RecordData>(entries, RECORD, valid)) if (!found.has(data.entry)) found.set(data.entry, data);
  return found;
}

/** Operations, in the order of the entries. */
export function operations(entries: readonly SessionEntry[]): { id: string; data: OperationData }[] {
  const valid = (d: Partial<OperationData>) =>
    d.v === 1 && isText(d.operation) && Array.isArray(d.paths) && d.paths.every(isText) && (d.leaf === null || isText(d.leaf));
  return custom<OperationData>(entries, OPERATION, valid);
}

/** Paths that operations changed since the last prompt on this branch. */
export function changedSince(branch: readonly SessionEntry[]): string[] {
  const last = branch.findLastIndex(isPrompt);
  return [...new Set(operations(branch.slice(last + 1)).flatMap(({ data }) => data.paths))];
}

const NAMED = 20;

/** The one line that tells the model what changed under it. */
export function notice(paths: readonly string[]): string {
  const named = paths.slice(0, NAMED).map((path) => path.replace(/[\u0000-\u001f\u007f]/g, "?"));
  const more = paths.length > NAMED ? ` and ${paths.length - NAMED} more` : "";
  return `Backstitch put files back to an earlier state since your last reply; read them again before you rely on them: ${named.join(", ")}${more}.`;
}

/** The id in the header of a session file: its first line. */
export function sessionIdOf(file: string): string | undefined {
  try {
    const fd = openSync(file, "r");
    try {
      const buffer = Buffer.alloc(65_536);
      const line = buffer.subarray(0, readSync(fd, buffer)).toString("utf8").split("\n", 1)[0] ?? "";
      const id = (JSON.parse(line) as { id?: unknown }).id;
      return isText(id) ? id : undefined;
    } finally {
      closeSync(fd);
    }
  } catch {
    return undefined;
  }
}
