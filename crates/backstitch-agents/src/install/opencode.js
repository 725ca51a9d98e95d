// Backstitch for opencode. Written by `backstitch install opencode`; `backstitch uninstall opencode` takes it away.
//
// Each hook calls `backstitch hook opencode EVENT` with its arguments as JSON. Nothing here ever fails or blocks a tool: an
// error of ours is told in Backstitch's own log.
import { spawn, spawnSync } from "node:child_process";

const PROGRAM = "@PROGRAM@";
// A tool waits at most this long for its checkpoint.
const WAIT_MS = 60_000;

const call = (event, payload) =>
  new Promise((done) => {
    let out = "";
    const finish = () => {
      clearTimeout(timer);
      try {
        done(out.trim() ? JSON.parse(out) : {});
      } catch {
        done({});
      }
    };
    const timer = setTimeout(() => {
      child?.kill();
      finish();
    }, WAIT_MS);
    let child;
    try {
      child = spawn(PROGRAM, ["hook", "opencode", event], { stdio: ["pipe", "pipe", "ignore"] });
      child.on("error", finish);
      child.on("close", finish);
      child.stdout.on("data", (piece) => (out += piece));
      child.stdin.on("error", () => {});
      child.stdin.end(JSON.stringify(payload));
    } catch {
      finish();
    }
  });

// The process may end as soon as a turn has: what is still running then is lost, so this one is waited for.
const callAndStay = (event, payload) => {
  try {
    spawnSync(PROGRAM, ["hook", "opencode", event], { input: JSON.stringify(payload), stdio: ["pipe", "ignore", "ignore"], timeout: WAIT_MS });
  } catch {}
};

export const Backstitch = async ({ directory }) => {
  // Sub-agents have sessions of their own, below the one that a person talks in.
  const parents = new Map();
  const root = (id) => {
    let at = id;
    for (let n = 0; n < 32 && parents.has(at); n++) at = parents.get(at);
    return at;
  };
  const report = (event, session, rest, how = call) => how(event, { directory, root: root(session), ...rest });

  return {
    event: async ({ event }) => {
      const info = event.properties?.info;
      if (event.type === "session.created") {
        if (info?.parentID) parents.set(info.id, info.parentID);
        await report(event.type, info?.id, { properties: { sessionID: info?.id } });
      }
      if (event.type === "session.idle") {
        const session = event.properties?.sessionID;
        report(event.type, session, { properties: { sessionID: session } }, callAndStay);
      }
    },
    "chat.message": async (input, output) => {
      const parts = (output.parts ?? []).map(({ type, text, synthetic }) => ({ type, text, synthetic }));
      const message = { id: output.message?.id, sessionID: input.sessionID };
      const said = await report("chat.message", input.sessionID, { input: { sessionID: input.sessionID }, message, parts });
      const add = (text) =>
        output.parts.push({
          id: `prt_backstitch${Date.now().toString(36)}`,
          sessionID: input.sessionID,
          messageID: output.message.id,
          type: "text",
          text,
          synthetic: true,
        });
      if (said.tell) add(said.tell);
      if (said.stop) {
        // The message cannot be held back: the model is asked to say what was done.
        output.parts.length = 0;
        add(`Repeat the following to the user, word for word, and do nothing else:\n${said.stop}`);
      }
    },
    "tool.execute.before": async (input, output) => {
      await report("tool.execute.before", input.sessionID, { input, args: output.args });
    },
    "tool.execute.after": async (input) => {
      await report("tool.execute.after", input.sessionID, { input });
    },
  };
};
