// JSON-RPC 2.0 over a child's standard input and output, one message a line.
import type { Readable, Writable } from "node:stream";

/** What the engine answered instead of a result. `code` is one of the stable codes of the reference page. */
export class EngineError extends Error {
  readonly code: string;
  readonly hint: string | undefined;
  readonly path: string | undefined;

  constructor(message: string, code: string, hint?: string, path?: string) {
    super(message);
    this.name = "EngineError";
    this.code = code;
    this.hint = hint;
    this.path = path;
  }
}

type Waiting = { resolve: (value: unknown) => void; reject: (error: Error) => void; timer: NodeJS.Timeout };

const text = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);

function failure(error: unknown): EngineError {
  const e = (error ?? {}) as { message?: unknown; data?: { code?: unknown; hint?: unknown; path?: unknown } };
  return new EngineError(
    text(e.message) ?? "the engine failed without a word",
    text(e.data?.code) ?? "failed",
    text(e.data?.hint),
    text(e.data?.path),
  );
}

/** One connection. Every request ends: by its answer, its time limit, or `close`. */
export class Connection {
  #input: Writable;
  #waiting = new Map<number, Waiting>();
  #next = 1;
  #rest = "";
  #closed: Error | undefined;
  #notify: (method: string, params: unknown) => void;

  constructor(output: Readable, input: Writable, notify: (method: string, params: unknown) => void) {
    this.#input = input;
    this.#notify = notify;
    output.setEncoding("utf8");
    output.on("data", (chunk: string) => this.#read(chunk));
    // Whoever owns the process knows when it is over, and closes.
    output.on("error", () => {});
    input.on("error", () => {});
  }

  get closed(): boolean {
    return this.#closed !== undefined;
  }

  request(method: string, params: object, limit: number): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(this.#closed);
      const id = this.#next++;
      const timer = setTimeout(() => {
        this.#waiting.delete(id);
        this.#send({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id } });
        reject(new EngineError(`no answer to ${method} within ${limit} ms`, "timed-out"));
      }, limit);
      timer.unref();
      this.#waiting.set(id, { resolve, reject, timer });
      this.#send({ jsonrpc: "2.0", id, method, params });
    });
  }

  close(reason: Error): void {
    if (this.#closed) return;
    this.#closed = reason instanceof EngineError ? reason : new EngineError(reason.message, "engine-gone");
    for (const { reject, timer } of this.#waiting.values()) {
      clearTimeout(timer);
      reject(this.#closed);
    }
    this.#waiting.clear();
  }

  #send(message: object): void {
    if (!this.#closed) this.#input.write(`${JSON.stringify(message)}\n`);
  }

  #read(chunk: string): void {
    const lines = (this.#rest + chunk).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim() !== "") this.#message(line);
  }

  #message(line: string): void {
    let message: { id?: unknown; method?: unknown; params?: unknown; result?: unknown; error?: unknown };
    try {
      message = JSON.parse(line);
    } catch {
      return; // Not ours; an answer that never comes ends by its time limit.
    }
    if (typeof message.method === "string") return this.#notify(message.method, message.params);
    const waiting = typeof message.id === "number" ? this.#waiting.get(message.id) : undefined;
    if (!waiting) return;
    this.#waiting.delete(message.id as number);
    clearTimeout(waiting.timer);
    if (message.error) waiting.reject(failure(message.error));
    else waiting.resolve(message.result);
  }
}
