//! The laws of every store, in each database.

use std::sync::Arc;
use std::time::Duration;

use idem_runtime::store::sql::LeasedSql;
use idem_runtime::testing::conformance::{Harness, Time};
use idem_test_support::{MariaDbDatabase, SqliteFile, TestDatabase};
use sqlx::{MySql, Postgres, Sqlite};

use crate::support::{With, mariadb, postgres, sqlite};

const LEASE: Duration = Duration::from_millis(600);

async fn in_postgres() -> Harness<With<LeasedSql<Postgres>, TestDatabase>> {
    let (database, pool) = postgres().await;
    let database = Arc::new(database);
    let neighbour = LeasedSql::<Postgres>::builder()
        .namespace("there")
        .build(pool.clone());
    Harness::new(
        With::new(LeasedSql::new(pool), &database),
        Time::Real(LEASE),
    )
    .neighbour(With::new(neighbour, &database))
    .announces_changes()
}

mod on_postgres {
    idem_runtime::store_conformance!(super::in_postgres().await);
}

async fn in_mariadb() -> Harness<With<LeasedSql<MySql>, MariaDbDatabase>> {
    let (database, pool) = mariadb().await;
    let database = Arc::new(database);
    let neighbour = LeasedSql::<MySql>::builder()
        .namespace("there")
        .build(pool.clone());
    Harness::new(
        With::new(LeasedSql::new(pool), &database),
        Time::Real(LEASE),
    )
    .neighbour(With::new(neighbour, &database))
    .announces_changes()
}

mod on_mariadb {
    idem_runtime::store_conformance!(super::in_mariadb().await);
}

async fn in_sqlite() -> Harness<With<LeasedSql<Sqlite>, SqliteFile>> {
    let (file, pool) = sqlite().await;
    let file = Arc::new(file);
    let neighbour = LeasedSql::<Sqlite>::builder()
        .namespace("there")
        .build(pool.clone());
    Harness::new(With::new(LeasedSql::new(pool), &file), Time::Real(LEASE))
        .neighbour(With::new(neighbour, &file))
        .announces_changes()
}

mod on_sqlite {
    idem_runtime::store_conformance!(super::in_sqlite().await);
}
