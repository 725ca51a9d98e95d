// The parts that need neither pi nor an engine.
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import type { SessionEntry } from "@earendil-works/pi-coding-agent";
import { program } from "../src/binary.ts";
import { boundCompaction } from "../src/compaction.ts";
import { changedSince, notice, OPERATION, prompts, RECORD, records, sessionIdOf, textOf, turnKey } from "../src/conversation.ts";
import { DoublePress, isEscape } from "../src/gesture.ts";
import { actions, choices, parse, preview, summary } from "../src/menu.ts";
import type { Engine } from "../src/engine.ts";
import { scope, toolPath } from "../src/paths.ts";
import { Recorder } from "../src/recorder.ts";
import { Connection, EngineError } from "../src/rpc.ts";
import { lastOf, nested } from "../src/session.ts";
import { DEFAULTS, read } from "../src/settings.ts";
import type { Item, Plan, Row } from "../src/types.ts";

const at = "2026-01-31T14:05:00.000Z";
let entries = 0;
const entry = (rest: object): SessionEntry => ({ id: `e${++entries}`, parentId: null, timestamp: at, ...rest }) as unknown as SessionEntry;
const prompt = (id: string, words: string): SessionEntry => entry({ id, type: "message", message: { role: "user", content: [{ type: "text", text: words }], timestamp: 7 } });
const custom = (customType: string, data: unknown): SessionEntry => entry({ type: "custom", customType, data });
const item = (action: string, path: string, reason: string | null = null): Item => ({ action, path, reason, result: "pending" }) as Item;
const plan = (...items: Item[]): Plan => ({ operation: null, plan: "d", target: null, items, partial: false });
const row = (rest: Partial<Row>): Row =>
  ({ id: "r", kind: "prompt", turn: 1, entry: null, restorable: true, state: "complete", ...rest }) as Row;

