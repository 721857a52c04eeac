//! A shop in a fresh database of each kind.

use idem::StateMachine;
use idem::machine::Transition;

#[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = 16)]
pub(crate) enum Status {
    #[state(initial, to(Paid, Cancelled))]
    Pending,
    #[state(to(Refunding))]
    Paid,
    #[state(to(Refunded))]
    Refunding,
    #[state(terminal)]
    Refunded,
    #[state(terminal, rename = "closed")]
    Cancelled,
}

#[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = 16)]
pub(crate) enum Job {
    #[state(initial, to(Started))]
    Queued,
    #[state(to(Succeeded, Expired, Queued))]
    Started,
    #[state(terminal)]
    Succeeded,
    #[state(terminal)]
    Expired,
}

/// The transitions of orders.
pub(crate) fn orders() -> Transition<Status> {
    Transition::in_table("shop_order")
        .bump_version("version")
        .stamp_once(Status::Paid, "paid_at")
        .build()
        .unwrap()
}

/// The transitions of jobs, in the same table.
pub(crate) fn jobs() -> Transition<Job> {
    Transition::in_table("shop_order").build().unwrap()
}

/// A row as it is: state, version, and when it was paid, as text.
pub(crate) type Row = (String, i64, Option<String>);

macro_rules! shop {
    ($db:ty, $pool:ty, $insert:literal, $row:literal, $write:literal) => {
        pub(crate) type Db = $db;
        pub(crate) type Pool = $pool;

        impl Shop {
            /// A row in a state, or in none that there is.
            pub(crate) async fn order(&self, id: i64, status: &str) {
                let insert = sqlx::query($insert).bind(id).bind(status);
                insert.execute(&self.pool).await.unwrap();
            }

            pub(crate) async fn row(&self, id: i64) -> super::Row {
                sqlx::query_as($row)
                    .bind(id)
                    .fetch_one(&self.pool)
                    .await
                    .unwrap()
            }

            pub(crate) async fn run(&self, sql: &'static str) {
                sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
            }

            pub(crate) async fn lines(&self) -> Vec<String> {
                let lines = sqlx::query_scalar("SELECT line FROM history ORDER BY line");
                lines.fetch_all(&self.pool).await.unwrap()
            }
        }

        /// Writes a row of history in the same transaction.
        pub(crate) async fn write(tx: &mut sqlx::Transaction<'_, Db>, line: String) {
            sqlx::query($write)
                .bind(line)
                .execute(&mut **tx)
                .await
                .unwrap();
        }
    };
}

pub(crate) mod postgres {
    use idem_test_support::{Postgres, TestDatabase};

    /// Makes the states' column blind to case, and to spaces where there is such a collation.
    pub(crate) const BLIND: &str = "CREATE COLLATION blind (provider = icu, locale = 'und-u-ka-shifted-ks-level1', \
         deterministic = false); \
         ALTER TABLE shop_order ALTER status TYPE VARCHAR(16) COLLATE blind";

    pub(crate) struct Shop {
        pub(crate) pool: Pool,
        _database: TestDatabase,
    }

    impl Shop {
        pub(crate) async fn open() -> Self {
            let database = Postgres::database().await;
            database
                .execute(
                    "CREATE TABLE shop_order (id BIGINT PRIMARY KEY, status VARCHAR(16), \
                     version BIGINT NOT NULL DEFAULT 0, paid_at TIMESTAMPTZ); \
                     CREATE TABLE history (line TEXT NOT NULL)",
                )
                .await;
            let pool = database.pool(8).await;
            idem::store::postgres::migrate(&pool).await.unwrap();
            Self {
                pool,
                _database: database,
            }
        }
    }

    shop! {
        sqlx::Postgres, sqlx::PgPool,
        "INSERT INTO shop_order (id, status) VALUES ($1, $2)",
        "SELECT status, version, CAST(paid_at AS text) FROM shop_order WHERE id = $1",
        "INSERT INTO history VALUES ($1)"
    }
}

pub(crate) mod sqlite {
    use idem_test_support::{Sqlite, SqliteFile};

    /// Makes the states' column blind to case, and to spaces where there is such a collation.
    pub(crate) const BLIND: &str = "DROP TABLE shop_order; CREATE TABLE shop_order (id INTEGER PRIMARY KEY, \
         status TEXT COLLATE NOCASE, version INTEGER NOT NULL DEFAULT 0, paid_at TEXT)";

    pub(crate) struct Shop {
        pub(crate) pool: Pool,
        _file: SqliteFile,
    }

    impl Shop {
        pub(crate) async fn open() -> Self {
            let file = Sqlite::file().await;
            let pool = file.pool(8).await;
            idem::store::sqlite::migrate(&pool).await.unwrap();
            let shop = Self { pool, _file: file };
            shop.run(
                "CREATE TABLE shop_order (id INTEGER PRIMARY KEY, status TEXT, \
                 version INTEGER NOT NULL DEFAULT 0, paid_at TEXT); \
                 CREATE TABLE history (line TEXT NOT NULL)",
            )
            .await;
            shop
        }
    }

    shop! {
        sqlx::Sqlite, sqlx::SqlitePool,
        "INSERT INTO shop_order (id, status) VALUES ($1, $2)",
        "SELECT status, version, paid_at FROM shop_order WHERE id = $1",
        "INSERT INTO history VALUES ($1)"
    }
}

pub(crate) mod mysql {
    use idem_test_support::{MariaDb, MariaDbDatabase};

    /// Makes the states' column blind to case, and to spaces where there is such a collation.
    pub(crate) const BLIND: &str = "ALTER TABLE shop_order MODIFY status VARCHAR(16) \
         CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci";

    pub(crate) struct Shop {
        pub(crate) pool: Pool,
        _database: MariaDbDatabase,
    }

    impl Shop {
        pub(crate) async fn open() -> Self {
            let database = MariaDb::database().await;
            database
                .execute(
                    "CREATE TABLE shop_order (id BIGINT PRIMARY KEY, status VARCHAR(16), \
                     version BIGINT NOT NULL DEFAULT 0, paid_at DATETIME(6)) ENGINE = InnoDB; \
                     CREATE TABLE history (line VARCHAR(100) NOT NULL) ENGINE = InnoDB",
                )
                .await;
            let pool = database.pool(8).await;
            idem::store::mysql::migrate(&pool).await.unwrap();
            Self {
                pool,
                _database: database,
            }
        }
    }

    shop! {
        sqlx::MySql, sqlx::MySqlPool,
        "INSERT INTO shop_order (id, status) VALUES (?, ?)",
        "SELECT status, version, CAST(paid_at AS CHAR) FROM shop_order WHERE id = ?",
        "INSERT INTO history VALUES (?)"
    }
}
