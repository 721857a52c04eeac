//! The whole transaction again, when the database asks for it, within bounds.
//!
//! A deadlock, a serialization failure and a busy database end a transaction whose work is right;
//! running it again is part of using one. [`retry_transaction`] does so for any body, with or without
//! idempotent functions in it; [`Retryable`] tells it which errors call for that.

mod policy;
mod retryable;
mod transaction;

pub use policy::RetryPolicy;
pub use retryable::Retryable;
pub use transaction::{Attempt, GaveUp, retry_transaction};
