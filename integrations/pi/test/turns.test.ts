// What becomes a turn, and what survives: steering, retries, blocked and nested tools, an engine or a pi that is killed.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { bash, edit, Model, text, write } from "./support/model.ts";
import type { Pi } from "./support/pi.ts";
import { EXTENSION, missing, OLD_PI, PI, type Place } from "./support/place.ts";
import { options, scene } from "./support/scene.ts";

const model = await Model.start();
model.on("ONE", [write("a.txt", "one\n")], [text("done")]);
model.on("TWO", [edit("a.txt", "one", "two")], [text("done")]);
model.on("JUST TALK", [text("indeed")]);
after(() => model.stop());

const skip = missing(PI);
type Row = { kind: string; turn: number | null; prompt: string | null; entry: string | null; call: string | null; phase: string | null; status: string | null; session: string; state: string };
const rows = (place: Place): Row[] => (place.engine("list", "--all", "--reverse").json["checkpoints"] ?? []) as Row[];
const turns = (place: Place) => rows(place).filter((r) => r.kind === "prompt").map((r) => [r.turn, r.prompt]);

/** Something that a test lets happen. */
function gate(): { open: () => void; until: Promise<void> } {
  let open = () => {};
  const until = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open, until };
}

/** Waits, in the folder beside the project, until the agent's shell says that it is there. */
function meeting(place: Place): { command: string; met: () => Promise<void>; release: () => void } {
  const [here, go] = [join(place.root, "here"), join(place.root, "go")];
  assert.equal(spawnSync("mkfifo", [here, go]).status, 0);
  return {
    command: `echo here > '${here}'; cat '${go}'`,
    met: async () => {
      const { readFile } = await import("node:fs/promises");
      assert.equal(await readFile(here, "utf8"), "here\n");
    },
    release: () => writeFileSync(go, ""),
  };
}

test("s2_27 s2_28 s2_29 s2_30 s2_37 s2_38 one checkpoint a prompt, before the first edit, bound to its message", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    place.write("ünïcode.txt", "ü\n");
    await pi.prompt("ONE prompt\nof two lines");
    await pi.prompt("TWO");
    const branch = await pi.branch();
    const users = branch.filter((e) => e.message?.role === "user").map((e) => e.id);
    const kept = branch.filter((e) => e.customType === "backstitch-checkpoint").map((e) => e.data);
    await pi.close();
    const prompts = rows(place).filter((r) => r.kind === "prompt");
    assert.deepEqual(prompts.map((r) => [r.turn, r.entry, r.state]), [[1, users[0], "complete"], [2, users[1], "complete"]]);
    assert.deepEqual(kept.map((d) => [d?.["v"], d?.["entry"], d?.["workspace"]]), users.map((id) => [1, id, place.folder]));
    for (const data of kept) assert.equal(place.engine("show", String(data?.["checkpoint"])).status, 0);
    assert.equal(place.engine("cat", `${prompts[1]?.session}/prompt:2:a.txt`).json["content_base64"], Buffer.from("one\n").toString("base64"));
    assert.equal(place.engine("cat", "prompt:1:a.txt").status, 4, "before the first edit there was no such file");
    assert.equal(place.engine("cat", "prompt:1:ünïcode.txt").status, 0);
    assert.equal(rows(place).filter((r) => r.kind === "turn").length, 2);
  });
});

test("s2_32 steering and follow-up prompts are turns of their own", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    const held = gate();
    model.on("BEGIN", [write("a.txt", "begun\n")], [{ until: held.until }, write("b.txt", "more\n")], [text("done")]);
    model.on("STEER", [write("c.txt", "steered\n")], [text("done")]);
    model.on("FOLLOW", [write("d.txt", "followed\n")], [text("done")]);
    const from = model.requests.length;
    await pi.command("prompt", { message: "BEGIN" });
    await model.until("second request", () => model.requests.length >= from + 2);
    await pi.command("steer", { message: "STEER" });
    await pi.command("follow_up", { message: "FOLLOW" });
    held.open();
    await pi.settled();
    const all = ["a.txt", "b.txt", "c.txt", "d.txt"];
    assert.deepEqual(all.map((f) => place.read(f)), ["begun\n", "more\n", "steered\n", "followed\n"]);
    const dialogs = await pi.ask("/rewind", "STEER", "Restore code and conversation", "Apply");
    assert.equal(options(dialogs[0]).length, 3);
    assert.deepEqual(all.map((f) => place.read(f)), ["begun\n", "more\n", undefined, undefined]);
    assert.deepEqual(await pi.prompts(), ["BEGIN"]);
    await pi.close();
    assert.deepEqual(turns(place), [[1, "BEGIN"], [2, "STEER"], [3, "FOLLOW"]]);
    assert.deepEqual(rows(place).filter((r) => r.kind === "turn").map((r) => r.status), ["completed", "completed", "completed"]);
  });
});

