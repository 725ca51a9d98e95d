// The engine is not there, or is switched off: the agent goes on, and the person is told.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, test } from "node:test";
import { edit, Model, text, write } from "./support/model.ts";
import { EXTENSION, missing, OLD_PI, PI } from "./support/place.ts";
import { scene } from "./support/scene.ts";

const model = await Model.start();
model.on("make it", [write("a.txt", "one\n")], [text("made")]);
model.on("change it", [edit("a.txt", "one", "two")], [text("changed")]);
after(() => model.stop());

for (const version of [PI, OLD_PI])
  test(`${version?.name ?? "pi (another version)"}: without the program tools run, and it is said once`, { skip: missing(version) }, async () => {
    await scene(
      version,
      model,
      {},
      async ({ place, pi }) => {
        await pi.prompt("make it");
        await pi.prompt("change it");
        assert.equal(place.read("a.txt"), "two\n");
        await pi.ask("/rewind");
        await pi.toldOf("nothing to rewind to");
        assert.equal(pi.told.filter((line) => line.includes("nothing is recorded. Install backstitch")).length, 1);
        assert.equal(pi.told.filter((line) => line.startsWith("Backstitch:")).length, 2, pi.told.join("\n"));
      },
      (place) => {
        place.env["BACKSTITCH_BINARY"] = join(place.root, "nowhere");
        return ["-e", EXTENSION];
      },
    );
  });

for (const [how, settings, env] of [
  ["the environment", {}, { BACKSTITCH_DISABLE: "1" }],
  ["the settings", { enabled: false }, {}],
] as const)
  test(`s2_69 s2_70 d_50 switched off by ${how}: nothing is recorded, and /rewind has nothing to offer`, { skip: missing(PI) }, async () => {
    let engines = (): number[] => [0];
    await scene(
      PI,
      model,
      settings,
      async ({ place, pi }) => {
        await pi.prompt("make it");
        await pi.ask("/rewind");
        await pi.toldOf("switched off");
        await pi.close();
        assert.equal(place.read("a.txt"), "one\n");
        assert.deepEqual(engines(), []);
      },
      (place) => {
        engines = place.noted();
        Object.assign(place.env, env);
        return ["-e", EXTENSION];
      },
    );
  });

test("s2_69 a wrong setting is told, and the default holds", { skip: missing(PI) }, async () => {
  await scene(PI, model, { gesture: "shout" }, async ({ pi }) => {
    await pi.toldOf('backstitch.gesture cannot be "shout"');
  });
});
