//! The live tree: looking at the workspace, or at named paths of it, into a pack in the making.

use std::{collections::BTreeSet, time::Instant};

use backstitch_scan::{self as scan, Found, FoundWhat, Ignored, Quiet, Reason, Rules, Skip, Table};
use backstitch_store::{Oid, Writer};
use bstr::{BStr, BString, ByteSlice};

use crate::{
    capture::{Late, Room, StoreSink},
    coverage::{self, Coverage, Document},
    error::{Code, Error, Result},
    paths,
    place::{Found as PlaceFound, Place},
    plan::Stand,
    seed::Seeding,
    tree::{self, DirRef, Node, Put, Root},
    watch,
    workspace::{Control, Workspace},
};

/// The live tree as objects of a pack in the making.
pub(crate) struct Live {
    pub writer: Writer,
    pub files: DirRef,
    /// Files elsewhere, by absolute path.
    pub outside: DirRef,
    pub skips: Vec<Skip>,
    pub rules: Rules,
    /// Looked at nothing but these.
    pub covers: Option<Vec<BString>>,
    /// Looked at these elsewhere.
    pub outside_covers: Vec<BString>,
    pub scope: &'static str,
    pub count: u64,
    pub read: (u64, u64),
    pub update: Option<scan::TableUpdate>,
    /// What the table is to say of the watcher.
    pub watched: Option<String>,
    /// What looking may still add to the writer.
    pub room: Room,
    /// The user's git state, where it was looked at.
    pub git: Option<Oid>,
}

impl Live {
    pub fn coverage(&self) -> Coverage {
        Coverage::of_scan(&self.skips, self.covers.as_deref(), &self.outside_covers)
    }

    fn document(&self) -> Document {
        let mut skips: Vec<&Skip> = self.skips.iter().collect();
        skips.sort_by(|a, b| a.path.cmp(&b.path));
        Document {
            scope: self.scope.to_owned(),
            covers: self.covers.as_ref().map(|c| c.iter().map(|p| paths::escape(p)).collect()),
            outside: self.outside_covers.iter().map(|p| paths::escape(p)).collect(),
            skips: skips.into_iter().map(coverage::skip_record).collect(),
        }
    }

    /// What was found, as far as trees go.
    pub fn trees(&self) -> Root {
        Root { files: self.files, outside: self.outside, ..Root::default() }
    }

    /// Puts single paths into what was found, in the workspace and elsewhere.
    pub fn edit(&mut self, edits: impl IntoIterator<Item = (BString, Option<Put>)>) -> Result<()> {
        let root = self.trees().edit(&self.writer, &mut self.writer.scratch(), edits)?;
        (self.files, self.outside) = (root.files, root.outside);
        Ok(())
    }

    /// Writes the root tree of a row that holds these trees.
    pub fn root(&self, trees: Root) -> Result<(Root, Oid)> {
        self.root_with(trees, None)
    }

    /// The same, with another git state than the one that was looked at.
    pub fn root_with(&self, trees: Root, git: Option<Oid>) -> Result<(Root, Oid)> {
        let mut s = self.writer.scratch();
        let doc = serde_json::to_vec(&self.document()).unwrap_or_default();
        let root = Root {
            coverage: Some(self.writer.blob(&mut s, &doc)?.0),
            rules: Some(self.writer.blob(&mut s, &self.rules.to_bytes())?.0),
            git: git.or(self.git).or(trees.git),
            ..trees
        };
        let oid = root.write(&self.writer, &mut s)?;
        Ok((root, oid))
    }

    /// A live tree of which nothing was looked at.
    pub(crate) fn empty(rules: Rules, writer: Writer) -> Live {
        Live {
            writer,
            files: DirRef::default(),
            outside: DirRef::default(),
            skips: Vec::new(),
            rules,
            covers: Some(Vec::new()),
            outside_covers: Vec::new(),
            scope: "paths",
            count: 0,
            read: (0, 0),
            update: None,
            watched: None,
            room: Room::unlimited(),
            git: None,
        }
    }
}

