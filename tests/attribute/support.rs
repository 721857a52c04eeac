//! Types that most tests need.

use std::sync::atomic::{AtomicUsize, Ordering};

pub use idem::{ErrorKind, MemoryStore, idempotent};
use serde::{Deserialize, Serialize};

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error("no such order")]
    Missing,
}

impl Failure {
    /// Which error of the framework this is.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Idem(error) => Some(error.kind()),
            Self::Missing => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub merchant: String,
    pub order_no: String,
    pub cents: i64,
}

impl Request {
    pub fn new(merchant: &str, order_no: &str, cents: i64) -> Self {
        Self {
            merchant: merchant.to_owned(),
            order_no: order_no.to_owned(),
            cents,
        }
    }

    pub fn id(&self) -> String {
        format!("{}/{}", self.merchant, self.order_no)
    }
}

/// Counts the runs of a body.
#[derive(Debug, Default)]
pub struct Runs(AtomicUsize);

impl Runs {
    pub const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// One more.
    pub fn count(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn so_far(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
