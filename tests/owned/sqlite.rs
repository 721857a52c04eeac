//! What holds on both databases, on SQLite.

pub(crate) use crate::support::sqlite as db;

#[path = "calls.rs"]
pub(crate) mod calls;
#[path = "cancel.rs"]
mod cancel;
#[path = "errors.rs"]
mod errors;
#[path = "fan.rs"]
mod fan;
#[path = "nested.rs"]
mod nested;
#[path = "reading.rs"]
mod reading;
#[path = "stores.rs"]
mod stores;
#[path = "wait.rs"]
mod wait;