/// Where the stat table is. In a store that several hosts use each has its own: what one host saw says nothing to another.
pub(crate) fn table_dir(ws: &Workspace) -> Result<std::path::PathBuf> {
    let dir = ws.store()?.state_dir();
    if !ws.settings().flag("shared_store") {
        return Ok(dir);
    }
    let own =
        dir.join(format!("host-{}", paths::escape(crate::network::host().as_bytes()).replace('/', "%2f")));
    crate::workspace::private_dir(&own)?;
    Ok(own)
}

/// The row that vouches for the table's ids still has its ref, its commit can be read, and every pack that was there when
/// the table was written is there still.
fn vouched(ws: &Workspace, table: Option<&Table>) -> bool {
    let Some(note) = table.and_then(|t| t.note().to_str().ok()) else { return false };
    let mut words = note.split(' ');
    let Some(name) = words.next() else { return false };
    let Ok(store) = ws.store() else { return false };
    let now = packs(ws);
    words.filter(|w| !w.contains(':')).all(|w| now.iter().any(|p| p == w))
        && store
            .refs()
            .get(name)
            .is_ok_and(|oid| oid.is_some_and(|oid| store.odb().is_ok_and(|odb| odb.commit(&oid).is_ok())))
}

/// Short names of the packs that have an index: the ends, which tell them apart whatever they begin with.
pub(crate) fn packs(ws: &Workspace) -> Vec<String> {
    let Ok(store) = ws.store() else { return Vec::new() };
    let Ok(dir) = std::fs::read_dir(store.git_dir().join("objects/pack")) else { return Vec::new() };
    let names: Vec<String> = dir.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    let mut out: Vec<String> = names
        .iter()
        .filter_map(|n| n.strip_prefix("pack-")?.strip_suffix(".idx"))
        .filter(|n| names.iter().any(|o| *o == format!("pack-{n}.pack")))
        .map(|n| n[n.len().saturating_sub(10)..].to_owned())
        .collect();
    out.sort();
    out
}

fn scan_options<'a>(
    ws: &Workspace,
    rules: &'a Rules,
    never: &'a [(u64, u64)],
    keep_covered: bool,
    table_vouched: bool,
    control: &'a Control<'_>,
    progress: &'a (dyn Fn(u64, u64) + Sync),
) -> scan::Options<'a> {
    let s = ws.settings();
    scan::Options {
        threads: ws.threads(),
        rules,
        limits: ws.limits(),
        ignored: match s.word("ignored") {
            "none" => Ignored::None,
            "all" => Ignored::All,
            _ => Ignored::Small,
        },
        nested_is_content: s.word("nested") != "boundary",
        bare_is_content: s.word("bare") == "content",
        never,
        keep_covered,
        paranoid: false,
        quiet: None,
        note_anew: false,
        table_vouched,
        deadline: None,
        interrupt: control.interrupt,
        progress,
    }
}

/// Looks at the whole workspace. Nothing is visible in the store until the writer is finished.
pub(crate) fn scan_all(
    ws: &Workspace,
    keep_covered: bool,
    room: Room,
    control: &Control<'_>,
) -> Result<Option<Live>> {
    scan_until(ws, &Look { keep_covered, ..Look::default() }, room, control)
}

/// How to look at the whole workspace.
#[derive(Default)]
pub(crate) struct Look<'a> {
    /// What was covered stays covered.
    pub keep_covered: bool,
    /// Every file is read.
    pub paranoid: bool,
    /// What is not done by then is left out.
    pub deadline: Option<Instant>,
    /// Notes what changed meanwhile.
    pub late: Option<&'a Late>,
}

