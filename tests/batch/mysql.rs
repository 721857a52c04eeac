//! What holds on every database, here on mysql.

pub(crate) use crate::support::mysql as db;

#[path = "all.rs"]
mod all;
#[path = "calls.rs"]
mod calls;
#[path = "each.rs"]
mod each;
#[path = "killed.rs"]
mod killed;
