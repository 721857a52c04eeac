//! The table of tokens.

#[cfg(feature = "mysql")]
mod mysql;
mod permit;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use sqlx::{Pool, SqlStr};

pub(super) use permit::InTx;

use super::TokenError;
use crate::error::Error;
use crate::key::RecordId;
use crate::store::sql::schema::{self, Schema, Shape};
use crate::store::sql::{Dialect, Migration, checked_own_table, classify};

/// The statements of one database, for one table.
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct Texts {
    /// Inserts the mark of a used token, unless there is one or the moment is over.
    pub(super) mark: SqlStr,
    /// Takes back the mark that the same transaction has made.
    pub(super) unmark: SqlStr,
    pub(super) mark_state: SqlStr,
    /// Inserts a token that is good for so many milliseconds.
    pub(super) issue: SqlStr,
    pub(super) take: SqlStr,
    /// Makes good again what the same transaction has taken.
    pub(super) untake: SqlStr,
    /// Removes one that is not used.
    pub(super) withdraw: SqlStr,
    pub(super) state: SqlStr,
    /// The same in the transaction that could not take it: as it is now, whatever was seen before.
    pub(super) state_now: SqlStr,
    pub(super) purge: SqlStr,
}

/// What came of inserting a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
#[non_exhaustive]
pub enum Mark {
    /// It is there now.
    Made,
    /// It was there already. Not every database tells so at once.
    #[cfg_attr(not(feature = "mysql"), allow(dead_code))]
    Found,
    /// It was there, or the moment is over.
    NotMade,
}

/// A token's row.
#[derive(Debug)]
#[doc(hidden)]
pub struct Found {
    pub(super) binding: [u8; 16],
    pub(super) used: bool,
    pub(super) expired: bool,
}

/// A database that keeps tokens. Sealed with [`Dialect`].
pub trait TokenDialect: Dialect {
    #[doc(hidden)]
    fn texts(table: &str) -> Texts;

    #[doc(hidden)]
    fn shape() -> &'static Shape;

