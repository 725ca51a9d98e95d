//! Long results on a terminal, a screen at a time, in the pager that the user likes.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, BufWriter, Write},
    os::unix::ffi::OsStrExt,
    process::{Child, ChildStdin, Command, Stdio},
};

/// Ends by itself where everything fits on the screen, passes colours on, and leaves the text where it was shown.
const USUAL: &str = "less -FRX";

/// A pager at work.
pub struct Pager {
    child: Child,
    to: BufWriter<ChildStdin>,
}

/// What the environment says; nothing where it says that there is none.
fn wanted() -> Option<OsString> {
    let said = ["BACKSTITCH_PAGER", "PAGER"].into_iter().find_map(env::var_os);
    let said = said.unwrap_or_else(|| USUAL.into());
    let none = said.as_bytes().trim_ascii().is_empty() || said == "cat";
    let dumb = env::var_os("TERM").is_some_and(|t| t == "dumb");
    (!none && !dumb).then_some(said)
}

/// A program with its words, or a line for the shell where the words need one.
fn command(line: &OsStr) -> Option<Command> {
    let plain = !line.as_bytes().iter().any(|b| b"|&;<>()$`\\\"'*?[#~=%".contains(b));
    let Some(text) = line.to_str().filter(|_| plain) else {
        let mut c = Command::new("sh");
        c.arg("-c").arg(line);
        return Some(c);
    };
    let mut words = text.split_whitespace();
    let mut c = Command::new(words.next()?);
    c.args(words);
    Some(c)
}

impl Pager {
    /// Starts it. `None`: there is none, or it cannot be run; the terminal itself will do.
    pub fn start() -> Option<Pager> {
        let mut command = command(&wanted()?)?;
        // A plain `less` of the user's passes colours on as well.
        for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
            if env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        let mut child = command.stdin(Stdio::piped()).spawn().ok()?;
        let to = child.stdin.take()?;
        Some(Pager { child, to: BufWriter::with_capacity(1 << 16, to) })
    }

    /// What is still to come is nothing: waits until the user has read it.
    pub fn end(self) -> io::Result<()> {
        let Pager { mut child, mut to } = self;
        let flushed = to.flush();
        // The end of the text is the end of the pipe. What the pager did not take would be written again.
        drop(to.into_parts());
        child.wait()?;
        flushed
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
