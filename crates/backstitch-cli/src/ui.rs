//! The only place that writes: results to standard output, everything else to standard error.

use std::{
    cell::{Cell, RefCell},
    io::{self, BufWriter, IsTerminal, Stdout, Write},
};

use backstitch::error::{Code, Error, Result};
use serde_json::{Map, Value};

use signal_hook::SigId;

use crate::{
    pager::Pager,
    table::{Color, Global},
    text,
};

/// Colours, used with restraint.
pub mod style {
    /// Ids.
    pub const ID: &str = "\x1b[33m";
    /// Less important.
    pub const DIM: &str = "\x1b[2m";
    /// New.
    pub const ADDED: &str = "\x1b[32m";
    /// Gone, errors.
    pub const REMOVED: &str = "\x1b[31m";
    /// Changed, places in a patch.
    pub const CHANGED: &str = "\x1b[36m";
    /// Warnings, conflicts.
    pub const WARNING: &str = "\x1b[35m";
    /// Headings.
    pub const BOLD: &str = "\x1b[1m";
    /// Within a line of a patch, the words that changed.
    pub const WORD: &str = "\x1b[7m";
    /// Ends it.
    pub const NO_WORD: &str = "\x1b[27m";
}

/// Where and how to write.
pub struct Ui {
    /// One JSON document.
    pub json: bool,
    /// Only results and errors.
    pub quiet: bool,
    /// More.
    pub verbose: bool,
    /// Standard output takes colours.
    pub colour: bool,
    colour_err: bool,
    /// Standard error is a terminal and progress is wanted.
    pub progress: bool,
    /// Somebody can be asked.
    pub can_ask: bool,
    /// Standard output is a terminal.
    pub terminal: bool,
    /// The result may be long and goes through a pager, where there is one.
    pages: Cell<bool>,
    can_page: bool,
    /// What ends the process at a second Ctrl-C. While a pager holds the terminal, that is its business.
    second: RefCell<Option<SigId>>,
    out: RefCell<Target>,
    broken: Cell<bool>,
    recovered: RefCell<Option<String>>,
    warned: RefCell<Vec<String>>,
}

/// Where results go.
enum Target {
    Stdout(BufWriter<Stdout>),
    Pager(Pager),
    /// For a server: the document is the result; bytes that a command writes beside it are not kept.
    Document(Option<Value>),
}

fn stdout() -> Target {
    Target::Stdout(BufWriter::with_capacity(1 << 16, io::stdout()))
}

impl Ui {
    /// Nothing is written anywhere: the command's document is taken with [`Ui::take_document`].
    pub fn captured() -> Ui {
        Ui {
            json: true,
            quiet: true,
            verbose: false,
            colour: false,
            colour_err: false,
            progress: false,
            can_ask: false,
            terminal: false,
            pages: Cell::new(false),
            can_page: false,
            second: RefCell::default(),
            out: RefCell::new(Target::Document(None)),
            broken: Cell::new(false),
            recovered: RefCell::new(None),
            warned: RefCell::new(Vec::new()),
        }
    }

    /// The document that the command made.
    pub fn take_document(&self) -> Option<Value> {
        match &mut *self.out.borrow_mut() {
            Target::Document(d) => d.take(),
            Target::Stdout(_) | Target::Pager(_) => None,
        }
    }

    /// As the options and the terminals say.
    pub fn new(g: &Global) -> Ui {
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let var = |n: &str| std::env::var_os(n).filter(|v| !v.is_empty());
        let plain = var("NO_COLOR").is_some() || var("TERM").is_some_and(|t| t == "dumb");
        let colour = |terminal: bool| match g.color {
            Some(Color::Always) => true,
            Some(Color::Never) => false,
            Some(Color::Auto) | None => terminal && !plain,
        };
        Ui {
            json: g.json,
            quiet: g.quiet,
            verbose: g.verbose,
            colour: !g.json && colour(out),
            colour_err: !g.json && colour(err),
            progress: err && !g.quiet && !g.json && !g.no_progress,
            can_ask: io::stdin().is_terminal() && err && !g.json,
            terminal: out,
            pages: Cell::new(false),
            can_page: out && !g.json && !g.no_pager,
            second: RefCell::default(),
            out: RefCell::new(stdout()),
            broken: Cell::new(false),
            recovered: RefCell::new(None),
            warned: RefCell::new(Vec::new()),
        }
    }

