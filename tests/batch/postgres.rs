//! What holds on every database, here on postgres.

pub(crate) use crate::support::postgres as db;

#[path = "all.rs"]
mod all;
#[path = "calls.rs"]
mod calls;
#[path = "each.rs"]
mod each;
#[path = "killed.rs"]
mod killed;
