// An exact boundary for a summary: everything before one entry is summarised, that entry and all after it stay.
import type { SessionBeforeCompactEvent, SessionEntry } from "@earendil-works/pi-coding-agent";

type Preparation = SessionBeforeCompactEvent["preparation"];
type Message = Preparation["messagesToSummarize"][number];

/** What the model was sent for an entry. */
function message(entry: SessionEntry): Message | undefined {
  const timestamp = Date.parse(entry.timestamp);
  if (entry.type === "message") return entry.message.role === "system" ? undefined : (entry.message as Message);
  if (entry.type === "custom_message")
    return { role: "custom", customType: entry.customType, content: entry.content, display: entry.display, timestamp } as Message;
  if (entry.type === "branch_summary") return { role: "branchSummary", summary: entry.summary, fromId: entry.fromId, timestamp } as Message;
  return undefined;
}

/**
 * Moves the boundary of a compaction that pi prepared; pi writes the summary itself, from what stands here afterwards.
 * False where nothing stands before the boundary: then nothing is moved.
 */
export function boundCompaction(event: Pick<SessionBeforeCompactEvent, "preparation" | "branchEntries">, boundary: string): boolean {
  const { preparation, branchEntries } = event;
  const end = branchEntries.findIndex((entry) => entry.id === boundary);
  const earlier = branchEntries.findLast((entry) => entry.type === "compaction");
  const start = earlier ? branchEntries.findIndex((entry) => entry.id === (earlier as { firstKeptEntryId?: string }).firstKeptEntryId) : 0;
  const messages = branchEntries.slice(Math.max(start, 0), Math.max(end, 0)).flatMap((entry) => message(entry) ?? []);
  if (messages.length === 0) return false;
  preparation.firstKeptEntryId = boundary;
  preparation.messagesToSummarize = messages;
  preparation.turnPrefixMessages = [];
  preparation.isSplitTurn = false;
  return true;
}
