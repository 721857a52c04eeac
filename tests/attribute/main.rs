//! What annotated functions do, topic by topic. Names begin with the case they cover.
#![allow(
    unreachable_pub,
    reason = "visibility is part of what is tested, and a test crate exports nothing"
)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod arguments;
mod attributes;
mod derive;
mod generics;
mod hygiene;
mod keys;
mod lints;
mod receivers;
mod results;
mod sends;
mod settings;
mod support;
mod traits;

#[cfg(feature = "sqlite")]
mod transactions;
