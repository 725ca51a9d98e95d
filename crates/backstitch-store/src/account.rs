//! Whose bytes they are.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    Durability, Error, Odb, Oid, Store, files,
    hash::{self, OID_LEN, Sha1},
    inventory::Inventory,
    parked, reach,
};

/// Bytes of one ref, as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Needed by this ref alone: garbage if exactly this ref went.
    pub unique: u64,
    /// Needed by other refs too.
    pub shared: u64,
}

/// What [`Store::account`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// By full name of the ref. A ref of which something cannot be read is not in it.
    pub refs: HashMap<String, Share>,
    /// Bytes that some ref needs.
    pub live: u64,
    /// Bytes that none needs.
    pub garbage: u64,
}

/// Reached by more than one ref.
const MANY: u32 = u32::MAX;
/// Reached by none yet.
const NONE: u32 = u32::MAX - 1;

const MAGIC: &[u8; 8] = b"bsspace\x01";

impl Store {
    /// The bytes of each ref whose name starts with `prefix`, against all refs of the store. Exact for what is stored now;
    /// kept in a cache that counts until a ref or a pack changes. None if it is not known and the store holds more than
    /// `most` objects in packs, for callers in a hurry.
    ///
    /// # Errors
    /// A pack index that cannot be read; [`Error::Interrupted`].
    pub fn account(
        &self,
        prefix: &str,
        most: usize,
        interrupt: &AtomicBool,
    ) -> Result<Option<Account>, Error> {
        let (refs, _) = self.refs().list_all("refs/")?;
        if let Some(known) = self.read_account(prefix, &refs)? {
            return Ok(Some(known));
        }
        let odb = self.odb()?;
        odb.refresh()?;
        if odb.packs()?.packs.iter().map(|p| p.idx.len() as usize).sum::<usize>() > most {
            return Ok(None);
        }
        let inventory = Inventory::take(&odb)?;
        let parked = parked::ids(self.dir())?;
        let account = Accountant::new(&odb, &inventory, &parked, interrupt).count(&refs, prefix)?;
        // Only a cache: a failure to write it is no failure.
        let _ = self.write_account(prefix, &refs, &account);
        Ok(Some(account))
    }

    /// What all depends on.
    fn account_key(&self, prefix: &str, refs: &[(String, Oid)]) -> Result<Oid, Error> {
        let mut h = Sha1::new();
        h.update(prefix.as_bytes());
        for (name, oid) in refs {
            h.update(&[0]);
            h.update(name.as_bytes());
            h.update(oid.as_slice());
        }
        let mut packs = files::names(&self.git_dir().join("objects/pack"))?;
        packs.sort_unstable();
        for name in packs.iter().filter(|n| files::stem(n, ".idx").is_some()) {
            h.update(&[0]);
            h.update(name.as_encoded_bytes());
        }
        h.finish()
    }

    fn account_path(&self) -> std::path::PathBuf {
        self.state_dir().join("space")
    }

    fn read_account(&self, prefix: &str, refs: &[(String, Oid)]) -> Result<Option<Account>, Error> {
        let bytes = std::fs::read(self.account_path()).unwrap_or_default();
        let Some(found) = decode(&bytes) else { return Ok(None) };
        if found.key != self.account_key(prefix, refs)? {
            return Ok(None);
        }
        let names = refs.iter().filter(|(n, _)| n.starts_with(prefix));
        let shares = names.zip(found.shares).filter(|(_, s)| s.unique != u64::MAX);
        let refs = shares.map(|((n, _), s)| (n.clone(), s)).collect();
        Ok(Some(Account { refs, live: found.live, garbage: found.garbage }))
    }

    fn write_account(&self, prefix: &str, refs: &[(String, Oid)], account: &Account) -> Result<(), Error> {
        let _alive = self.lock_shared(crate::ALIVE, std::time::Duration::ZERO)?;
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(self.account_key(prefix, refs)?.as_slice());
        out.extend_from_slice(&account.live.to_le_bytes());
        out.extend_from_slice(&account.garbage.to_le_bytes());
        let unread = Share { unique: u64::MAX, shared: 0 };
        for (name, _) in refs.iter().filter(|(n, _)| n.starts_with(prefix)) {
            let share = account.refs.get(name).unwrap_or(&unread);
            out.extend_from_slice(&share.unique.to_le_bytes());
            out.extend_from_slice(&share.shared.to_le_bytes());
        }
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        files::replace(&self.state_dir(), "space", &self.account_path(), &out, Durability::None)
    }
}

/// Magic, key, live, garbage; unique and shared of each ref in the order of names; CRC-32 of all before it.
struct Found {
    key: Oid,
    live: u64,
    garbage: u64,
    shares: Vec<Share>,
}

fn decode(bytes: &[u8]) -> Option<Found> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    if u32::from_le_bytes(*crc) != crc32fast::hash(body) {
        return None;
    }
    let (key, rest) = body.strip_prefix(MAGIC)?.split_at_checked(OID_LEN)?;
    let (numbers, _) = rest.as_chunks::<8>();
    let mut numbers = numbers.iter().map(|n| u64::from_le_bytes(*n));
    let (live, garbage) = (numbers.next()?, numbers.next()?);
    let mut shares = Vec::new();
    while let (Some(unique), Some(shared)) = (numbers.next(), numbers.next()) {
        shares.push(Share { unique, shared });
    }
    Some(Found { key: hash::oid(key)?, live, garbage, shares })
}

