// /rewind in a real pi: what the menu offers, what it does, and what it leaves alone.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { bash, edit, Model, text, write } from "./support/model.ts";
import { EXTENSION, missing, OLD_PI, PI } from "./support/place.ts";
import { LIST, options, scene } from "./support/scene.ts";

const model = await Model.start();
model.on("FIRST", [text("writing"), write("a.txt", "one\n"), write("new/deep.txt", "deep\n")], [bash("echo shell > b.txt")], [text("first done")]);
model.on("SECOND", [edit("a.txt", "one", "two"), bash("rm gone.txt")], [text("second done")]);
model.on("FOURTH", [write("later.txt", "later\n")], [text("fourth done")]);
model.on("THIRD", [text("third done")]);
after(() => model.stop());

const skip = missing(PI);
const prepare = (place: { write(name: string, content: string): void }) => {
  place.write("b.txt", "b0\n");
  place.write("gone.txt", "still here\n");
  place.write("mine.txt", "mine\n");
};

for (const version of [PI, OLD_PI]) {
  const name = version?.name ?? "pi (another version)";
  test(`${name}: s2_28 s2_53 s2_55 s2_56 files and conversation go back together, a person's edit stays, undo brings both back`, { skip: missing(version) }, async () => {
    await scene(version, model, {}, async ({ place, pi }) => {
      prepare(place);
      await pi.prompt("FIRST please");
      place.write("mine.txt", "edited by hand\n");
      await pi.prompt("SECOND please");
      assert.deepEqual(["a.txt", "b.txt", "gone.txt"].map((f) => place.read(f)), ["two\n", "shell\n", undefined]);

      const dialogs = await pi.ask("/rewind", "FIRST", "Restore code and conversation", "Apply");
      assert.equal(dialogs[0]?.title, LIST);
      assert.match(options(dialogs[0]).join("\n"), /^2\. \d\d:\d\d {2}SECOND please\n1\. \d\d:\d\d {2}FIRST please$/);
      assert.match(dialogs[2]?.title ?? "", /overwrite {1}b\.txt/);
      await pi.toldOf("put back");
      assert.deepEqual(["a.txt", "b.txt", "gone.txt", "new/deep.txt"].map((f) => place.read(f)), [undefined, "b0\n", "still here\n", undefined]);
      assert.equal(place.read("mine.txt"), "edited by hand\n");
      assert.deepEqual(await pi.prompts(), []);
      assert.equal(pi.editor, "FIRST please");

      await pi.ask("/rewind", "Undo the last restore", "Apply", "Conversation as it was");
      assert.deepEqual(["a.txt", "b.txt", "gone.txt", "new/deep.txt"].map((f) => place.read(f)), ["two\n", "shell\n", undefined, "deep\n"]);
      assert.deepEqual(await pi.prompts(), ["FIRST please", "SECOND please"]);
      assert.equal(place.read("mine.txt"), "edited by hand\n");

      await pi.ask("/rewind redo", "Apply");
      assert.equal(place.read("a.txt"), undefined);
    });
  });
}

test("r128 pi is gone right after a rewind: opened again, files and conversation are where it put them", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi, start }) => {
    prepare(place);
    await pi.prompt("FIRST x");
    await pi.prompt("SECOND y");
    await pi.ask("/rewind", "SECOND", "Restore code and conversation", "Apply");
    await pi.toldOf("put back");
    await pi.kill();
    const files = () => ["a.txt", "b.txt", "gone.txt"].map((f) => place.read(f));
    const next = start("--continue");
    assert.deepEqual(await next.prompts(), ["FIRST x"]);
    assert.deepEqual(files(), ["one\n", "shell\n", "still here\n"]);

    // The conversation alone, and both where no file changes.
    for (const action of ["Restore conversation", "all"]) {
      const now = action === "all" ? start("--continue") : next;
      await now.prompt("THIRD z");
      if (action === "all") await now.ask("/rewind 2 all");
      else await now.ask("/rewind", "THIRD", action);
      assert.deepEqual(await now.prompts(), ["FIRST x"]);
      await now.kill();
      const again = start("--continue");
      assert.deepEqual(await again.prompts(), ["FIRST x"], action);
      await again.close();
    }
    assert.deepEqual(files(), ["one\n", "shell\n", "still here\n"]);
  });
});

