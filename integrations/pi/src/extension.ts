// Backstitch for pi: events into calls of one `backstitch serve` child, and /rewind. All rules are the engine's.
import { homedir } from "node:os";
import { join } from "node:path";
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { boundCompaction } from "./compaction.ts";
import { changedSince, isPrompt, notice, prompts, textOf } from "./conversation.ts";
import { bindGesture } from "./terminal.ts";
import { afterResume, afterTree, beforeFork } from "./navigation.ts";
import { scope } from "./paths.ts";
import { rewind } from "./rewind.ts";
import { nested, say, Session, settings } from "./session.ts";

/** Paths that were changed in a session that was then left for its fork; the module is loaded anew for the fork. */
const HANDED = Symbol.for("backstitch.pi.changed");
const handed = globalThis as unknown as Record<symbol, string[] | undefined>;

export default function backstitch(pi: ExtensionAPI): void {
  let session: Session | undefined;
  let off: string | undefined;
  let unbind: (() => void) | undefined;
  // Versions that tell when a run is over for good also hand out their settings.
  const tellsSettled = typeof (pi as { getSettings?: unknown }).getSettings === "function";

  /** A handler that cannot fail: an error in one would block the tool, or end the event for others. */
  const guarded =
    <E, R>(work: (event: E, ctx: ExtensionContext) => Promise<R> | R) =>
    async (event: E, ctx: ExtensionContext): Promise<R | undefined> => {
      try {
        return await work(event, ctx);
      } catch (error) {
        say(ctx, error instanceof Error ? error.message : String(error), "warning");
        return undefined;
      }
    };

  pi.on(
    "session_start",
    guarded(async (event, ctx) => {
      // Some versions tell twice.
      if (session?.recorder.session === ctx.sessionManager.getSessionId()) return;
      await session?.close(false);
      session = undefined;
      const agentDir = process.env["PI_CODING_AGENT_DIR"] || join(homedir(), ".pi", "agent");
      const read = settings(ctx, agentDir);
      for (const warning of read.warnings) say(ctx, warning, "warning");
      off = read.settings.enabled ? undefined : "switched off: nothing is recorded, and there is nothing to rewind to.";
      if (nested()) off = "this pi runs inside another one, whose /rewind takes back what it does.";
      if (off !== undefined) return;
      const opened = new Session(pi, ctx, read.settings);
      session = opened;
      const parent = event.previousSessionFile ?? ctx.sessionManager.getHeader()?.parentSession;
      opened.open(ctx, event.reason === "fork" || event.reason === "startup" ? parent : undefined);
      unbind?.();
      unbind = ctx.hasUI ? bindGesture(pi, ctx, read.settings) : undefined;
      const again = event.reason === "resume" || event.reason === "startup";
      if (again && prompts(ctx.sessionManager.getBranch()).length > 0) void guarded(() => afterResume(opened, ctx))(undefined, ctx);
    }),
  );

  pi.on(
    "before_agent_start",
    guarded((_event, ctx) => {
      const paths = [...new Set([...(handed[HANDED] ?? []), ...changedSince(ctx.sessionManager.getBranch())])];
      delete handed[HANDED];
      if (paths.length === 0) return undefined;
      return { message: { customType: "backstitch-notice", content: notice(paths), display: true } };
    }),
  );

  pi.on(
    "message_end",
    guarded((event) => {
      if (event.message.role === "user") session?.recorder.prompt(event.message, textOf(event.message));
      return undefined;
    }),
  );

  const bindLast = (ctx: ExtensionContext) => {
    if (!session?.recorder.turn || session.recorder.turn.entry !== undefined) return;
    const last = ctx.sessionManager.getBranch().findLast(isPrompt);
    if (last && last.message.timestamp === session.recorder.turn.timestamp) session.bind(last.id);
  };
  pi.on(
    "message_start",
    guarded((event, ctx) => {
      if (event.message.role === "assistant") bindLast(ctx);
    }),
  );

  pi.on(
    "tool_call",
    guarded(async (event, ctx) => {
      if (!session) return undefined;
      bindLast(ctx);
      const paths = scope(event.toolName, event.input, ctx.cwd);
      if (paths) await session.recorder.before(event.toolCallId, event.toolName, paths);
      return undefined;
    }),
  );
  pi.on(
    "tool_result",
    guarded((event) => {
      session?.recorder.after(event.toolCallId);
      return undefined;
    }),
  );
  // The only one that comes for a call that was blocked.
  pi.on(
    "tool_execution_end",
    guarded((event) => session?.recorder.after(event.toolCallId)),
  );

  // A person's own command: what stands there before it can be had again, and what it does is the person's.
  pi.on(
    "user_bash",
    guarded(async (event) => {
      await session?.recorder.beforeShell(event.command);
      return undefined;
    }),
  );

  pi.on(
    "agent_end",
    guarded((_event, ctx) => {
      bindLast(ctx);
      if (!tellsSettled) session?.recorder.settle("completed");
    }),
  );
  pi.on(
    "agent_settled",
    guarded((event) => session?.recorder.settle((event as { aborted?: boolean }).aborted ? "cancelled" : "completed")),
  );

  pi.on(
    "session_before_fork",
    guarded(async (event, ctx) => {
      if (!session) return undefined;
      const { cancel, paths } = await beforeFork(session, ctx, event.entryId, event.position ?? "before");
      if (paths.length > 0) handed[HANDED] = paths;
      return cancel ? { cancel: true } : undefined;
    }),
  );
  pi.on(
    "session_tree",
    guarded((event, ctx) => {
      // Not waited for: pi is still moving.
      if (session && !session.navigating) void guarded((e: string | null) => (session ? afterTree(session, ctx, e) : undefined))(event.oldLeafId, ctx);
    }),
  );
  pi.on(
    "session_before_compact",
    guarded((event, ctx) => {
      if (session?.boundary === undefined || boundCompaction(event, session.boundary)) return undefined;
      say(ctx, "nothing stands before that prompt that could be summarised.", "warning");
      return { cancel: true };
    }),
  );

  pi.on(
    "session_shutdown",
    guarded(async (event, ctx) => {
      unbind?.();
      unbind = undefined;
      const ended = session;
      session = undefined;
      const nobodyComesBack = ctx.sessionManager.getSessionFile() === undefined && event.reason !== "reload";
      await ended?.close(nobodyComesBack);
    }),
  );

  pi.registerCommand("rewind", {
    description: "Take back what the agent did: files, conversation, or both",
    handler: async (argument, ctx) => {
      await guarded(async () => {
        if (off !== undefined) return say(ctx, off);
        if (session) await rewind(session, argument, ctx);
      })(undefined, ctx);
    },
  });
}