/// Looks at the whole workspace as told.
pub(crate) fn scan_until(
    ws: &Workspace,
    look: &Look<'_>,
    room: Room,
    control: &Control<'_>,
) -> Result<Option<Live>> {
    let rules = ws.rules()?;
    let never = ws.never();
    let table = Table::open(&table_dir(ws)?);
    let writer = ws.store()?.writer()?;
    let progress = |entries: u64, _: u64| (control.progress)("looking", entries, 0);
    let mut options =
        scan_options(ws, &rules, &never, look.keep_covered, vouched(ws, table.as_ref()), control, &progress);
    options.deadline = look.deadline;
    options.paranoid = look.paranoid;
    // Asked before anything is looked at.
    let (watched, quiet) = watch::ask(ws, table.as_ref()).unzip();
    let quiet = quiet.flatten().map(|q| if look.paranoid { q.to_be_proven() } else { q });
    let whole = quiet.as_ref().is_none_or(Quiet::is_proof);
    options.quiet = quiet.as_ref();
    options.note_anew = watched.is_some() && whole;
    let seeding = Seeding::new(&rules, table.is_none(), room.keeps_all(), control.interrupt);
    let sink = StoreSink {
        writer: &writer,
        owner: ws.owner(),
        room: &room,
        interrupt: control.interrupt,
        late: look.late,
        // A pack that is taken over has every version of every file.
        seed: (ws.settings().flag("seed") && !look.paranoid && !rules.has_never()).then_some(&seeding),
    };
    let out = scan::scan(ws.root(), table.as_ref(), &sink, &options)?;
    if out.unbounded {
        return Ok(None);
    }
    if let Some(watched) = watched.as_ref().filter(|_| !out.lies.is_empty()) {
        watch::distrust(ws, watched, &out.lies);
    }
    let Some(ids) = out.root else {
        return Err(Error::new(
            Code::Failed,
            format!("{}: the folder could not be read", ws.root().display()),
        )
        .at(ws.root())
        .hint("check that it is still there and that you may list it"));
    };
    Ok(Some(Live {
        files: DirRef { tree: Some(ids.tree), meta: ids.meta },
        outside: DirRef::default(),
        outside_covers: Vec::new(),
        writer,
        skips: out.skips,
        rules,
        covers: None,
        scope: "workspace",
        count: out.files + out.links,
        read: (out.read_files, out.read_bytes),
        update: out.update,
        watched: watched.map(|w| if whole { w.proven() } else { w }.note()),
        room,
        git: None,
    }))
}

/// Looks at named paths only; the tree carries the rest from `base` for browsing.
pub(crate) fn scan_named(
    ws: &Workspace,
    names: &[BString],
    (base, base_count): (DirRef, u64),
    scope: &'static str,
    room: Room,
    control: &Control<'_>,
) -> Result<Live> {
    let rules = ws.rules()?;
    let never = ws.never();
    let writer = ws.store()?.writer()?;
    let progress = |entries: u64, _: u64| (control.progress)("looking", entries, 0);
    let options = scan_options(ws, &rules, &never, false, false, control, &progress);
    let sink = StoreSink {
        writer: &writer,
        owner: ws.owner(),
        room: &room,
        interrupt: control.interrupt,
        late: None,
        seed: None,
    };
    let found = scan::scan_paths(ws.root(), names, None, &sink, &options)?;
    let (edits, skips) = to_edits(found, ws.owner());
    let mut s = writer.scratch();
    // Only what the edits touch is counted: a named row costs the same at any size of the tree.
    let leaves = |dir: DirRef| -> Result<u64> {
        let mut n = 0;
        tree::walk(writer.odb(), dir, &mut |_, e| {
            n += u64::from(!e.node.is_dir());
            Ok(())
        })?;
        Ok(n)
    };
    let mut count = base_count;
    for (path, put) in &edits {
        if let Some(old) = tree::lookup(writer.odb(), base, path.as_bstr())? {
            let n = if old.node.is_dir() { leaves(old.dir)? } else { 1 };
            count = count.saturating_sub(n);
        }
        count += match put {
            None => 0,
            Some(p) => match p.dir {
                Some(dir) => leaves(dir)?,
                None => 1,
            },
        };
    }
    let files = tree::edit(&writer, &mut s, base, edits)?;
    Ok(Live {
        writer,
        files,
        skips,
        rules,
        outside: DirRef::default(),
        outside_covers: Vec::new(),
        covers: Some(names.to_vec()),
        scope,
        count,
        read: (0, 0),
        update: None,
        watched: None,
        room,
        git: None,
    })
}