test("s2_54 s2_61 the six choices in their order; cancelling at any step changes nothing", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    prepare(place);
    await pi.prompt("FIRST x");
    const files = () => ["a.txt", "b.txt"].map((f) => place.read(f));
    const [was, leaf] = [files(), (await pi.branch()).at(-1)?.id];
    const dialogs = await pi.ask("/rewind", "FIRST", "Never mind");
    assert.deepEqual(
      options(dialogs[1]).map((o) => o.split("  (")[0]),
      ["Restore code and conversation", "Restore conversation", "Restore code", "Summarize from here", "Summarize up to here", "Never mind"],
    );
    assert.match(options(dialogs[1])[0] ?? "", /\(3 files: 1 changed back, 2 removed\)$/);
    await pi.ask("/rewind", null);
    await pi.ask("/rewind", "FIRST", null);
    await pi.ask("/rewind", "FIRST", "Restore code and conversation", null);
    await pi.ask("/rewind", "FIRST", "Restore code", "Cancel");
    assert.deepEqual(files(), was);
    assert.equal((await pi.branch()).at(-1)?.id, leaf);
    assert.equal(pi.told.length, 0);
  });
});

test("s2_58 s2_48 a prompt after which nothing changed offers no code", { skip }, async () => {
  await scene(PI, model, {}, async ({ pi }) => {
    await pi.prompt("THIRD x");
    const dialogs = await pi.ask("/rewind", "THIRD", "Never mind");
    assert.deepEqual(options(dialogs[1]), ["Restore conversation", "Summarize from here", "Summarize up to here", "Never mind"]);
  });
});

test("s2_62 no records: a plain message", { skip }, async () => {
  await scene(PI, model, {}, async ({ pi }) => {
    await pi.ask("/rewind");
    await pi.toldOf("nothing was recorded in this conversation yet");
    await pi.ask("/rewind nonsense");
    await pi.toldOf("/rewind N [all|conversation|code");
    await pi.ask("/rewind 7");
    await pi.toldOf("there is no prompt 7");
  });
});

test("s2_55 the conversation alone goes back, files stay", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    await pi.prompt("FIRST x");
    await pi.prompt("THIRD y");
    await pi.ask("/rewind", "THIRD", "Restore conversation");
    assert.deepEqual(await pi.prompts(), ["FIRST x"]);
    assert.equal(pi.editor, "THIRD y");
    assert.equal(place.read("a.txt"), "one\n");
  });
});

test("sem_22 code alone goes back, and the next request says in one line what changed", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    await pi.prompt("FIRST x");
    await pi.ask("/rewind", "FIRST", "Restore code", "Apply");
    assert.equal(place.read("a.txt"), undefined);
    assert.deepEqual(await pi.prompts(), ["FIRST x"]);
    const from = model.requests.length;
    await pi.prompt("THIRD y");
    await pi.prompt("THIRD z");
    const notices = model.requests.slice(from).map((r) => r.turns.flatMap((t) => t.text.split("\n")).filter((l) => l.includes("Backstitch put files back")));
    assert.equal(notices.length, 2);
    for (const lines of notices) {
      assert.equal(lines.length, 1, "one line, once in the conversation");
      for (const path of ["a.txt", "b.txt", "new/deep.txt"]) assert.ok(lines[0]?.includes(path), path);
    }
  });
});

test("sem_10 a file that a person changed after the agent is a conflict: kept, named, and overwritten only when asked", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    prepare(place);
    await pi.prompt("FIRST x");
    place.write("b.txt", "by hand\n");
    const dialogs = await pi.ask("/rewind", "FIRST", "Restore code", "Apply");
    assert.match(dialogs[2]?.title ?? "", /conflict {2}b\.txt/);
    assert.equal(place.read("b.txt"), "by hand\n");
    assert.equal(place.read("a.txt"), undefined);
    assert.match(await pi.toldOf("Not changed"), /b\.txt/);
    await pi.ask("/rewind undo", "Apply");
    assert.equal(place.read("a.txt"), "one\n");
    await pi.ask("/rewind", "FIRST", "Restore code", "Overwrite conflicts", "Apply");
    assert.equal(place.read("b.txt"), "b0\n");
    await pi.ask("/rewind undo", "Apply");
    assert.equal(place.read("b.txt"), "by hand\n");
  });
});

test("s2_45 d_42 a plan that the disk outran is not applied, but shown again", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    prepare(place);
    await pi.prompt("FIRST x");
    const late = () => {
      place.write("a.txt", "saved in the meantime\n");
      return "Apply";
    };
    const dialogs = await pi.ask("/rewind", "FIRST", "Restore code", late, "Apply");
    assert.match(dialogs[2]?.title ?? "", /delete +a\.txt/);
    assert.match(dialogs[3]?.title ?? "", /conflict +a\.txt/);
    assert.equal(place.read("a.txt"), "saved in the meantime\n");
    assert.equal(place.read("b.txt"), "b0\n");
  });
});

test("d_28 one prompt alone is taken back, and the later ones stay", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    prepare(place);
    await pi.prompt("FIRST x");
    await pi.prompt("FOURTH y");
    await pi.ask("/rewind", "FIRST", "Restore code", "Only what this prompt did", "Apply");
    assert.deepEqual(["a.txt", "b.txt", "later.txt"].map((f) => place.read(f)), [undefined, "b0\n", "later\n"]);
    await pi.ask("/rewind undo", "Apply");
    await pi.ask("/rewind 1 code only", "Apply");
    assert.deepEqual(["a.txt", "b.txt", "later.txt"].map((f) => place.read(f)), [undefined, "b0\n", "later\n"]);
  });
});

