// A pi in a real terminal, by tmux. Whatever the terminal shows is looked at when it changes.
import { spawn, spawnSync } from "node:child_process";
import { createReadStream, type ReadStream, writeFileSync } from "node:fs";
import { join } from "node:path";
import { EXTENSION, type Place, type PiVersion } from "./place.ts";
import { Signal } from "./wait.ts";

export const HAS_TMUX = spawnSync("tmux", ["-V"]).status === 0;

const quoted = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`;

export class Terminal extends Signal {
  #socket: string;
  #output: ReadStream;
  #screen = "";
  #looking = false;
  #again = false;

  constructor(version: PiVersion, place: Place, size: [number, number] = [100, 34]) {
    super();
    this.#socket = join(place.root, "tmux");
    const [output, go] = [join(place.root, "output"), join(place.root, "go")];
    spawnSync("mkfifo", [output, go]);
    // Shows how many keys arrived: Escape has no other effect to wait for.
    const counter = place.beside(
      "counter.ts",
      'export default (pi: any) => pi.on("session_start", (_: any, ctx: any) => { let n = 0; ctx.ui.setStatus("keys", "keys: 0."); ctx.ui.onTerminalInput(() => void ctx.ui.setStatus("keys", `keys: ${++n}.`)); });\n',
    );
    const env = Object.entries(place.env).map(([key, value]) => `${key}=${quoted(value ?? "")}`);
    const words = [process.execPath, version.cli, "--model", "fake/fake", "-e", counter, "-e", EXTENSION].map(quoted);
    const command = `cat ${quoted(go)}; cd ${quoted(place.folder)} && exec env -i ${env.join(" ")} ${words.join(" ")}`;
    this.#output = createReadStream(output);
    this.#output.on("data", () => this.#look());
    this.#output.on("error", () => {});
    this.#tmux("-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", String(size[0]), "-y", String(size[1]), command);
    this.#tmux("set-option", "-g", "escape-time", "0");
    this.#tmux("pipe-pane", "-O", "-t", "t", `cat > ${quoted(output)}`);
    writeFileSync(go, "");
  }

  get screen(): string {
    return this.#screen;
  }

  /** The screen as soon as it shows all of these words. */
  shows(...words: string[]): Promise<string> {
    return this.until(`screen with ${words.join(", ")}`, () => words.every((w) => this.#screen.includes(w)) && this.#screen, () => this.#screen);
  }

  /** The screen as soon as it no longer shows these words. */
  hides(words: string): Promise<string> {
    return this.until(`screen without ${words}`, () => !this.#screen.includes(words) && this.#screen, () => this.#screen);
  }

  /** A key by tmux's name, until pi has it. */
  async press(key: string): Promise<void> {
    const before = this.#keys();
    this.#tmux("send-keys", "-t", "t", key);
    await this.until(`key ${key} arrived`, () => this.#keys() > before, () => this.#screen);
  }

  /** Text, until pi has all of it. */
  async type(text: string): Promise<void> {
    const before = this.#keys();
    this.#tmux("send-keys", "-t", "t", "-l", text);
    await this.until(`${text} arrived`, () => this.#keys() >= before + text.length, () => this.#screen);
  }

  close(): void {
    this.#tmux("kill-server");
    this.#output.destroy();
  }

  #keys(): number {
    return Number(/keys: (\d+)\./.exec(this.#screen)?.[1] ?? 0);
  }

  #tmux(...args: string[]): void {
    const done = spawnSync("tmux", ["-S", this.#socket, ...args], { encoding: "utf8" });
    if (done.status !== 0 && args[0] !== "kill-server") throw new Error(`tmux ${args.join(" ")}: ${done.stderr}`);
  }

  /** Captures the screen; what came while it did so is captured once more. */
  #look(): void {
    this.#again = true;
    if (this.#looking) return;
    this.#looking = true;
    this.#again = false;
    const child = spawn("tmux", ["-S", this.#socket, "capture-pane", "-p", "-t", "t"], { stdio: ["ignore", "pipe", "ignore"] });
    let text = "";
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
    });
    child.once("close", () => {
      this.#looking = false;
      if (text !== "") this.#screen = text;
      this.changed();
      if (this.#again) this.#look();
    });
  }
}