    #[doc(hidden)]
    fn mark(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        id: RecordId,
        binding: &[u8; 16],
        millis: i64,
    ) -> impl Future<Output = Result<Mark, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn issue(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        id: RecordId,
        binding: &[u8; 16],
        millis: i64,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Whether there is a mark, and whether the moment is over.
    #[doc(hidden)]
    fn mark_state(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        id: RecordId,
        expires: i64,
    ) -> impl Future<Output = Result<(bool, bool), sqlx::Error>> + Send;

    #[doc(hidden)]
    fn take(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        id: RecordId,
        binding: &[u8; 16],
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// One of the texts that undo or withdraw; says how many rows it changed.
    #[doc(hidden)]
    fn undo(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        id: RecordId,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn state(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        id: RecordId,
    ) -> impl Future<Output = Result<Option<Found>, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn purge_tokens(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        limit: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
}

/// Where tokens are kept: `idem_token`, as the connection's search path finds it, or another table.
#[derive(Clone)]
pub struct TokenTable {
    name: Arc<str>,
    texts: Arc<[OnceLock<Texts>; 3]>,
}

impl Default for TokenTable {
    fn default() -> Self {
        Self {
            name: "idem_token".into(),
            texts: Arc::default(),
        }
    }
}

impl TokenTable {
    /// Another table, `name` or `schema.name`.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`](crate::ErrorKind::Schema): no plain name (ASCII letters, digits and
    /// `_`).
    pub fn named(name: &str) -> Result<Self, Error> {
        Ok(Self {
            name: checked_own_table(name)?.into(),
            texts: Arc::default(),
        })
    }

    /// The schema's steps, for a migration tool of your own.
    #[must_use]
    pub fn migrations<D: TokenDialect>(&self) -> Vec<Migration> {
        self.schema::<D>().migrations::<D>()
    }

    /// Creates or updates the table. Safe to run in many processes at once.
    ///
    /// # Errors
    /// The database cannot be used, or a table of that name is there that is not ours; nothing was
    /// changed.
    pub async fn migrate<D: TokenDialect>(&self, pool: &Pool<D>) -> Result<(), Error> {
        schema::migrate(pool, self.schema::<D>()).await
    }

    /// Checks the schema: the version, the columns, and that the id alone is the primary key (with
    /// any other column in it one token could be used twice).
    ///
    /// # Errors
    /// [`ErrorKind::Schema`](crate::ErrorKind::Schema) with what is wrong; or the database cannot be
    /// used.
    pub async fn check<D: TokenDialect>(&self, pool: &Pool<D>) -> Result<(), Error> {
        schema::check(pool, self.schema::<D>()).await
    }

    /// Removes at most `limit` tokens, used or not, that expired more than an hour ago, in one short
    /// transaction; says how many. Call it until it removes fewer than `limit`.
    ///
    /// The hour is for a database whose clock is set back, by hand or by a fail-over: a signed token
    /// whose mark is gone must not become good again.
    ///
    /// # Errors
    /// The database cannot be used.
    ///
    /// # Cancel safety
    /// Safe to stop at any time.
    pub async fn purge<D: TokenDialect>(&self, pool: &Pool<D>, limit: u32) -> Result<u64, Error> {
        let mut conn = pool.acquire().await.map_err(classify::<D>)?;
        let gone = D::purge_tokens(&mut conn, &self.texts::<D>().purge, i64::from(limit)).await;
        gone.map_err(classify::<D>)
    }

    fn schema<D: TokenDialect>(&self) -> Schema<'_> {
        Schema::new(D::shape(), &self.name)
    }

    pub(super) fn texts<D: TokenDialect>(&self) -> &Texts {
        self.texts[D::INDEX].get_or_init(|| D::texts(&self.name))
    }
}

impl fmt::Debug for TokenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenTable").field(&self.name).finish()
    }
}

pub(super) fn failed<D: TokenDialect>(error: sqlx::Error) -> TokenError {
    TokenError::store(classify::<D>(error))
}

fn sized(bytes: &[u8]) -> Result<[u8; 16], sqlx::Error> {
    bytes
        .try_into()
        .map_err(|e| sqlx::Error::Decode(Box::new(e)))
}

/// The statements in terms of how an id is bound.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
macro_rules! statements {
    ($id:expr) => {
        async fn mark(
            conn: &mut Self::Connection,
            sql: &SqlStr,
            id: RecordId,
            binding: &[u8; 16],
            millis: i64,
        ) -> Result<Mark, sqlx::Error> {
            let mark = sqlx::query(sql.clone()).bind($id(id));
            let mark = mark.bind(binding.to_vec()).bind(millis);
            let done = mark.execute(conn).await?;
            Ok(match done.rows_affected() {
                1 => Mark::Made,
                _ => Mark::NotMade,
            })
        }

        async fn issue(
            conn: &mut Self::Connection,
            sql: &SqlStr,
            id: RecordId,
            binding: &[u8; 16],
            millis: i64,
        ) -> Result<(), sqlx::Error> {
            let issue = sqlx::query(sql.clone()).bind($id(id));
            let issue = issue.bind(binding.to_vec()).bind(millis);
            issue.execute(conn).await.map(drop)
        }

        async fn mark_state(
            conn: &mut Self::Connection,
            sql: &SqlStr,
            id: RecordId,
            expires: i64,
        ) -> Result<(bool, bool), sqlx::Error> {
            let read = sqlx::query_as(sql.clone()).bind($id(id)).bind(expires);
            read.fetch_one(conn).await
        }

        async fn take(
            conn: &mut Self::Connection,
            sql: &SqlStr,
            id: RecordId,
            binding: &[u8; 16],
        ) -> Result<u64, sqlx::Error> {
            let take = sqlx::query(sql.clone())
                .bind($id(id))
                .bind(binding.to_vec());
            take.execute(conn).await.map(|done| done.rows_affected())
        }

        async fn undo(
            conn: &mut Self::Connection,
            sql: &SqlStr,
            id: RecordId,
        ) -> Result<u64, sqlx::Error> {
            let undo = sqlx::query(sql.clone()).bind($id(id));
            undo.execute(conn).await.map(|done| done.rows_affected())
        }

        async fn state(
            conn: &mut Self::Connection,
            sql: &SqlStr,
            id: RecordId,
        ) -> Result<Option<Found>, sqlx::Error> {
            let read = sqlx::query_as(sql.clone()).bind($id(id));
            let row: Option<(Vec<u8>, bool, bool)> = read.fetch_optional(conn).await?;
            let found = row.map(|(binding, used, expired)| {
                let binding = super::sized(&binding)?;
                Ok(Found {
                    binding,
                    used,
                    expired,
                })
            });
            found.transpose()
        }

        async fn purge_tokens(
            conn: &mut Self::Connection,
            sql: &SqlStr,
            limit: i64,
        ) -> Result<u64, sqlx::Error> {
            let purge = sqlx::query(sql.clone()).bind(limit);
            purge.execute(conn).await.map(|done| done.rows_affected())
        }
    };
}
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use statements;
