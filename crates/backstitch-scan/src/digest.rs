//! Digests of rules.

/// A digest of rules in force.
pub(crate) type Digest = [u8; 20];

/// Hashes parts, each with its length in front so that they cannot run into one another.
pub(crate) fn digest(parts: &[&[u8]]) -> Digest {
    let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    match hasher.try_finalize() {
        Ok(gix_hash::ObjectId::Sha1(bytes)) => bytes,
        // Bytes made to collide: one value for all of them; decisions made under it are not told apart.
        _ => [0xff; 20],
    }
}
