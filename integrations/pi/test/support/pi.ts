// A pi in RPC mode, driven as a host drives it.
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import type { Place, PiVersion } from "./place.ts";
import { EXTENSION } from "./place.ts";
import { Signal } from "./wait.ts";

export type Event = Record<string, unknown> & { type: string };
export type Dialog = { id: string; method: string; title: string; options?: string[]; message?: string };
/** The option that is these words before its numbers, else the first one that contains them; `null` cancels. A function runs first, when the dialog is there. */
export type Answer = string | null | (() => string | null);
export type Entry = { id: string; type: string; parentId: string | null; customType?: string; data?: Record<string, unknown>; message?: { role: string; content: unknown } };

export class Pi extends Signal {
  readonly events: Event[] = [];
  readonly dialogs: Dialog[] = [];
  readonly process: ChildProcessWithoutNullStreams;
  /** Answers to the next dialogs, in order; whatever comes beyond them is cancelled and fails the test that looks. */
  answers: Answer[] = [];
  /** Dialogs that nobody had an answer to. */
  readonly unexpected: Dialog[] = [];
  #version: PiVersion;
  #next = 0;
  #rest = "";
  #errors = "";

  constructor(version: PiVersion, place: Place, args: string[] = [], extension: string[] = ["-e", EXTENSION]) {
    super();
    this.#version = version;
    const all = [version.cli, "--mode", "rpc", "--model", "fake/fake", ...extension, ...args];
    this.process = spawn(process.execPath, all, { cwd: place.folder, env: place.env });
    this.process.stdout.setEncoding("utf8").on("data", (chunk: string) => {
      const lines = (this.#rest + chunk).split("\n");
      this.#rest = lines.pop() ?? "";
      for (const line of lines) if (line !== "") this.#event(JSON.parse(line) as Event);
    });
    this.process.stderr.setEncoding("utf8").on("data", (chunk: string) => {
      this.#errors += chunk;
      this.changed();
    });
    this.process.once("exit", () => this.#event({ type: "exit" }));
    this.process.stdin.on("error", () => {});
  }

  get errors(): string {
    return this.#errors;
  }

  /** What the person was told, by Backstitch and by pi. */
  get told(): string[] {
    return this.events.filter((e) => e.type === "extension_ui_request" && e["method"] === "notify").map((e) => String(e["message"]));
  }

  /** What stands in the editor, as far as an RPC host is told. */
  get editor(): unknown {
    return this.events.findLast((e) => e.type === "extension_ui_request" && e["method"] === "set_editor_text")?.["text"];
  }

  waitFor(what: string, match: (event: Event) => boolean, from = 0): Promise<Event> {
    return this.until(what, () => this.events.slice(from).find(match) ?? (this.#gone() && undefined), () => this.#context());
  }

  toldOf(words: string): Promise<string> {
    return this.until(`told of ${words}`, () => this.told.find((line) => line.includes(words)), () => this.#context());
  }

  async command(type: string, params: object = {}): Promise<Record<string, unknown>> {
    const id = `c${++this.#next}`;
    const from = this.events.length;
    this.#send({ id, type, ...params });
    const response = await this.waitFor(`answer to ${type}`, (e) => e.type === "response" && (e["id"] === id || e["id"] === undefined), from);
    if (response["success"] === false) throw new Error(`${type}: ${String(response["error"])}`);
    return (response["data"] ?? {}) as Record<string, unknown>;
  }

  /** A prompt, until the run that it starts is over. */
  async prompt(message: string): Promise<void> {
    const from = this.events.length;
    const data = await this.command("prompt", { message });
    if (data["disposition"] === "handled" || (data["disposition"] === undefined && message.startsWith("/"))) return;
    await this.settled(from);
  }

  settled(from = 0): Promise<Event> {
    const end = this.#version.settles ? "agent_settled" : "agent_end";
    return this.waitFor(end, (e) => e.type === end, from);
  }

  /** A command with the answers to its dialogs; all of them have to be asked for. */
  async ask(message: string, ...answers: Answer[]): Promise<Dialog[]> {
    const from = this.dialogs.length;
    this.answers = answers;
    await this.prompt(message);
    await this.until("all answers used", () => this.answers.length === 0, () => this.#context());
    if (this.unexpected.length > 0) throw new Error(`nobody expected ${JSON.stringify(this.unexpected)}`);
    return this.dialogs.slice(from);
  }

  /** Entries of the present branch, root first. 0.73 cannot tell them. */
  async branch(): Promise<Entry[]> {
    const { entries, leafId } = (await this.command("get_entries")) as { entries: Entry[]; leafId: string | null };
    const byId = new Map(entries.map((e) => [e.id, e]));
    const path: Entry[] = [];
    for (let at = leafId; at !== null; at = byId.get(at)?.parentId ?? null) path.unshift(byId.get(at) as Entry);
    return path;
  }

  /** What the conversation holds now: prompts by their text. */
  async prompts(): Promise<string[]> {
    const { messages } = (await this.command("get_messages")) as { messages: { role: string; content: string | { text?: string }[] }[] };
    return messages
      .filter((m) => m.role === "user")
      .map((m) => (typeof m.content === "string" ? m.content : m.content.map((c) => c.text ?? "").join("")));
  }

  /** Ends as a host ends it. */
  async close(): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    this.process.stdin.end();
    await this.waitFor("exit", (e) => e.type === "exit");
  }

  /** Ends it as a power cut would. */
  async kill(): Promise<void> {
    this.process.kill("SIGKILL");
    await this.waitFor("exit", (e) => e.type === "exit");
  }

  #gone(): boolean {
    return this.process.exitCode !== null || this.process.signalCode !== null;
  }

  #send(message: object): void {
    this.process.stdin.write(`${JSON.stringify(message)}\n`);
  }

  #context(): string {
    return [...this.events.slice(-12).map((e) => JSON.stringify(e).slice(0, 400)), this.#errors.slice(-2000)].join("\n");
  }

  #event(event: Event): void {
    this.events.push(event);
    if (event.type === "extension_ui_request" && (event["method"] === "select" || event["method"] === "confirm")) this.#dialog(event as unknown as Dialog);
    this.changed();
  }

  #dialog(dialog: Dialog): void {
    this.dialogs.push(dialog);
    const next = this.answers.shift();
    const answer = typeof next === "function" ? next() : next;
    const words = typeof answer === "string" ? answer : "\u0000";
    const option = dialog.options?.find((o) => o.split("  (")[0] === words) ?? dialog.options?.find((o) => o.includes(words));
    if (answer === undefined || (answer !== null && dialog.method === "select" && option === undefined)) this.unexpected.push(dialog);
    const reply = option !== undefined ? { value: option } : dialog.method === "confirm" && answer === "yes" ? { confirmed: true } : { cancelled: true };
    this.#send({ type: "extension_ui_response", id: dialog.id, ...reply });
  }
}
