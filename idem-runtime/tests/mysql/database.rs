//! A database for each test.

use std::ops::Deref;

use idem_runtime::store::mysql;
use idem_test_support::{MariaDb, MariaDbDatabase};
use sqlx::Executor as _;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};

const BUSINESS: &str = "CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, \
     no TEXT NOT NULL, cents BIGINT NOT NULL) ENGINE = InnoDB; \
     CREATE TABLE account (id INT PRIMARY KEY, cents BIGINT NOT NULL) ENGINE = InnoDB; \
     INSERT INTO account VALUES (1, 0), (2, 0); \
     CREATE TABLE audit (line VARCHAR(100) NOT NULL) ENGINE = InnoDB";

/// A database of one test, with our schema and the tables of a business.
pub(crate) struct Database {
    pub(crate) pool: MySqlPool,
    database: MariaDbDatabase,
}

impl Deref for Database {
    type Target = MariaDbDatabase;

    fn deref(&self) -> &MariaDbDatabase {
        &self.database
    }
}

impl Database {
    pub(crate) async fn fresh() -> Self {
        Self::fresh_on(&MariaDb::url()).await
    }

    pub(crate) async fn fresh_on(url: &str) -> Self {
        let database = MariaDbDatabase::on(url).await;
        let pool = database.pool(10).await;
        mysql::migrate(&pool).await.unwrap();
        database.execute(BUSINESS).await;
        Self { pool, database }
    }

    /// Another pool, whose sessions begin with `setup`.
    pub(crate) async fn pool(&self, size: u32, setup: &'static str) -> MySqlPool {
        MySqlPoolOptions::new()
            .max_connections(size)
            .after_connect(move |conn, _| {
                Box::pin(async move {
                    if !setup.is_empty() {
                        conn.execute(setup).await?;
                    }
                    Ok(())
                })
            })
            .connect_with(self.options())
            .await
            .unwrap()
    }

    pub(crate) async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    pub(crate) async fn orders(&self) -> i64 {
        self.number("SELECT COUNT(*) FROM orders").await
    }

    pub(crate) async fn records(&self) -> i64 {
        self.number("SELECT COUNT(*) FROM idem_record").await
    }
}
