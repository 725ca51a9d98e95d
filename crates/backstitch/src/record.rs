//! A row's record: one line of JSON in the last paragraph of its commit's message.

use std::{
    borrow::Cow,
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use backstitch_store::{Oid, Row};
use bstr::{BStr, BString, ByteSlice};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, MapAccess, Visitor},
};

use crate::error::{Code, Error, Result};

/// Where checkpoints live in the store.
pub const CHECKPOINTS: &str = "refs/backstitch/checkpoints/";
/// Where operations live in the store.
pub const OPERATIONS: &str = "refs/backstitch/operations/";
/// Where deleted rows wait until they are collected.
pub const TRASH: &str = "refs/backstitch/trash/";

/// Fields of a record that only some rows have.
pub(crate) const IN_FLIGHT: &str = "in_flight";
pub(crate) const GATED: &str = "gated";
pub(crate) const CLOCK: &str = "clock_ns";

/// What a row was recorded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A session opened.
    SessionStart,
    /// Before a turn.
    Prompt,
    /// After a turn.
    Turn,
    /// Before or after one tool call.
    Tool,
    /// After a sub-agent.
    AgentRun,
    /// Asked for by a person.
    Manual,
    /// The present state just before an operation.
    Safety,
}

impl Kind {
    /// All kinds.
    pub const ALL: &'static [Kind] = &[
        Kind::SessionStart,
        Kind::Prompt,
        Kind::Turn,
        Kind::Tool,
        Kind::AgentRun,
        Kind::Manual,
        Kind::Safety,
    ];

    /// The stable string.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::SessionStart => "session-start",
            Kind::Prompt => "prompt",
            Kind::Turn => "turn",
            Kind::Tool => "tool",
            Kind::AgentRun => "agent-run",
            Kind::Manual => "manual",
            Kind::Safety => "safety",
        }
    }

    /// Inverse of [`Kind::as_str`].
    pub fn parse(s: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|k| k.as_str() == s)
    }

    /// Counted by `@` and `@~N` (SEMANTICS 8).
    pub fn is_counted(self) -> bool {
        matches!(self, Kind::SessionStart | Kind::Prompt | Kind::Turn | Kind::Manual)
    }
}

/// How much a row claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// All that the rules ask for.
    Complete,
    /// Something was left out against the rules; the list says what.
    Partial,
    /// Nothing can be restored from it.
    Failed,
    /// Not recorded: a time limit passed.
    Gap,
}

/// How long automatic rows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Retention {
    /// Days.
    Short,
    /// Weeks.
    Standard,
    /// Until deleted by hand or by the budget.
    Forensic,
}

/// Counts of changed files against the parent row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// New files and links.
    pub added: u64,
    /// Changed content, type or mode.
    pub modified: u64,
    /// Files that are gone.
    pub deleted: u64,
    /// Moved without a change.
    pub renamed: u64,
}

impl Summary {
    /// `3 files: +1 ~1 -1`, zero counts left out; `no changes`.
    pub fn line(&self) -> String {
        let total = self.added + self.modified + self.deleted + self.renamed;
        if total == 0 {
            return "no changes".to_owned();
        }
        let mut s = format!("{total} file{}:", if total == 1 { "" } else { "s" });
        for (sign, n) in [("+", self.added), ("~", self.modified), ("-", self.deleted), (">", self.renamed)] {
            if n > 0 {
                s.push_str(&format!(" {sign}{n}"));
            }
        }
        s
    }

    /// Nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == Summary::default()
    }
}

/// The folder that a row was made of (SEMANTICS 24).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Birth time in nanoseconds since 1970, where the file system has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub birth_ns: Option<i64>,
}

/// One path that was left out, in JSON form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkipRecord {
    /// Lossy path.
    pub path: String,
    /// Exact path where `path` is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
    /// Stable reason.
    pub reason: String,
    /// Size where known.
    pub bytes: Option<u64>,
    /// More about the reason, such as the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

fn is_false(b: &bool) -> bool {
    !*b
}

/// The record of one checkpoint. Unknown fields of a later format are kept when it is rewritten.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Version of the record.
    pub v: u32,
    /// The id; also the last part of the ref's name.
    pub id: String,
    /// Order of rows: higher is later, whatever the clock did. Ties are ordered by id.
    pub seq: u64,
    /// Kind.
    pub kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Session.
    pub session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Turn number in the session.
    pub turn: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// The host's key of the turn.
    pub turn_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Sub-agent.
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Tool.
    pub tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Tool rows: `before` or `after` the call.
    pub phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Tool rows: the host's id of the call; both ends of a window have the same.
    pub call: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Turn rows: `completed`, `error`, `cancelled`, `crashed`.
    pub status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Label.
    pub label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// The prompt.
    pub prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Id of the conversation's entry.
    pub entry: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// The row that it was compared with.
    pub parent: Option<String>,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// State.
    pub state: State,
    /// The tree equals the parent's.
    pub unchanged: bool,
    /// Counts against the parent.
    pub summary: Summary,
    /// Files and links in the tree.
    pub files: u64,
    /// Left out, in all.
    pub skipped_total: u64,
    /// The first of them; all are in the coverage blob.
    pub skipped: Vec<SkipRecord>,
    /// `workspace`, `touched` or `paths`.
    pub scope: String,
    /// Escaped paths that were looked at, where not all was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covers: Option<Vec<String>>,
    /// Escaped absolute paths of files outside the workspace that were looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
    /// Retention class.
    pub retention: Retention,
    /// Kept whatever the policy says.
    #[serde(skip_serializing_if = "is_false")]
    pub pinned: bool,
    /// The folder.
    pub incarnation: Incarnation,
    /// Bytes that this row added to the store when it was made.
    pub written: u64,
    /// What a reader should know: shrunk coverage, a warning.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Where a failed or gap row says why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The operation that a safety row was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// Written by hand: thousands are read by every process, and what the derived form does for `extra` takes twice the time.
impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Record, D::Error> {
        deserializer.deserialize_map(RecordVisitor)
    }
}

struct RecordVisitor;

macro_rules! fields {
    (needed: $($needed:ident),*; others: $($other:ident),*) => {
        impl<'de> Visitor<'de> for RecordVisitor {
            type Value = Record;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the record of a checkpoint")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Record, A::Error> {
                $(let mut $needed = None;)*
                $(let mut $other = None;)*
                let mut extra = serde_json::Map::new();
                while let Some(Key(key)) = map.next_key()? {
                    match &*key {
                        $(stringify!($needed) => $needed = Some(map.next_value()?),)*
                        $(stringify!($other) => $other = Some(map.next_value()?),)*
                        _ => drop(extra.insert(key.into_owned(), map.next_value()?)),
                    }
                }
                Ok(Record {
                    $($needed: $needed.ok_or_else(|| A::Error::missing_field(stringify!($needed)))?,)*
                    $($other: $other.unwrap_or_default(),)*
                    extra,
                })
            }
        }
    };
}

fields! {
    needed: v, id, seq, kind, created_ms, state, unchanged, summary, files, skipped_total, skipped, scope, retention, incarnation, written;
    others: session, turn, turn_key, agent, tool, phase, call, status, label, prompt, entry, parent, covers, outside, pinned, notes, reason, operation
}

