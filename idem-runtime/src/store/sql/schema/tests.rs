//! Made-up later steps, on each database.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test code: what cannot go on panics in the test that called it"
)]

use idem_test_support::{MariaDb, Postgres, Sqlite};
use sqlx::Pool;

use super::{Schema, SchemaDialect, Shape, Step, Table, check, migrate};
use crate::store::sql::dialect::Dialect;

const FIRST: Step = Step {
    version: 1,
    serves_from: 1,
    name: "first",
    sql: "CREATE TABLE IF NOT EXISTS {table} (id BIGINT NOT NULL PRIMARY KEY);\n",
};
/// The first build goes on beside it.
const WIDER: Step = Step {
    version: 2,
    serves_from: 1,
    name: "wider",
    sql: "ALTER TABLE {table} ADD COLUMN note BIGINT;\n",
};
/// The first build needs what this removes.
const OTHER: Step = Step {
    version: 3,
    serves_from: 2,
    name: "other",
    sql: "ALTER TABLE {table} ADD COLUMN other BIGINT;\n",
};

const fn table(columns: &'static [(&'static str, &'static str)]) -> Table {
    Table {
        name: "{table}",
        columns,
        key: "id",
        rights: "SELECT,INSERT,UPDATE,DELETE",
    }
}

static BUILDS: [Shape; 3] = [
    Shape {
        steps: &[FIRST],
        tables: &[table(&[("id", "bigint")])],
        promises: &[],
    },
    Shape {
        steps: &[FIRST, WIDER],
        tables: &[table(&[("id", "bigint"), ("note", "bigint")])],
        promises: &[],
    },
    Shape {
        steps: &[FIRST, WIDER, OTHER],
        tables: &[table(&[
            ("id", "bigint"),
            ("note", "bigint"),
            ("other", "bigint"),
        ])],
        promises: &[],
    },
];

fn build(number: usize) -> Schema<'static> {
    Schema::new(&BUILDS[number - 1], "made_up")
}

async fn run<D: SchemaDialect>(pool: &Pool<D>, sql: &str) {
    let mut conn = pool.acquire().await.unwrap();
    D::run_schema(&mut conn, sql.to_owned()).await.unwrap();
}

async fn a_rolling_deployment<D: Dialect>(pool: Pool<D>) {
    let refused = async |number| check(&pool, build(number)).await.unwrap_err().to_string();
    migrate(&pool, build(1)).await.unwrap();
    check(&pool, build(1)).await.unwrap();
    run(&pool, "INSERT INTO made_up (id) VALUES (7)").await;
    let early = refused(2).await;
    assert!(
        early.contains("at version 1, this build needs 2"),
        "{early}"
    );
    assert!(early.contains("no column note"), "{early}");

    // Several processes of the second build start at once.
    let migrating = (0..4).map(|_| {
        let pool = pool.clone();
        tokio::spawn(async move { migrate(&pool, build(2)).await })
    });
    for migrated in migrating.collect::<Vec<_>>() {
        migrated.await.unwrap().unwrap();
    }
    run(&pool, "UPDATE made_up SET note = 1 WHERE id = 7").await;
    for number in [1, 2] {
        check(&pool, build(number)).await.unwrap();
        migrate(&pool, build(number)).await.unwrap();
    }

    migrate(&pool, build(3)).await.unwrap();
    check(&pool, build(3)).await.unwrap();
    check(&pool, build(2)).await.unwrap();
    let late = refused(1).await;
    assert!(
        late.contains("at version 3, which serves builds from version 2 on"),
        "{late}"
    );
    migrate(&pool, build(1)).await.unwrap_err();
    run(&pool, "UPDATE made_up SET other = 1 WHERE id = 7").await;
}

/// All steps at once, and a text that is run by hand where another one stopped.
async fn a_fresh_database<D: Dialect>(pool: Pool<D>) {
    let schema = Schema::new(&BUILDS[2], "fresh");
    migrate(&pool, schema).await.unwrap();
    check(&pool, schema).await.unwrap();
    let schema = Schema::new(&BUILDS[2], "by_hand");
    for step in schema.migrations::<D>() {
        run(&pool, &step.sql).await;
    }
    check(&pool, schema).await.unwrap();
    migrate(&pool, schema).await.unwrap();
}

#[tokio::test]
async fn on_postgres() {
    let database = Postgres::database().await;
    a_rolling_deployment(database.pool(5).await).await;
    a_fresh_database(database.pool(2).await).await;
}

#[tokio::test]
async fn on_sqlite() {
    let file = Sqlite::file().await;
    a_rolling_deployment(file.pool(5).await).await;
    a_fresh_database(file.pool(2).await).await;
}

#[tokio::test]
async fn on_mariadb() {
    let database = MariaDb::database().await;
    a_rolling_deployment(database.pool(5).await).await;
    a_fresh_database(database.pool(2).await).await;
    // Interrupted between a statement and the note.
    let pool = database.pool(2).await;
    let schema = Schema::new(&BUILDS[1], "interrupted");
    migrate(&pool, Schema::new(&BUILDS[0], "interrupted"))
        .await
        .unwrap();
    let half = "ALTER TABLE interrupted ADD COLUMN note BIGINT";
    database.execute(half).await;
    migrate(&pool, schema).await.unwrap();
    check(&pool, schema).await.unwrap();
}