/// Looks at named files elsewhere, by absolute path: each by itself, whatever rules say, up to the limit of touched files.
/// Directories are not looked into.
pub(crate) fn look_outside(
    ws: &Workspace,
    live: &mut Live,
    names: &[BString],
    control: &Control<'_>,
) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let skip = |path: &BString, reason, is_dir, detail: Option<String>| Skip {
        path: path.clone(),
        reason,
        bytes: None,
        detail,
        is_dir,
    };
    let (dirs, files): (Vec<BString>, Vec<BString>) = names
        .iter()
        .cloned()
        .partition(|p| paths::to_path(ws.root(), p.as_bstr()).symlink_metadata().is_ok_and(|m| m.is_dir()));
    let why = "a folder outside the workspace is not recorded; name its files";
    live.skips.extend(dirs.iter().map(|p| skip(p, Reason::Scope, true, Some(why.to_owned()))));
    let never = ws.never();
    let progress = |_: u64, _: u64| {};
    let mut options = scan_options(ws, &live.rules, &never, false, false, control, &progress);
    // What becomes a directory meanwhile is not walked.
    options.limits.entries = 0;
    let sink = StoreSink {
        writer: &live.writer,
        owner: ws.owner(),
        room: &Room::unlimited(),
        interrupt: control.interrupt,
        late: None,
        seed: None,
    };
    let relative: Vec<BString> = files.iter().map(|p| p[1..].into()).collect();
    let found = scan::scan_paths("/".as_ref(), &relative, None, &sink, &options)?;
    let (edits, skips) = to_edits(found, ws.owner());
    let absolute = |p: BString| paths::join("/".into(), &p);
    live.skips.extend(skips.into_iter().map(|s| Skip { path: absolute(s.path), ..s }));
    live.edit(edits.into_iter().map(|(p, put)| (absolute(p), put)))?;
    live.outside_covers.extend_from_slice(names);
    live.outside_covers.sort_unstable();
    live.outside_covers.dedup();
    Ok(())
}

/// Whether the directories above named paths were there is part of what was looked at: a tool that writes `new/a` makes
/// `new`. Their content is not. `before` is what the tree held for them.
pub(crate) fn look_above(ws: &Workspace, live: &mut Live, names: &[BString]) -> Result<()> {
    let mut place = Place::of(ws, "look")?;
    let odb = live.writer.odb().clone();
    let mut seen: BTreeSet<&BStr> = BTreeSet::new();
    let mut edits: Vec<(BString, Option<Put>)> = Vec::new();
    for dir in names.iter().flat_map(|n| paths::parents(n.as_bstr())) {
        if !seen.insert(dir) {
            continue;
        }
        let known = live.trees().find(&odb, dir)?.filter(|e| e.node.is_dir());
        // What cannot be looked at stays as the tree has it.
        match (place.inspect(dir), known) {
            (Ok(PlaceFound::Is(Stand { node: node @ Node::Dir { .. }, attrs })), None) => {
                edits.push((dir.to_owned(), Some(Put { node, attrs, dir: None })));
            }
            (Ok(PlaceFound::Absent), Some(_)) => edits.push((dir.to_owned(), None)),
            _ => {}
        }
    }
    live.edit(edits)
}

/// What was found at named paths, as edits of a tree.
pub(crate) fn to_edits(found: Vec<Found>, owner: (u32, u32)) -> (Vec<(BString, Option<Put>)>, Vec<Skip>) {
    let (mut edits, mut skips) = (Vec::new(), Vec::new());
    for f in found {
        match f.what {
            FoundWhat::Leaf { stat, id, xattrs } => {
                let (node, attrs) = tree::leaf(&stat, id, xattrs.as_ref(), owner);
                edits.push((f.path, Some(Put { node, attrs, dir: None })));
            }
            FoundWhat::Dir { stat, ids, skips: inner, xattrs } => {
                let (node, attrs) = tree::leaf(&stat, ids.tree, xattrs.as_ref(), owner);
                let dir = DirRef { tree: Some(ids.tree), meta: ids.meta };
                edits.push((f.path, Some(Put { node, attrs, dir: Some(dir) })));
                skips.extend(inner);
            }
            FoundWhat::Absent => edits.push((f.path, None)),
            FoundWhat::Skip(s) => skips.push(s),
        }
    }
    (edits, skips)
}
