//! Standard input as lines of bounded length.

use std::sync::atomic::AtomicBool;

use super::LONGEST;
use crate::ask;

/// What comes next.
pub enum Line {
    /// A line that is not blank, without its end.
    Text(Vec<u8>),
    /// A line of this many bytes was passed over.
    TooLong(u64),
    /// There is no more.
    End,
    /// A signal arrived.
    Interrupted,
}

/// Never holds more than one line of [`LONGEST`] bytes and one buffer.
pub struct Lines<'a> {
    interrupt: &'a AtomicBool,
    buffer: Vec<u8>,
    /// What of the buffer was not looked at yet.
    rest: std::ops::Range<usize>,
}

impl<'a> Lines<'a> {
    /// Ends when the flag is set.
    pub fn new(interrupt: &'a AtomicBool) -> Lines<'a> {
        Lines { interrupt, buffer: vec![0; 1 << 16], rest: 0..0 }
    }

    /// Waits for a line. What stands behind the last line's end is a line, too.
    pub fn next(&mut self) -> Line {
        let mut line = Vec::new();
        let mut passed: u64 = 0;
        loop {
            if self.rest.is_empty() {
                match ask::read(&mut self.buffer, self.interrupt) {
                    Ok(0) if passed > 0 => return Line::TooLong(passed),
                    // An input that cannot be read has ended.
                    Ok(0) | Err(_) if line.trim_ascii().is_empty() => return self.end(),
                    Ok(0) | Err(_) => return Line::Text(line),
                    Ok(n) => self.rest = 0..n,
                }
            }
            let bytes = &self.buffer[self.rest.clone()];
            let found = bytes.iter().position(|b| *b == b'\n');
            let part = &bytes[..found.unwrap_or(bytes.len())];
            if passed > 0 || line.len() + part.len() > LONGEST {
                passed += (line.len() + part.len()) as u64;
                line = Vec::new();
            } else {
                line.extend_from_slice(part);
            }
            self.rest.start += part.len() + usize::from(found.is_some());
            if found.is_none() {
                continue;
            }
            if passed > 0 {
                return Line::TooLong(passed);
            }
            if !line.trim_ascii().is_empty() {
                return Line::Text(line);
            }
            line.clear();
        }
    }

    fn end(&self) -> Line {
        match self.interrupt.load(std::sync::atomic::Ordering::Relaxed) {
            true => Line::Interrupted,
            false => Line::End,
        }
    }
}
