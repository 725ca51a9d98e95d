//! A workspace with its store in a temporary folder.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use backstitch::{
    checkpoint,
    error::Result,
    names,
    operation::Outcome,
    record::Checkpoint,
    restore, undo,
    workspace::{Control, Surroundings, Workspace},
};
use backstitch_testkit::{Compare, Git, TreeModel};

pub struct World {
    pub dir: tempfile::TempDir,
    pub surroundings: Surroundings,
}

impl World {
    pub fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("w")).unwrap();
        let surroundings = Surroundings {
            home: Some(dir.path().join("home")),
            store_base: dir.path().join("data"),
            settings: vec![
                ("BACKSTITCH_DURABILITY".into(), "none".into()),
                ("BACKSTITCH_FREE_FLOOR".into(), "0".into()),
            ],
            ..Surroundings::default()
        };
        World { dir, surroundings }
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.surroundings.settings.push((name.into(), value.into()));
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("w").canonicalize().unwrap()
    }

    pub fn path(&self, rel: &str) -> PathBuf {
        self.root().join(rel)
    }

    /// A new process would see the same.
    pub fn open(&self) -> Workspace {
        Workspace::open(&self.root(), self.surroundings.clone()).unwrap()
    }

    pub fn write(&self, rel: &str, text: impl AsRef<[u8]>) {
        let p = self.path(rel);
        fs::create_dir_all(p.parent().unwrap()).unwrap();
        fs::write(p, text).unwrap();
    }

    pub fn read(&self, rel: &str) -> String {
        fs::read_to_string(self.path(rel)).unwrap()
    }

    pub fn chmod(&self, rel: &str, mode: u32) {
        fs::set_permissions(self.path(rel), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn exists(&self, rel: &str) -> bool {
        self.path(rel).symlink_metadata().is_ok()
    }

    pub fn model(&self) -> TreeModel {
        TreeModel::read_all(&self.root()).unwrap()
    }

    pub fn checkpoint(&self) -> Checkpoint {
        self.record(checkpoint::Options::default()).unwrap().checkpoint.unwrap()
    }

    pub fn record(&self, o: checkpoint::Options) -> Result<checkpoint::Outcome> {
        self.open().checkpoint(&o, &Control::default())
    }

    pub fn restore(&self, c: &Checkpoint) -> Outcome {
        self.restore_with(c, restore::Options { privileged: true, ..Default::default() }).unwrap()
    }

    pub fn restore_with(&self, c: &Checkpoint, o: restore::Options) -> Result<Outcome> {
        self.open().restore(c, &o, &Control::default())
    }

    pub fn undo(&self) -> Result<Outcome> {
        self.open().undo(&undo::Options::default(), &Control::default())
    }

    pub fn redo(&self) -> Result<Outcome> {
        self.open().redo(&undo::Options::default(), &Control::default())
    }

    pub fn find(&self, name: &str) -> Result<Checkpoint> {
        names::resolve(&self.open().rows()?, name, None).cloned()
    }

    pub fn git_dir(&self) -> PathBuf {
        self.open().store_dir().join("git")
    }

    /// Stock git accepts the store, and our own check finds nothing.
    pub fn check_store(&self) {
        Git::new().unwrap().fsck_strict(&self.git_dir()).unwrap();
        let v = self.open().verify(false, &Control::default()).unwrap();
        assert_eq!(v["ok"], true, "{v:#}");
    }
}

pub fn same(a: &TreeModel, b: &TreeModel, what: &str) {
    a.assert_same(b, &Compare::default(), what);
}

/// Items that do something to `path`.
pub fn action(o: &Outcome, path: &str) -> Option<String> {
    o.items.iter().find(|i| i.path == path).map(|i| match &i.reason {
        Some(r) if !i.action.changes() => format!("{}:{r}", i.action.as_str()),
        _ => i.action.as_str().to_owned(),
    })
}

pub fn everything_below(dir: &Path) -> TreeModel {
    TreeModel::read_all(dir).unwrap()
}
