//! A token that is used up in a running call's transaction.

use sqlx::SqlStr;

use super::TokenDialect;
use crate::engine::{InTransaction, Permit};
use crate::key::RecordId;
use crate::token::{Consumed, TokenError};

/// Used, when the transaction commits.
#[derive(Debug)]
pub struct InTx {
    id: RecordId,
    /// Makes it good again, in the same transaction.
    undo: SqlStr,
}

impl InTx {
    pub(in crate::token) fn new(consumed: Consumed, undo: SqlStr) -> Self {
        let id = consumed.id();
        Self { id, undo }
    }
}

impl<D: TokenDialect> Permit<InTransaction<D>> for InTx {
    async fn use_up(self) -> Result<(), TokenError> {
        Ok(())
    }

    async fn give_back(self, conn: &mut D::Connection) {
        // A caller who swallows the error and commits has not burned the token. In an aborted
        // transaction this cannot run and need not.
        let _ = D::undo(conn, &self.undo, self.id).await;
    }
}
