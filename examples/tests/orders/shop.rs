//! A database of the test's own, looked at without the example's code.

use std::collections::BTreeMap;

use idem_test_support::{Postgres, Sqlite, SqliteFile, TestDatabase};
use serde_json::Value;
use sqlx::{PgPool, SqlitePool};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

pub(crate) enum Shop {
    Sqlite(SqlitePool, SqliteFile),
    Postgres(PgPool, TestDatabase),
}

/// Merchant, order, paid, refunded.
type Row = (String, String, i64, i64);

impl Kind {
    pub(crate) async fn shop(self) -> Shop {
        match self {
            Self::Sqlite => {
                let file = Sqlite::file().await;
                Shop::Sqlite(file.pool(1).await, file)
            }
            Self::Postgres => {
                let database = Postgres::database().await;
                Shop::Postgres(database.pool(1).await, database)
            }
        }
    }
}

impl Shop {
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(_, file) => file.url(),
            Self::Postgres(_, database) => database.url().to_owned(),
        }
    }

    /// How many entries the ledger has; none before it is there.
    pub(crate) async fn entries(&self) -> i64 {
        const ENTRIES: &str = "SELECT COUNT(*) FROM shop_ledger";
        match self {
            Self::Sqlite(pool, _) => sqlx::query_scalar(ENTRIES).fetch_one(pool).await,
            Self::Postgres(pool, _) => sqlx::query_scalar(ENTRIES).fetch_one(pool).await,
        }
        .unwrap_or(0)
    }

    /// Waits until nobody works for a client that is gone: a server may still be committing for it.
    pub(crate) async fn quiet(&self) {
        if let Self::Postgres(_, database) = self {
            database.quiet().await;
        }
    }

    /// Ends every other session of this database, and says how many.
    pub(crate) async fn end_other_connections(&self) -> u32 {
        let Self::Postgres(pool, _) = self else {
            return 0;
        };
        let ended = sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .fetch_all(pool)
        .await
        .unwrap();
        ended.len() as u32
    }

    /// The sums of the ledger, order by order.
    pub(crate) async fn ledger(&self) -> Vec<Row> {
        const ENTRIES: &str =
            "SELECT merchant, order_no, refund_no IS NOT NULL, amount FROM shop_ledger";
        let entries: Vec<(String, String, bool, i64)> = match self {
            Self::Sqlite(pool, _) => sqlx::query_as(ENTRIES).fetch_all(pool).await.unwrap(),
            Self::Postgres(pool, _) => sqlx::query_as(ENTRIES).fetch_all(pool).await.unwrap(),
        };
        let mut sums: BTreeMap<(String, String), (i64, i64)> = BTreeMap::new();
        for (merchant, order, refund, amount) in entries {
            let (paid, refunded) = sums.entry((merchant, order)).or_default();
            *if refund { refunded } else { paid } += amount;
        }
        sums.into_iter()
            .map(|((m, o), (paid, refunded))| (m, o, paid, refunded))
            .collect()
    }

    /// The orders, as the service keeps them.
    pub(crate) async fn orders(&self) -> Vec<Row> {
        const ORDERS: &str = "SELECT merchant, order_no, paid, refunded FROM shop_orders";
        let mut orders: Vec<Row> = match self {
            Self::Sqlite(pool, _) => sqlx::query_as(ORDERS).fetch_all(pool).await.unwrap(),
            Self::Postgres(pool, _) => sqlx::query_as(ORDERS).fetch_all(pool).await.unwrap(),
        };
        orders.sort();
        orders
    }

    /// The sum of all balances.
    pub(crate) async fn balance(&self) -> i64 {
        const BALANCE: &str = "SELECT CAST(COALESCE(SUM(balance), 0) AS BIGINT) FROM shop_balances";
        match self {
            Self::Sqlite(pool, _) => sqlx::query_scalar(BALANCE).fetch_one(pool).await.unwrap(),
            Self::Postgres(pool, _) => sqlx::query_scalar(BALANCE).fetch_one(pool).await.unwrap(),
        }
    }

    /// What the merchants have, currency by currency.
    pub(crate) async fn balances(&self) -> Vec<(String, i64)> {
        const BALANCES: &str = "SELECT currency, balance FROM shop_balances ORDER BY currency";
        match self {
            Self::Sqlite(pool, _) => sqlx::query_as(BALANCES).fetch_all(pool).await.unwrap(),
            Self::Postgres(pool, _) => sqlx::query_as(BALANCES).fetch_all(pool).await.unwrap(),
        }
    }

    /// Every table tells the same story, at whatever moment the program stopped.
    pub(crate) async fn is_consistent(&self) {
        let ledger = self.ledger().await;
        assert_eq!(ledger, self.orders().await);
        let sum: i64 = ledger
            .iter()
            .map(|(_, _, paid, refunded)| paid - refunded)
            .sum();
        assert_eq!(sum, self.balance().await);
    }

    /// The ledger has exactly what a file of expectations says.
    pub(crate) async fn has(&self, expected: &Value) {
        let mut rows: Vec<Row> = expected["orders"]
            .as_array()
            .expect("orders")
            .iter()
            .map(|row| {
                let text = |field: &str| row[field].as_str().expect("text").to_owned();
                let number = |field: &str| row[field].as_i64().expect("a number");
                (
                    text("merchant"),
                    text("order"),
                    number("paid"),
                    number("refunded"),
                )
            })
            .collect();
        rows.sort();
        assert_eq!(self.ledger().await, rows);
        self.is_consistent().await;
    }
}
