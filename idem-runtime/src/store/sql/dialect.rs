use std::borrow::Cow;
use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use sqlx::error::DatabaseError;
use sqlx::{Database, Pool, SqlStr, Transaction};

use super::cause::Meaning;
pub(crate) use super::cause::classify;
use crate::clock::Moment;
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::operation::Call;
use crate::outcome;
use crate::protocol::Owner;
use crate::retention::Retention;
use crate::store::Until;
use crate::store::sql::schema::SchemaDialect;

/// The statements of one database, for one table.
#[derive(Debug, Clone)]
pub struct Statements {
    pub(crate) insert: SqlStr,
    /// The same, waiting in the database for another transaction: Postgres without the advisory lock,
    /// MariaDB for a second. SQLite has one form.
    #[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code))]
    pub(crate) insert_blocking: SqlStr,
    /// Reads the row inside the transaction whose insert found it.
    pub(crate) read: SqlStr,
    /// Reads what is committed, outside a transaction, without waiting for one.
    pub(crate) peek: SqlStr,
    /// The same with the moment of the reservation, for whoever asks how a call stands.
    pub(crate) status: SqlStr,
    /// Who is at a record that is not committed.
    pub(crate) holder: SqlStr,
    pub(crate) take_over: SqlStr,
    /// The same without the advisory lock. Postgres only.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub(crate) take_over_blocking: SqlStr,
    pub(crate) complete: SqlStr,
    pub(crate) release: SqlStr,
    pub(crate) forget: SqlStr,
    pub(crate) purge: SqlStr,
    /// Leaves tombstones of outcomes that are over.
    pub(crate) bury: SqlStr,
    /// Waits in the database for whoever is at a record. Postgres only.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub(crate) wait: String,
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
    /// Whether an advisory lock keeps duplicates from waiting in the database. Postgres only.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub(crate) takes_lock: bool,
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
            takes_lock: true,
        }
    }

    /// Reserves with the advisory lock, or by the unique index alone.
    pub(crate) fn takes_lock(self, takes_lock: bool) -> Self {
        Self { takes_lock, ..self }
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

/// How long a completed row counts, in milliseconds.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Its outcome; `None` for ever.
    pub(crate) keep: Option<i64>,
    /// Its key, where that is longer.
    pub(crate) known: Option<i64>,
}

/// "For ever", where the column has a value: two million days. The databases have no infinity in
/// common, and all of them have the year 7500.
pub(super) const FOREVER_MILLIS: i64 = 2_000_000 * 86_400_000;

impl Times {
    pub(crate) fn of(retention: Retention) -> Self {
        let whole = |millis: u64| i64::try_from(millis).unwrap_or(FOREVER_MILLIS);
        let keep = retention.millis().map(whole);
        let known = retention.known_millis().map(whole);
        Self {
            keep,
            known: (known != keep).then(|| known.unwrap_or(FOREVER_MILLIS)),
        }
    }
}

/// When a completed row's key is no longer known. The later of the two: a build that knew no
/// tombstones may have taken the row over and left the column as it was.
pub(super) const ENDS: &str =
    "CASE WHEN expires_at < known_until THEN known_until ELSE expires_at END";

