// Documents of the engine, as far as this extension reads them. docs/reference has them whole.

export type Row = {
  id: string;
  kind: string;
  session: string | null;
  turn: number | null;
  entry: string | null;
  prompt: string | null;
  created: string;
  state: "complete" | "partial" | "failed" | "gap";
  summary: { added: number; modified: number; deleted: number; renamed: number };
  restorable: boolean;
  abandoned?: boolean;
  workspace: string;
};

export type Action = "create" | "overwrite" | "delete" | "mode" | "mkdir" | "rmdir" | "keep" | "conflict" | "skip";

/** A path as the engine takes it: its text, or its bytes where that is not all of it. */
export type Name = string | { path_base64: string };

export type Item = { path: string; path_base64?: string; action: Action; reason: string | null; result: "done" | "failed" | "pending"; outside?: boolean };

/** A plan, or what became of it. */
export type Plan = {
  operation: string | null;
  plan: string;
  target: string | null;
  items: Item[];
  partial: boolean;
  takes_back?: number[];
  warnings?: string[];
};

export const exact = (item: Item): Name => (item.path_base64 === undefined ? item.path : { path_base64: item.path_base64 });

/** Actions that change the disk. */
const CHANGES: ReadonlySet<Action> = new Set<Action>(["create", "overwrite", "delete", "mode", "mkdir", "rmdir"]);
export const changes = (plan: Plan): Item[] => plan.items.filter((item) => CHANGES.has(item.action));
export const done = (plan: Plan): Item[] => changes(plan).filter((item) => item.result === "done");
export const withheld = (plan: Plan): Item[] =>
  plan.items.filter((item) => item.action === "conflict" || item.action === "skip" || (CHANGES.has(item.action) && item.result === "failed"));
