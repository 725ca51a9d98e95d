//! Object ids: SHA-1 with collision detection.

use gix_hash::{Kind as HashKind, hasher};

use crate::{Error, Oid, object::Kind};

/// Length of an object id in bytes.
pub(crate) const OID_LEN: usize = 20;

/// A running checksum or id.
pub(crate) struct Sha1(gix_hash::Hasher);

impl Sha1 {
    pub(crate) fn new() -> Sha1 {
        Sha1(hasher(HashKind::Sha1))
    }

    /// The hash of an object of `size` bytes that are fed next.
    pub(crate) fn object(kind: Kind, size: u64) -> Sha1 {
        let mut h = Sha1::new();
        h.update(&header(kind, size));
        h
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The id, or an error if the bytes are a known kind of collision attack.
    pub(crate) fn finish(self) -> Result<Oid, Error> {
        self.0
            .try_finalize()
            .map_err(|_| Error::invalid("the content is a SHA-1 collision attack and is not stored"))
    }
}

/// `blob 12\0`.
pub(crate) fn header(kind: Kind, size: u64) -> Vec<u8> {
    format!("{} {size}\0", kind.name()).into_bytes()
}

/// The id of a whole object.
pub(crate) fn object_id(kind: Kind, data: &[u8]) -> Result<Oid, Error> {
    let mut h = Sha1::object(kind, data.len() as u64);
    h.update(data);
    h.finish()
}

/// 20 bytes as an id.
pub(crate) fn oid(bytes: &[u8]) -> Option<Oid> {
    <[u8; OID_LEN]>::try_from(bytes).ok().map(Oid::from)
}

/// The 20 bytes of an id. Ids in this crate are SHA-1 always; another kind matches no object.
pub(crate) fn raw(oid: &Oid) -> [u8; OID_LEN] {
    <[u8; OID_LEN]>::try_from(oid.as_slice()).unwrap_or([0; OID_LEN])
}

/// The id of the empty tree.
pub(crate) fn empty_tree() -> Oid {
    Oid::empty_tree(HashKind::Sha1)
}
