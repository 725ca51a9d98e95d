// The conversation moves by itself: a fork, /tree, a session that is opened again. What happens to the files is a policy.
import type { ExtensionContext } from "@earendil-works/pi-coding-agent";
import { prompts } from "./conversation.ts";
import { summary } from "./menu.ts";
import { agree, planned, report, type Request, straight } from "./rewind.ts";
import { lastOf, type Session } from "./session.ts";
import type { Policy } from "./settings.ts";
import { changes, done, type Plan, type Row } from "./types.ts";

/** How files get to the state that they had at the end of a branch. */
function request(session: Session, rows: readonly Row[], entries: readonly string[], forward: boolean): Request | undefined {
  const at = lastOf(rows, entries);
  const target = at ?? rows.find((row) => row.kind === "prompt");
  if (!target || (at && at.kind !== "turn" && at.kind !== "prompt")) return undefined;
  const title = "Put the files back to this point of the conversation";
  const params = { session: session.recorder.session };
  return forward
    ? { title, plan: "restore/plan", apply: "restore/apply", params: { ...params, checkpoint: target.id } }
    : { title, plan: "rewind/plan", apply: "rewind/apply", params: { ...params, to: target.id } };
}

type Answer = { cancel: boolean; paths: string[]; outcome: Plan | undefined };
const LEFT: Answer = { cancel: false, paths: [], outcome: undefined };

/** Offers or makes the restore, as the policy says. Where nobody can be asked, `ask` is `never`. */
async function offer(session: Session, ctx: ExtensionContext, policy: Policy, what: string, cancel: string | undefined, make: (rows: Row[]) => Request | undefined): Promise<Answer> {
  if (policy === "never" || (policy === "ask" && !ctx.hasUI) || session.engine.down) return LEFT;
  await session.recorder.flush();
  const wanted = make(await session.rows());
  if (!wanted) return LEFT;
  const plan = await planned(session, wanted);
  if (changes(plan).length === 0) return LEFT;
  let outcome: Plan | undefined;
  if (policy === "always") outcome = await straight(session, ctx, wanted);
  else {
    const [leave, back] = ["Leave the files as they are", `Put files back  (${summary(plan)})`];
    const answer = await ctx.ui.select(what, [leave, back, ...(cancel ? [cancel] : [])]);
    if (cancel && (answer === cancel || answer === undefined)) return { ...LEFT, cancel: true };
    if (answer === back) outcome = await agree(session, ctx, wanted, plan);
  }
  if (outcome) report(ctx, outcome);
  return { cancel: false, outcome, paths: outcome ? done(outcome).map((item) => item.path) : [] };
}

/** Before a fork: files to the fork point, in the session that is left. Tells whether the fork is to be cancelled. */
export async function beforeFork(session: Session, ctx: ExtensionContext, entryId: string, position: "before" | "at"): Promise<Answer> {
  const branch = ctx.sessionManager.getBranch(entryId);
  const kept = prompts(branch).map((entry) => entry.id);
  if (position === "before" && kept.at(-1) === entryId) kept.pop();
  const what = "The fork begins earlier than the files. What about them?";
  const answer = await offer(session, ctx, session.settings.restoreOnFork, what, "Cancel the fork", (rows) => request(session, rows, kept, false));
  // For whoever comes back to this session; the fork is told by the extension.
  if (answer.outcome) session.note(answer.outcome, answer.paths, null);
  return answer;
}

/** After the person moved in the tree. */
export async function afterTree(session: Session, ctx: ExtensionContext, oldLeaf: string | null): Promise<void> {
  const branch = ctx.sessionManager.getBranch();
  const leaf = ctx.sessionManager.getLeafId();
  const old = oldLeaf === null ? [] : ctx.sessionManager.getBranch(oldLeaf);
  const back = branch.length === 0 || old.some((entry) => entry.id === branch.findLast((e) => e.type !== "custom" && e.type !== "branch_summary")?.id);
  const what = "The conversation moved. What about the files?";
  const { outcome, paths } = await offer(session, ctx, session.settings.restoreOnTree, what, undefined, (rows) =>
    request(session, rows, prompts(branch).map((entry) => entry.id), !back),
  );
  if (outcome && ctx.sessionManager.getLeafId() === leaf) session.note(outcome, paths, oldLeaf);
}

/** After a session was opened again: files as its last turn left them. */
export async function afterResume(session: Session, ctx: ExtensionContext): Promise<void> {
  const entries = prompts(ctx.sessionManager.getBranch()).map((entry) => entry.id);
  const what = "Files changed since this session stopped. What about them?";
  const { outcome, paths } = await offer(session, ctx, session.settings.restoreOnResume, what, undefined, (rows) =>
    // A turn that was cut off has no state to go back to.
    lastOf(rows, entries)?.kind === "turn" ? request(session, rows, entries, true) : undefined,
  );
  if (outcome) session.note(outcome, paths, null);
}
