//! Temporaries that a dead process left.

use bstr::{BStr, ByteSlice};
use rustix::{
    fs::{AtFlags, RenameFlags, renameat_with, unlinkat},
    io::Errno,
};

use super::{Found, Place, found::matches, last_name, rename_new};
use crate::{error::Result, plan::Stand};

impl Place {
    /// Settles the temporaries that a dead process left for item `n` at `path`: removes ours, puts back what came out.
    pub fn settle_temporaries(
        &mut self,
        n: usize,
        path: &BStr,
        from: Option<&Stand>,
        to: Option<&Stand>,
    ) -> Result<()> {
        self.forget();
        if self.parent(path).is_err() {
            return Ok(());
        }
        let name = last_name(path).to_owned();
        let remove = |p: &Place, t: &[u8]| match unlinkat(p.dir(), t.as_bytes(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(p.error(path, e)),
        };
        let w = self.temporary('w', n);
        remove(self, &w)?;
        let x = self.temporary('x', n);
        match self.inspect_name(&x).map_err(|e| self.error(path, e))? {
            Found::Absent => {}
            // Our own complete content, not yet exchanged.
            ref found if matches(found, to) => remove(self, &x)?,
            // What came out of the target: it goes back.
            found => {
                let target = self.inspect_name(&name).map_err(|e| self.error(path, e))?;
                if target == Found::Absent {
                    rename_new(self.dir(), &x, &name).map_err(|e| self.error(path, e))?;
                } else if from.is_some() && matches(&found, from) && matches(&target, from) {
                    remove(self, &x)?;
                } else if matches(&target, to) {
                    renameat_with(
                        self.dir(),
                        x.as_bytes(),
                        self.dir(),
                        name.as_bytes(),
                        RenameFlags::EXCHANGE,
                    )
                    .map_err(|e| self.error(path, e))?;
                    remove(self, &x)?;
                } else {
                    self.keep_beside(path, &name, &x)?;
                }
            }
        }
        let d = self.temporary('d', n);
        match self.inspect_name(&d).map_err(|e| self.error(path, e))? {
            Found::Absent => {}
            found => match rename_new(self.dir(), &d, &name) {
                // A second name of what stands there, where files cannot be exchanged.
                Err(Errno::EXIST) if self.inspect_name(&name).map_err(|e| self.error(path, e))? == found => {
                    remove(self, &d)?;
                }
                Ok(()) => {}
                // Both ends of the item are in the store, or go there.
                Err(Errno::EXIST) if matches(&found, to) => remove(self, &d)?,
                Err(Errno::EXIST) if matches(&found, from) && self.discard(path, &d, &found)?.is_ok() => {}
                Err(Errno::EXIST) => self.keep_beside(path, &name, &d)?,
                Err(e) => return Err(self.error(path, e)),
            },
        }
        Ok(())
    }

    /// Two states claim one path and neither may be lost: the older gets a name of its own beside it.
    fn keep_beside(&self, path: &BStr, name: &[u8], temporary: &[u8]) -> Result<()> {
        let mut beside = name.to_vec();
        beside.truncate(200);
        beside.extend_from_slice(format!(".backstitch-kept-{}", self.op).as_bytes());
        rename_new(self.dir(), temporary, &beside).map_err(|e| self.error(path, e))
    }
}