for (const version of [PI, OLD_PI])
  test(`${version?.name ?? "pi (another version)"}: s2_31 d_33 a retry belongs to the turn that it tries again`, { skip: missing(version) }, async () => {
    await scene(version, model, {}, async ({ place, pi }) => {
      const before = model.requests.length;
      model.on("OVERLOADED", [write("a.txt", "1\n")], [{ status: 529 }], [write("b.txt", "2\n")], [text("done")]);
      await pi.command("prompt", { message: "OVERLOADED" });
      await pi.until("the last reply", () => model.requests.length - before === 4 && pi.events.some((e) => JSON.stringify(e).includes('"text":"done"')));
      await pi.settled(pi.events.findIndex((e) => e.type === "message_end" && JSON.stringify(e).includes("b.txt")));
      assert.equal(model.requests.length - before, 4);
      await pi.ask("/rewind", "OVERLOADED", "Restore code", "Apply");
      assert.deepEqual([place.read("a.txt"), place.read("b.txt")], [undefined, undefined]);
      await pi.close();
      assert.deepEqual(turns(place), [[1, "OVERLOADED"]]);
    });
  });

test("s2_26 d_48 calls nested in code mode are windows of their own", { skip }, async () => {
  await scene(
    PI,
    model,
    {},
    async ({ place, pi }) => {
      const code = "await tools.write({path:'nested.txt',content:'n'}); await tools.bash({command:'echo s > shell.txt'}); return 'ok'";
      model.on("CODE", [{ tool: "codemode", input: { code } }], [text("done")]);
      await pi.prompt("CODE");
      assert.deepEqual([place.read("nested.txt"), place.read("shell.txt")], ["n", "s\n"]);
      await pi.ask("/rewind", "CODE", "Restore code", "Apply");
      assert.deepEqual([place.read("nested.txt"), place.read("shell.txt")], [undefined, undefined]);
      const calls = rows(place).filter((r) => r.kind === "tool" && r.call?.includes("/"));
      assert.equal(calls.length, 4, "both ends of both nested calls");
    },
    () => ["--tools", "+codemode", "-e", EXTENSION],
  );
});

test("a person's own shell command: a checkpoint stands before it, and what it does is the person's", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    await pi.prompt("ONE");
    // Recorded after the turn's end, in which what the person writes might be seen otherwise. Nothing changed: no row.
    await pi.command("bash", { command: "true" });
    place.write("mine.txt", "precious\n");
    await pi.command("bash", { command: "rm mine.txt" });
    assert.equal(place.read("mine.txt"), undefined);
    await pi.command("bash", { command: "true" });
    await pi.ask("/rewind", "ONE", "Restore code", "Apply");
    assert.deepEqual([place.read("a.txt"), place.read("mine.txt")], [undefined, undefined]);
    await pi.close();
    const before = place.engine("list", "--kind", "manual", "--reverse").json["checkpoints"] as { id: string; prompt: string }[];
    assert.deepEqual(before.map((r) => r.prompt), ["! rm mine.txt", "! true"]);
    assert.equal(place.engine("cat", `${before[0]?.id}:mine.txt`).json["content_base64"], Buffer.from("precious\n").toString("base64"));
  });
});

