// An agent that records its work, and takes it back. Usage: node agent.ts FOLDER (Node 22.18 or newer)
import { execSync, spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

type Message = { id?: number; result?: unknown; error?: { message: string; data: { code: string } } };
type Plan = { plan: string; items: { action: string; path: string }[] };

const child = spawn("backstitch", ["serve"], { stdio: ["pipe", "pipe", "inherit"] });
const waiting = new Map<number, (message: Message) => void>();
createInterface({ input: child.stdout }).on("line", (line) => {
  const message = JSON.parse(line) as Message;
  if (message.id !== undefined) waiting.get(message.id)?.(message); // else it is a notification
});

let last = 0;
function call<T>(method: string, params: object = {}): Promise<T> {
  const id = ++last;
  child.stdin.write(JSON.stringify({ jsonrpc: "2.0", id, method, params }) + "\n");
  return new Promise((done, failed) => {
    waiting.set(id, ({ result, error }) => {
      waiting.delete(id);
      if (error) failed(new Error(`${error.data.code}: ${error.message}`));
      else done(result as T);
    });
  });
}

const folder = resolve(process.argv[2] ?? ".");
await call("initialize", { client: "my-agent", version: "1" });
await call("workspace/open", { workspace: folder });
await call("session/open", { session: "conversation-8" });

// A prompt. The answer comes at once; the capture goes on while the model thinks.
const { turn } = await call<{ turn: number }>("turn/begin", { key: "message-1", prompt: "Write a greeting" });

// A tool that names its file costs that file only.
await call("tool/before", { call: "call-1", tool: "write", paths: ["greeting.txt"] });
writeFileSync(join(folder, "greeting.txt"), "Hello\n");
await call("tool/after", { call: "call-1" });

// One that names none, such as a shell, costs a look at the folder at both ends.
await call("tool/before", { call: "call-2", tool: "shell" });
execSync("rm notes.txt", { cwd: folder });
await call("tool/after", { call: "call-2" });
await call("turn/end", { key: "message-1" });

// "Take that back": show the plan first, then carry out exactly that plan.
const plan = await call<Plan>("rewind/plan", { to: turn });
for (const { action, path } of plan.items) console.log(action, path);
const outcome = await call<{ verified: boolean }>("rewind/apply", { plan: plan.plan });
console.log("taken back, and read back:", outcome.verified);

await call("undo");
console.log("undone:", readFileSync(join(folder, "greeting.txt"), "utf8").trim());
await call("shutdown");