test("d_15 a file that both changed is merged line by line when a person asks", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    const lines = ["top", "1", "2", "3", "4", "5", "bottom", ""];
    place.write("long.txt", lines.join("\n"));
    model.on("FIFTH", [edit("long.txt", "top", "TOP")], [text("done")]);
    await pi.prompt("FIFTH x");
    place.write("long.txt", ["TOP", "1", "2", "3", "4", "5", "by hand", ""].join("\n"));
    await pi.ask("/rewind", "FIFTH", "Restore code", "Merge conflicts", "Apply");
    assert.equal(place.read("long.txt"), ["top", "1", "2", "3", "4", "5", "by hand", ""].join("\n"));
  });
});

test("d_28 single files are chosen from the plan", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    prepare(place);
    await pi.prompt("FIRST x");
    await pi.ask("/rewind", "FIRST", "Restore code", "Choose files", "b.txt", "Done: 1", "Apply");
    assert.deepEqual(["a.txt", "b.txt"].map((f) => place.read(f)), ["one\n", "b0\n"]);
    await pi.ask("/rewind 1 code -- a.txt", "Apply");
    assert.equal(place.read("a.txt"), undefined);
    assert.equal(place.read("new/deep.txt"), "deep\n");
  });
});

test("s2_57 summarise from here: what precedes stays, the rest is a summary, the prompt is in the editor", { skip }, async () => {
  await scene(PI, model, {}, async ({ place, pi }) => {
    await pi.prompt("FIRST x");
    await pi.prompt("THIRD y");
    await pi.ask("/rewind", "THIRD", "Summarize from here");
    assert.deepEqual(await pi.prompts(), ["FIRST x"]);
    assert.equal(pi.editor, "THIRD y");
    assert.equal((await pi.branch()).at(-1)?.type, "branch_summary");
    assert.equal(place.read("a.txt"), "one\n");
  });
});

test("s2_57 summarise up to here: exactly what precedes is a summary, the editor stays empty", { skip }, async () => {
  await scene(PI, model, {}, async ({ pi }) => {
    await pi.prompt("FIRST x");
    await pi.prompt("THIRD y");
    await pi.prompt("THIRD z");
    await pi.ask("/rewind", "THIRD y", "Summarize up to here");
    await pi.toldOf("is now a summary");
    const from = model.requests.length;
    await pi.prompt("THIRD last");
    const sent = model.requests[from]?.turns.map((t) => t.text).join("\n") ?? "";
    assert.ok(!sent.includes("FIRST x") && sent.includes("a summary"), sent);
    assert.ok(sent.includes("THIRD y") && sent.includes("THIRD z"), sent);
    assert.equal(pi.editor, undefined);
  });
});

test("s2_60 a compaction that fails is told in pi's own words", { skip }, async () => {
  await scene(
    PI,
    model,
    {},
    async ({ pi }) => {
      await pi.prompt("THIRD y");
      await pi.prompt("THIRD z");
      await pi.ask("/rewind", "THIRD z", "Summarize up to here");
      await pi.toldOf("Nothing to compact (session too small)");
      assert.deepEqual(await pi.prompts(), ["THIRD y", "THIRD z"]);
    },
    (place) => {
      writeFileSync(join(place.agent, "settings.json"), "{}");
      return ["-e", EXTENSION];
    },
  );
});

test("s2_57 before the first prompt there is nothing to summarise", { skip }, async () => {
  await scene(PI, model, {}, async ({ pi }) => {
    await pi.prompt("THIRD y");
    await pi.prompt("THIRD z");
    await pi.ask("/rewind", "THIRD y", "Summarize up to here");
    await pi.toldOf("nothing stands before that prompt");
    assert.deepEqual(await pi.prompts(), ["THIRD y", "THIRD z"]);
  });
});

const canceller = (place: { beside(name: string, content: string): string }) =>
  place.beside("canceller.ts", 'export default (pi: any) => pi.on("session_before_tree", () => ({ cancel: true }));\n');

test("s2_59 a cancelled move after files were restored: the person is told which of both happened", { skip }, async () => {
  await scene(
    PI,
    model,
    {},
    async ({ place, pi }) => {
      await pi.prompt("FIRST x");
      await pi.ask("/rewind", "FIRST", "Restore code and conversation", "Apply");
      await pi.toldOf("Files were changed, the conversation was not");
      assert.equal(place.read("a.txt"), undefined);
      assert.deepEqual(await pi.prompts(), ["FIRST x"]);
      await pi.ask("/rewind", "FIRST", "Restore conversation");
      await pi.toldOf("Nothing was changed");
    },
    (place) => ["-e", EXTENSION, "-e", canceller(place)],
  );
});
