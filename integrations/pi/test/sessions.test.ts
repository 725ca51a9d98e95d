// Sessions that fork, move, are opened again, share a folder, or vanish.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { bash, edit, Model, text, write } from "./support/model.ts";
import { EXTENSION, missing, OLD_PI, PACKAGE, PI, type Place } from "./support/place.ts";
import { LIST, options, scene } from "./support/scene.ts";

const model = await Model.start();
model.on("ONE", [write("a.txt", "one\n")], [text("done")]);
model.on("TWO", [edit("a.txt", "one", "two")], [text("done")]);
model.on("THREE", [write("b.txt", "three\n")], [text("done")]);
after(() => model.stop());

const skip = missing(PI);
type Row = { kind: string; turn: number | null; session: string | null; entry: string | null };
const rows = (place: Place): Row[] => (place.engine("list", "--all", "--reverse").json["checkpoints"] ?? []) as Row[];
const entry = async (pi: { command(type: string): Promise<Record<string, unknown>> }, words: string): Promise<string> => {
  const { messages } = (await pi.command("get_fork_messages")) as { messages: { entryId: string; text: string }[] };
  return messages.find((m) => m.text.includes(words))?.entryId ?? "";
};
const FORK = "The fork begins earlier than the files. What about them?";

for (const version of [PI, OLD_PI])
  test(`${version?.name ?? "pi (another version)"}: s2_66 d_30 before a fork files are offered; the fork has the checkpoints of what it shares`, { skip: missing(version) }, async () => {
    await scene(version, model, {}, async ({ place, pi }) => {
      await pi.prompt("ONE");
      await pi.prompt("TWO");
      pi.answers = ["Put files back", "Apply"];
      await pi.command("fork", { entryId: await entry(pi, "TWO") });
      assert.equal(pi.dialogs[0]?.title, FORK);
      assert.equal(place.read("a.txt"), "one\n");
      const from = model.requests.length;
      await pi.prompt("THREE");
      assert.match(JSON.stringify(model.requests[from]), /Backstitch put files back[^"]*a\.txt/);
      const dialogs = await pi.ask("/rewind", "ONE", "Restore code and conversation", "Apply");
      assert.equal(options(dialogs[0]).filter((o) => !o.startsWith("Undo")).length, 2);
      assert.deepEqual([place.read("a.txt"), place.read("b.txt")], [undefined, undefined]);
      assert.deepEqual(await pi.prompts(), []);
    });
  });

test("s2_66 a fork can be cancelled at that question, and files can be left", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    await pi.prompt("ONE");
    await pi.prompt("TWO");
    const id = await entry(pi, "TWO");
    pi.answers = ["Cancel the fork"];
    assert.equal((await pi.command("fork", { entryId: id }))["cancelled"], true);
    assert.deepEqual(await pi.prompts(), ["ONE", "TWO"]);
    pi.answers = ["Leave the files"];
    await pi.command("fork", { entryId: id });
    assert.deepEqual(await pi.prompts(), ["ONE"]);
    assert.equal(place.read("a.txt"), "two\n");
  });
});

for (const [policy, want] of [["always", "one\n"], ["never", "two\n"]] as const)
  test(`d_31 s4_13 the policy for forks: ${policy}`, { skip }, async () => {
    await scene(PI, model, { restoreOnFork: policy }, async ({ place, pi }) => {
      await pi.prompt("ONE");
      await pi.prompt("TWO");
      await pi.command("fork", { entryId: await entry(pi, "TWO") });
      assert.equal(pi.dialogs.length, 0);
      assert.equal(place.read("a.txt"), want);
    });
  });

const walker = (place: Place) => [
  "-e",
  EXTENSION,
  "-e",
  place.beside("walker.ts", 'export default (pi: any) => pi.registerCommand("goto", { handler: async (id: string, ctx: any) => { await ctx.navigateTree(id, { summarize: false }); } });\n'),
];

test("s4_14 d_31 moving in the tree asks about the files, and the model is told", { skip }, async () => {
  await scene(
    PI,
    model,
    {},
    async ({ place, pi }) => {
      await pi.prompt("ONE");
      await pi.prompt("TWO");
      const was = (await pi.branch()).at(-1)?.id ?? "";
      await pi.ask(`/goto ${await entry(pi, "TWO")}`, "Put files back", "Apply");
      assert.equal(pi.dialogs[0]?.title, "The conversation moved. What about the files?");
      await pi.toldOf("put back");
      assert.equal(place.read("a.txt"), "one\n");
      await pi.waitFor("the note", (e) => e.type === "entry_appended" && JSON.stringify(e).includes("backstitch-operation"));
      // Forward again: the other branch's state.
      await pi.ask(`/goto ${was}`, "Put files back", "Apply");
      await pi.until("both are told", () => pi.told.filter((l) => l.includes("put back")).length === 2);
      assert.equal(place.read("a.txt"), "two\n");
    },
    walker,
  );
});

test("d_31 a session that is opened again asks about files that changed since, and leaves them unless told", { skip }, async () => {
  await scene(PI, model, { restoreOnResume: "ask" }, async ({ place, pi, start }) => {
    await pi.prompt("ONE");
    await pi.close();
    const same = start("--continue");
    await same.ask("/rewind", null);
    assert.deepEqual(same.dialogs.map((d) => d.title), [LIST], "nothing changed, nothing is asked");
    await same.close();
    place.write("a.txt", "by hand\n");
    const next = start("--continue");
    next.answers = ["Put files back", "Apply"];
    await next.toldOf("put back");
    assert.equal(place.read("a.txt"), "one\n");
    await next.close();
    place.write("a.txt", "by hand\n");
    const last = start("--continue");
    last.answers = ["Leave the files"];
    await last.until("asked", () => last.dialogs.length === 1 && last.answers.length === 0);
    await last.command("get_state");
    assert.equal(place.read("a.txt"), "by hand\n");
  });
});

