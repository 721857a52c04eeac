//! What holds on every database, on SQLite.

pub(crate) use crate::fixture::sqlite as db;

#[path = "answers.rs"]
mod answers;
#[path = "races.rs"]
mod races;
#[path = "service.rs"]
mod service;
