// The menu and double Escape as a person sees them.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, test } from "node:test";
import { bash, Model, text, write } from "./support/model.ts";
import { missing, OLD_PI, PI, Place, type PiVersion } from "./support/place.ts";
import { HAS_TMUX, Terminal } from "./support/terminal.ts";

const model = await Model.start();
model.on("Write a parser", [text("I write it."), write("parser.txt", "parser\n")], [bash("sed -i s/draft/final/ notes.txt")], [text("The parser is there.")]);
model.on("Now a test", [write("parser_test.txt", "test\n")], [text("The test is there.")]);
after(() => model.stop());

const skip = (version: PiVersion | undefined) => missing(version) || (!HAS_TMUX && "tmux is not installed");
/** Where a person asks for it, the pictures of the documentation are written anew. */
const picture = (name: string, screen: string) => {
  const dir = process.env["BACKSTITCH_PICTURES"];
  if (dir) writeFileSync(`${dir}/${name}.txt`, screen.replace(/\S*\/backstitch-pi-\w+/g, "~").replace(/^ *keys: .*\n/m, "").trimEnd() + "\n");
};

async function terminal(version: PiVersion | undefined, settings: object, work: (t: Terminal, place: Place) => Promise<void>): Promise<void> {
  assert.ok(version);
  // However slow the machine is, two presses are in time.
  const place = new Place(model, { gestureWindow: 5000, ...settings });
  place.write("notes.txt", "draft\n");
  const t = new Terminal(version, place);
  try {
    await t.shows("keys: 0.");
    await work(t, place);
  } finally {
    t.close();
    place.remove();
  }
}

const prompt = async (t: Terminal, words: string, answer: string) => {
  await t.type(words);
  await t.shows(words);
  await t.press("Enter");
  await t.shows(answer);
};

for (const version of [PI, OLD_PI])
  test(`${version?.name ?? "pi (another version)"}: s2_64 s2_65 s2_55 double Escape opens the menu; files, conversation and the editor are as before the prompt`, { skip: skip(version) }, async () => {
    await terminal(version, {}, async (t, place) => {
      await prompt(t, "Write a parser", "The parser is there.");
      await prompt(t, "Now a test", "The test is there.");
      await t.press("Escape");
      await t.press("Escape");
      picture("list", await t.shows("Rewind to before which prompt?", "2. ", "1. "));
      await t.press("Down");
      await t.shows("→ 1. ");
      await t.press("Enter");
      picture("actions", await t.shows("Restore code and conversation", "Restore conversation", "Restore code  (", "Summarize from here", "Summarize up to here", "Never mind"));
      await t.press("Enter");
      picture("plan", await t.shows("overwrite notes.txt", "delete    parser.txt", "Apply  (3 files"));
      await t.press("Enter");
      const screen = await t.shows("3 paths put back", "Write a parser");
      assert.ok(!screen.includes("The test is there."), screen);
      assert.deepEqual(["notes.txt", "parser.txt", "parser_test.txt"].map((f) => place.read(f)), ["draft\n", undefined, undefined]);
      // The prompt is in the editor: sent again as it stands, it runs again.
      await t.press("Enter");
      await t.shows("The parser is there.");
      assert.equal(place.read("notes.txt"), "final\n");
    });
  });

test("s2_64 double Escape does nothing of ours while there is text in the editor, or where it is switched off", { skip: skip(PI) }, async () => {
  await terminal(PI, {}, async (t) => {
    await prompt(t, "Now a test", "The test is there.");
    await t.type("unfinished words");
    await t.shows("unfinished words");
    await t.press("Escape");
    await t.press("Escape");
    await t.type(" and more");
    await t.shows("unfinished words and more");
    assert.ok(!t.screen.includes("Rewind to before"), t.screen);
  });
  await terminal(PI, { gesture: "none" }, async (t) => {
    await prompt(t, "Now a test", "The test is there.");
    await t.press("Escape");
    await t.press("Escape");
    // pi's own action on the key: its tree.
    const screen = await t.shows("Session Tree");
    assert.ok(!screen.includes("Rewind to before"), screen);
  });
});

test("s2_61 Escape in the menu closes it, and a second one does not open it again", { skip: skip(PI) }, async () => {
  await terminal(PI, {}, async (t, place) => {
    await prompt(t, "Now a test", "The test is there.");
    await t.type("/rewind");
    await t.shows("/rewind");
    await t.press("Enter");
    await t.shows("Rewind to before which prompt?");
    await t.press("Escape");
    await t.hides("Rewind to before which prompt?");
    await t.press("Escape");
    await t.type("typed");
    const screen = await t.shows("typed");
    assert.ok(!screen.includes("Rewind to before"), screen);
    assert.equal(place.read("parser_test.txt"), "test\n");
  });
});
