//! How a checkpoint is named in arguments (SEMANTICS B).

use jiff::{Timestamp, Zoned, civil, tz::TimeZone};

use crate::{
    error::{Code, Error, Result},
    record::{Checkpoint, Kind, State, now_ms},
    session,
    workspace::Rows,
};

/// A full id: sixteen characters of the id alphabet.
pub fn is_full_id(s: &str) -> bool {
    s.len() == 16 && s.bytes().all(is_id_byte)
}

fn is_id_byte(b: u8) -> bool {
    b.is_ascii_digit() || (b.is_ascii_lowercase() && !matches!(b, b'i' | b'l' | b'o' | b'u'))
}

/// `10m`, `2h`, `3d`, `14:05`, RFC 3339 (a missing offset is local), to milliseconds since 1970.
/// `now` of 0 means the present moment.
pub fn parse_time(text: &str, now: i64) -> Option<i64> {
    let now = if now == 0 { now_ms() } else { now };
    let t = text.trim();
    if let Some(unit) = t.chars().last().filter(|c| "smhdw".contains(*c)) {
        let digits = &t[..t.len() - 1];
        if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
            let n: i64 = digits.parse().ok()?;
            let factor = match unit {
                's' => 1_000,
                'm' => 60_000,
                'h' => 3_600_000,
                'd' => 86_400_000,
                _ => 604_800_000,
            };
            return Some(now.saturating_sub(n.saturating_mul(factor)));
        }
    }
    let tz = TimeZone::system();
    let is_clock = |s: &str| {
        let p: Vec<&str> = s.split(':').collect();
        (p.len() == 2 || p.len() == 3)
            && (1..=2).contains(&p[0].len())
            && p[1..].iter().all(|x| x.len() == 2)
            && p.iter().all(|x| x.bytes().all(|b| b.is_ascii_digit()))
    };
    if is_clock(t) {
        let p: Vec<i8> = t.split(':').filter_map(|x| x.parse().ok()).collect();
        let time = civil::Time::new(*p.first()?, *p.get(1)?, p.get(2).copied().unwrap_or(0), 0).ok()?;
        let zoned = Timestamp::from_millisecond(now).ok()?.to_zoned(tz.clone());
        let today = zoned.date().to_datetime(time).to_zoned(tz.clone()).ok()?;
        let at = today.timestamp().as_millisecond();
        if at > now {
            // In the future: yesterday's.
            let day = zoned.date().yesterday().ok()?;
            return Some(day.to_datetime(time).to_zoned(tz).ok()?.timestamp().as_millisecond());
        }
        return Some(at);
    }
    if t.len() < 10 || !t.as_bytes()[..4].iter().all(u8::is_ascii_digit) || t.as_bytes()[4] != b'-' {
        return None;
    }
    if let Ok(ts) = t.parse::<Timestamp>() {
        return Some(ts.as_millisecond());
    }
    if let Ok(z) = t.parse::<Zoned>() {
        return Some(z.timestamp().as_millisecond());
    }
    if let Ok(d) = t.parse::<civil::DateTime>() {
        return Some(d.to_zoned(tz).ok()?.timestamp().as_millisecond());
    }
    None
}

fn describe(c: &Checkpoint) -> String {
    format!(
        "{} {} {}{}",
        c.record.id,
        c.record.kind.as_str(),
        crate::record::rfc3339(c.record.created_ms),
        c.record.label.as_deref().map(|l| format!(" {l:?}")).unwrap_or_default()
    )
}

fn none(name: &str) -> Error {
    if parse_time(name, 0).is_some() {
        return Error::new(Code::NoSuchCheckpoint, format!("no checkpoint is as old as {name:?}"))
            .hint("`backstitch list` shows every checkpoint with its age");
    }
    Error::new(Code::NoSuchCheckpoint, format!("no checkpoint is named {name:?}"))
        .hint("`backstitch list --all` shows every checkpoint")
}

fn one<'a>(name: &str, found: Vec<&'a Checkpoint>) -> Result<&'a Checkpoint> {
    match found.as_slice() {
        [] => Err(none(name)),
        [c] => Ok(c),
        many => Err(Error::new(Code::Ambiguous, format!("{name:?} stands for {} checkpoints", many.len()))
            .list(many.iter().map(|c| describe(c)).collect())
            .hint("give a full id from the list")),
    }
}

fn counted(c: &Checkpoint) -> bool {
    c.record.kind.is_counted() && matches!(c.record.state, State::Complete | State::Partial)
}

/// Which session a turn number belongs to: named, or the only one there is.
pub fn session_of<'a>(rows: &'a Rows, session: Option<&'a str>) -> Result<&'a str> {
    if let Some(s) = session {
        return Ok(s);
    }
    let mut all: Vec<&str> = rows.all.iter().filter_map(|c| c.record.session.as_deref()).collect();
    all.sort_unstable();
    all.dedup();
    match all.as_slice() {
        [] => Err(Error::new(Code::NoSuchSession, "there is no session here")),
        [s] => Ok(s),
        many => Err(Error::new(Code::Ambiguous, "there is more than one session")
            .list(many.iter().map(|s| s.to_string()).collect())
            .hint("name one with --session")),
    }
}

