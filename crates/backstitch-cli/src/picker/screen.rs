//! The terminal: its state is put back however this ends.

use std::{
    collections::VecDeque,
    io::{self, Stdout},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use backstitch::{
    error::{Code, Error, Result},
    operation::Outcome,
    workspace::Control,
};
use bstr::ByteSlice;
use crossterm::{
    cursor, event, execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui::{Terminal, TerminalOptions, Viewport, backend::CrosstermBackend, layout::Rect};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    keys::Key,
    model::Model,
    value::{Answer, Effect},
    view::{self, Busy, Theme},
    work::Desk,
};
use crate::{context::Context, text};

/// How often signals are looked at.
const SLICE: Duration = Duration::from_millis(100);
/// Work shorter than this shows nothing.
const QUIET: Duration = Duration::from_millis(500);

fn io_error(e: io::Error) -> Error {
    Error::new(Code::Io, format!("the terminal cannot be used: {e}"))
        .hint("`--plain` asks without moving the cursor")
}

/// Raw, and another page; undone when it goes.
struct Raw;

impl Raw {
    fn enter() -> Result<Raw> {
        enable_raw_mode().map_err(io_error)?;
        let raw = Raw;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide).map_err(io_error)?;
        Ok(raw)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Nothing more can be done where the terminal is gone.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
        let _ = disable_raw_mode();
    }
}

/// Of the terminal that is written to, whichever terminal the process belongs to.
fn area() -> Rect {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|s| s.ws_col > 0 && s.ws_row > 0);
    let (width, height) = size.map_or((80, 24), |s| (s.ws_col, s.ws_row));
    Rect::new(0, 0, width, height)
}

struct Screen<'a> {
    cx: &'a Context,
    desk: &'a Desk<'a>,
    terminal: Terminal<CrosstermBackend<Stdout>>,
    area: Rect,
    theme: Theme,
    root: String,
    ahead: VecDeque<Key>,
    busy: Arc<AtomicBool>,
}

/// Keys that wait are not drawn one by one for so long.
const TOGETHER: Duration = Duration::from_millis(100);
/// How long whoever is at work is given to stop.
const LEAVE: Duration = Duration::from_millis(200);

/// Whether the terminal is gone within that time.
fn is_gone(wait: Option<&Timespec>) -> bool {
    let input = io::stdin();
    loop {
        // Nothing is asked for: what is left is that it is gone.
        let mut fds = [PollFd::new(&input, PollFlags::empty())];
        match poll(&mut fds, wait) {
            Err(Errno::INTR) => {}
            Ok(n) => return n > 0,
            Err(_) => return false,
        }
    }
}

/// Ends the process when its terminal is gone: the library that reads keys would read its end for ever, and the one that
/// writes cannot say so. What is under way is stopped first.
fn watch_terminal(interrupt: &Arc<AtomicBool>, busy: &Arc<AtomicBool>) {
    let (interrupt, busy) = (Arc::clone(interrupt), Arc::clone(busy));
    let watch = move || {
        if !is_gone(None) {
            return;
        }
        interrupt.store(true, Ordering::Relaxed);
        while busy.load(Ordering::SeqCst) {
            std::thread::sleep(LEAVE);
        }
        std::process::exit(130);
    };
    // Without it everything else works.
    let _ = std::thread::Builder::new().name("terminal".into()).spawn(watch);
}

/// Runs until the person ends it; what was done, oldest first.
pub fn run(cx: &Context, desk: &Desk<'_>) -> Result<Vec<Outcome>> {
    let colour = cx.ui.colour;
    crossterm::style::force_color_output(colour);
    let mut model = Model::new(desk.entries()?, &desk.options);
    let root = desk.ws.root();
    let root =
        root.file_name().map_or_else(|| "/".to_owned(), |n| text::name(n.as_encoded_bytes().as_bstr()));
    let _raw = Raw::enter()?;
    let busy = Arc::new(AtomicBool::new(false));
    watch_terminal(&cx.interrupt, &busy);
    let area = area();
    let options = TerminalOptions { viewport: Viewport::Fixed(area) };
    let terminal = Terminal::with_options(CrosstermBackend::new(io::stdout()), options).map_err(io_error)?;
    let mut s =
        Screen { cx, desk, terminal, area, theme: Theme::new(colour), root, ahead: VecDeque::new(), busy };
    match s.go(&mut model) {
        Ok(()) => Ok(model.done),
        // What puts the terminal back would fail loudly.
        Err(_) if is_gone(Some(&Timespec::default())) => std::process::exit(130),
        Err(e) => Err(e),
    }
}

