// A home, an agent folder, a store and a project of a test's own, and the programs that are tried.
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import type { Model } from "./model.ts";

export const EXTENSION = join(import.meta.dirname, "../../src/extension.ts");
export const PACKAGE = join(import.meta.dirname, "../..");

export type PiVersion = { name: string; cli: string; settles: boolean };

function installed(name: string, from: string, settles: boolean): PiVersion | undefined {
  try {
    const manifest = join(from, "node_modules", name, "package.json");
    const { version, bin } = JSON.parse(readFileSync(manifest, "utf8")) as { version: string; bin: { pi: string } };
    return { name: `pi ${version}`, cli: join(dirname(manifest), bin.pi), settles };
  } catch {
    return undefined;
  }
}

/** The present pi, from this package's own development dependencies. */
export const PI = installed("@earendil-works/pi-coding-agent", PACKAGE, true);
/** The last one under its old name: where `BACKSTITCH_OLD_PI` names the folder that it is installed in. */
export const OLD_PI = installed("@mariozechner/pi-coding-agent", process.env["BACKSTITCH_OLD_PI"] ?? "/nonexistent", false);
/** The engine that is tried. */
export const ENGINE = process.env["BACKSTITCH_ENGINE"] ?? join(PACKAGE, "../../target/debug/backstitch");

/** Why tests with a real pi cannot run here. */
export function missing(pi: PiVersion | undefined): string | false {
  if (!pi) return "pi is not installed (npm ci --ignore-scripts; BACKSTITCH_OLD_PI for the old one)";
  if (!existsSync(ENGINE)) return `the engine is not built (${ENGINE}; BACKSTITCH_ENGINE names another)`;
  return false;
}

export class Place {
  readonly root = realpathSync(mkdtempSync(join(tmpdir(), "backstitch-pi-")));
  readonly folder = join(this.root, "project");
  readonly agent = join(this.root, "agent");
  readonly store = join(this.root, "store");
  readonly env: NodeJS.ProcessEnv;

  constructor(model: Model, settings: object = {}) {
    for (const dir of [this.folder, this.agent, join(this.root, "home")]) mkdirSync(dir);
    const models = [{ id: "fake", contextWindow: 200_000, maxTokens: 8192 }];
    const provider = { baseUrl: model.url, api: "anthropic-messages", apiKey: "none", models };
    writeFileSync(join(this.agent, "models.json"), JSON.stringify({ providers: { fake: provider } }));
    // Two tokens are kept by a compaction, and a failed request is tried again at once.
    const own = { compaction: { keepRecentTokens: 1 }, retry: { baseDelayMs: 1 }, quietStartup: true };
    writeFileSync(join(this.agent, "settings.json"), JSON.stringify({ ...own, backstitch: { restoreOnResume: "never", ...settings } }));
    this.env = {
      PATH: [dirname(process.execPath), process.env["PATH"]].join(delimiter),
      HOME: join(this.root, "home"),
      LANG: "C.UTF-8",
      TERM: "xterm-256color",
      PI_CODING_AGENT_DIR: this.agent,
      PI_OFFLINE: "1",
      PI_TELEMETRY: "0",
      PI_SKIP_VERSION_CHECK: "1",
      BACKSTITCH_STORE_DIR: this.store,
      BACKSTITCH_BINARY: ENGINE,
      BACKSTITCH_CONFIG: join(this.root, "none.toml"),
    };
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  write(name: string, content: string): void {
    mkdirSync(dirname(this.path(name)), { recursive: true });
    writeFileSync(this.path(name), content);
  }

  /** What a file of the project holds; `undefined` where there is none. */
  read(name: string): string | undefined {
    return existsSync(this.path(name)) ? readFileSync(this.path(name), "utf8") : undefined;
  }

  /** The engine behind a script that notes each process of it; the last line is the newest. */
  noted(): () => number[] {
    const notes = join(this.root, "engines");
    const script = join(this.root, "engine");
    writeFileSync(script, `#!/bin/sh\necho $$ >> '${notes}'\nexec '${ENGINE}' "$@"\n`);
    chmodSync(script, 0o755);
    this.env["BACKSTITCH_BINARY"] = script;
    return () => (existsSync(notes) ? readFileSync(notes, "utf8").trim().split("\n").map(Number) : []);
  }

  /** The engine's own command line, in the project. */
  engine(...args: string[]): { status: number | null; json: Record<string, unknown> } {
    const done = spawnSync(ENGINE, ["-C", this.folder, "--json", ...args], { env: this.env, encoding: "utf8" });
    return { status: done.status, json: JSON.parse(done.stdout || done.stderr || "{}") as Record<string, unknown> };
  }

  /** A file beside the project, such as another extension. */
  beside(name: string, content: string): string {
    const file = join(this.root, name);
    writeFileSync(file, content);
    return file;
  }

  remove(): void {
    rmSync(this.root, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}
