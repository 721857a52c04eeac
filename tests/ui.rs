//! What does not compile, and what the compiler says. One mistake a file; the name is the mistake.
//!
//! The texts are those of the pinned toolchain. After a change of a message:
//! `TRYBUILD=overwrite cargo test -p idem-rs --features full --test ui`.

// Cases that pass stand apart: with one of them, `trybuild` compiles the others one by one.

#[test]
fn refusals() {
    let cases = trybuild::TestCases::new();
    for topic in [
        "args", "derive", "duration", "function", "key", "machine", "outcome",
    ] {
        cases.compile_fail(format!("tests/ui/{topic}/*.rs"));
    }
    // The compiler lists types that implement a trait, and which there are depends on the features.
    #[cfg(feature = "full")]
    for topic in ["lints", "types"] {
        cases.compile_fail(format!("tests/ui/{topic}/*.rs"));
    }
}

#[test]
fn passes() {
    trybuild::TestCases::new().pass("tests/ui/pass/*.rs");
}
