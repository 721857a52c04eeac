//! The transaction of a running call.

use sqlx::{Pool, Transaction};
use tokio::runtime::Handle;

use crate::store::sql::Dialect;

/// A transaction that is given up in good order when its call is dropped, whatever statement of the
/// body's was under way.
#[derive(Debug)]
pub(super) struct Held<D: Dialect> {
    /// There until it is taken.
    tx: Option<Transaction<'static, D>>,
    pool: Pool<D>,
    runtime: Handle,
}

impl<D: Dialect> Held<D> {
    pub(super) fn new(tx: Transaction<'static, D>, pool: Pool<D>) -> Self {
        Self {
            tx: Some(tx),
            pool,
            runtime: Handle::current(),
        }
    }

    #[allow(
        clippy::expect_used,
        reason = "only `take` and `drop` take it, and nothing comes after them"
    )]
    pub(super) fn get(&mut self) -> &mut Transaction<'static, D> {
        self.tx.as_mut().expect("it is there until it is taken")
    }

    #[allow(clippy::expect_used, reason = "as above")]
    pub(super) fn take(mut self) -> Transaction<'static, D> {
        self.tx.take().expect("it is there until it is taken")
    }
}

impl<D: Dialect> Drop for Held<D> {
    fn drop(&mut self) {
        if let Some(tx) = self.tx.take()
            && !D::SURVIVES_A_DROP
        {
            self.runtime.spawn(D::give_up(tx, self.pool.clone()));
        }
    }
}
