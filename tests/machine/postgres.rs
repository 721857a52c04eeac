//! What holds on every database, on Postgres.

pub(crate) use crate::fixture::postgres as db;

#[path = "answers.rs"]
mod answers;
#[path = "races.rs"]
mod races;
#[path = "service.rs"]
mod service;