test("s2_37 s2_67 a session that is opened again goes on with its turns", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi, start }) => {
    await pi.prompt("ONE");
    await pi.close();
    const next = start("--continue");
    await next.prompt("TWO");
    const dialogs = await next.ask("/rewind", "ONE", "Restore code and conversation", "Apply");
    assert.equal(options(dialogs[0]).length, 2);
    assert.equal(place.read("a.txt"), undefined);
    assert.deepEqual(rows(place).filter((r) => r.kind === "prompt").map((r) => r.turn), [1, 2]);
  });
});

test("two pi in one folder: each takes back its own", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi, start }) => {
    place.write("both.txt", "0\n");
    model.on("FROM A", [write("a.txt", "a\n"), write("both.txt", "a\n")], [text("done")]);
    model.on("FROM B", [write("b.txt", "b\n"), edit("both.txt", "a", "b")], [text("done")]);
    const other = start();
    await pi.prompt("FROM A");
    await other.prompt("FROM B");
    await pi.ask("/rewind", "FROM A", "Restore code", "Apply");
    assert.deepEqual(["a.txt", "b.txt", "both.txt"].map((f) => place.read(f)), [undefined, "b\n", "b\n"]);
    assert.match(await pi.toldOf("Not changed"), /both\.txt/);
    await other.ask("/rewind", "FROM B", "Restore code", "Apply");
    assert.deepEqual(["b.txt", "both.txt"].map((f) => place.read(f)), [undefined, "a\n"]);
  });
});

test("sem_21 while another session's tool runs files are put back only when a person insists", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi, start }) => {
    const [here, go] = [join(place.root, "here"), join(place.root, "go")];
    assert.equal(spawnSync("mkfifo", [here, go]).status, 0);
    model.on("FROM A", [write("a.txt", "a\n")], [text("done")]);
    model.on("SLOW B", [bash(`echo here > '${here}'; cat '${go}'`)], [text("done")]);
    const other = start();
    await pi.prompt("FROM A");
    await other.command("prompt", { message: "SLOW B" });
    assert.equal(await readFile(here, "utf8"), "here\n");
    await pi.ask("/rewind", "FROM A", "Restore code", "Apply", "Cancel");
    assert.equal(place.read("a.txt"), "a\n");
    await pi.ask("/rewind", "FROM A", "Restore code", "Apply", "Do it although", "Apply");
    assert.equal(place.read("a.txt"), undefined);
    writeFileSync(go, "");
    await other.settled();
  });
});

test("s2_68 d_39 a session without a file leaves nothing behind", { skip }, async () => {
  await scene(
    PI,
    model,
    {},
    async ({ place, pi }) => {
      await pi.prompt("ONE");
      await pi.ask("/rewind", "ONE", "Restore code", "Apply");
      assert.equal(place.read("a.txt"), undefined);
      await pi.close();
      assert.deepEqual(place.engine("session", "list").json["sessions"], []);
      assert.deepEqual(rows(place).filter((r) => r.session !== null), []);
    },
    () => ["--no-session", "-e", EXTENSION],
  );
});

test("s2_62 print mode: a typed command works, a menu does nothing", { skip }, async () => {
  const place = new (await import("./support/place.ts")).Place(model);
  const run = (...prompts: string[]) =>
    spawnAsync([PI?.cli ?? "", "-p", "--model", "fake/fake", "-e", EXTENSION, "--session-id", "printed", ...prompts], place);
  const first = await run("ONE", "/rewind");
  assert.equal(first.status, 0, first.errors);
  assert.equal(place.read("a.txt"), "one\n");
  const second = await run("/rewind 1 all");
  assert.equal(place.read("a.txt"), undefined, second.errors);
  assert.match(second.errors, /Backstitch: 1 path put back/);
  place.remove();
});

test("installed as a package, by one command", { skip }, async () => {
  await scene(
    PI,
    model,
    {},
    async ({ pi }) => {
      const { commands } = (await pi.command("get_commands")) as { commands: { name: string; source: string }[] };
      assert.ok(commands.some((c) => c.name === "rewind" && c.source === "extension"), JSON.stringify(commands));
      await pi.prompt("ONE");
      const dialogs = await pi.ask("/rewind", null);
      assert.equal(options(dialogs[0]).length, 1);
    },
    (place) => {
      const done = spawnSync(process.execPath, [PI?.cli ?? "", "install", PACKAGE], { cwd: place.folder, env: place.env, encoding: "utf8" });
      assert.equal(done.status, 0, done.stderr);
      return [];
    },
  );
});

async function spawnAsync(args: string[], place: Place): Promise<{ status: number | null; errors: string }> {
  const { spawn } = await import("node:child_process");
  const child = spawn(process.execPath, args, { cwd: place.folder, env: place.env, stdio: ["ignore", "ignore", "pipe"], timeout: 60_000 });
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    errors += chunk;
  });
  const status = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { status, errors };
}

test("s2_72 after a new conversation nothing of the one before is offered", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    await pi.prompt("ONE");
    await pi.command("new_session");
    await pi.ask("/rewind");
    assert.deepEqual(pi.dialogs, []);
    assert.equal(place.read("a.txt"), "one\n");
  });
});
