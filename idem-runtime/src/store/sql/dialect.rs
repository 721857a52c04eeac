use std::borrow::Cow;
use std::future::Future;
use std::sync::OnceLock;

use bytes::Bytes;
use sqlx::error::DatabaseError;
use sqlx::{Database, Pool, SqlStr, Transaction};

use crate::clock::Moment;
use crate::error::{Effect, Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::operation::Call;
use crate::protocol::Owner;
use crate::store::Until;

/// The statements of one database, for one table.
#[derive(Debug, Clone)]
pub struct Statements {
    pub(crate) insert: SqlStr,
    /// Reads the row inside the transaction whose insert found it.
    pub(crate) read: SqlStr,
    /// Reads what is committed, outside a transaction, without waiting for one.
    pub(crate) peek: SqlStr,
    pub(crate) take_over: SqlStr,
    pub(crate) complete: SqlStr,
    pub(crate) release: SqlStr,
    pub(crate) forget: SqlStr,
    pub(crate) purge: SqlStr,
    /// Whether the server limits a lock wait for one statement alone, asked once. MySQL only.
    #[cfg_attr(not(feature = "mysql"), allow(dead_code))]
    pub(crate) wait_is_scoped: OnceLock<bool>,
}

/// A row about to be reserved.
#[derive(Debug, Clone, Copy)]
pub struct NewRow<'a> {
    pub(crate) id: RecordId,
    pub(crate) scope: &'a str,
    pub(crate) key_text: Option<&'a str>,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) owner: Owner,
}

/// The longest key text that is kept for people to read, in bytes; the identity is the id.
const MAX_KEY_TEXT: usize = 1024;

impl<'a> NewRow<'a> {
    pub(crate) fn of(call: &'a Call, owner: Owner) -> Self {
        Self {
            id: call.id(),
            scope: call.scope(),
            key_text: call.key_text().map(cut),
            fingerprint: call.fingerprint(),
            owner,
        }
    }
}

/// A key's text as it is kept.
pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_KEY_TEXT)]
}

/// What came of a reserving insert.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Inserted {
    /// The row is ours.
    Ours,
    /// The key is taken, or another transaction holds it: reading tells.
    Taken,
    /// Another transaction holds it, and a read could get in that transaction's way.
    Held,
}

/// A row as it was read.
#[derive(Debug, Clone)]
pub struct Row {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) owner: Owner,
    /// `None` while the body runs.
    pub(crate) outcome: Option<Bytes>,
    pub(crate) recorded_at: Option<Moment>,
    /// By the database's clock.
    pub(crate) is_over: bool,
    /// Until when a copy of it may be answered from.
    #[cfg_attr(not(feature = "tiered"), allow(dead_code))]
    pub(crate) until: Until,
    /// Whether it is certainly committed: not written by the transaction that reads it.
    #[cfg_attr(not(feature = "tiered"), allow(dead_code))]
    pub(crate) committed: bool,
}

/// What differs between databases. Sealed: a database is added here.
pub trait Dialect: Database + sealed::Sealed {
    /// Where a [`Records`](super::Records) keeps this database's statements.
    #[doc(hidden)]
    const INDEX: usize;

    #[doc(hidden)]
    fn statements(table: &str) -> Statements;

    /// Inserts the row if there is none, without waiting for another transaction.
    #[doc(hidden)]
    fn insert(
        conn: &mut Self::Connection,
        statements: &Statements,
        row: NewRow<'_>,
    ) -> impl Future<Output = Result<Inserted, sqlx::Error>> + Send;

    /// `sql` is one of the two reading statements.
    #[doc(hidden)]
    fn read(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        id: RecordId,
    ) -> impl Future<Output = Result<Option<Row>, sqlx::Error>> + Send;

    /// Takes a row over whose time is over.
    #[doc(hidden)]
    fn take_over(
        conn: &mut Self::Connection,
        statements: &Statements,
        row: NewRow<'_>,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn complete(
        conn: &mut Self::Connection,
        statements: &Statements,
        id: RecordId,
        owner: Owner,
        outcome: &[u8],
        keep_millis: Option<i64>,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn release(
        conn: &mut Self::Connection,
        statements: &Statements,
        id: RecordId,
        owner: Owner,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Removes a completed row.
    #[doc(hidden)]
    fn forget(
        conn: &mut Self::Connection,
        statements: &Statements,
        id: RecordId,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Removes at most `limit` rows whose time is over.
    #[doc(hidden)]
    fn purge(
        conn: &mut Self::Connection,
        statements: &Statements,
        limit: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Begins a transaction that is going to write.
    #[doc(hidden)]
    fn begin(
        pool: &Pool<Self>,
    ) -> impl Future<Output = Result<Transaction<'static, Self>, sqlx::Error>> + Send;

    /// The code by which the database tells its errors apart.
    #[doc(hidden)]
    fn code(error: &dyn DatabaseError) -> Option<Cow<'_, str>> {
        error.code()
    }

    /// What a code of the database's own means; by code, never by text.
    #[doc(hidden)]
    fn kind_of_code(code: &str) -> ErrorKind;

    /// Whether a commit that is answered with this code has certainly not happened. Codes of a
    /// lost connection, a failing system or a server that goes down say nothing about it, and may
    /// come from a pooler.
    #[doc(hidden)]
    fn refuses_commit(code: &str) -> bool;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// An error of one of the framework's own statements.
pub(crate) fn classify<D: Dialect>(error: sqlx::Error) -> Error {
    let kind = match &error {
        sqlx::Error::Database(database) => {
            D::code(&**database).map_or(ErrorKind::StoreUnavailable, |code| D::kind_of_code(&code))
        }
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::Decode(_) => ErrorKind::Schema,
        _ => ErrorKind::StoreUnavailable,
    };
    let mut out = Error::new(kind);
    if kind == ErrorKind::Schema {
        out = out.detail("the record table is missing or has other columns");
    }
    if kind == ErrorKind::TransactionEnded {
        out = out
            .detail(
                "it had ended before this call: a deadlock, a COMMIT, or a statement that commits",
            )
            .effect_is(Effect::None);
    }
    if kind == ErrorKind::StoreUnavailable {
        // The transaction goes with its connection, or is rolled back by its owner.
        out = out.effect_is(Effect::None);
    }
    out.caused_by(error)
}