test("the program is the one that was named, else the one on the path, else that of the npm package", () => {
  const dir = mkdtempSync(join(tmpdir(), "backstitch-path-"));
  try {
    const packaged = () => "/packaged";
    assert.equal(program("backstitch", dir, packaged), "/packaged");
    assert.equal(program("backstitch", dir, () => undefined), "backstitch", "it is told as missing");
    assert.equal(program("/else/where", dir, packaged), "/else/where");
    assert.equal(program("another", dir, packaged), "another");
    writeFileSync(join(dir, "backstitch"), "");
    assert.equal(program("backstitch", dir, packaged), "/packaged", "not executable");
    chmodSync(join(dir, "backstitch"), 0o755);
    assert.equal(program("backstitch", `/nowhere:${dir}`, packaged), "backstitch");
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test("s2_14 tool paths are read as pi reads them", () => {
  const cases: [string, string][] = [
    ["a.txt", "/w/a.txt"],
    ["@a.txt", "/w/a.txt"],
    ["~/x", "/h/x"],
    ["~", "/h"],
    ["~x", "/w/~x"],
    ["/abs/../y", "/y"],
    ["file:///tmp/a%20b", "/tmp/a b"],
    ["a\u00a0b\u202fc", "/w/a b c"],
    ["../out", "/out"],
  ];
  for (const [given, want] of cases) assert.equal(toolPath(given, "/w", "/h"), want, given);
});

test("s2_12 s2_24 a file tool names its path, reading names none, and anything else may write anywhere", () => {
  assert.deepEqual(scope("write", { path: "a" }, "/w"), ["/w/a"]);
  assert.deepEqual(scope("edit", { path: "a" }, "/elsewhere"), ["/elsewhere/a"]);
  assert.deepEqual(scope("bash", { command: "x", path: "a" }, "/w"), []);
  assert.deepEqual(scope("mine", { path: "a" }, "/w"), []);
  assert.deepEqual(scope("write", {}, "/w"), []);
  for (const reader of ["read", "grep", "find", "ls"]) assert.equal(scope(reader, { path: "a" }, "/w"), undefined);
});

test("s2_69 s4_12 settings: environment over project over user over defaults, field by field", () => {
  const user = { name: "user", text: '{"backstitch":{"gesture":"none","restoreOnFork":"never","binary":"/b"},"enabled":false}', ofProject: false };
  const project = { name: "project", text: '{"backstitch":{"restoreOnFork":"always","binary":"/evil"}}', ofProject: true };
  const { settings, warnings } = read([user, project], {});
  assert.deepEqual(settings, { ...DEFAULTS, gesture: "none", restoreOnFork: "always", binary: "/b" });
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? "", /project: backstitch.binary/);
  const on = { name: "user", text: '{"backstitch":{"enabled":true}}', ofProject: false };
  assert.equal(read([on], { BACKSTITCH_DISABLE: "1" }).settings.enabled, false);
  assert.equal(read([on], { BACKSTITCH_DISABLE: "0" }).settings.enabled, true);
  assert.equal(read([user], { BACKSTITCH_BINARY: "/other" }).settings.binary, "/other");
});

test("s2_69 a broken file or value is a warning and the default", () => {
  for (const text of ["{", '{"backstitch":[]}', '{"backstitch":{"gestureWindow":1}}', '{"backstitch":{"nonsense":1}}', '{"backstitch":{"enabled":"no"}}', '{"backstitch":{"__proto__":1}}']) {
    const { settings, warnings } = read([{ name: "user", text, ofProject: false }], {});
    assert.deepEqual(settings, DEFAULTS, text);
    assert.equal(warnings.length, 1, text);
  }
  for (const text of [undefined, "null", "{}", "3"]) assert.deepEqual(read([{ name: "user", text, ofProject: false }], {}), { settings: DEFAULTS, warnings: [] });
});

test("s2_64 double Escape: two presses in time, nothing between them, each while eligible", () => {
  const feed = (...inputs: [string, boolean, number][]) => {
    const press = new DoublePress(500);
    return inputs.map(([data, eligible, now]) => press.input(data, eligible, now));
  };
  assert.deepEqual(feed(["\x1b", true, 0], ["\x1b", true, 500]), [false, true]);
  assert.deepEqual(feed(["\x1b", true, 0], ["\x1b", true, 501], ["\x1b", true, 600]), [false, false, true]);
  assert.deepEqual(feed(["\x1b", true, 0], ["x", true, 1], ["\x1b", true, 2]), [false, false, false]);
  assert.deepEqual(feed(["\x1b", true, 0], ["\x1b", false, 1], ["\x1b", true, 2]), [false, false, false]);
  assert.deepEqual(feed(["\x1b", true, 0], ["\x1b", true, 1], ["\x1b", true, 2]), [false, true, false]);
  assert.deepEqual(feed(["\x1b[27u", true, 0], ["\x1b[27;1:3u", true, 1], ["\x1b[27;1:1u", true, 2]), [false, false, true]);
  for (const other of ["\x1b[A", "\x1b\x1b", "\x1b[27;5u", "\x1b[27;1:2u", "e"]) assert.equal(isEscape(other), false, JSON.stringify(other));
});

test("s2_54 six choices in their order", () => {
  const all = actions(plan(item("overwrite", "a")));
  assert.deepEqual(all.map((a) => a.id), ["both", "conversation", "code", "from", "upto", "never"]);
});

test("s2_58 s2_48 both code choices are hidden when the plan would change nothing", () => {
  for (const nothing of [undefined, plan(), plan(item("keep", "a", "already"))])
    assert.deepEqual(actions(nothing).map((a) => a.id), ["conversation", "from", "upto", "never"]);
});

test("s2_40 s2_53 s2_63 prompts of the branch, newest first; what cannot be restored is shown and marked", () => {
  const branch = [prompt("a", "first"), prompt("b", "second\nline"), prompt("c", "third"), prompt("d", "fourth")];
  const rows = [
    row({ id: "1", turn: 1, entry: "a" }),
    row({ id: "2", turn: 2, entry: "left", prompt: "on another branch" }),
    row({ id: "3", turn: 3, entry: "b", restorable: false }),
    row({ id: "4", turn: 4, entry: "d", restorable: false, state: "gap" }),
  ];
  const kept = new Map([["c", { v: 1 as const, entry: "c", checkpoint: "x", workspace: "/other" }]]);
  const list = choices(prompts(branch), rows, kept, "/w");
  assert.deepEqual(list.map(({ entry, turn, why }) => [entry, turn, why]), [
    ["d", undefined, "checkpoint gap"],
    ["c", undefined, "recorded in /other"],
    ["b", undefined, "cannot be restored"],
    ["a", 1, undefined],
  ]);
  assert.match(list[2]?.label ?? "", /^2\. \d\d:\d\d {2}second line {2}\[cannot be restored\]$/);
  assert.equal(new Set(list.map((c) => c.label)).size, 4);
});

test("s2_41 records and operations of another shape are ignored", () => {
  const good = { v: 1, entry: "a", checkpoint: "c", workspace: "/w" };
  const odd = [null, 3, "x", [], {}, { ...good, v: 2 }, { ...good, entry: 1 }, { ...good, checkpoint: "" }, { v: 1, operation: "o", paths: [1], leaf: null }];
  const branch = odd.flatMap((data) => [custom(RECORD, data), custom(OPERATION, data)]);
  assert.equal(records(branch).size, 0);
  assert.deepEqual(changedSince(branch), []);
  assert.deepEqual(records([custom(RECORD, good), custom(RECORD, { ...good, checkpoint: "later" })]).get("a"), good);
});

test("sem_22 the notice is one line, once: what changed since the last prompt", () => {
  const op = (...paths: string[]) => custom(OPERATION, { v: 1, operation: "o", paths, leaf: null });
  const branch = [op("old"), prompt("p", "x"), op("a", "b\nc"), op("a", "d")];
  assert.deepEqual(changedSince(branch), ["a", "b\nc", "d"]);
  assert.deepEqual(changedSince([...branch, prompt("q", "y")]), []);
  const words = notice(["b\nc", ...Array.from({ length: 30 }, (_, i) => `f${i}`)]);
  assert.ok(!words.includes("\n"));
  assert.match(words, /b\?c, f0,.* and 11 more\.$/);
});

test("d_33 a turn's key is the same for the same message, and another for another", () => {
  const a = { content: [{ type: "text", text: "x" }], timestamp: 1 };
  assert.equal(turnKey(a), turnKey({ content: "x", timestamp: 1 }));
  assert.notEqual(turnKey(a), turnKey({ ...a, timestamp: 2 }));
  assert.notEqual(turnKey(a), turnKey({ content: "y", timestamp: 1 }));
  assert.equal(textOf({ content: [{ type: "image" }, { type: "text", text: "t" }] }), "t");
});

test("what a plan says in words", () => {
  const p = plan(item("overwrite", "a"), item("delete", "b"), item("create", "c"), item("rmdir", "d"), item("conflict", "e\u001b[2J", "changed"), item("keep", "f"));
  assert.equal(summary(p), "3 files: 1 back, 1 changed back, 1 removed; 1 kept");
  assert.equal(summary(plan(item("delete", "b"))), "1 file: 1 removed");
  assert.equal(summary(plan(item("conflict", "b"), item("skip", "c"))), "2 to decide about");
  const shown = preview({ ...p, warnings: ["w"] }, 4);
  assert.ok(!shown.includes("\u001b"));
  assert.match(shown, /… and 1 more\n {2}note: w$/);
  assert.ok(!shown.includes(" f"));
});

test("what a command line asks for", () => {
  assert.deepEqual(parse(""), { kind: "menu" });
  assert.deepEqual(parse(" undo "), { kind: "undo" });
  assert.deepEqual(parse("3"), { kind: "rewind", number: 3, onlyTurn: false, paths: [] });
  assert.deepEqual(parse("#3 code only -- a b/c"), { kind: "rewind", number: 3, action: "code", onlyTurn: true, paths: ["a", "b/c"] });
  for (const wrong of ["x", "3 constructor", "undo 3", "3 code all", "-- a", "1e3"]) assert.equal(parse(wrong).kind, "wrong", wrong);
});

test("a pi inside a tool of a living pi is nested", () => {
  const env: NodeJS.ProcessEnv = {};
  assert.equal(nested(env, process.pid), false);
  assert.equal(nested(env, process.pid), false, "the same process, the next session");
  assert.equal(nested(env, 4_000_001), true, "a child");
  assert.equal(nested(env, 4_000_002), true, "a child of the child");
  const orphan = { BACKSTITCH_PI: "4000003" };
  assert.equal(nested(orphan, process.pid), false, "the other one is gone");
  assert.equal(orphan.BACKSTITCH_PI, String(process.pid));
  assert.equal(nested({ BACKSTITCH_PI: "nonsense" }, process.pid), false);
});

test("s2_66 a fork begins after the last turn that both branches have", () => {
  const rows = [
    row({ id: "s", kind: "session-start", turn: null }),
    row({ id: "p1", turn: 1, entry: "a" }),
    row({ id: "t1", kind: "turn", turn: 1 }),
    row({ id: "p2", turn: 2, entry: "b" }),
  ];
  assert.equal(lastOf(rows, ["a"])?.id, "t1");
  assert.equal(lastOf(rows, ["a", "b"])?.id, "p2");
  assert.equal(lastOf(rows, []), undefined);
});

test("s2_57 a summary up to a prompt begins with what an earlier summary kept, and ends before that prompt", () => {
  const branch = [
    prompt("a", "one"),
    entry({ type: "compaction", id: "k", firstKeptEntryId: "b" }),
    prompt("b", "two"),
    entry({ type: "custom", customType: "x" }),
    entry({ type: "custom_message", id: "m", customType: "y", content: "three", display: true }),
    prompt("c", "four"),
  ];
  branch.splice(1, 2, prompt("b", "two"), branch[1] as SessionEntry);
  const preparation = { firstKeptEntryId: "?", messagesToSummarize: [], turnPrefixMessages: [1], isSplitTurn: true } as never;
  const event = { preparation, branchEntries: branch };
  assert.equal(boundCompaction(event, "c"), true);
  const { messagesToSummarize, ...rest } = preparation as { messagesToSummarize: { role: string }[] };
  assert.deepEqual(messagesToSummarize.map((m) => m.role), ["user", "custom"]);
  assert.deepEqual(rest, { firstKeptEntryId: "c", turnPrefixMessages: [], isSplitTurn: false });
  assert.equal(boundCompaction(event, "b"), false);
  assert.equal(boundCompaction(event, "nowhere"), false);
});

test("the id of a session file is in its first line", () => {
  const dir = mkdtempSync(join(tmpdir(), "backstitch-pi-"));
  const file = join(dir, "s.jsonl");
  writeFileSync(file, '{"type":"session","id":"abc"}\n{"id":"no"}\n');
  assert.equal(sessionIdOf(file), "abc");
  writeFileSync(file, "not json\n");
  assert.equal(sessionIdOf(file), undefined);
  assert.equal(sessionIdOf(join(dir, "none")), undefined);
  rmSync(dir, { recursive: true });
});

test("answers find their requests, in any order and in pieces; an end ends all", async () => {
  const [output, input] = [new PassThrough(), new PassThrough()];
  const told: string[] = [];
  const connection = new Connection(output, input, (method) => told.push(method));
  const [a, b] = [connection.request("a", {}, 10_000), connection.request("b", { x: 1 }, 10_000)];
  const sent = (input.read() as Buffer).toString().trim().split("\n").map((l) => JSON.parse(l) as { id: number; method: string });
  assert.deepEqual(sent.map((m) => m.method), ["a", "b"]);
  const bytes = Buffer.from(
    `noise\n{"method":"x"}\n{"jsonrpc":"2.0","id":${sent[1]?.id},"result":"é"}\n{"id":${sent[0]?.id},"error":{"message":"m","data":{"code":"busy","hint":"h"}}}\n`,
  );
  const cut = bytes.indexOf(0xc3) + 1;
  output.write(bytes.subarray(0, cut));
  output.write(bytes.subarray(cut));
  assert.equal(await b, "é");
  await assert.rejects(a, { code: "busy", message: "m", hint: "h" });
  assert.deepEqual(told, ["x"]);
  const late = connection.request("c", {}, 10_000);
  connection.close(new EngineError("over", "engine-gone"));
  await assert.rejects(late, { code: "engine-gone" });
  await assert.rejects(connection.request("d", {}, 10_000), { code: "engine-gone" });
});

test("a request that is not answered ends by its time limit and is cancelled", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const input = new PassThrough();
  const connection = new Connection(new PassThrough(), input, () => {});
  const waiting = connection.request("a", {}, 500);
  t.mock.timers.tick(500);
  await assert.rejects(waiting, { code: "timed-out" });
  assert.match((input.read() as Buffer).toString(), /"\$\/cancelRequest","params":\{"id":1\}/);
});

test("s4_36 the engine is a value that a test replaces; a prompt and its entry that are told twice are one", async () => {
  const calls: [string, Record<string, unknown>][] = [];
  const engine = {
    down: undefined,
    call: async (method: string, params: Record<string, unknown>) => {
      calls.push([method, params]);
      return method === "turn/begin" ? { id: "row" } : { checkpoint: {} };
    },
  };
  const recorder = new Recorder(engine as unknown as Engine, "s", () => assert.fail("nothing is to be said"));
  recorder.open(async () => ({}));
  const message = { content: [{ type: "text", text: "Go" }], timestamp: 7 };
  recorder.prompt(message, "Go");
  const turn = recorder.turn;
  recorder.prompt(message, "Go");
  assert.equal(recorder.turn, turn, "the same turn, not another one");
  assert.deepEqual([recorder.bind("e1"), recorder.bind("e1"), recorder.bind("e2")], [true, false, false]);
  await recorder.before("c", "bash", []);
  recorder.after("c");
  recorder.after("c");
  recorder.settle("completed");
  recorder.settle("completed");
  await recorder.flush();
  const count = (method: string) => calls.filter(([m]) => m === method).length;
  assert.deepEqual(["session/open", "turn/begin", "turn/bind", "tool/before", "tool/after", "turn/end"].map(count), [1, 1, 1, 1, 1, 1]);
  assert.ok(calls.every(([, params]) => params["session"] === "s"), "each call says whose it is");
});