test("s0_40 a file elsewhere that a tool wrote comes back when it is asked for", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    const elsewhere = place.beside("notes.txt", "mine\n");
    model.on("ELSEWHERE", [write(elsewhere, "the agent's\n"), write("b.txt", "here\n")], [text("done")]);
    await pi.prompt("ELSEWHERE");
    const read = () => readFileSync(elsewhere, "utf8");
    assert.deepEqual([read(), place.read("b.txt")], ["the agent's\n", "here\n"]);
    // Left alone at first, and offered.
    const dialogs = await pi.ask("/rewind", "ELSEWHERE", "Restore code", "Include files outside this folder", "Apply");
    assert.equal(options(dialogs[2]).some((o) => o.startsWith("Include files outside this folder")), true);
    assert.deepEqual([read(), place.read("b.txt")], ["mine\n", undefined]);
    await pi.ask("/rewind undo", "Apply");
    assert.deepEqual([read(), place.read("b.txt")], ["the agent's\n", "here\n"]);
  });
});

test("a call that another extension blocks leaves no open window", { skip }, async () => {
  await scene(
    PI,
    model,
    {},
    async ({ place, pi }) => {
      await pi.prompt("ONE");
      assert.equal(place.read("a.txt"), undefined);
      await pi.close();
      assert.deepEqual(rows(place).filter((r) => r.kind === "tool").map((r) => r.phase), ["before", "after"]);
    },
    (place) => ["-e", EXTENSION, "-e", place.beside("block.ts", 'export default (pi: any) => pi.on("tool_call", () => ({ block: true, reason: "no" }));\n')],
  );
});

test("d_48 a sub-agent that is a pi of its own works for the tool that started it", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    const words = [process.execPath, PI?.cli, "-p", "--no-session", "--model", "fake/fake", "-e", EXTENSION, "FOR ANOTHER"];
    model.on("DELEGATE", [bash(words.map((w) => `'${w}'`).join(" "))], [text("done")]);
    model.on("FOR ANOTHER", [write("inner.txt", "inner\n")], [text("inner done")]);
    await pi.prompt("DELEGATE");
    assert.equal(place.read("inner.txt"), "inner\n");
    await pi.ask("/rewind", "DELEGATE", "Restore code", "Apply");
    assert.equal(place.read("inner.txt"), undefined);
    assert.equal(new Set(rows(place).map((r) => r.session).filter(Boolean)).size, 1);
  });
});

test("an aborted run ends its turn, and what it did goes back", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    const held = gate();
    model.on("ENDLESS", [write("a.txt", "1\n")], [{ until: held.until }, text("never")]);
    const from = model.requests.length;
    await pi.command("prompt", { message: "ENDLESS" });
    await model.until("second request", () => model.requests.length >= from + 2);
    await pi.command("abort");
    await pi.settled();
    held.open();
    await pi.ask("/rewind", "ENDLESS", "Restore code", "Apply");
    assert.equal(place.read("a.txt"), undefined);
    await pi.close();
    assert.deepEqual(rows(place).filter((r) => r.kind === "turn").map((r) => r.status), ["cancelled"]);
  });
});

test("sem_11 s2_37 pi is killed in the middle of a turn: the next one goes on and takes it back", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi, start }) => {
    place.write("b.txt", "b0\n");
    const never = gate();
    model.on("HALF WAY", [write("a.txt", "half\n"), bash("echo changed > b.txt")], [{ until: never.until }, text("never")]);
    await pi.prompt("JUST TALK");
    const from = model.requests.length;
    await pi.command("prompt", { message: "HALF WAY" });
    await model.until("second request", () => model.requests.length >= from + 2);
    await pi.kill();
    never.open();
    assert.deepEqual([place.read("a.txt"), place.read("b.txt")], ["half\n", "changed\n"]);
    const next = start("--continue");
    const dialogs = await next.ask("/rewind", "HALF WAY", "Restore code and conversation", "Apply");
    assert.equal(options(dialogs[0]).length, 2);
    assert.deepEqual([place.read("a.txt"), place.read("b.txt")], [undefined, "b0\n"]);
    assert.deepEqual(await next.prompts(), ["JUST TALK"]);
    await next.prompt("ONE more");
    assert.equal(place.read("a.txt"), "one\n");
    await next.close();
    const crashed = rows(place).filter((r) => r.kind === "turn").map((r) => [r.turn, r.status]);
    assert.deepEqual(crashed, [[1, "completed"], [2, "crashed"], [3, "completed"]]);
  });
});

