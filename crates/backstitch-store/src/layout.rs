//! Which packs become one.

use crate::{
    hash,
    inventory::{Inventory, PackFile, Place},
};

/// The most bytes that are copied before what they were copied from goes: the spare room that is needed, but for a
/// single pack that is larger.
const STEP: u64 = 256 << 20;
/// Packs above this size are not joined with others.
const FULL: u64 = STEP / 2;
/// A pack that is kept has at least so many times the bytes of all that are smaller.
const FACTOR: u64 = 2;
/// Fewer loose objects than this are not worth a pack of their own.
const LOOSE_MIN: usize = 8;
/// Loose objects above this size stay where they are, as writers make them; the empty tree does too.
const LOOSE_MAX: u64 = 1 << 20;

/// Files that go, and the objects of them that are put into one new pack before.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) packs: Vec<usize>,
    pub(crate) loose: Vec<usize>,
    /// Numbers, in the order in which they are written.
    pub(crate) keep: Vec<u32>,
    /// Of the new pack and its index: about, where deltas lose their bases.
    pub(crate) bytes: u64,
    /// Allocated bytes of what goes.
    pub(crate) gone: u64,
}

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zeal {
    /// Only what makes the number of files small.
    Join,
    /// Packs too of which at least a tenth is not needed, and those that came from elsewhere.
    Worthwhile,
    /// Every byte that is not needed.
    All,
}

/// Steps that leave the objects of `keep` (by number), each once, in few packs. A `stay` pack is not touched.
pub(crate) fn steps(
    inventory: &Inventory,
    keep: &[bool],
    zeal: Zeal,
    stay: &dyn Fn(&PackFile) -> bool,
) -> Vec<Step> {
    let counts =
        |place: Place, object: u32| keep[object as usize] && inventory.home[object as usize] == place;
    let live: Vec<u64> = inventory
        .packs
        .iter()
        .enumerate()
        .map(|(p, file)| {
            let entries = file.entries.iter().enumerate();
            let here = entries.filter(|(i, e)| counts(Place::Packed(p as u32, *i as u32), e.object));
            here.map(|(_, e)| e.len).sum()
        })
        .collect();
    let total = |p: usize| inventory.packs[p].entries.iter().map(|e| e.len).sum::<u64>();
    let must_go = |p: usize| {
        let garbage = total(p) - live[p];
        match zeal {
            Zeal::Join => live[p] == 0,
            Zeal::Worthwhile => inventory.packs[p].seed || garbage * 10 >= total(p),
            Zeal::All => garbage > 0 || inventory.packs[p].seed || inventory.packs[p].linked,
        }
    };
    let mut order: Vec<usize> = (0..live.len()).filter(|p| !stay(&inventory.packs[*p])).collect();
    order.sort_by_key(|p| live[*p]);
    let joinable: Vec<usize> = order.iter().copied().filter(|p| live[*p] > 0 && live[*p] < FULL).collect();
    let mut out = Step::default();
    let mut small = Vec::new();
    for (n, file) in inventory.loose.iter().enumerate() {
        if !counts(Place::Loose(n as u32), file.object) {
            out.loose.push(n);
            out.gone += file.disk;
        } else if file.len <= LOOSE_MAX && inventory.oid(file.object) != hash::empty_tree() {
            small.push(n);
        }
    }
    let mut joined = join(&joinable, &live, None);
    // Together they are one more pack to be joined with others; a few of them come along where there is one anyway.
    if small.len() >= LOOSE_MIN || !(joined.is_empty() || small.is_empty()) {
        joined = join(&joinable, &live, Some(small.iter().map(|n| inventory.loose[*n].len).sum()));
    } else {
        small.clear();
    }

    let mut steps = Vec::new();
    if !out.loose.is_empty() {
        steps.push(out);
    }
    let alone: Vec<usize> = order.iter().copied().filter(|p| must_go(*p) && !joined.contains(p)).collect();
    // The newest first: it is read most, and older versions build on it.
    joined.sort_by_key(|p| (std::cmp::Reverse(inventory.packs[*p].modified), *p));
    let mut step = Step::default();
    for p in joined {
        if step.bytes + live[p] > STEP && step.bytes > 0 {
            steps.push(std::mem::take(&mut step));
        }
        step.bytes += live[p];
        step.packs.push(p);
    }
    step.loose = small;
    if !step.packs.is_empty() || !step.loose.is_empty() {
        steps.push(step);
    }
    // The smallest first: what they free is room for the larger ones.
    steps.extend(alone.into_iter().map(|p| Step { packs: vec![p], ..Step::default() }));
    for step in &mut steps {
        fill(inventory, keep, step);
    }
    steps.retain(|s| !s.packs.is_empty() || !s.loose.is_empty());
    steps
}

