//! What a changed file looks like whose size, inode and times did not change.

use std::fs;

use backstitch::{
    checkpoint::{Options, Outcome},
    workspace::Control,
};

use crate::world::World;

fn look(w: &World, paranoid: bool) -> Outcome {
    let how = Options { if_changed: true, paranoid, ..Options::default() };
    w.open().checkpoint(&how, &Control::default()).unwrap()
}

/// The table believes that the file of `was` holds what `is` says: as if the disk had been written to behind the system's
/// back.
fn believe(w: &World, was: &[u8], is: &[u8]) {
    let file = w.open().store_dir().join("state/stat.base");
    let mut bytes = fs::read(&file).unwrap();
    let at: Vec<usize> = (0..bytes.len() - 20).filter(|i| &bytes[*i..*i + 20] == was).collect();
    assert_eq!(at.len(), 1, "the id stands in the table once");
    bytes[at[0]..at[0] + 20].copy_from_slice(is);
    let word = |b: &[u8], at: usize| u32::from_le_bytes(*b[at..].first_chunk().unwrap()) as usize;
    let spans = 40 + 28 + word(&bytes, 40 + 24);
    let end = spans + 4 + 16 * word(&bytes, spans);
    for span in (spans + 4..end).step_by(16) {
        let (start, len) = (40 + word(&bytes, span), word(&bytes, span + 8));
        let sum = crc32fast::hash(&bytes[start..start + len]).to_le_bytes();
        bytes[span + 12..span + 16].copy_from_slice(&sum);
    }
    let sum = crc32fast::hash(&bytes[40..end]).to_le_bytes();
    bytes[32..36].copy_from_slice(&sum);
    fs::write(&file, bytes).unwrap();
}

#[test]
fn sem_32_a_change_without_a_sign_is_found_by_reading() {
    let w = World::new();
    w.write("a", "one");
    w.write("b", "two");
    w.checkpoint();
    // Until both are older than the reading of the clock that stands beside them.
    while w.record(Options::default()).unwrap().read.0 > 0 {
        fs::remove_file(w.open().store_dir().join("state/stat.base")).unwrap();
        w.checkpoint();
    }
    let sampled = || w.open().sample(&Control::default()).unwrap();
    assert_eq!(sampled(), serde_json::json!({"read": 2, "differ": []}));
    let writer = w.open().store().unwrap().writer().unwrap();
    let id = |text: &str| writer.blob(&mut writer.scratch(), text.as_bytes()).unwrap().0;
    believe(&w, id("one").as_bytes(), id("two").as_bytes());
    // The directory's own id is made anew with the next change in it.
    w.write("c", "three");
    assert!(look(&w, false).checkpoint.is_some());
    let told = sampled();
    assert_eq!(told["differ"], serde_json::json!([{"path": "a"}]), "{told}");
    let row = look(&w, true).checkpoint.expect("what was believed is not so");
    assert_eq!(row.record.summary.modified, 1, "{:?}", row.record.summary);
    assert_eq!(sampled()["differ"], serde_json::json!([]));
    assert!(look(&w, true).checkpoint.is_none());
}
