// The story of docs/mcp.md with the official client library: checkpoint, work, diff, plan, apply, undo, and what is refused.
// node mcp_story.mjs SDK-FOLDER FOLDER SERVER [ARGUMENT...]
import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , sdk, folder, command, ...args] = process.argv;
const part = (name) => import(pathToFileURL(join(sdk, "node_modules/@modelcontextprotocol/sdk/dist/esm/client", name)).href);
const { Client } = await part("index.js");
const { StdioClientTransport } = await part("stdio.js");
const step = (words) => console.log(`  mcp: ${words}`);

const client = new Client({ name: "story", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));
const told = client.getServerVersion();
assert.equal(told.name, "backstitch");
const { tools } = await client.listTools();
const want = ["checkpoint_create", "checkpoint_list", "checkpoint_show", "diff", "rewind_apply", "rewind_plan", "undo"];
assert.deepEqual(tools.map((t) => t.name).sort(), want);
step(`connected; tools: ${want.join(", ")}`);

const call = async (name, parameters) => {
  const result = await client.callTool({ name, arguments: parameters });
  assert.ok(!result.isError, `${name}: ${JSON.stringify(result.content)}`);
  return result.structuredContent;
};
const file = (name) => join(folder, name);
const read = (name) => (existsSync(file(name)) ? readFileSync(file(name), "utf8") : undefined);
writeFileSync(file("old.txt"), "old\n");
writeFileSync(file("doomed.txt"), "doomed\n");

const { checkpoint } = await call("checkpoint_create", { label: "before the work" });
step("checkpoint_create");
writeFileSync(file("old.txt"), "changed\n");
writeFileSync(file("new.txt"), "new\n");
rmSync(file("doomed.txt"));
const { changes } = await call("diff", {});
assert.deepEqual(changes.map((c) => `${c.status} ${c.path}`).sort(), ["A new.txt", "D doomed.txt", "M old.txt"]);
step("diff tells what changed since");
const listed = await call("checkpoint_list", { limit: 1 });
assert.equal(listed.checkpoints[0].id, checkpoint.id);
assert.equal((await call("checkpoint_show", { checkpoint: checkpoint.id })).checkpoint.label, "before the work");
step("checkpoint_list and checkpoint_show");

const plan = await call("rewind_plan", { to: "before the work" });
assert.deepEqual([plan.dry_run, read("old.txt")], [true, "changed\n"]);
step("rewind_plan changes nothing");
writeFileSync(file("new.txt"), "newer\n");
const late = await client.callTool({ name: "rewind_apply", arguments: { plan: plan.plan } });
assert.equal(late.isError, true);
assert.equal(late.structuredContent?.error?.code ?? JSON.parse(late.content[0].text).error.code, "plan-changed");
step("a plan that the disk outran is refused");
const again = await call("rewind_plan", { to: "before the work" });
const done = await call("rewind_apply", { plan: again.plan });
assert.ok(done.verified && !done.dry_run);
assert.deepEqual([read("old.txt"), read("new.txt"), read("doomed.txt")], ["old\n", undefined, "doomed\n"]);
step("rewind_apply took the work back");
await call("undo", {});
assert.deepEqual([read("old.txt"), read("new.txt"), read("doomed.txt")], ["changed\n", "newer\n", undefined]);
step("undo put it back");
const foreign = await client.callTool({ name: "rewind_plan", arguments: { to: "nobody/turn:1" } });
assert.equal(foreign.isError, true);
step("another session's work is out of reach");
await client.close();
