//! Tokens of both kinds, on each database.

use std::time::Duration;

use idem_runtime::token::{
    Consumed, Reason, SignedTokens, SigningKeys, StoredTokens, Token, TokenDialect, TokenError,
    TokenTable,
};
use sqlx::{Pool, Transaction};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const WHO: &str = "user:1";
pub(crate) const WHAT: &str = "delete-account";

#[derive(Clone)]
pub(crate) enum Tokens {
    Signed(SignedTokens),
    Stored(StoredTokens),
}

impl Tokens {
    pub(crate) fn signed() -> Self {
        let keys = SigningKeys::new(1, b"a secret of thirty-two bytes or so").unwrap();
        Self::Signed(SignedTokens::new(TokenTable::default(), keys))
    }

    pub(crate) fn stored() -> Self {
        Self::Stored(StoredTokens::default())
    }

    pub(crate) async fn issue<D: TokenDialect>(&self, pool: &Pool<D>, ttl: Duration) -> Token {
        match self {
            Self::Signed(tokens) => tokens.issue(WHO, WHAT, ttl).unwrap(),
            Self::Stored(tokens) => {
                let mut tx = D::begin(pool).await.unwrap();
                let token = tokens.issue(&mut tx, WHO, WHAT, ttl).await.unwrap();
                tx.commit().await.unwrap();
                token
            }
        }
    }

    pub(crate) async fn check<D: TokenDialect>(
        &self,
        pool: &Pool<D>,
        token: &str,
    ) -> Result<(), TokenError> {
        match self {
            Self::Signed(tokens) => tokens.check(pool, token, WHO, WHAT).await,
            Self::Stored(tokens) => tokens.check(pool, token, WHO, WHAT).await,
        }
    }

    pub(crate) async fn consume_as<D: TokenDialect>(
        &self,
        tx: &mut Transaction<'_, D>,
        token: &str,
        subject: &str,
        operation: &str,
    ) -> Result<Consumed, TokenError> {
        match self {
            Self::Signed(tokens) => tokens.consume(tx, token, subject, operation).await,
            Self::Stored(tokens) => tokens.consume(tx, token, subject, operation).await,
        }
    }

    pub(crate) async fn consume<D: TokenDialect>(
        &self,
        tx: &mut Transaction<'_, D>,
        token: &str,
    ) -> Result<Consumed, TokenError> {
        self.consume_as(tx, token, WHO, WHAT).await
    }

    /// Consumes and commits.
    pub(crate) async fn spend<D: TokenDialect>(
        &self,
        pool: &Pool<D>,
        token: &str,
    ) -> Result<Consumed, TokenError> {
        let mut tx = D::begin(pool).await.unwrap();
        let consumed = self.consume(&mut tx, token).await;
        tx.commit().await.unwrap();
        consumed
    }
}

/// The reason, or `None` for what was accepted.
pub(crate) fn reason<T: std::fmt::Debug>(answer: Result<T, TokenError>) -> Option<Reason> {
    match answer {
        Ok(_) => None,
        Err(error) => match error.reason() {
            Some(reason) => Some(reason),
            None => panic!("the store: {error:?}"),
        },
    }
}

/// The same tests with both kinds of token on each database.
macro_rules! on_each {
    ($($test:ident)*) => {
        $crate::world::on_each!(@ signed_on_postgres, signed, Postgres, database, 20: $($test)*);
        $crate::world::on_each!(@ stored_on_postgres, stored, Postgres, database, 20: $($test)*);
        $crate::world::on_each!(@ signed_on_mariadb, signed, MariaDb, database, 20: $($test)*);
        $crate::world::on_each!(@ stored_on_mariadb, stored, MariaDb, database, 20: $($test)*);
        $crate::world::on_each!(@ signed_on_sqlite, signed, Sqlite, file, 4: $($test)*);
        $crate::world::on_each!(@ stored_on_sqlite, stored, Sqlite, file, 4: $($test)*);
    };
    (@ $module:ident, $kind:ident, $db:ident, $make:ident, $size:literal: $($test:ident)*) => {
        mod $module { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let keep = idem_test_support::$db::$make().await;
                let pool = keep.pool($size).await;
                let table = idem_runtime::token::TokenTable::default();
                table.migrate(&pool).await.unwrap();
                super::$test(pool, $crate::world::Tokens::$kind()).await;
            }
        )* }
    };
}
pub(crate) use on_each;
