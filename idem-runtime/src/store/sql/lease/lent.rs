use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;

use super::dialect::LeaseDialect;

/// A connection during one statement. Dropped before its answer, where the driver cannot go on after
/// that, it does not go back to the pool: it would fail, or never end, in other hands.
#[derive(Debug)]
pub(super) struct Lent<'a, D: LeaseDialect> {
    conn: &'a mut PoolConnection<D>,
    answered: bool,
}

impl<'a, D: LeaseDialect> Lent<'a, D> {
    pub(super) fn new(conn: &'a mut PoolConnection<D>) -> Self {
        let answered = false;
        Self { conn, answered }
    }

    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl<D: LeaseDialect> Drop for Lent<'_, D> {
    fn drop(&mut self) {
        if !self.answered && !D::SURVIVES_A_DROP {
            self.conn.close_on_drop();
        }
    }
}

impl<D: LeaseDialect> Deref for Lent<'_, D> {
    type Target = D::Connection;

    fn deref(&self) -> &D::Connection {
        self.conn
    }
}

impl<D: LeaseDialect> DerefMut for Lent<'_, D> {
    fn deref_mut(&mut self) -> &mut D::Connection {
        self.conn
    }
}