/// The digits of what is left of an outcome that is over.
pub(super) fn tombstone_hex() -> String {
    let envelope = outcome::tombstone();
    envelope.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The time that is left to a completed row; negative is over, `None` has no end.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeLeft {
    pub(super) outcome: Option<i64>,
    /// Of its tombstone, where it has one.
    pub(super) key: Option<i64>,
}

impl TimeLeft {
    /// Of its key.
    pub(super) fn ends(self) -> Option<i64> {
        let ends = match (self.outcome, self.key) {
            (Some(outcome), Some(key)) if outcome < key => Some(key),
            (outcome, _) => outcome,
        };
        // What stands for ever in a column that has a value.
        ends.filter(|micros| *micros < FOREVER_MILLIS / 2 * 1000)
    }

    pub(super) fn is_over(self) -> bool {
        self.outcome.is_some_and(|left| left <= 0) && self.key.is_none_or(|left| left <= 0)
    }

    /// Whether there is no outcome to be replayed: dropped already or not.
    pub(super) fn is_gone(self, outcome: Option<&[u8]>) -> bool {
        self.outcome.is_some_and(|left| left <= 0) || outcome.is_some_and(outcome::is_tombstone)
    }
}

/// A row as it was read.
#[derive(Debug, Clone)]
pub struct Row {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) owner: Owner,
    /// `None` while the body runs.
    pub(crate) outcome: Option<Bytes>,
    pub(crate) recorded_at: Option<Moment>,
    /// Its key is no longer known, by the database's clock.
    pub(crate) is_over: bool,
    /// Its outcome is no longer kept, by the database's clock, or was dropped.
    pub(crate) is_gone: bool,
    /// Until when a copy of it may be answered from.
    #[cfg_attr(not(feature = "tiered"), allow(dead_code))]
    pub(crate) until: Until,
    /// Until when its key is known.
    pub(crate) ends: Until,
    /// Whether it is certainly committed: not written by the transaction that reads it.
    #[cfg_attr(not(feature = "tiered"), allow(dead_code))]
    pub(crate) committed: bool,
}

/// Who is at a record that is not committed, as far as the database tells.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AtIt {
    pub(crate) owner: Option<Owner>,
    pub(crate) since: Option<Moment>,
    pub(crate) connection: Option<String>,
}

/// What a database tells of a call that runs in another transaction.
#[doc(hidden)]
pub trait Watched: Database {
    /// Whether it tells which record a transaction is at. Where there is one writer at a time it
    /// only tells that there is one.
    const TELLS_RECORDS: bool;

    /// The row with the moment of its reservation, by the statement `status`.
    fn status(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        id: RecordId,
    ) -> impl Future<Output = Result<Option<(Row, Option<Moment>)>, sqlx::Error>> + Send;

    /// The rows of `ids` as they are committed, whatever the session's level, in one statement made of
    /// the statement `status`.
    #[cfg_attr(not(feature = "tiered"), allow(dead_code))]
    fn committed(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        ids: &[RecordId],
    ) -> impl Future<Output = Result<Vec<Row>, sqlx::Error>> + Send;

    /// Who is, or may be, at the record. `inside`: asked in a transaction, which must stay as it is.
    fn at_it(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        id: RecordId,
        inside: bool,
    ) -> impl Future<Output = Result<Option<AtIt>, sqlx::Error>> + Send;
}

/// What differs between databases. Sealed: a database is added here.
pub trait Dialect: Watched + SchemaDialect + sealed::Sealed {
    /// Where a [`Records`](super::Records) keeps this database's statements.
    #[doc(hidden)]
    const INDEX: usize;

    /// Whether the database refuses to commit a reservation without an outcome.
    #[doc(hidden)]
    const REFUSES_HALF_DONE: bool = true;

    /// Whether a connection can be used again after a statement whose future was dropped.
    #[doc(hidden)]
    const SURVIVES_A_DROP: bool = true;

    #[doc(hidden)]
    fn statements(table: &str) -> Statements;

    /// The statements of [`Records::without_advisory_locks`](super::Records::without_advisory_locks).
    #[doc(hidden)]
    fn statements_without_locks(table: &str) -> Statements {
        Self::statements(table)
    }

    /// Inserts the row if there is none, without waiting for another transaction.
    #[doc(hidden)]
    fn insert(
        conn: &mut Self::Connection,
        statements: &Statements,
        row: NewRow<'_>,
    ) -> impl Future<Output = Result<Inserted, sqlx::Error>> + Send;