impl Screen<'_> {
    fn interrupted(&self) -> Result<()> {
        match self.cx.interrupt.load(Ordering::Relaxed) {
            true => Err(Error::new(Code::Interrupted, "interrupted; nothing more was changed")),
            false => Ok(()),
        }
    }

    fn draw(&mut self, m: &mut Model, busy: Option<&Busy>) -> Result<()> {
        let (root, theme) = (&self.root, self.theme);
        let now = area();
        if now != self.area {
            self.area = now;
            self.terminal.resize(now).map_err(io_error)?;
        }
        self.terminal.draw(|f| view::draw(f, m, root, theme, busy)).map(|_| ()).map_err(io_error)
    }

    /// The next key, of those that were typed ahead first.
    fn next_key(&mut self, wait: Duration) -> Result<Option<Key>> {
        match self.ahead.pop_front() {
            Some(key) => Ok(Some(key)),
            None => self.key(wait),
        }
    }

    /// A key that comes now; `None` where none comes in time.
    fn key(&self, wait: Duration) -> Result<Option<Key>> {
        if !event::poll(wait).map_err(io_error)? {
            return Ok(None);
        }
        Ok(match event::read().map_err(io_error)? {
            event::Event::Key(e) => Key::of(e),
            _ => None,
        })
    }

    fn go(&mut self, m: &mut Model) -> Result<()> {
        self.draw(m, None)?;
        let (mut drawn, mut stale) = (Instant::now(), false);
        loop {
            self.interrupted()?;
            let key = match (self.next_key(Duration::ZERO)?, m.idle()) {
                (Some(key), _) => Some(key),
                (None, Some(work)) => {
                    let answer = self.work(m, work, true)?;
                    m.answer(answer);
                    self.draw(m, None)?;
                    None
                }
                (None, None) => self.next_key(SLICE)?,
            };
            if key.is_none() && area() == self.area && !stale {
                continue;
            }
            let mut next = key.and_then(|k| m.key(k));
            let calm = next.is_none();
            while let Some(effect) = next {
                if matches!(effect, Effect::Quit) {
                    return Ok(());
                }
                let is_plan = matches!(effect, Effect::Plan { .. });
                let answer = self.work(m, effect, false)?;
                next = m.answer(answer);
                if is_plan && next.is_none() {
                    self.forget_keys()?;
                }
            }
            // Keys that came faster than they can be shown are shown together.
            let more = calm && (!self.ahead.is_empty() || event::poll(Duration::ZERO).unwrap_or(false));
            stale = more && drawn.elapsed() < TOGETHER;
            if !stale {
                self.draw(m, None)?;
                drawn = Instant::now();
            }
        }
    }

    /// Keys that were pressed before a plan was shown are no answer to it.
    fn forget_keys(&mut self) -> Result<()> {
        self.ahead.clear();
        while event::poll(Duration::ZERO).map_err(io_error)? {
            event::read().map_err(io_error)?;
        }
        Ok(())
    }

    /// Carries out work beside the terminal. A signal ends it, and so does Esc; where nobody waits for it, any key.
    fn work(&mut self, m: &mut Model, effect: Effect, idle: bool) -> Result<Answer> {
        let stop = AtomicBool::new(false);
        let far: Mutex<Option<(String, u64, u64)>> = Mutex::new(None);
        let tell = |what: &str, done: u64, total: u64| {
            *far.lock().unwrap_or_else(PoisonError::into_inner) = Some((what.to_owned(), done, total));
        };
        let desk = self.desk;
        let busy = Arc::clone(&self.busy);
        std::thread::scope(|scope| {
            let (tx, rx) = mpsc::channel();
            let control = Control { interrupt: &stop, progress: &tell };
            busy.store(true, Ordering::SeqCst);
            scope.spawn(move || {
                let answer = desk.run(effect, &control);
                busy.store(false, Ordering::SeqCst);
                // Where the terminal is gone nobody waits.
                let _ = tx.send(answer);
            });
            let begun = Instant::now();
            loop {
                match rx.recv_timeout(Duration::from_millis(10)) {
                    Ok(answer) => return Ok(answer),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => {
                        return Err(Error::fault("the work ended without an answer"));
                    }
                }
                let wanted = match idle {
                    true => event::poll(Duration::ZERO).unwrap_or(true),
                    false => match self.key(Duration::ZERO) {
                        Ok(Some(Key::Esc | Key::Ctrl('c'))) | Err(_) => true,
                        Ok(other) => {
                            self.ahead.extend(other);
                            false
                        }
                    },
                };
                if wanted || self.interrupted().is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                if !idle && begun.elapsed() >= QUIET {
                    let (what, done, total) =
                        far.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
                    self.draw(m, Some(&Busy { what, done, total }))?;
                }
            }
        })
    }
}
