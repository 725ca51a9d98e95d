//! The difference between two records of one directory whose names are the same.
//!
//! In a directory of tens of thousands of files one edit would else put megabytes into the log.
//!
//! ```text
//! head of the new record [176], then for each changed entry: position u32, entry [72]
//! ```

use super::record::{ENTRY, HEAD, Record};

const STEP: usize = 4 + ENTRY;

/// What turns `old` into `new`, if that is less than half of `new`.
pub(crate) fn make(old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let (before, after) = (Record::parse(old)?, Record::parse(new)?);
    let entries = HEAD..HEAD + after.len() * ENTRY;
    if before.len() != after.len() || old.get(entries.end..)? != new.get(entries.end..)? {
        return None;
    }
    let mut patch = new.get(..HEAD)?.to_vec();
    let pairs = old.get(entries.clone())?.chunks_exact(ENTRY).zip(new.get(entries)?.chunks_exact(ENTRY));
    for (i, (_, entry)) in pairs.enumerate().filter(|(_, (a, b))| a != b) {
        patch.extend((i as u32).to_le_bytes());
        patch.extend_from_slice(entry);
        if patch.len() > new.len() / 2 {
            return None;
        }
    }
    Some(patch)
}

/// The new record; `None` if the patch does not fit the old one.
pub(crate) fn apply(old: &[u8], patch: &[u8]) -> Option<Vec<u8>> {
    let (head, steps) = patch.split_at_checked(HEAD)?;
    let mut new = old.to_vec();
    new.get_mut(..HEAD)?.copy_from_slice(head);
    // The numbers of entries and of bytes of names are part of the head, and must not change.
    let count = Record::parse(old)?.len();
    if new.get(..8)? != old.get(..8)? || steps.len() % STEP != 0 {
        return None;
    }
    for step in steps.chunks_exact(STEP) {
        let i = u32::from_le_bytes(*step.first_chunk()?) as usize;
        if i >= count {
            return None;
        }
        new.get_mut(HEAD + i * ENTRY..HEAD + (i + 1) * ENTRY)?.copy_from_slice(&step[4..]);
    }
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(entries: &[u8], names: &[u8]) -> Vec<u8> {
        let mut blob = ((entries.len()) as u32).to_le_bytes().to_vec();
        blob.extend((names.len() as u32).to_le_bytes());
        blob.resize(HEAD, 7);
        entries.iter().for_each(|e| blob.extend([*e; ENTRY]));
        blob.extend(names);
        blob
    }

    #[test]
    fn there_and_back() {
        let old = record(&[1, 2, 3, 4, 4, 4, 4], b"names");
        let new = record(&[1, 9, 3, 4, 4, 4, 4], b"names");
        let patch = make(&old, &new).unwrap();
        assert_eq!(patch.len(), HEAD + STEP);
        assert_eq!(apply(&old, &patch).unwrap(), new);
        assert_eq!(make(&old, &old).unwrap().len(), HEAD);
        assert!(make(&old, &record(&[1, 2, 3, 4, 4, 4, 4], b"other")).is_none());
        assert!(make(&old, &record(&[1, 2, 3], b"names")).is_none());
        assert!(
            make(&old, &record(&[5, 6, 7, 8, 9, 9, 9], b"names")).is_none(),
            "no smaller than the record"
        );
        assert!(apply(&record(&[1, 2], b"names"), &patch).is_none());
        assert!(apply(&old, &patch[..patch.len() - 1]).is_none());
    }
}
