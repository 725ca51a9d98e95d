//! Contents in files as they were: what an operation moved here because there was no room for a copy.
//!
//! A file `parked/<id>` is the content of the blob with that id, neither framed nor compressed. It is no proof of what
//! is in it: who had it open for writing when it was moved may still write. So it is hashed whenever it is read, and what
//! does not fit its name is damage.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    Error, Oid, Store, files,
    hash::{self, Sha1},
    loose::Receiver,
    object::Kind,
};

/// Bytes that are read at a time.
const PIECE: usize = 128 << 10;

/// Where the content with this id is, if it is parked in the store at `store`.
pub(crate) fn path(store: &Path, oid: &Oid) -> PathBuf {
    store.join("parked").join(oid.to_string())
}

/// All of them, in the order of their ids. Other names are not ours.
pub(crate) fn list(store: &Path) -> Result<Vec<(Oid, PathBuf)>, Error> {
    let dir = store.join("parked");
    let mut out: Vec<(Oid, PathBuf)> = files::names(&dir)?
        .into_iter()
        .filter_map(|n| Some((Oid::from_hex(n.to_str()?.as_bytes()).ok()?, dir.join(n))))
        .collect();
    out.sort_unstable();
    Ok(out)
}

fn open(path: &Path) -> Result<(File, u64), Error> {
    // The folder is private: what was looked at is what is opened.
    if !fs::symlink_metadata(path).map_err(Error::io(path))?.is_file() {
        return Err(Error::damaged(path, "it is no ordinary file"));
    }
    let file = File::open(path).map_err(Error::io(path))?;
    let size = file.metadata().map_err(Error::io(path))?.len();
    Ok((file, size))
}

/// Length of the content; its bytes are not looked at.
pub(crate) fn size(path: &Path) -> Result<u64, Error> {
    Ok(open(path)?.1)
}

/// Passes the content on and checks its id at the end: on an error what `sink` received is void.
pub(crate) fn stream(oid: &Oid, path: &Path, sink: Receiver<'_>) -> Result<u64, Error> {
    let (mut file, size) = open(path)?;
    let mut hash = Sha1::object(Kind::Blob, size);
    let mut buffer = vec![0; usize::try_from(size).unwrap_or(PIECE).clamp(1, PIECE)];
    let mut n = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => {
                n += got as u64;
                if n > size {
                    break;
                }
                hash.update(&buffer[..got]);
                sink(&buffer[..got])?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io(path)(e)),
        }
    }
    match n == size && hash.finish()? == *oid {
        true => Ok(size),
        false => Err(Error::damaged(path, format!("object {oid} has changed"))),
    }
}

/// The whole content, checked.
pub(crate) fn read(oid: &Oid, path: &Path) -> Result<Vec<u8>, Error> {
    let mut data = Vec::new();
    stream(oid, path, &mut |bytes| {
        data.try_reserve(bytes.len())
            .map_err(|e| Error::invalid(format!("an object does not fit in memory: {e}")))?;
        data.extend_from_slice(bytes);
        Ok(())
    })?;
    Ok(data)
}

/// What [`Store::take_in`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenIn {
    /// Contents that are objects of the store now.
    pub objects: u64,
    /// Bytes on disk of new files.
    pub written_bytes: u64,
    /// Bytes on disk of the parked files that went.
    pub freed_bytes: u64,
    /// Files that stay as they are, and why.
    pub left: Vec<(PathBuf, String)>,
}

impl Store {
    /// Contents that are parked, with their lengths.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn parked(&self) -> Result<Vec<(Oid, u64)>, Error> {
        let all = list(self.dir())?.into_iter();
        Ok(all.filter_map(|(oid, path)| Some((oid, size(&path).ok()?))).collect())
    }

    /// Makes objects of parked contents, the smallest first, as long as their bytes fit into `room`. A file goes when
    /// its object is durable.
    ///
    /// # Errors
    /// The store cannot be written. A file that cannot be read, or is not what its name says, is in `left`.
    pub fn take_in(&self, room: u64, wait: Duration) -> Result<TakenIn, Error> {
        let mut out = TakenIn::default();
        let mut all: Vec<(u64, Oid, PathBuf)> = Vec::new();
        for (oid, path) in list(self.dir())? {
            match size(&path) {
                Ok(n) => all.push((n, oid, path)),
                Err(e) if e.is_not_found() => {}
                Err(e) => out.left.push((path, e.to_string())),
            }
        }
        if all.is_empty() {
            return Ok(out);
        }
        all.sort_unstable();
        let _store = self.lock_shared("store", wait)?;
        let writer = self.writer()?;
        let mut scratch = writer.scratch();
        let mut room = room;
        let mut taken = Vec::new();
        for (size, oid, path) in all {
            if size > room {
                out.left.push((path, format!("{size} bytes of room are needed")));
                continue;
            }
            // Checked before it is written: what has changed is no object of anybody's.
            if let Err(e) = stream(&oid, &path, &mut |_| Ok(())) {
                out.left.push((path, e.to_string()));
                continue;
            }
            let (mut file, _) = open(&path)?;
            match writer.blob_from(&mut scratch, &mut file, size) {
                Ok((got, _)) if got == oid => {
                    room -= size;
                    taken.push(path);
                }
                Ok(_) => out.left.push((path, format!("object {oid} has changed"))),
                Err(Error::Io { source, .. })
                    if matches!(source.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::Other) =>
                {
                    out.left.push((path, format!("object {oid} has changed")));
                }
                Err(e) => return Err(e),
            }
        }
        let written = writer.finish()?;
        out.written_bytes = written.bytes;
        for path in taken {
            out.freed_bytes += remove(&path)?;
            out.objects += 1;
        }
        files::sync_dir(&self.parked_dir(), self.durability())?;
        Ok(out)
    }

    /// An operation is in flight, or its process died: what it moved may be named by nothing else yet.
    pub(crate) fn is_changing_the_tree(&self) -> bool {
        fs::symlink_metadata(self.journal_dir().join("operation.json")).is_ok()
    }
}

/// Removes one; its bytes on disk.
pub(crate) fn remove(path: &Path) -> Result<u64, Error> {
    let bytes = fs::symlink_metadata(path).map_or(0, |m| m.blocks() * 512);
    match fs::remove_file(path) {
        Ok(()) => Ok(bytes),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(e) => Err(Error::io(path)(e)),
    }
}

/// One of them is what its name says.
pub(crate) fn check(oid: &Oid, path: &Path) -> Result<Option<(Kind, u64)>, Error> {
    match stream(oid, path, &mut |_| Ok(())) {
        Ok(size) => Ok(Some((Kind::Blob, size))),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}

/// By id, for look-ups.
pub(crate) fn ids(store: &Path) -> Result<std::collections::HashSet<[u8; hash::OID_LEN]>, Error> {
    Ok(list(store)?.iter().map(|(oid, _)| hash::raw(oid)).collect())
}