/// The packs among `order` (the smallest first) that are to become one, together with loose objects of `loose` bytes.
fn join(order: &[usize], live: &[u64], loose: Option<u64>) -> Vec<usize> {
    let mut sizes: Vec<(u64, Option<usize>)> = order.iter().map(|p| (live[*p], Some(*p))).collect();
    if let Some(bytes) = loose {
        sizes.insert(sizes.partition_point(|(size, _)| *size < bytes), (bytes, None));
    }
    let bytes: Vec<u64> = sizes.iter().map(|(size, _)| *size).collect();
    sizes[..rollup(&bytes)].iter().filter_map(|(_, p)| *p).collect()
}

/// How many of the smallest packs are to become one so that each of the others has [`FACTOR`] times the bytes of all that
/// are smaller.
fn rollup(sizes: &[u64]) -> usize {
    let grows = |w: &[u64]| w[1] >= w[0].saturating_mul(FACTOR);
    let mut split = sizes.windows(2).rposition(|w| !grows(w)).map_or(0, |i| i + 2);
    let mut sum: u64 = sizes[..split].iter().sum();
    while split > 0 && split < sizes.len() && sizes[split] < sum.saturating_mul(FACTOR) {
        sum += sizes[split];
        split += 1;
    }
    split
}

fn fill(inventory: &Inventory, keep: &[bool], step: &mut Step) {
    step.gone = 0;
    let mut bytes = 0;
    for &p in &step.packs {
        let file = &inventory.packs[p];
        step.gone += file.disk;
        for (i, e) in file.entries.iter().enumerate() {
            if keep[e.object as usize]
                && inventory.home[e.object as usize] == Place::Packed(p as u32, i as u32)
            {
                step.keep.push(e.object);
                bytes += e.len;
            }
        }
    }
    for &n in &step.loose {
        let file = &inventory.loose[n];
        step.gone += file.disk;
        if keep[file.object as usize] && inventory.home[file.object as usize] == Place::Loose(n as u32) {
            step.keep.push(file.object);
            bytes += file.len;
        }
    }
    step.bytes = match step.keep.len() as u64 {
        0 => 0,
        n => on_disk(bytes + 32) + on_disk(8 + 1024 + 28 * n + 40),
    };
}

/// What a file of this length takes.
pub(crate) fn on_disk(len: u64) -> u64 {
    len.next_multiple_of(4096)
}

#[cfg(test)]
mod tests {
    use super::rollup;

    #[test]
    fn what_is_left_is_geometric() {
        assert_eq!(rollup(&[]), 0);
        assert_eq!(rollup(&[5]), 0);
        assert_eq!(rollup(&[1, 2, 4, 8]), 0);
        assert_eq!(rollup(&[1, 1, 10]), 2);
        assert_eq!(rollup(&[1, 1, 3, 10]), 3);
        assert_eq!(rollup(&[10; 50]), 50);
        for n in 1..200u64 {
            let mut sizes: Vec<u64> = (0..n).map(|i| 1 + i * i % 97).collect();
            sizes.sort_unstable();
            let split = rollup(&sizes);
            let mut left: Vec<u64> = sizes[split..].to_vec();
            if split > 0 {
                left.insert(0, sizes[..split].iter().sum());
            }
            assert!(left.windows(2).all(|w| w[1] >= 2 * w[0]), "{sizes:?}: {left:?}");
        }
    }
}
