//! `export`

use std::{
    fs::OpenOptions,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use backstitch::{
    error::{Code, Error, Result},
    paths,
    record::Checkpoint,
    settings::Beside,
    view,
    workspace::Workspace,
};
use serde_json::{Map, Value};

use crate::{context::Context, table::Export, text, ui::Out};

type Writer = fn(&Workspace, &Checkpoint, &mut dyn Write, &Context) -> Result<u64>;

/// What git cannot say is told.
fn patch(ws: &Workspace, c: &Checkpoint, out: &mut dyn Write, cx: &Context) -> Result<u64> {
    let (n, unsaid) = ws.export_patch(c, out, &cx.control())?;
    for path in unsaid {
        cx.ui.warn(&format!(
            "{} is not in the patch: git knows no empty folders and one permission bit",
            text::name(&path)
        ));
    }
    Ok(n)
}

/// Writes a row as a folder, an archive, a patch or a bundle.
pub fn run(cx: &Context, a: &Export) -> Result<u8> {
    let forms: [(&Option<PathBuf>, &str, Writer); 3] = [
        (&a.tar, "tar", |ws, c, out, cx| ws.export_tar(c, out, &cx.control())),
        (&a.patch, "patch", patch),
        (&a.bundle, "bundle", |ws, c, out, cx| ws.export_bundle(c, out, &cx.control())),
    ];
    let chosen = forms.into_iter().find_map(|(f, form, w)| f.as_deref().map(|f| (f, form, w)));
    if cx.ui.json && chosen.is_some_and(|(f, ..)| f.as_os_str() == "-") {
        return Err(Error::new(Code::Usage, "both --json and the archive want standard output")
            .hint("name a file instead of `-`"));
    }
    let ws = cx.workspace()?;
    let rows = cx.rows(&ws)?;
    let c = cx.find(&rows, &a.checkpoint)?;
    let (path, form, n) = match (chosen, &a.dir) {
        (Some((file, form, write)), _) => {
            if file.as_os_str() == "-" {
                let mut out: Out<'_> = cx.ui.writer();
                write(&ws, c, &mut out, cx)?;
                return Ok(0);
            }
            (file, form, to_file(cx, &ws, c, file, a.force, write)?)
        }
        (None, Some(dir)) => (dir.as_path(), "folder", ws.export_dir(c, dir, &cx.control())?),
        (None, None) => {
            return Err(Error::new(Code::Usage, "say where to export to")
                .hint("name a new folder, or one of --tar, --patch and --bundle with a file"));
        }
    };
    cx.progress.stop();
    if cx.ui.json {
        let mut m = Map::new();
        m.insert("checkpoint".to_owned(), c.record.id.clone().into());
        m.insert("form".to_owned(), form.into());
        view::put_path(&mut m, "path", paths::bytes(path));
        m.insert("count".to_owned(), n.into());
        cx.ui.document(Value::Object(m))?;
    } else {
        cx.ui.line(text::name(paths::bytes(path)))?;
    }
    Ok(0)
}

/// A file appears whole or not at all.
fn to_file(
    cx: &Context,
    ws: &Workspace,
    c: &Checkpoint,
    file: &Path,
    force: bool,
    write: Writer,
) -> Result<u64> {
    let is_special = match file.metadata() {
        Ok(m) if m.is_dir() => {
            return Err(Error::new(Code::Conflict, format!("{} is a directory", file.display()))
                .at(file)
                .hint("name a file"));
        }
        Ok(m) if m.is_file() && !force => {
            return Err(Error::new(Code::Conflict, format!("{} is there already", file.display()))
                .at(file)
                .hint("name another file, or say --force"));
        }
        Ok(m) => !m.is_file(),
        Err(_) => false,
    };
    if is_special {
        // A pipe or a device has no half state.
        let f = OpenOptions::new().write(true).open(file).map_err(|e| Error::io(file, e))?;
        let mut out = BufWriter::new(f);
        let n = write(ws, c, &mut out, cx)?;
        out.flush().map_err(|e| Error::io(file, e))?;
        return Ok(n);
    }
    let dir = match file.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let new = Beside::new(dir, 0o666).map_err(|e| Error::io(file, e))?;
    let mut out = BufWriter::with_capacity(1 << 16, &new.file);
    let n = write(ws, c, &mut out, cx)?;
    out.flush().map_err(|e| Error::io(file, e))?;
    drop(out);
    new.place(file).map_err(|e| Error::io(file, e))?;
    Ok(n)
}
