//! One file: reading it, showing what changes, replacing it whole.

use std::{
    fs,
    io::{ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use backstitch::{
    error::{Code, Error, Result},
    settings::Beside,
};

/// A file's change.
#[derive(Debug)]
pub struct Change {
    /// The file, links followed.
    pub path: PathBuf,
    /// Its text; `None`: there is none.
    pub before: Option<String>,
    /// Its text without us.
    pub(super) base: Option<String>,
    /// Its text afterwards; `None`: it goes.
    pub after: Option<String>,
}

impl Change {
    /// `create`, `change` or `delete`.
    pub fn action(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "create",
            (_, None) => "delete",
            _ => "change",
        }
    }

    /// The change as unified hunks, with a head that names the file.
    pub fn diff(&self) -> Vec<u8> {
        let bytes = |t: &Option<String>| t.clone().unwrap_or_default().into_bytes();
        let name = self.path.display().to_string();
        let side = |t: &Option<String>| if t.is_some() { name.clone() } else { "/dev/null".to_owned() };
        let mut out = format!("--- {}\n+++ {}\n", side(&self.before), side(&self.after)).into_bytes();
        out.extend(backstitch::patch::lines(&bytes(&self.before), &bytes(&self.after)).0);
        out
    }
}

/// The file that is meant, links followed: a link in the user's set-up stays one.
pub fn real(path: &Path) -> Result<PathBuf> {
    match path.symlink_metadata() {
        Ok(_) => path.canonicalize().map_err(|e| {
            Error::io(path, e).hint("the link leads nowhere; put its target there, or take it away")
        }),
        Err(_) => Ok(path.to_owned()),
    }
}

/// Its text; `None` where there is no file.
pub fn read(path: &Path) -> Result<Option<String>> {
    // Reading a pipe or a device would wait for somebody.
    let is_odd = |m: fs::Metadata| !m.is_file() && !m.is_dir();
    if fs::metadata(path).is_ok_and(is_odd) {
        return Err(Error::new(Code::BadSetting, format!("{}: this is no file", path.display()))
            .at(path)
            .hint("take it away first; nothing was changed"));
    }
    let bytes = match fs::read(path) {
        Ok(b) => b,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io(path, e)),
    };
    match String::from_utf8(bytes) {
        Ok(t) => Ok(Some(t)),
        Err(e) => {
            let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|b| **b == b'\n').count();
            Err(broken(path, line, "this is no UTF-8 text"))
        }
    }
}

/// A file that is not what it should be.
pub fn broken(path: &Path, line: usize, why: &str) -> Error {
    Error::new(Code::BadSetting, format!("{}:{line}: {why}", path.display()))
        .at(path)
        .hint("put the file right first; nothing was changed")
}

/// A folder that only its user may look into.
pub fn private(dir: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| Error::io(dir, e))
}

/// The folders above a file that are not there, the topmost first.
pub fn missing(path: &Path) -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> =
        path.ancestors().skip(1).take_while(|d| !d.exists()).map(Path::to_owned).collect();
    out.reverse();
    out
}

/// Temporary beside, sync, rename; permission bits and owner stay.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let fail = |e| Error::io(path, e);
    let dir = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir).map_err(fail)?;
    let there = fs::metadata(path).ok();
    let work = || -> std::io::Result<()> {
        let mut new = Beside::new(dir, if there.is_some() { 0o600 } else { 0o666 })?;
        new.file.write_all(text.as_bytes())?;
        if let Some(m) = &there {
            if new.file.metadata().is_ok_and(|own| own.uid() != m.uid() || own.gid() != m.gid()) {
                std::os::unix::fs::fchown(&new.file, Some(m.uid()), Some(m.gid()))?;
            }
            new.file.set_permissions(fs::Permissions::from_mode(m.mode() & 0o7777))?;
        }
        new.place(path)
    };
    work().map_err(fail)
}
