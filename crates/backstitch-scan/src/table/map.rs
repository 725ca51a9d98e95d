//! The mapped base file: the one place with `unsafe`.
#![allow(unsafe_code)]

use std::{fs::File, path::Path};

use memmap2::Mmap;

/// A whole file, mapped for reading.
#[derive(Debug)]
pub(crate) struct Map(Mmap);

impl Map {
    /// `None` if there is no such file, or it is empty or cannot be mapped.
    pub(crate) fn open(path: &Path) -> Option<Map> {
        let file = File::open(path).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        // SAFETY: the file is written once under a temporary name and then renamed into place. Nobody writes to it or
        // truncates it afterwards: a new base is a new file, and this mapping keeps the old one alive. The folder belongs
        // to one user with mode 0700; a process of that user which breaks this rule could as well write to our memory.
        unsafe { Mmap::map(&file) }.ok().map(Map)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
