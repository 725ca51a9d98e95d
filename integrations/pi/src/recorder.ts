// Events of a session into calls of the engine. Nothing here throws, and nothing here decides what is kept.
import type { Engine } from "./engine.ts";
import { LIMITS } from "./engine.ts";
import { turnKey } from "./conversation.ts";
import { EngineError } from "./rpc.ts";

type Prompt = { content?: unknown; timestamp?: unknown };
type Turn = { key: string; timestamp: unknown; entry: string | undefined; checkpoint: Promise<string | undefined>; windows: number };
/** `cancelled` and `error` tell how a turn ended; nothing depends on it. */
export type Status = "completed" | "error" | "cancelled";

const isGone = (error: unknown): boolean => error instanceof EngineError && error.code === "engine-gone";

export class Recorder {
  #engine: Engine;
  #session: string;
  #say: (message: string) => void;
  #turn: Turn | undefined;
  /** Calls whose window is open, with the tool. */
  #open = new Map<string, string>();
  /** What was sent and is not answered yet. */
  #pending = new Set<Promise<unknown>>();
  #said = new Set<string>();
  #opened: Promise<unknown> = Promise.resolve();

  constructor(engine: Engine, session: string, say: (message: string) => void) {
    this.#engine = engine;
    this.#session = session;
    this.#say = say;
  }

  get session(): string {
    return this.#session;
  }

  get turn(): Turn | undefined {
    return this.#turn;
  }

  /** Opens the session, as a fork where `origin` says so; a turn that an earlier process left open ends there. All later calls wait for it. */
  open(origin: () => Promise<object>): void {
    const opening = async () => {
      const from = await origin();
      await this.#engine.call("session/open", { session: this.#session, ...from }, LIMITS.gate);
      // What changed while nobody looked; nothing waits for it but what comes after it.
      void this.#track(this.#try("checkpoint/create", { kind: "session-start", if_changed: true }, LIMITS.work));
    };
    const opened = opening().catch((error: unknown) => this.#failed("session/open", error));
    this.#opened = opened;
    void this.#track(opened);
  }

  /** A prompt came: the one before has ended, whatever came of it. Returns at once. */
  prompt(message: Prompt, text: string): void {
    const key = turnKey(message);
    if (this.#turn?.key === key) return;
    this.settle("completed");
    const begin = { key, prompt: text };
    const begun = this.#send("turn/begin", begin, LIMITS.gate) as Promise<{ id?: string } | undefined>;
    const turn: Turn = { key, timestamp: message.timestamp, entry: undefined, checkpoint: begun.then((b) => b?.id), windows: 0 };
    this.#turn = turn;
    void this.#track(begun.then((b) => (b ? this.#recorded(turn, begin) : undefined)));
  }

  /** The engine answered before the capture was done: a capture that failed is told, one that the engine did not survive is made again. */
  async #recorded(turn: Turn, begin: object): Promise<void> {
    const row = (await this.#try("turn/wait", { key: turn.key }, LIMITS.work)) as { checkpoint?: unknown } | undefined;
    if (row?.checkpoint === null && turn.windows === 0) await this.#try("turn/begin", begin, LIMITS.gate);
  }

  /** The prompt's entry is known. True the first time. */
  bind(entry: string): boolean {
    const turn = this.#turn;
    if (!turn || turn.entry !== undefined) return false;
    turn.entry = entry;
    void this.#send("turn/bind", { key: turn.key, entry }, LIMITS.gate);
    return true;
  }

  /** A prompt of an earlier process: bound now if that process died before it could. */
  rebind(message: Prompt, entry: string): void {
    const bind = () => this.#engine.call("turn/bind", { session: this.#session, key: turnKey(message), entry });
    void this.#opened.then(bind).catch(() => undefined);
  }

  /** Before a tool: returns when the engine holds what the tool may change. */
  async before(call: string, tool: string, paths: string[]): Promise<void> {
    const turn = this.#turn;
    this.#open.set(call, tool);
    await this.#send("tool/before", { call, tool, paths }, LIMITS.gate);
    if (turn) turn.windows += 1;
  }

  /** After a tool, or after a call that was blocked. Not waited for: the engine works in the order of calls. */
  after(call: string): void {
    const tool = this.#open.get(call);
    if (tool === undefined) return;
    this.#open.delete(call);
    void this.#send("tool/after", { call, tool }, LIMITS.gate);
  }

  /** Before a command that a person typed: a row where anything changed since the last one. */
  async beforeShell(command: string): Promise<void> {
    const row = { kind: "manual", prompt: `! ${command}`, retention: "standard", if_changed: true };
    await this.#send("checkpoint/create", row, LIMITS.call);
  }

  /** The run ended: windows that nobody closed end here. */
  settle(status: Status): void {
    for (const call of [...this.#open.keys()]) this.after(call);
    if (!this.#turn) return;
    void this.#send("turn/end", { key: this.#turn.key, status }, LIMITS.work);
    this.#turn = undefined;
  }

  /** Waits until all that was sent is answered. */
  async flush(): Promise<void> {
    while (this.#pending.size > 0) await Promise.all(this.#pending);
  }

  #send(method: string, params: object, limit: number): Promise<unknown> {
    return this.#track(this.#opened.then(() => this.#try(method, params, limit)));
  }

  /** Each call may be repeated, so one that its engine did not survive is made again at once, of the next one. */
  async #try(method: string, params: object, limit: number): Promise<unknown> {
    const call = () => this.#engine.call(method, { session: this.#session, ...params }, limit);
    try {
      return await call().catch((error: unknown) => (isGone(error) && !this.#engine.down ? call() : Promise.reject(error)));
    } catch (error) {
      return this.#failed(method, error);
    }
  }

  async #track(work: Promise<unknown>): Promise<unknown> {
    this.#pending.add(work);
    try {
      return await work;
    } finally {
      this.#pending.delete(work);
    }
  }

  /** Said once for each kind of failure; the engine itself speaks of its own end. */
  #failed(method: string, error: unknown): undefined {
    if (isGone(error) || (error instanceof EngineError && error.code === "missing")) return undefined;
    const message = error instanceof Error ? error.message : String(error);
    const code = error instanceof EngineError ? error.code : "failed";
    const kind = `${method} ${code}`;
    if (!this.#said.has(kind)) {
      this.#said.add(kind);
      const hint = error instanceof EngineError && error.hint ? ` (${error.hint})` : "";
      this.#say(`${method}: ${message}${hint}. The agent goes on; this step may be missing from /rewind.`);
    }
    return undefined;
  }
}
