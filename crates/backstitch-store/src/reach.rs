//! What refs reach, and where that meets something that is not sound.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicBool, Ordering},
};

use bstr::ByteSlice;

use crate::{
    Error, Odb, Oid, hash,
    object::{self, Kind, MODE_GITLINK, MODE_TREE},
};

/// What following the refs found.
#[derive(Default)]
pub(crate) struct Reached {
    /// Objects that are needed and not sound.
    pub(crate) bad: HashSet<Oid>,
    /// Refs that reach some of them, with those.
    pub(crate) refs: Vec<(String, Vec<Oid>)>,
}

/// An object on the way, and what remains to be seen below it.
struct Step {
    oid: Oid,
    below: Vec<(Oid, Option<Kind>)>,
    tainted: Vec<Oid>,
}

/// Follows `refs` through all objects; `good` are those that are sound. No recursion: trees may be of any depth.
pub(crate) fn follow(
    odb: &Odb,
    good: &HashMap<Oid, Kind>,
    refs: &[(String, Oid)],
    interrupt: &AtomicBool,
) -> Result<Reached, Error> {
    let mut out = Reached::default();
    // For what has been seen: the tainted objects directly below it. Sound ones have none.
    let mut seen: HashMap<Oid, Vec<Oid>> = HashMap::new();
    for (_, root) in refs {
        walk(odb, good, *root, &mut seen, &mut out.bad, interrupt)?;
    }
    let tainted =
        |oid: &Oid, bad: &HashSet<Oid>| bad.contains(oid) || seen.get(oid).is_some_and(|t| !t.is_empty());
    for (name, root) in refs.iter().filter(|(_, r)| tainted(r, &out.bad)) {
        let mut todo = vec![*root];
        let mut met = HashSet::new();
        while let Some(oid) = todo.pop() {
            if met.insert(oid) {
                todo.extend(seen.get(&oid).into_iter().flatten());
            }
        }
        let hits = met.into_iter().filter(|o| out.bad.contains(o)).collect();
        out.refs.push((name.clone(), hits));
    }
    Ok(out)
}

/// Everything that `refs` reach, as far as it can be read.
pub(crate) fn all(odb: &Odb, refs: &[(String, Oid)], interrupt: &AtomicBool) -> Result<HashSet<Oid>, Error> {
    let mut out = HashSet::new();
    let mut todo: Vec<(Oid, Option<Kind>)> = refs.iter().map(|(_, oid)| (*oid, None)).collect();
    while let Some((oid, kind)) = todo.pop() {
        if interrupt.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        if out.insert(oid) && kind != Some(Kind::Blob) {
            let below = odb.read(&oid).ok().and_then(|(kind, data)| links(kind, &data));
            todo.extend(below.into_iter().flatten());
        }
    }
    Ok(out)
}

fn walk(
    odb: &Odb,
    good: &HashMap<Oid, Kind>,
    root: Oid,
    seen: &mut HashMap<Oid, Vec<Oid>>,
    bad: &mut HashSet<Oid>,
    interrupt: &AtomicBool,
) -> Result<(), Error> {
    let mut path: Vec<Step> = Vec::new();
    let mut next = Some((root, None));
    loop {
        if interrupt.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        if let Some((oid, want)) = next.take() {
            match enter(odb, good, oid, want, seen, bad) {
                Entered::Sound => {}
                Entered::Tainted => {
                    if let Some(above) = path.last_mut() {
                        above.tainted.push(oid);
                    }
                }
                Entered::New(below) => path.push(Step { oid, below, tainted: Vec::new() }),
            }
        }
        let Some(step) = path.last_mut() else { return Ok(()) };
        next = step.below.pop();
        if next.is_some() {
            continue;
        }
        if let Some(done) = path.pop() {
            let tainted = !done.tainted.is_empty();
            seen.insert(done.oid, done.tainted);
            if let Some(above) = path.last_mut().filter(|_| tainted) {
                above.tainted.push(done.oid);
            }
        }
    }
}

enum Entered {
    Sound,
    Tainted,
    New(Vec<(Oid, Option<Kind>)>),
}

fn enter(
    odb: &Odb,
    good: &HashMap<Oid, Kind>,
    oid: Oid,
    want: Option<Kind>,
    seen: &HashMap<Oid, Vec<Oid>>,
    bad: &mut HashSet<Oid>,
) -> Entered {
    if let Some(tainted) = seen.get(&oid) {
        return if tainted.is_empty() { Entered::Sound } else { Entered::Tainted };
    }
    if bad.contains(&oid) {
        return Entered::Tainted;
    }
    let kind = match good.get(&oid) {
        Some(kind) => Some(*kind),
        None if oid == hash::empty_tree() => Some(Kind::Tree),
        None => None,
    };
    let kind = kind.filter(|k| want.is_none_or(|w| w == *k));
    let below = match kind {
        Some(Kind::Blob) => return Entered::Sound,
        Some(kind) => odb.read(&oid).ok().and_then(|(_, data)| links(kind, &data)),
        None => None,
    };
    match below {
        Some(below) => Entered::New(below),
        None => {
            bad.insert(oid);
            Entered::Tainted
        }
    }
}

/// What an object points to; none if it cannot be understood.
pub(crate) fn links(kind: Kind, data: &[u8]) -> Option<Vec<(Oid, Option<Kind>)>> {
    let id = |hex: &[u8]| Oid::from_hex(hex.get(..2 * hash::OID_LEN)?).ok();
    match kind {
        Kind::Blob => Some(Vec::new()),
        Kind::Tree => {
            let entries = object::parse_tree(data).ok()?.into_iter();
            let kind = |mode| if mode == MODE_TREE { Kind::Tree } else { Kind::Blob };
            Some(entries.filter(|e| e.mode != MODE_GITLINK).map(|e| (e.oid, Some(kind(e.mode)))).collect())
        }
        Kind::Commit => {
            let (tree, _) = object::parse_commit(data).ok()?;
            let head = &data[..data.find(b"\n\n")?];
            let parents = head.lines().filter_map(|l| l.strip_prefix(b"parent "));
            let mut out = vec![(tree, Some(Kind::Tree))];
            for p in parents {
                out.push((id(p)?, Some(Kind::Commit)));
            }
            Some(out)
        }
        Kind::Tag => Some(vec![(id(data.strip_prefix(b"object ")?)?, None)]),
    }
}
