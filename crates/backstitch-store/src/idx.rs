//! Pack indexes, version 2: written from memory, read by offset.

use std::{fs::File, os::unix::fs::FileExt, path::Path, sync::OnceLock};

use crate::{
    Error, Oid,
    hash::{OID_LEN, Sha1},
};

const MAGIC: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
const FAN: u64 = 8;
const OIDS: u64 = FAN + 4 * 256;
/// An index up to this size is read whole; of a larger one only what is asked for.
const SMALL: u64 = 128 << 10;
/// Offsets from here on are in a table of their own.
const FAR: u64 = 1 << 31;

/// One object of a pack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdxEntry {
    pub(crate) oid: [u8; OID_LEN],
    pub(crate) crc: u32,
    pub(crate) offset: u64,
}

/// The bytes of an index for `entries` (sorted here) of the pack with checksum `pack`.
pub(crate) fn encode(entries: &mut [IdxEntry], pack: &Oid) -> Result<Vec<u8>, Error> {
    entries.sort_unstable_by_key(|e| e.oid);
    let mut out = Vec::with_capacity(usize::try_from(OIDS).unwrap_or(0) + entries.len() * 28 + 2 * OID_LEN);
    out.extend_from_slice(&MAGIC);
    let mut n = 0;
    for first in 0..=255u8 {
        while n < entries.len() && entries[n].oid[0] <= first {
            n += 1;
        }
        out.extend_from_slice(
            &u32::try_from(n).map_err(|_| Error::invalid("too many objects for one pack"))?.to_be_bytes(),
        );
    }
    entries.iter().for_each(|e| out.extend_from_slice(&e.oid));
    entries.iter().for_each(|e| out.extend_from_slice(&e.crc.to_be_bytes()));
    let mut far = Vec::new();
    for e in entries.iter() {
        let word = match u32::try_from(e.offset) {
            Ok(near) if e.offset < FAR => near,
            _ => {
                let at =
                    u32::try_from(far.len()).map_err(|_| Error::invalid("too many objects for one pack"))?;
                far.push(e.offset);
                at | 1 << 31
            }
        };
        out.extend_from_slice(&word.to_be_bytes());
    }
    far.iter().for_each(|o| out.extend_from_slice(&o.to_be_bytes()));
    out.extend_from_slice(pack.as_slice());
    let mut h = Sha1::new();
    h.update(&out);
    let own = h.finish()?;
    out.extend_from_slice(own.as_slice());
    Ok(out)
}

/// An index on disk.
#[derive(Debug)]
pub(crate) struct Idx {
    fan: [u32; 256],
    far: u64,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Whole(Vec<u8>),
    /// The ids of one first byte, and their offsets, are read when first needed.
    Parts {
        file: File,
        buckets: Vec<OnceLock<Vec<u8>>>,
        offsets: Vec<OnceLock<Vec<u32>>>,
    },
}

impl Idx {
    pub(crate) fn open(path: &Path) -> Result<Idx, Error> {
        let io = || Error::io(path);
        let file = File::open(path).map_err(io())?;
        let len = file.metadata().map_err(io())?.len();
        let damaged = |what: &str| Error::damaged(path, what);
        if len < OIDS + 2 * OID_LEN as u64 {
            return Err(damaged("the index is cut off"));
        }
        let head_len = if len <= SMALL { len } else { OIDS };
        let mut head = vec![0; usize::try_from(head_len).unwrap_or(0)];
        file.read_exact_at(&mut head, 0).map_err(io())?;
        if head[..8] != MAGIC {
            return Err(damaged("not a pack index of version 2"));
        }
        let mut fan = [0; 256];
        let mut last = 0;
        for (i, n) in fan.iter_mut().enumerate() {
            *n = word(&head, 8 + 4 * i).ok_or_else(|| damaged("the index is cut off"))?;
            if *n < last {
                return Err(damaged("the index is out of order"));
            }
            last = *n;
        }
        let fixed = OIDS + u64::from(last) * 28 + 2 * OID_LEN as u64;
        let far = len.checked_sub(fixed).filter(|rest| rest % 8 == 0 && rest / 8 <= u64::from(last));
        let far = far.ok_or_else(|| damaged("the index has the wrong length"))? / 8;
        let bytes = if len <= SMALL {
            Bytes::Whole(head)
        } else {
            Bytes::Parts {
                file,
                buckets: (0..256).map(|_| OnceLock::new()).collect(),
                offsets: (0..256).map(|_| OnceLock::new()).collect(),
            }
        };
        Ok(Idx { fan, far, bytes })
    }

    /// How many objects it lists.
    pub(crate) fn len(&self) -> u32 {
        self.fan[255]
    }

    /// Where `oid` is in its pack.
    pub(crate) fn find(&self, oid: &[u8; OID_LEN]) -> Result<Option<u64>, String> {
        let first = usize::from(oid[0]);
        let lo = if first == 0 { 0 } else { self.fan[first - 1] };
        let hi = self.fan[first];
        if lo == hi {
            return Ok(None);
        }
        let ids = self.bucket(first, lo, hi)?;
        let (ids, _) = ids.as_chunks::<OID_LEN>();
        // The first byte is that of the bucket; the next eight decide almost always, in one register.
        let start = |id: &[u8; OID_LEN]| id[1..].first_chunk().map(|b| u64::from_be_bytes(*b));
        let key = start(oid);
        match ids.binary_search_by(|id| start(id).cmp(&key).then_with(|| id.cmp(oid))) {
            Ok(i) => {
                let near = match &self.bytes {
                    Bytes::Whole(_) => self.near(lo + u32::try_from(i).map_err(|e| e.to_string())?)?,
                    Bytes::Parts { offsets, .. } => {
                        let bucket = match offsets[first].get() {
                            Some(bucket) => bucket,
                            None => {
                                let table = OIDS + u64::from(self.len()) * 24;
                                let read = self.run(table + 4 * u64::from(lo), hi - lo)?;
                                offsets[first].get_or_init(|| read)
                            }
                        };
                        *bucket.get(i).ok_or("the index is cut off")?
                    }
                };
                self.far_of(near).map(Some)
            }
            Err(_) => Ok(None),
        }
    }

