//! Writes a folder into a new store with all cores and says how fast that was:
//! `cargo run --release -p backstitch-store --example store_folder -- FOLDER STORE [check]`.
//! With `check` everything is then verified and read back.

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use backstitch_store::{
    Durability, Edit, Expect, FORMAT, MODE_FILE, MODE_TREE, Manifest, Oid, Scratch, Store, TreeEntry, Writer,
    names,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(from), Some(to)) = (args.next(), args.next()) else {
        return Err("two arguments: a folder, and where to make the store".into());
    };
    let mut files = Vec::new();
    let mut todo = vec![from.clone()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_file() {
                files.push((entry.path(), entry.metadata()?.len()));
            }
        }
    }
    let bytes: u64 = files.iter().map(|f| f.1).sum();
    let manifest = Manifest {
        format: FORMAT,
        path: from.to_string_lossy().into(),
        dev: 0,
        ino: 0,
        birth_ns: None,
        created_ms: 0,
        last_used_ms: 0,
        extra: Default::default(),
    };
    let store = Store::create(&to, &manifest, Durability::Full)?;

    let start = Instant::now();
    let writer = store.writer()?;
    let stored = Mutex::new(BTreeMap::new());
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism()?.get();
    let work = || -> Result<()> {
        let mut scratch = writer.scratch();
        let mut own = Vec::new();
        while let Some((path, size)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (oid, _) = writer.blob_from(&mut scratch, &mut fs::File::open(path)?, *size)?;
            own.push((path.as_path(), oid));
        }
        stored.lock().map_err(|_| "another thread failed")?.extend(own);
        Ok(())
    };
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked")?)
    })?;
    let blobs = start.elapsed();
    let stored = stored.into_inner().map_err(|_| "a thread failed")?;
    let mut scratch = writer.scratch();
    let tree = tree_of(&from, &stored, &writer, &mut scratch)?;
    let commit = writer.commit(&mut scratch, &tree, b"folder\n", 0)?;
    let trees = start.elapsed();
    let written = writer.finish()?;
    let name = "refs/backstitch/folder".to_string();
    store.refs().apply(&[Edit { name, expect: Expect::Any, new: Some(commit) }])?;
    let all = start.elapsed();
    println!(
        "{} files, {:.1} MB, {} objects, {:.1} MB stored",
        files.len(),
        mb(bytes),
        written.objects,
        mb(written.bytes)
    );
    println!(
        "blobs {blobs:.2?}, trees {:.2?}, finish {:.2?}: {:.0} MB/s",
        trees - blobs,
        all - trees,
        mb(bytes) / all.as_secs_f64()
    );

    if args.next().is_none() {
        return Ok(());
    }
    let start = Instant::now();
    let report = store.verify(&|_, _| {}, &false.into())?;
    println!(
        "verify {:.2?}: {:.0} MB/s, {} damaged",
        start.elapsed(),
        mb(report.bytes) / start.elapsed().as_secs_f64(),
        report.damage.len()
    );
    let start = Instant::now();
    let odb = store.odb()?;
    for oid in stored.values() {
        odb.blob_to(oid, &mut std::io::sink())?;
    }
    println!(
        "read on one thread {:.2?}: {:.0} MB/s",
        start.elapsed(),
        mb(bytes) / start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn tree_of(dir: &Path, blobs: &BTreeMap<&Path, Oid>, writer: &Writer, scratch: &mut Scratch) -> Result<Oid> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().as_bytes();
        let name = names::encode(name).into_owned().into();
        if let Some(oid) = blobs.get(path.as_path()) {
            entries.push(TreeEntry { mode: MODE_FILE, name, oid: *oid });
        } else if fs::symlink_metadata(&path)?.is_dir() {
            entries.push(TreeEntry { mode: MODE_TREE, name, oid: tree_of(&path, blobs, writer, scratch)? });
        }
    }
    Ok(writer.tree(scratch, &mut entries)?.0)
}