/// Finds the row that `name` stands for. Order: full id, `@…`, `turn:`/`prompt:`, `label:`, time, bare label, id prefix.
/// `SESSION/…` narrows.
///
/// # Errors
/// `no-such-checkpoint`, `ambiguous` with the candidates, `no-such-session`, `usage`.
pub fn resolve<'a>(rows: &'a Rows, name: &str, session: Option<&str>) -> Result<&'a Checkpoint> {
    let all = || rows.all.iter();
    // A fork's line begins with its parent's rows: `prompt:2` of a fork may be a row of its parent.
    let of = |s: &str| session::line(rows, &rows.sessions, s);
    if let Some(c) = all().find(|c| c.record.id == name) {
        return Ok(c);
    }
    if let Some((r, why)) = rows
        .damaged
        .iter()
        .find(|(r, _)| name.len() >= 4 && r.rsplit('/').next().is_some_and(|id| id.starts_with(name)))
    {
        return Err(Error::new(Code::StoreDamaged, format!("{r} is damaged: {why}"))
            .hint("`backstitch verify` says what is hit; the other checkpoints stay usable"));
    }
    let slash = name.split_once('/').filter(|_| !name.starts_with("label:"));
    if let Some((s, rest)) = slash {
        let narrowed = of(s);
        if narrowed.is_empty() {
            // Labels may hold a slash.
            if let Some(c) = by_label(rows, name)? {
                return Ok(c);
            }
            return Err(Error::new(Code::NoSuchSession, format!("there is no session {s:?} here")));
        }
        return match resolve_in(narrowed, rest, name) {
            Err(e) if e.code == Code::NoSuchCheckpoint => by_label(rows, name)?.ok_or(e),
            found => found,
        };
    }
    // A session narrows the counted forms to its line; ids and labels are found everywhere.
    if name.starts_with("turn:") || name.starts_with("prompt:") {
        return resolve_in(of(session_of(rows, session)?), name, name);
    }
    match session {
        Some(s) if name.starts_with('@') => resolve_in(of(s), name, name),
        _ => resolve_in(all().collect(), name, name),
    }
}

fn by_label<'a>(rows: &'a Rows, label: &str) -> Result<Option<&'a Checkpoint>> {
    let found: Vec<&Checkpoint> =
        rows.all.iter().filter(|c| c.record.label.as_deref() == Some(label)).collect();
    if found.is_empty() { Ok(None) } else { one(label, found).map(Some) }
}

fn resolve_in<'a>(rows: Vec<&'a Checkpoint>, name: &str, shown: &str) -> Result<&'a Checkpoint> {
    if let Some(c) = rows.iter().find(|c| c.record.id == name) {
        return Ok(c);
    }
    if let Some(rest) = name.strip_prefix('@') {
        if rest == "safety" {
            return rows
                .iter()
                .rev()
                .find(|c| c.record.kind == Kind::Safety)
                .copied()
                .ok_or_else(|| none(shown));
        }
        let n: usize = match rest {
            "" => 0,
            r => r
                .strip_prefix('~')
                .and_then(|d| if d.is_empty() { Some(1) } else { d.parse().ok() })
                .ok_or_else(|| {
                    Error::new(Code::Usage, format!("{shown:?} is not `@`, `@~N` or `@safety`"))
                        .hint("`@~2` is two before the newest; `backstitch list` shows them")
                })?,
        };
        return rows.iter().rev().filter(|c| counted(c)).nth(n).copied().ok_or_else(|| none(shown));
    }
    for (prefix, kind) in [("turn:", Kind::Turn), ("prompt:", Kind::Prompt)] {
        if let Some(n) = name.strip_prefix(prefix) {
            let n: u64 = n.parse().map_err(|_| {
                Error::new(Code::Usage, format!("{shown:?}: a turn is a number, such as {prefix}3"))
                    .hint("`backstitch session show` lists the turns")
            })?;
            return rows
                .iter()
                .rev()
                .find(|c| c.record.kind == kind && c.record.turn == Some(n))
                .copied()
                .ok_or_else(|| none(shown).hint("`backstitch session show` lists the turns"));
        }
    }
    if let Some(label) = name.strip_prefix("label:") {
        return one(
            shown,
            rows.iter().filter(|c| c.record.label.as_deref() == Some(label)).copied().collect(),
        );
    }
    if let Some(ms) = parse_time(name, 0) {
        return rows
            .iter()
            .rev()
            .filter(|c| counted(c) && c.record.created_ms <= ms)
            .max_by_key(|c| (c.record.created_ms, c.record.seq))
            .copied()
            .ok_or_else(|| none(shown));
    }
    let labelled: Vec<&Checkpoint> =
        rows.iter().filter(|c| c.record.label.as_deref() == Some(name)).copied().collect();
    if !labelled.is_empty() {
        return one(shown, labelled);
    }
    if name.is_empty() || !name.bytes().all(is_id_byte) {
        return Err(none(shown));
    }
    one(shown, rows.iter().filter(|c| c.record.id.starts_with(name)).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let now = 1_700_000_000_000;
        assert_eq!(parse_time("10m", now), Some(now - 600_000));
        assert_eq!(parse_time("2h", now), Some(now - 7_200_000));
        assert_eq!(parse_time("2023-11-14T22:13:20Z", now), Some(now));
        let clock = parse_time("14:05", now).expect("a time");
        assert!(clock <= now && now - clock < 86_400_000 + 3_600_000);
        for no in ["m", "10", "before refactor", "1:2:3:4", "2023", "25:00", "12:61", "x14:05", "abcm"] {
            assert_eq!(parse_time(no, now), None, "{no}");
        }
    }
}
