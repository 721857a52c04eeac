//! What holds on every database, here on sqlite.

pub(crate) use crate::support::sqlite as db;

#[path = "all.rs"]
mod all;
#[path = "calls.rs"]
mod calls;
#[path = "each.rs"]
mod each;
#[path = "killed.rs"]
mod killed;
