use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sqlx::{Database, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::error::{Error, ErrorKind};
use crate::machine::Connection;
use crate::store::sql::Dialect;

/// The batch's transaction, lent to one item: it derefs to the [`Transaction`] and goes back when the
/// item is over.
///
/// Owned, so that the future of an item may be `Send` whatever else it borrows.
#[derive(Debug)]
pub struct Lent<X> {
    tx: OwnedMutexGuard<X>,
}

impl<D: Dialect> Deref for Lent<Transaction<'static, D>> {
    type Target = Transaction<'static, D>;

    fn deref(&self) -> &Self::Target {
        &self.tx
    }
}

impl<D: Dialect> DerefMut for Lent<Transaction<'static, D>> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.tx
    }
}

impl<'c, D: Dialect> Deref for Lent<&mut Transaction<'c, D>> {
    type Target = Transaction<'c, D>;

    fn deref(&self) -> &Self::Target {
        &self.tx
    }
}

impl<D: Dialect> DerefMut for Lent<&mut Transaction<'_, D>> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.tx
    }
}

impl<X: Connection> Connection for Lent<X> {
    type Db = X::Db;

    fn connection(&mut self) -> &mut <X::Db as Database>::Connection {
        self.tx.connection()
    }
}

/// What is lent to one item after another.
pub(super) struct Lender<X>(Arc<Mutex<X>>);

impl<X> Lender<X> {
    pub(super) fn new(tx: X) -> Self {
        Self(Arc::new(Mutex::new(tx)))
    }

    /// # Errors
    /// An item before has kept it.
    pub(super) fn lend(&self) -> Result<Lent<X>, Error> {
        let tx = Arc::clone(&self.0).try_lock_owned();
        tx.map(|tx| Lent { tx }).map_err(|_| kept())
    }

    /// # Errors
    /// An item has kept it.
    pub(super) fn back(self) -> Result<X, Error> {
        Arc::try_unwrap(self.0)
            .map(Mutex::into_inner)
            .map_err(|_| kept())
    }
}

fn kept() -> Error {
    Error::new(ErrorKind::TransactionEnded)
        .detail("an item of the batch kept the transaction beyond its end")
}
