//! The tests that `docs/guarantees.md` names are there: each `path.rs` is a file of this repository, each
//! `path.rs::name` a function in it, or a macro that makes one for each database.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs;
use std::path::Path;

#[test]
fn the_tests_that_the_guarantees_name_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/guarantees.md")).unwrap();
    let (mut named, mut missing) = (0, Vec::new());
    let mut last = "";
    // What stands between backticks is every second piece.
    for reference in text.split('`').skip(1).step_by(2) {
        let (path, name) = match reference.split_once("::") {
            // `::name` is in the file that was named before.
            Some(("", name)) => (last, Some(name)),
            Some((path, name)) if path.ends_with(".rs") => (path, Some(name)),
            None if reference.ends_with(".rs") => (reference, None),
            _ => continue,
        };
        last = path;
        named += 1;
        let found = fs::read_to_string(root.join(path)).is_ok_and(|source| {
            name.is_none_or(|name| {
                ["fn {name}(", "fn {name}<", "macro_rules! {name} "]
                    .iter()
                    .any(|form| source.contains(&form.replace("{name}", name)))
            })
        });
        if !found {
            missing.push(reference);
        }
    }
    assert!(named > 80, "only {named} tests are named");
    assert!(missing.is_empty(), "not there: {missing:#?}");
}