/// A name in an object, borrowed where it stands there as it is.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Key<'de>, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, s: &'de str) -> std::result::Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(s)))
            }

            fn visit_str<E>(self, s: &str) -> std::result::Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(s.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

impl Record {
    /// The commit message: a line for people, then the record as the last paragraph.
    pub fn message(&self) -> Vec<u8> {
        let what = self
            .label
            .as_deref()
            .or(self.prompt.as_deref())
            .map(|s| format!(": {}", one_line(s, 60)))
            .unwrap_or_default();
        let head = format!("{} {}{} ({})", self.kind.as_str(), self.id, what, self.summary.line());
        encode(&head, self)
    }

    /// What the ref of the row points to, once this record is in `commit`.
    pub(crate) fn row(&self, commit: Oid, tree: Oid) -> Row {
        Row { name: format!("{CHECKPOINTS}{}", self.id), commit, tree, message: self.message().into() }
    }

    /// Reads a row; a message of another shape is an error that names the row.
    pub fn parse(row: &Row) -> Result<Record> {
        let record: Record = decode(row.message.as_bstr(), &row.name)?;
        check_id(&record.id, &row.name)?;
        Ok(record)
    }

    /// Files outside the workspace that were looked at, by absolute path.
    pub fn outside_paths(&self) -> impl Iterator<Item = BString> {
        self.outside.iter().filter_map(|p| crate::paths::unescape(p.as_bytes()))
    }

    /// The paths that a tool named, wherever they are; `None` where it named none and everything was looked at.
    pub fn named(&self) -> Option<Vec<BString>> {
        let covers = self.covers.as_ref()?.iter();
        let inside = covers.filter_map(|p| crate::paths::unescape(p.as_bytes()));
        Some(inside.chain(self.outside_paths()).collect())
    }

    /// The row was made at once and its capture goes on, or its process died.
    pub fn in_flight(&self) -> bool {
        self.state == State::Gap && self.extra.contains_key(IN_FLIGHT)
    }

    /// `false`: tools may have run before the capture was done.
    pub fn gated(&self) -> Option<bool> {
        self.extra.get(GATED).and_then(serde_json::Value::as_bool)
    }

    /// The clock at its beginning, in nanoseconds since 1970, where it was noted.
    pub(crate) fn clock_ns(&self) -> Option<i128> {
        self.extra.get(CLOCK).and_then(serde_json::Value::as_i64).map(i128::from)
    }

    /// Can be a target of restore: complete or partial, and not implausibly empty.
    pub fn is_restorable(&self) -> bool {
        matches!(self.state, State::Complete | State::Partial) && !self.implausible()
    }

    /// Nothing in it though its parent held files (SEMANTICS 2).
    pub fn implausible(&self) -> bool {
        self.files == 0 && self.summary.deleted > 0
    }

    /// Order of rows.
    pub fn order(&self) -> (u64, &str) {
        (self.seq, &self.id)
    }
}

/// Head line, blank line, one line of JSON. NUL cannot occur in a commit: JSON escapes it, the head drops it.
pub fn encode(head: &str, record: &impl Serialize) -> Vec<u8> {
    let json = serde_json::to_string(record).unwrap_or_else(|_| "{}".to_owned());
    format!("{}\n\n{json}\n", one_line(head, 120)).into_bytes()
}

/// Takes only the last paragraph, which must be one line of JSON: a prompt may contain anything.
pub fn decode<T: for<'a> Deserialize<'a>>(message: &BStr, name: &str) -> Result<T> {
    let text = message.trim_end_with(|c| c == '\n');
    let line = match text.rfind(b"\n") {
        Some(i) => &text[i + 1..],
        None => text,
    };
    let damaged = |e: &dyn fmt::Display| {
        Error::new(Code::StoreDamaged, format!("the record of {name} cannot be read: {e}"))
            .hint("`backstitch verify` lists damaged rows; the others stay usable")
    };
    // One look at all of it is faster than one at each text.
    let line = line.to_str().map_err(|e| damaged(&e))?;
    serde_json::from_str(line).map_err(|e| damaged(&e))
}

/// Ids become parts of names of refs and files: a record speaks only for the ref that it stands under.
pub(crate) fn check_id(id: &str, name: &str) -> Result<()> {
    if crate::names::is_full_id(id) && name.rsplit('/').next() == Some(id) {
        return Ok(());
    }
    Err(Error::new(Code::StoreDamaged, format!("the record of {name} has the id {id:?}")))
}

/// First line, control characters dropped, cut to `max` characters.
pub fn one_line(s: &str, max: usize) -> String {
    let line: String = s.lines().next().unwrap_or("").chars().filter(|c| !c.is_control()).collect();
    if line.chars().count() <= max {
        return line;
    }
    let mut cut: String = line.chars().take(max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// A record with the objects it stands for.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The record. Shared: a process reads the rows several times, and each record once.
    pub record: Arc<Record>,
    /// The commit.
    pub commit: Oid,
    /// The root tree: `files`, `meta`, `outside`.
    pub tree: Oid,
}

/// Milliseconds since 1970; 0 where the clock stands before.
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map(|d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
        .unwrap_or(0)
}

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Ten characters of time, six of chance: time-ordered, unique across processes.
pub fn new_id(now_ms: i64) -> String {
    let mut random = [0u8; 8];
    let mut got = 0;
    while got < random.len() {
        match rustix::rand::getrandom(&mut random[got..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => got += n,
            Err(rustix::io::Errno::INTR) => {}
            // No entropy source: process id and a counter still keep ids apart.
            Err(_) => {
                use std::sync::atomic::{AtomicU32, Ordering};
                static COUNT: AtomicU32 = AtomicU32::new(0);
                random[..4].copy_from_slice(&std::process::id().to_le_bytes());
                random[4..].copy_from_slice(&COUNT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
                break;
            }
        }
    }
    let r = u64::from_le_bytes(random);
    let t = now_ms.max(0) as u64;
    let mut id = String::with_capacity(16);
    for i in (0..10).rev() {
        id.push(ALPHABET[(t >> (5 * i) & 31) as usize] as char);
    }
    for i in 0..6 {
        id.push(ALPHABET[(r >> (5 * i) & 31) as usize] as char);
    }
    id
}

/// RFC 3339, UTC, milliseconds.
pub fn rfc3339(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms)
        .map(|t| format!("{t:.3}"))
        .unwrap_or_else(|_| "1970-01-01T00:00:00.000Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_differ() {
        let (a, b, c) = (new_id(1000), new_id(1000), new_id(2000));
        assert_eq!(a.len(), 16);
        assert_ne!(a, b);
        assert!(c > a && c > b);
    }

    #[test]
    fn summary_omits_zero_counts() {
        assert_eq!(Summary::default().line(), "no changes");
        assert_eq!(Summary { added: 1, ..Default::default() }.line(), "1 file: +1");
        let s = Summary { added: 1, modified: 1, deleted: 1, renamed: 0 };
        assert_eq!(s.line(), "3 files: +1 ~1 -1");
    }

    #[test]
    fn s0_60_a_summary_leaves_out_what_is_zero() {
        let of = |added, modified, deleted, renamed| Summary { added, modified, deleted, renamed }.line();
        assert_eq!(of(0, 0, 0, 0), "no changes");
        assert_eq!(of(1, 0, 0, 0), "1 file: +1");
        assert_eq!(of(1, 1, 1, 0), "3 files: +1 ~1 -1");
        assert_eq!(of(0, 0, 2, 3), "5 files: -2 >3");
    }

    #[test]
    fn the_last_paragraph_is_the_record() {
        let m = encode("a \0 head\nwith {\"v\":9}", &serde_json::json!({"v": 1, "p": "x\n\n{\"v\":2}\u{0}"}));
        assert!(!m.contains(&0));
        let v: serde_json::Value = decode(m.as_bstr(), "x").expect("a record");
        assert_eq!(v["v"], 1);
    }

    #[test]
    fn times_are_utc_with_milliseconds() {
        assert_eq!(rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
    }
}