test("sem_11 pi is killed while a shell command runs: what is not certain is offered, not taken", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi, start }) => {
    place.write("b.txt", "b0\n");
    const { command, met, release } = meeting(place);
    model.on("IN THE SHELL", [bash(`echo made > made.txt; echo changed > b.txt; ${command}`)], [text("never")]);
    await pi.command("prompt", { message: "IN THE SHELL" });
    await met();
    await pi.kill();
    release();
    const next = start("--continue");
    const dialogs = await next.ask("/rewind", "IN THE SHELL", "Restore code", "Include changes made outside", "Apply");
    assert.match(options(dialogs[1]).join(), /Restore code {2}\(2 to decide about\)/);
    assert.match(dialogs[2]?.title ?? "", /b\.txt {2}\(unattributed\)/);
    assert.equal(place.read("b.txt"), "b0\n");
    assert.equal(place.read("made.txt"), undefined);
  });
});

const kill = (pid: number | undefined) => {
  assert.ok(pid);
  process.kill(pid, "SIGKILL");
};

async function withEngines(work: (place: Place, pi: Pi, engines: () => number[]) => Promise<void>): Promise<void> {
  let engines: () => number[] = () => [];
  await scene(PI, model, {}, ({ place, pi }) => work(place, pi, engines), (place) => {
    engines = place.noted();
    return ["-e", EXTENSION];
  });
}

test("the engine is killed between two prompts: it is started again, said once, and nothing is lost", { skip }, async () => {
  await withEngines(async (place, pi, engines) => {
    await pi.prompt("ONE");
    kill(engines().at(-1));
    await pi.toldOf("the engine ended (SIGKILL)");
    await pi.prompt("TWO");
    assert.equal(engines().length, 2);
    const dialogs = await pi.ask("/rewind", "ONE", "Restore code and conversation", "Apply");
    assert.equal(options(dialogs[0]).length, 2);
    assert.equal(place.read("a.txt"), undefined);
    assert.equal(pi.told.filter((l) => l.includes("the engine ended")).length, 1);
  });
});

test("the engine is killed in the middle of a turn: the turn goes on where it was", { skip }, async () => {
  await withEngines(async (place, pi, engines) => {
    const held = gate();
    model.on("SURVIVE", [write("a.txt", "1\n")], [{ until: held.until }, write("b.txt", "2\n")], [text("done")]);
    const from = model.requests.length;
    await pi.command("prompt", { message: "SURVIVE" });
    await model.until("second request", () => model.requests.length >= from + 2);
    kill(engines().at(-1));
    await pi.toldOf("the engine ended");
    held.open();
    await pi.settled();
    await pi.ask("/rewind", "SURVIVE", "Restore code", "Apply");
    assert.deepEqual([place.read("a.txt"), place.read("b.txt")], [undefined, undefined]);
    await pi.close();
    assert.deepEqual(rows(place).filter((r) => r.kind === "turn").map((r) => [r.turn, r.status]), [[1, "completed"]]);
  });
});

test("an engine that ends again and again is left alone; the agent goes on", { skip }, async () => {
  await withEngines(async (place, pi, engines) => {
    writeFileSync(join(place.root, "engine"), `#!/bin/sh\necho $$ >> '${join(place.root, "engines")}'\nexit 3\n`);
    for (const words of ["ONE", "TWO", "JUST TALK"]) await pi.prompt(words);
    assert.equal(place.read("a.txt"), "two\n");
    await pi.toldOf("times within a minute (exit code 3)");
    const started = engines().length;
    await pi.prompt("JUST TALK");
    await pi.ask("/rewind");
    await pi.toldOf("there is nothing to rewind to");
    assert.equal(engines().length, started);
    assert.ok(started <= 5, `${started} starts`);
  });
});

test("the model never sees our own entries", { skip }, async () => {
  await scene(PI, model, {}, async ({ pi }) => {
    const from = model.requests.length;
    await pi.prompt("ONE");
    await pi.prompt("JUST TALK");
    const sent = JSON.stringify(model.requests.slice(from));
    assert.ok(!sent.toLowerCase().includes("backstitch"), sent);
  });
});

test("nothing appears in the project or beside pi's own files", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    await pi.prompt("ONE");
    await pi.close();
    const { readdirSync } = await import("node:fs");
    assert.deepEqual(readdirSync(place.folder), ["a.txt"]);
    assert.equal(readFileSync(place.path("a.txt"), "utf8"), "one\n");
  });
});