    /// Width of the terminal that standard output is.
    pub fn width(&self) -> Option<usize> {
        if !io::stdout().is_terminal() {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        Some(usize::from(size.ws_col)).filter(|w| *w >= 20)
    }

    /// The result of this command may be long: its first byte starts the pager, its end waits for it.
    pub fn page(&self) {
        self.pages.set(self.can_page);
    }

    /// What ends the process at a second Ctrl-C.
    pub fn ends_at_second(&self, id: Option<SigId>) {
        *self.second.borrow_mut() = id;
    }

    fn start_pager(&self) {
        if self.pages.take()
            && let Some(pager) = Pager::start()
        {
            if let Some(id) = self.second.borrow_mut().take() {
                signal_hook::low_level::unregister(id);
            }
            *self.out.borrow_mut() = Target::Pager(pager);
        }
    }

    /// Raw bytes to standard output. A reader that went away is no error: the command goes on to its own exit code.
    pub fn raw(&self, bytes: &[u8]) -> Result<()> {
        self.told(self.writer().write_all(bytes))
    }

    /// Text to standard output.
    pub fn print(&self, text: impl AsRef<str>) -> Result<()> {
        self.raw(text.as_ref().as_bytes())
    }

    /// A line to standard output.
    pub fn line(&self, text: impl AsRef<str>) -> Result<()> {
        self.print(text.as_ref())?;
        self.print("\n")
    }

    /// The one JSON document.
    pub fn document(&self, mut value: Value) -> Result<()> {
        self.complete(&mut value);
        if let Target::Document(d) = &mut *self.out.borrow_mut() {
            *d = Some(value);
            return Ok(());
        }
        let mut text = serde_json::to_string(&value).map_err(|e| Error::fault(e.to_string()))?;
        text.push('\n');
        self.print(text)
    }

    /// The one JSON document, of a list that may be long and what else there is to say: an entry is written before the next is
    /// made.
    pub fn listing(
        &self,
        key: &str,
        list: impl Iterator<Item = Value>,
        rest: Map<String, Value>,
    ) -> Result<()> {
        if matches!(&*self.out.borrow(), Target::Document(_)) {
            let mut whole = Map::from_iter([(key.to_owned(), Value::Array(list.collect()))]);
            whole.extend(rest);
            return self.document(Value::Object(whole));
        }
        let mut rest = Value::Object(rest);
        self.complete(&mut rest);
        let text = |v: &Value| serde_json::to_string(v).map_err(|e| Error::fault(e.to_string()));
        let mut out = format!("{{{}:[", text(&key.into())?);
        for (n, v) in list.enumerate() {
            out.push_str(if n > 0 { "," } else { "" });
            out.push_str(&text(&v)?);
        }
        out.push(']');
        let rest = text(&rest)?;
        out.push_str(if rest == "{}" { "" } else { "," });
        out.push_str(&rest[1..]);
        out.push('\n');
        self.print(out)
    }

    /// Adds what every document says.
    fn complete(&self, value: &mut Value) {
        if let (Some(m), Some(said)) = (value.as_object_mut(), self.recovered.borrow().as_ref()) {
            m.insert("recovered".to_owned(), said.clone().into());
        }
        if let Some(m) = value.as_object_mut().filter(|_| !self.warned.borrow().is_empty()) {
            let list = m.entry("warnings").or_insert_with(|| Value::Array(Vec::new()));
            for w in self.warned.borrow().iter() {
                if let Some(list) = list.as_array_mut().filter(|l| !l.iter().any(|x| x == w)) {
                    list.push(w.clone().into());
                }
            }
        }
    }

    /// Standard output, for the library to write to.
    pub fn writer(&self) -> Out<'_> {
        Out(self)
    }

