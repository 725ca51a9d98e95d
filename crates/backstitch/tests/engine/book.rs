//! The example in Rust of the book does what its page says.

use std::fs;

use backstitch::workspace::Surroundings;

#[path = "../../../../docs/book/src/embedding/agent.rs"]
mod agent;

#[test]
fn the_example_of_the_book() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("hello");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("notes.txt"), "buy milk\n").unwrap();
    let surroundings = Surroundings { store_base: scratch.path().join("data"), ..Surroundings::default() };
    let said = agent::work(&folder, surroundings).unwrap();
    let page = include_str!("../../../../docs/book/src/embedding/rust.md");
    let shown = page.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(said.join("\n"), shown.trim_end());
    assert!(!folder.join("notes.txt").exists());
}