    fn bucket(&self, first: usize, lo: u32, hi: u32) -> Result<&[u8], String> {
        let at = OIDS + u64::from(lo) * OID_LEN as u64;
        let len = (hi - lo) as usize * OID_LEN;
        match &self.bytes {
            Bytes::Whole(all) => {
                let at = at as usize;
                all.get(at..at + len).ok_or_else(|| "the index is cut off".into())
            }
            Bytes::Parts { file, buckets, .. } => {
                if let Some(ids) = buckets[first].get() {
                    return Ok(ids);
                }
                let mut ids = vec![0; len];
                file.read_exact_at(&mut ids, at).map_err(|e| e.to_string())?;
                Ok(buckets[first].get_or_init(|| ids))
            }
        }
    }

    fn read<const N: usize>(&self, at: u64) -> Result<[u8; N], String> {
        let mut out = [0; N];
        match &self.bytes {
            Bytes::Whole(all) => {
                let at = at as usize;
                out.copy_from_slice(all.get(at..at + N).ok_or("the index is cut off")?);
            }
            Bytes::Parts { file, .. } => file.read_exact_at(&mut out, at).map_err(|e| e.to_string())?,
        }
        Ok(out)
    }

    fn offset(&self, i: u32) -> Result<u64, String> {
        self.far_of(self.near(i)?)
    }

    /// What the first table of offsets says.
    fn near(&self, i: u32) -> Result<u32, String> {
        let table = OIDS + u64::from(self.len()) * 24;
        Ok(u32::from_be_bytes(self.read(table + 4 * u64::from(i))?))
    }

    /// The offset that it means.
    fn far_of(&self, near: u32) -> Result<u64, String> {
        let n = u64::from(self.len());
        let table = OIDS + n * 24;
        if u64::from(near) < FAR {
            return Ok(u64::from(near));
        }
        let at = u64::from(near) - FAR;
        if at >= self.far {
            return Err("the index points outside itself".into());
        }
        Ok(u64::from_be_bytes(self.read(table + 4 * n + 8 * at)?))
    }

    /// Every object, in the order of ids.
    pub(crate) fn entries(&self) -> Result<Vec<IdxEntry>, String> {
        let n = self.len();
        let mut out = Vec::new();
        out.try_reserve_exact(n as usize).map_err(|e| e.to_string())?;
        for first in 0..256 {
            let lo = if first == 0 { 0 } else { self.fan[first - 1] };
            let ids = self.bucket(first, lo, self.fan[first])?;
            let crcs = self.run(OIDS + u64::from(n) * 20 + 4 * u64::from(lo), self.fan[first] - lo)?;
            for (i, (oid, crc)) in ids.as_chunks::<OID_LEN>().0.iter().zip(crcs).enumerate() {
                let offset = self.offset(lo + u32::try_from(i).map_err(|e| e.to_string())?)?;
                out.push(IdxEntry { oid: *oid, crc, offset });
            }
        }
        Ok(out)
    }

    fn run(&self, at: u64, n: u32) -> Result<Vec<u32>, String> {
        let mut bytes = vec![0; 4 * n as usize];
        match &self.bytes {
            Bytes::Whole(all) => {
                let at = at as usize;
                bytes.copy_from_slice(all.get(at..at + 4 * n as usize).ok_or("the index is cut off")?);
            }
            Bytes::Parts { file, .. } => file.read_exact_at(&mut bytes, at).map_err(|e| e.to_string())?,
        }
        Ok(bytes.as_chunks::<4>().0.iter().map(|w| u32::from_be_bytes(*w)).collect())
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash;

    #[test]
    fn far_offsets_come_back() {
        let mut entries: Vec<IdxEntry> = (0..10_000u32)
            .map(|i| {
                let oid = hash::object_id(crate::object::Kind::Blob, &i.to_le_bytes()).expect("hash");
                let offset = if i % 3 == 0 { u64::from(i) + (1 << 40) } else { u64::from(i) * 200_000 };
                IdxEntry { oid: hash::raw(&oid), crc: i, offset }
            })
            .collect();
        for keep in [0, 1, 10, 10_000] {
            entries.truncate(entries.len().min(10_000));
            let mut some = entries[..keep].to_vec();
            let pack = Oid::null(gix_hash::Kind::Sha1);
            let bytes = encode(&mut some, &pack).expect("encode");
            let dir = tempfile::tempdir().expect("dir");
            let path = dir.path().join("x.idx");
            std::fs::write(&path, bytes).expect("write");
            let idx = Idx::open(&path).expect("open");
            assert_eq!(idx.len() as usize, keep);
            for e in &some {
                assert_eq!(idx.find(&e.oid).expect("find"), Some(e.offset));
            }
            assert_eq!(idx.find(&[7; 20]).expect("find"), None);
            let all = idx.entries().expect("entries");
            assert!(
                all.iter().zip(&some).all(|(a, b)| a.oid == b.oid && a.crc == b.crc && a.offset == b.offset)
            );
        }
    }
}