    /// What was written reaches its reader.
    pub fn finish(&self) -> Result<()> {
        let is_paged = matches!(*self.out.borrow(), Target::Pager(_));
        match is_paged.then(|| self.out.replace(stdout())) {
            Some(Target::Pager(pager)) => self.told(pager.end().map_err(|e| self.note_broken(e))),
            _ => self.told(self.writer().flush()),
        }
    }

    fn told(&self, result: io::Result<()>) -> Result<()> {
        match result {
            Err(_) if self.is_broken() => Ok(()),
            Err(e) => Err(Error::new(Code::Io, format!("standard output cannot be written: {e}"))
                .hint("see where it goes to; `backstitch operations` shows what was done")),
            Ok(()) => Ok(()),
        }
    }

    /// The reader went away: nobody wants the rest, and nobody needs to be told.
    pub fn is_broken(&self) -> bool {
        self.broken.get()
    }

    fn note_broken(&self, e: io::Error) -> io::Error {
        if e.kind() == io::ErrorKind::BrokenPipe {
            self.broken.set(true);
        }
        e
    }

    /// Wraps text in a colour where standard output takes one.
    pub fn paint(&self, style: &str, text: &str) -> String {
        if self.colour && !style.is_empty() { format!("{style}{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Wraps text in a colour where standard error takes one.
    pub fn paint_err(&self, style: &str, text: &str) -> String {
        if self.colour_err { format!("{style}{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A line to standard error, in whatever state that is.
    pub fn say(&self, line: impl AsRef<str>) {
        let _ = writeln!(io::stderr().lock(), "{}", line.as_ref());
    }

    /// A note: not with `-q`, not with `--json`.
    pub fn note(&self, text: impl AsRef<str>) {
        if !self.quiet && !self.json {
            self.say(text::tame(text.as_ref()));
        }
    }

    /// A warning, said once: in JSON it is part of the document.
    pub fn warn(&self, message: &str) {
        if self.warned.borrow().iter().any(|w| w == message) {
            return;
        }
        self.warned.borrow_mut().push(message.to_owned());
        if !self.json {
            self.say(format!("{} {}", self.paint_err(style::WARNING, "warning:"), text::sentence(message)));
        }
    }

    /// Said before something that cannot be undone, whatever else is quiet. A document has its own words for it.
    pub fn for_good(&self, what: &str) {
        if !self.json {
            let word = self.paint_err(style::WARNING, "warning:");
            self.say(format!("{word} This removes {} for good. It cannot be undone.", text::tame(what)));
        }
    }

    /// All of them.
    pub fn warn_all(&self, messages: &[String]) {
        messages.iter().for_each(|m| self.warn(m));
    }

    /// What recovery did when the workspace was opened.
    pub fn recovered(&self, said: &str) {
        if self.json {
            *self.recovered.borrow_mut() = Some(said.to_owned());
        } else {
            self.say(format!("note: {}", text::sentence(said)));
        }
    }
}

/// Standard output as a writer.
pub struct Out<'a>(&'a Ui);

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.start_pager();
        match &mut *self.0.out.borrow_mut() {
            Target::Stdout(out) => out.write(bytes).map_err(|e| self.0.note_broken(e)),
            Target::Pager(out) => out.write(bytes).map_err(|e| self.0.note_broken(e)),
            Target::Document(_) => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut *self.0.out.borrow_mut() {
            Target::Stdout(out) => out.flush().map_err(|e| self.0.note_broken(e)),
            Target::Pager(out) => out.flush().map_err(|e| self.0.note_broken(e)),
            Target::Document(_) => Ok(()),
        }
    }
}
