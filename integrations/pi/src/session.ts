// One session of pi: its engine, its recorder, and what both need to know.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { type OperationData, OPERATION, POSITION, prompts, RECORD, type RecordData, records, sessionIdOf } from "./conversation.ts";
import { Engine, LIMITS } from "./engine.ts";
import { type Choice, choices } from "./menu.ts";
import { Recorder } from "./recorder.ts";
import { read, type Settings, type Source } from "./settings.ts";
import type { Plan, Row } from "./types.ts";

export const VERSION = "0.1.0";

/** Says something to the person: in the terminal, to an RPC host, or on standard error where there is nobody else. */
export function say(ctx: ExtensionContext, message: string, level: "info" | "warning" | "error" = "info"): void {
  const text = `Backstitch: ${message}`;
  try {
    if (ctx.hasUI) ctx.ui.notify(text, level);
    else process.stderr.write(`${text}\n`);
  } catch {
    // The session was replaced, and with it whoever could be told.
  }
}

const PARENT = "BACKSTITCH_PI";

/**
 * Whether this pi runs inside a tool of another one. Its work is that tool's: the other session records it, and two claims
 * on one file would be a conflict. Marks this process for the ones that it will start.
 */
export function nested(env: NodeJS.ProcessEnv = process.env, own = process.pid): boolean {
  const outer = Number(env[PARENT]);
  env[PARENT] = String(own);
  if (!Number.isInteger(outer) || outer <= 1 || outer === own) return false;
  try {
    process.kill(outer, 0);
  } catch {
    return false;
  }
  env[PARENT] = String(outer);
  return true;
}

function source(name: string, ofProject: boolean): Source {
  try {
    return { name, text: readFileSync(name, "utf8"), ofProject };
  } catch {
    return { name, text: undefined, ofProject };
  }
}

/** The settings in force, and whatever is wrong with them. */
export function settings(ctx: ExtensionContext, agentDir: string): { settings: Settings; warnings: string[] } {
  const sources = [source(join(agentDir, "settings.json"), false)];
  // Versions without project trust read the project's settings always.
  if (ctx.isProjectTrusted?.() ?? true) sources.push(source(join(ctx.cwd, ".pi", "settings.json"), true));
  return read(sources, process.env);
}

export class Session {
  readonly pi: ExtensionAPI;
  readonly settings: Settings;
  readonly engine: Engine;
  readonly recorder: Recorder;
  /** The folder that the engine works for, once it said so. */
  workspace: string;
  /** We move the conversation ourselves: no policy asks about it. */
  navigating = false;
  /** The first entry that the compaction under way is to keep. */
  boundary: string | undefined;

  constructor(pi: ExtensionAPI, ctx: ExtensionContext, settings: Settings) {
    this.pi = pi;
    this.settings = settings;
    this.workspace = ctx.cwd;
    const id = ctx.sessionManager.getSessionId();
    this.engine = new Engine({
      binary: settings.binary,
      cwd: ctx.cwd,
      version: VERSION,
      opened: async (call) => {
        // Where that fails, the calls that follow say why.
        const opened = (await call("workspace/open", { workspace: ctx.cwd }).catch(() => null)) as { workspace?: string } | null;
        if (typeof opened?.workspace === "string") this.workspace = opened.workspace;
      },
      say: (_, message) => say(ctx, message, "warning"),
    });
    this.recorder = new Recorder(this.engine, id, (message) => say(ctx, message, "warning"));
  }

  /** Opens the session in the engine, as a fork where it is one. Nobody waits for it; later calls come after it. */
  open(ctx: ExtensionContext, parentFile: string | undefined): void {
    const branch = ctx.sessionManager.getBranch();
    const parent = parentFile === undefined ? undefined : sessionIdOf(parentFile);
    const forked = parent === undefined || parent === this.recorder.session ? undefined : parent;
    this.recorder.open(async () => (forked === undefined ? {} : await this.#origin(forked, prompts(branch).map((entry) => entry.id))));
    const last = prompts(branch).at(-1);
    if (last) this.recorder.rebind(last.message, last.id);
  }

  /** Where a fork leaves its parent: after the last turn that both have. */
  async #origin(parent: string, entries: readonly string[]): Promise<object> {
    const rows = await this.rows(parent).catch(() => []);
    const at = lastOf(rows, entries) ?? rows[0];
    return at ? { parent, from: at.id } : {};
  }

  /** Rows of a session's line, oldest first. */
  async rows(session: string = this.recorder.session): Promise<Row[]> {
    const shown = await this.engine.call<{ checkpoints?: Row[] }>("session/show", { session }, LIMITS.gate);
    return shown.checkpoints ?? [];
  }

  /** What the menu lists. */
  async choices(ctx: ExtensionContext): Promise<Choice[]> {
    await this.recorder.flush();
    const rows = await this.rows().catch((error: unknown) => {
      // Nothing was recorded here yet.
      if (["no-such-session", "no-such-store"].includes((error as { code?: string }).code ?? "")) return [];
      throw error;
    });
    const branch = ctx.sessionManager.getBranch();
    return choices(prompts(branch), rows, records(branch), this.workspace);
  }

  /** A prompt's entry is known: the engine is told, and the conversation keeps where the checkpoint is. */
  bind(entry: string): void {
    const turn = this.recorder.turn;
    if (!turn || !this.recorder.bind(entry)) return;
    void turn.checkpoint.then((checkpoint) => {
      if (checkpoint === undefined) return;
      const data: RecordData = { v: 1, entry, checkpoint, workspace: this.workspace };
      try {
        this.pi.appendEntry(RECORD, data);
      } catch {
        // The session was replaced meanwhile; the engine knows the entry all the same.
      }
    });
  }

  /** Notes an operation in the conversation, so that the next request tells the model, also after a restart. */
  note(outcome: Plan, paths: string[], leaf: string | null): boolean {
    if (outcome.operation === null || paths.length === 0) return false;
    const data: OperationData = { v: 1, operation: outcome.operation, paths, leaf };
    this.pi.appendEntry(OPERATION, data);
    return true;
  }

  /** pi comes back to the last entry of its file: without one behind it, the place that was moved to is lost with the process. */
  hold(): void {
    this.pi.appendEntry(POSITION, { v: 1 });
  }

  /** Flushes and ends the engine. `discard`: the session has no file and nobody can come back to it. */
  async close(discard: boolean): Promise<void> {
    this.recorder.settle("cancelled");
    if (this.engine.down === undefined && this.engine.started) {
      await within(LIMITS.close, this.recorder.flush());
      const session = this.recorder.session;
      await this.engine.call("session/end", { session }, LIMITS.close).catch(() => undefined);
      if (discard) await this.engine.call("session/delete", { id: session, force: true }, LIMITS.close).catch(() => undefined);
    }
    await this.engine.close();
  }
}

/** The newest row of the newest turn whose prompt is among these entries. */
export function lastOf(rows: readonly Row[], entries: readonly string[]): Row | undefined {
  const known = new Set(entries);
  const prompt = rows.findLast((row) => row.kind === "prompt" && row.entry !== null && known.has(row.entry));
  return prompt && rows.findLast((row) => row.turn === prompt.turn);
}

async function within(limit: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, limit);
  });
  await Promise.race([work, late]).catch(() => undefined);
  clearTimeout(timer);
}