struct Accountant<'a> {
    odb: &'a Odb,
    inventory: &'a Inventory,
    /// Contents that are no objects of the store yet: they count for nothing here.
    parked: &'a HashSet<[u8; OID_LEN]>,
    interrupt: &'a AtomicBool,
    /// By number: the one ref that reaches it, [`MANY`] or [`NONE`].
    owner: Vec<u32>,
    /// What trees, commits and tags point to; none if they cannot be read.
    links: HashMap<u32, Option<Box<[u32]>>>,
    empty: Option<u32>,
}

impl<'a> Accountant<'a> {
    fn new(
        odb: &'a Odb,
        inventory: &'a Inventory,
        parked: &'a HashSet<[u8; OID_LEN]>,
        interrupt: &'a AtomicBool,
    ) -> Accountant<'a> {
        Accountant {
            odb,
            inventory,
            parked,
            interrupt,
            owner: vec![NONE; inventory.ids.len()],
            links: HashMap::new(),
            empty: inventory.find(&hash::raw(&hash::empty_tree())),
        }
    }

    /// What an object points to; a blob to nothing. None if it, or what it names, is not here.
    fn below(&mut self, n: u32) -> Option<&[u32]> {
        let (odb, inventory, parked, empty) = (self.odb, self.inventory, self.parked, self.empty);
        let look = || {
            let oid = inventory.oid(n);
            if odb.head(&oid).ok()?.0 == Some(crate::object::Kind::Blob) {
                return Some(Box::default());
            }
            let (kind, data) = odb.read(&oid).ok()?;
            let links = reach::links(kind, &data)?.into_iter();
            links
                .filter(|(oid, _)| empty.is_some() || *oid != hash::empty_tree())
                .map(|(oid, _)| hash::raw(&oid))
                .map(|id| (inventory.find(&id), parked.contains(&id)))
                .filter(|(n, parked)| n.is_some() || !parked)
                .map(|(n, _)| n)
                .collect()
        };
        self.links.entry(n).or_insert_with(look).as_deref()
    }

    fn count(mut self, refs: &[(String, Oid)], prefix: &str) -> Result<Account, Error> {
        let mut unique = vec![0u64; refs.len()];
        let mut bad = vec![false; refs.len()];
        for (r, (_, root)) in refs.iter().enumerate() {
            self.check()?;
            match self.inventory.find(&hash::raw(root)) {
                Some(root) => self.own(r as u32, root, &mut unique, &mut bad),
                None => bad[r] = true,
            }
        }
        let live = (0..self.owner.len()).filter(|n| self.owner[*n] != NONE);
        let live: u64 = live.map(|n| self.inventory.stored(n as u32)).sum();
        let dead = (0..self.owner.len()).filter(|n| self.owner[*n] == NONE);
        let dead = dead.filter(|n| !self.inventory.is_free(*n as u32));
        let garbage = dead.map(|n| self.inventory.stored(n as u32)).sum();
        let mut out = Account { refs: HashMap::new(), live, garbage };
        // By last ref that came by: an object counts once for each.
        let mut seen = vec![NONE; self.owner.len()];
        let mut same: HashMap<Vec<u32>, u64> = HashMap::new();
        for (r, (name, root)) in refs.iter().enumerate() {
            self.check()?;
            let Some(root) = self.inventory.find(&hash::raw(root)).filter(|_| !bad[r]) else { continue };
            if !name.starts_with(prefix) {
                continue;
            }
            let roots = self.below(root).unwrap_or_default().to_vec();
            let below = match same.get(&roots) {
                Some(bytes) => *bytes,
                None => {
                    let bytes = self.closure(r as u32, &roots, &mut seen, &mut bad[r]);
                    same.insert(roots, bytes);
                    bytes
                }
            };
            if !bad[r] {
                let all = below + self.inventory.stored(root);
                let share = Share { unique: unique[r], shared: all.saturating_sub(unique[r]) };
                out.refs.insert(name.clone(), share);
            }
        }
        Ok(out)
    }

    fn check(&self) -> Result<(), Error> {
        match self.interrupt.load(Ordering::Relaxed) {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }

    /// Gives what `root` reaches to ref `r`; what another one has becomes everybody's, with all below it.
    fn own(&mut self, r: u32, root: u32, unique: &mut [u64], bad: &mut [bool]) {
        let mut todo = vec![root];
        while let Some(n) = todo.pop() {
            let old = self.owner[n as usize];
            if old == MANY || old == r {
                continue;
            }
            let stored = self.inventory.stored(n);
            if old == NONE {
                self.owner[n as usize] = r;
                unique[r as usize] += stored;
            } else {
                self.owner[n as usize] = MANY;
                unique[old as usize] -= stored;
            }
            match self.below(n) {
                Some(below) => todo.extend_from_slice(below),
                None => bad[r as usize] = true,
            }
        }
    }

    /// Bytes of all that `roots` reach, each object once.
    fn closure(&mut self, r: u32, roots: &[u32], seen: &mut [u32], bad: &mut bool) -> u64 {
        let mut bytes = 0;
        let mut todo = roots.to_vec();
        while let Some(n) = todo.pop() {
            if std::mem::replace(&mut seen[n as usize], r) == r {
                continue;
            }
            bytes += self.inventory.stored(n);
            match self.below(n) {
                Some(below) => todo.extend_from_slice(below),
                None => *bad = true,
            }
        }
        bytes
    }
}