    /// As `insert`, for a duplicate that has asked for a while: first it waits a little in the
    /// database, which looks for deadlocks only there. `None`: this transaction and the one that has
    /// the record wait for each other.
    ///
    /// It leaves the transaction as it was, also if it is dropped.
    #[doc(hidden)]
    fn insert_waiting(
        conn: &mut Self::Connection,
        statements: &Statements,
        row: NewRow<'_>,
        _left: Duration,
    ) -> impl Future<Output = Result<Option<Inserted>, sqlx::Error>> + Send {
        async move { Self::insert(conn, statements, row).await.map(Some) }
    }

    /// Reads the row by `sql`.
    #[doc(hidden)]
    fn read(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        id: RecordId,
    ) -> impl Future<Output = Result<Option<Row>, sqlx::Error>> + Send;

    /// Reads what is committed, whatever the isolation level of the session, outside a transaction.
    #[doc(hidden)]
    fn peek(
        conn: &mut Self::Connection,
        statements: &Statements,
        id: RecordId,
    ) -> impl Future<Output = Result<Option<Row>, sqlx::Error>> + Send {
        Self::read(conn, &statements.peek, id)
    }

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
        times: Times,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn release(
        conn: &mut Self::Connection,
        statements: &Statements,
        id: RecordId,
        owner: Owner,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Sends one statement about a savepoint.
    #[doc(hidden)]
    fn savepoint(
        conn: &mut Self::Connection,
        sql: &'static str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Whether a statement gave up because another transaction is at the row, and nothing else is lost.
    #[doc(hidden)]
    fn is_held(_error: &sqlx::Error) -> bool {
        false
    }

    /// Removes a completed row.
    #[doc(hidden)]
    fn forget(
        conn: &mut Self::Connection,
        statements: &Statements,
        id: RecordId,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Removes at most `limit` rows whose keys are no longer known.
    #[doc(hidden)]
    fn purge(
        conn: &mut Self::Connection,
        statements: &Statements,
        limit: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Drops the outcomes that are over of at most `limit` rows whose keys are still known. What is
    /// left of them is over with the key: no later purge looks at it before.
    #[doc(hidden)]
    fn bury(
        conn: &mut Self::Connection,
        statements: &Statements,
        limit: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Begins a transaction that is going to write.
    #[doc(hidden)]
    fn begin(
        pool: &Pool<Self>,
    ) -> impl Future<Output = Result<Transaction<'static, Self>, sqlx::Error>> + Send {
        Self::begin_with(pool, None)
    }

    /// The same by a statement of the caller's, if there is one.
    #[doc(hidden)]
    fn begin_with(
        pool: &Pool<Self>,
        statement: Option<SqlStr>,
    ) -> impl Future<Output = Result<Transaction<'static, Self>, sqlx::Error>> + Send;

    /// Whether the session looks for tables elsewhere than the pool's options say: then one name may mean
    /// different tables to calls of one pool.
    #[doc(hidden)]
    fn looks_elsewhere(
        _conn: &mut Self::Connection,
        _pool: &Pool<Self>,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send {
        std::future::ready(Ok(false))
    }

    /// Gives a transaction up that was dropped, maybe before a statement in it was answered. What
    /// goes back to the pool can be used.
    #[doc(hidden)]
    fn give_up(
        tx: Transaction<'static, Self>,
        _pool: Pool<Self>,
    ) -> impl Future<Output = ()> + Send {
        async move { drop(tx) }
    }

    /// Whether a `COMMIT` would commit what the transaction has done, as far as the database tells;
    /// an error where it would not.
    #[doc(hidden)]
    fn is_alive(
        conn: &mut Self::Connection,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    /// The code by which this database tells its errors apart; `None` for an error of another one.
    #[doc(hidden)]
    fn code(error: &dyn DatabaseError) -> Option<Cow<'_, str>>;

    /// What such a code is called.
    #[doc(hidden)]
    const CODE: &'static str;

    /// What a code means; by code, never by text.
    #[doc(hidden)]
    fn meaning(code: &str) -> Meaning;

    /// Whether a commit that is answered with this code has certainly not happened.
    #[doc(hidden)]
    fn refuses_commit(code: &str) -> bool;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}
