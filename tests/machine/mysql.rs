//! What holds on every database, on MariaDB or MySQL.

pub(crate) use crate::fixture::mysql as db;

#[path = "answers.rs"]
mod answers;
#[path = "races.rs"]
mod races;
#[path = "service.rs"]
mod service;
