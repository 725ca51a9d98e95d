//! Which turn broke it: a search over the states between a session's turns, each in a scratch folder.

use std::path::Path;

use crate::{
    error::{Code, Error, Result},
    record::{Checkpoint, Kind},
    session,
    workspace::{Control, Rows, Workspace},
};

/// What was seen of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It works.
    Good,
    /// It does not.
    Bad,
    /// It cannot be told.
    Skip,
}

impl Verdict {
    /// The stable string.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Bad => "bad",
            Verdict::Skip => "skip",
        }
    }
}

/// A state that was looked at.
#[derive(Clone, Debug)]
pub struct Step<S> {
    /// The row.
    pub row: S,
    /// What was seen.
    pub verdict: Verdict,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The first bad state is among the suspects; it is the only one, unless some states could not be told.
    Found,
    /// The newest state is good.
    NotBroken,
    /// The state before the first turn is bad already.
    BrokenBefore,
    /// The oldest or the newest state cannot be told.
    Untold,
}

impl Ending {
    /// The stable string.
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Found => "found",
            Ending::NotBroken => "not-broken",
            Ending::BrokenBefore => "broken-before",
            Ending::Untold => "untold",
        }
    }
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Bisected<S> {
    /// What was looked at, in that order.
    pub steps: Vec<Step<S>>,
    /// States of which one is the first bad one, oldest first. A row of the kind `turn` stands for what its turn did, one of
    /// the kind `prompt` for what happened between its turn and the one before.
    pub suspects: Vec<S>,
    /// How it ended.
    pub ending: Ending,
}

/// The states that a session's turns began from and led to, oldest first, without those that equal the one before.
fn states<'a>(line: &[&'a Checkpoint]) -> Vec<&'a Checkpoint> {
    let of_turns = |c: &&&Checkpoint| {
        matches!(c.record.kind, Kind::Prompt | Kind::Turn)
            && c.record.turn.is_some()
            && c.record.is_restorable()
            && c.record.covers.is_none()
    };
    let mut states: Vec<&Checkpoint> = line.iter().filter(of_turns).copied().collect();
    states.sort_by_key(|c| c.record.seq);
    states.dedup_by(|later, earlier| later.tree == earlier.tree);
    states
}

/// Finds the first bad one of `states`, of which the last is bad if any is: at most two looks, and one for each halving,
/// where nothing is skipped.
fn search<S: Copy>(states: &[S], mut look: impl FnMut(S) -> Result<Verdict>) -> Result<Bisected<S>> {
    let mut steps = Vec::new();
    let mut told = vec![None; states.len()];
    let mut at = |n: usize, told: &mut Vec<Option<Verdict>>, steps: &mut Vec<Step<S>>| -> Result<Verdict> {
        let verdict = look(states[n])?;
        told[n] = Some(verdict);
        steps.push(Step { row: states[n], verdict });
        Ok(verdict)
    };
    let (mut good, mut bad) = (0, states.len() - 1);
    let ended = match at(bad, &mut told, &mut steps)? {
        Verdict::Good => Some(Ending::NotBroken),
        Verdict::Skip => Some(Ending::Untold),
        Verdict::Bad if bad == 0 => Some(Ending::BrokenBefore),
        Verdict::Bad => match at(good, &mut told, &mut steps)? {
            Verdict::Good => None,
            Verdict::Skip => Some(Ending::Untold),
            Verdict::Bad => Some(Ending::BrokenBefore),
        },
    };
    if let Some(ending) = ended {
        return Ok(Bisected { steps, suspects: Vec::new(), ending });
    }
    // Between `good` and `bad` only skipped states were looked at.
    let middle = |good: usize, bad: usize, told: &[Option<Verdict>]| {
        (good + 1..bad).filter(|n| told[*n].is_none()).min_by_key(|n| (2 * n).abs_diff(good + bad))
    };
    while let Some(n) = middle(good, bad, &told) {
        match at(n, &mut told, &mut steps)? {
            Verdict::Good => good = n,
            Verdict::Bad => bad = n,
            Verdict::Skip => {}
        }
    }
    Ok(Bisected { steps, suspects: states[good + 1..=bad].to_vec(), ending: Ending::Found })
}

impl Workspace {
    /// Finds which turn of a session broke something. Each state that is looked at is written into a folder of its own below
    /// `scratch`, in which `look` says what it sees; the folder is removed afterwards, the workspace is not touched.
    ///
    /// # Errors
    /// `no-such-checkpoint` where the session has no turn with a state before and after; those of `look`, and of
    /// [`export_dir`](Workspace::export_dir).
    pub fn bisect<'a>(
        &self,
        rows: &'a Rows,
        session: &str,
        scratch: &Path,
        look: &mut dyn FnMut(&Path, &Checkpoint) -> Result<Verdict>,
        control: &Control<'_>,
    ) -> Result<Bisected<&'a Checkpoint>> {
        let states = states(&session::line(rows, &rows.sessions, session));
        if states.is_empty() {
            return Err(Error::new(
                Code::NoSuchCheckpoint,
                format!("session {session:?} has no turn whose state is recorded"),
            )
            .hint("`backstitch session show` lists its turns"));
        }
        search(&states, |row| {
            let dir = scratch.join(&row.record.id);
            let seen = self.export_dir(row, &dir, control).and_then(|_| look(&dir, row));
            remove(&dir);
            seen
        })
    }
}

/// Removes a scratch folder, also where directories in it are read-only. What cannot be removed stays in the folder for
/// temporary files.
fn remove(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    if std::fs::remove_dir_all(dir).is_ok() {
        return;
    }
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        let _ = std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700));
        let items = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        open.extend(items.filter(|i| i.file_type().is_ok_and(|t| t.is_dir())).map(|i| i.path()));
    }
    let _ = std::fs::remove_dir_all(dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is skipped, the first bad one is among the suspects, and alone where nothing beside it was skipped.
    #[test]
    fn the_first_bad_one_is_found() {
        for n in 2..12usize {
            let states: Vec<usize> = (0..n).collect();
            for first_bad in 1..n {
                for skipped in 0..1u32 << (n - 2) {
                    let skips = |i: usize| (1..n - 1).contains(&i) && skipped >> (i - 1) & 1 == 1;
                    let mut looks = 0;
                    let found = search(&states, |i| {
                        looks += 1;
                        Ok(match (skips(i), i >= first_bad) {
                            (true, _) => Verdict::Skip,
                            (_, true) => Verdict::Bad,
                            _ => Verdict::Good,
                        })
                    })
                    .expect("a search");
                    assert_eq!(found.ending, Ending::Found);
                    let suspects = found.suspects;
                    assert!(suspects.contains(&first_bad));
                    let mut others = suspects.iter().filter(|i| **i != first_bad);
                    assert!(others.all(|i| skips(*i) || skips(i - 1)), "{suspects:?}");
                    if skipped == 0 {
                        assert_eq!(suspects, [first_bad]);
                        assert!(looks <= 3 + n.ilog2(), "{looks} looks at {n} states");
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_to_find_is_said() {
        for (verdict, ending) in [
            (Verdict::Good, Ending::NotBroken),
            (Verdict::Bad, Ending::BrokenBefore),
            (Verdict::Skip, Ending::Untold),
        ] {
            let found = search(&[0, 1, 2, 3], |_| Ok(verdict)).expect("a search");
            assert_eq!((found.ending, found.suspects.len()), (ending, 0));
        }
        let one = search(&[0], |_| Ok(Verdict::Bad)).expect("a search");
        assert_eq!((one.ending, one.steps.len()), (Ending::BrokenBefore, 1));
    }
}
