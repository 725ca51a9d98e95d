// The one `backstitch serve` child of this pi process: started when first needed, started again when it died.
import { type ChildProcess, spawn } from "node:child_process";
import { program } from "./binary.ts";
import { Connection, EngineError } from "./rpc.ts";

/** Time limits in milliseconds. The engine has its own, shorter ones; these end waiting for an engine that hangs. */
export const LIMITS = { call: 20_000, gate: 45_000, work: 600_000, close: 5_000 } as const;
/** More deaths than this within a minute, and it stays down until the next session. */
const DEATHS = 3;

export type EngineOptions = {
  binary: string;
  cwd: string;
  version: string;
  /** Runs first on each new child, before any other call; its calls go to that child. */
  opened: (call: (method: string, params: object) => Promise<unknown>) => Promise<void>;
  /** Something a person should know; said once for each kind. */
  say: (kind: "missing" | "died" | "down", message: string) => void;
};

export class Engine {
  #options: EngineOptions;
  #child: ChildProcess | undefined;
  #connection: Promise<Connection> | undefined;
  #deaths: number[] = [];
  #down: EngineError | undefined;
  #closing = false;

  constructor(options: EngineOptions) {
    this.#options = options;
  }

  /** Why it cannot be used, where that is known. */
  get down(): EngineError | undefined {
    return this.#down;
  }

  get started(): boolean {
    return this.#connection !== undefined;
  }

  async call<T>(method: string, params: object, limit: number = LIMITS.call): Promise<T> {
    if (this.#down) throw this.#down;
    if (this.#closing) throw new EngineError("the session has ended", "engine-gone");
    this.#connection ??= this.#start();
    const connection = await this.#connection;
    return (await connection.request(method, params, limit)) as T;
  }

  /** Lets the child end. One that still works on what was begun ends by itself afterwards. Never rejects. */
  async close(): Promise<void> {
    const started = this.#connection;
    this.#closing = true;
    const connection = await started?.catch(() => undefined);
    await connection?.request("shutdown", {}, LIMITS.close).catch(() => undefined);
    this.#child?.stdin?.end();
    this.#child?.unref();
  }

  async #start(): Promise<Connection> {
    const { binary, cwd, version, opened } = this.#options;
    // The child acts for the person at this terminal; what the agent's shell may do is told by the shell's own environment.
    const { PI_CODING_AGENT: _, AI_AGENT: __, ...env } = process.env;
    const child = spawn(program(binary), ["serve"], { cwd, env, stdio: ["pipe", "pipe", "ignore"] });
    this.#child = child;
    const connection = new Connection(child.stdout, child.stdin, () => {});
    // Who says no more is of no more use.
    child.stdout.once("end", () => child.kill("SIGKILL"));
    child.once("error", (error: NodeJS.ErrnoException) => this.#ended(connection, error.code === "ENOENT" ? "missing" : "died", error.message));
    child.once("close", (code, signal) => this.#ended(connection, "died", signal ?? `exit code ${code}`));
    const first = (method: string, params: object) => connection.request(method, params, LIMITS.call);
    try {
      await first("initialize", { client: "pi", version });
      await opened(first);
    } catch (error) {
      child.kill("SIGKILL");
      throw error;
    }
    return connection;
  }

  /** The next call starts a new child, unless that helps nobody. */
  #ended(connection: Connection, how: "missing" | "died", why: string): void {
    if (connection.closed) return;
    connection.close(new EngineError(`the engine ended (${why})`, "engine-gone"));
    if (this.#closing) return;
    this.#connection = undefined;
    const { binary, say } = this.#options;
    if (how === "missing") {
      this.#down = new EngineError(`the program ${JSON.stringify(binary)} was not found`, "missing");
      say("missing", `${this.#down.message}: nothing is recorded. Install backstitch, or name it in the setting backstitch.binary.`);
      return;
    }
    const now = Date.now();
    this.#deaths = [...this.#deaths.filter((at) => at > now - 60_000), now];
    if (this.#deaths.length > DEATHS) {
      this.#down = new EngineError(`the engine ended ${this.#deaths.length} times within a minute (${why})`, "engine-gone");
      say("down", `${this.#down.message}: nothing more is recorded in this session. \`backstitch doctor\` may tell why.`);
    } else {
      say("died", `the engine ended (${why}); it is started again when next needed.`);
    }
  }
}
