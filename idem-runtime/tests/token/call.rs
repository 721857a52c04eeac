//! In an idempotent function: the call's identity first, its token second.

use idem_macros::idempotent;
use idem_runtime::observe::observe;
use idem_runtime::store::sql::Dialect;
use idem_runtime::store::{mysql, sqlite};
use idem_runtime::token::{Reason, StoredTokens, TokenError, TokenTable};
use idem_test_support::MariaDb;
use sqlx::{MySql, MySqlPool, MySqlTransaction, Sqlite, SqlitePool, SqliteTransaction};

use crate::world::{HOUR, WHO};

const OPERATION: &str = "withdraw";

#[derive(Debug, thiserror::Error)]
enum WithdrawError {
    #[error(transparent)]
    Idem(#[from] idem_runtime::Error),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error("declined")]
    Declined,
}

impl WithdrawError {
    fn reason(&self) -> Option<Reason> {
        match self {
            Self::Token(error) => error.reason(),
            _ => None,
        }
    }
}

macro_rules! withdrawal {
    ($database:ident, $pool:ident, $transaction:ident) => {
        #[idempotent(crate = ::idem_runtime, key = "withdraw:{no}", fingerprint(cents), ttl = "1h",
                                            store = "tx")]
        async fn withdraw(
            tx: &mut $transaction<'_>,
            tokens: &StoredTokens,
            no: &str,
            cents: i64,
            token: &str,
        ) -> Result<i64, WithdrawError> {
            tokens.consume(tx, token, WHO, OPERATION).await?;
            if cents > 100 {
                return Err(WithdrawError::Declined);
            }
            let add = sqlx::query("INSERT INTO payment (cents) VALUES (?)").bind(cents);
            add.execute(&mut **tx).await?;
            let last = sqlx::query_scalar("SELECT MAX(id) FROM payment");
            Ok(last.fetch_one(&mut **tx).await?)
        }

        async fn call(
            pool: &$pool,
            no: &str,
            cents: i64,
            token: &str,
        ) -> Result<i64, WithdrawError> {
            let tokens = StoredTokens::default();
            let mut tx = $database::begin(pool).await?;
            let paid = withdraw(&mut tx, &tokens, no, cents, token).await?;
            tx.commit().await?;
            Ok(paid)
        }

        pub(super) async fn a_repeat_replays(pool: &$pool) {
            TokenTable::default().migrate(pool).await.unwrap();
            let mut tx = $database::begin(pool).await.unwrap();
            let token = StoredTokens::default()
                .issue(&mut tx, WHO, OPERATION, HOUR)
                .await
                .unwrap();
            tx.commit().await.unwrap();
            let token = token.as_str();

            // The business declines: neither the call nor its token is used up.
            let declined = call(pool, "1", 500, token).await.unwrap_err();
            assert!(matches!(declined, WithdrawError::Declined), "{declined:?}");

            let first = call(pool, "1", 70, token).await.unwrap();
            let (again, seen) = observe(call(pool, "1", 70, token)).await;
            assert_eq!(again.unwrap(), first);
            assert!(seen.replayed());

            // Another call needs a token of its own.
            let other = call(pool, "2", 70, token).await.unwrap_err();
            assert_eq!(other.reason(), Some(Reason::Used));
            let payments: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM payment")
                .fetch_one(pool)
                .await
                .unwrap();
            assert_eq!(payments, 1);
        }
    };
}

mod on_sqlite {
    use super::*;

    withdrawal!(Sqlite, SqlitePool, SqliteTransaction);
}

mod on_mariadb {
    use super::*;

    withdrawal!(MySql, MySqlPool, MySqlTransaction);
}

#[tokio::test]
async fn a_repeat_replays_and_never_comes_to_its_used_token() {
    let file = idem_test_support::Sqlite::file().await;
    let pool = file.pool(2).await;
    sqlite::migrate(&pool).await.unwrap();
    let table = "CREATE TABLE payment (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)";
    sqlx::raw_sql(table).execute(&pool).await.unwrap();
    on_sqlite::a_repeat_replays(&pool).await;

    let database = MariaDb::database().await;
    let pool = database.pool(2).await;
    mysql::migrate(&pool).await.unwrap();
    let table =
        "CREATE TABLE payment (id BIGINT AUTO_INCREMENT PRIMARY KEY, cents BIGINT NOT NULL)";
    database.execute(table).await;
    on_mariadb::a_repeat_replays(&pool).await;
}
