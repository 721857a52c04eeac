//! Inside an idempotent function: in a transaction of the framework's own, and with a lease.

use idem_macros::idempotent;
use idem_runtime::observe::observe;
use idem_runtime::steps::{Saga, SagaDialect, SagaError};
use idem_runtime::store::sql::LeasedSql;
use sqlx::{Pool, Postgres, Sqlite};

use crate::shop::{ALL_DONE, Do, Order, Shop, assert_all_undone, effects, key, order, saga};
use crate::world::{World, mariadb, number, postgres, sqlite};

#[derive(Debug, thiserror::Error)]
enum PlaceError {
    #[error(transparent)]
    Idem(#[from] idem_runtime::Error),
    #[error(transparent)]
    Saga(#[from] SagaError),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
}

async fn place<D: SagaDialect>(
    saga: &Saga<D, Order, Shop<D>>,
    order: &Order,
) -> Result<String, PlaceError> {
    let results = saga.start(&key(order.no), order).await?;
    Ok(results.get("charge")?)
}

#[idempotent(crate = ::idem_runtime, key = "place:{order.no}", fingerprint(order), ttl = "1h",
    scope = "place", shared_scope, store = "leases", lease = "1s")]
async fn leased_on_postgres(
    leases: &LeasedSql<Postgres>,
    saga: &Saga<Postgres, Order, Shop<Postgres>>,
    order: &Order,
) -> Result<String, PlaceError> {
    place(saga, order).await
}

#[idempotent(crate = ::idem_runtime, key = "place:{order.no}", fingerprint(order), ttl = "1h",
    scope = "place", shared_scope, store = "leases", lease = "1s")]
async fn leased_on_sqlite(
    leases: &LeasedSql<Sqlite>,
    saga: &Saga<Sqlite, Order, Shop<Sqlite>>,
    order: &Order,
) -> Result<String, PlaceError> {
    place(saga, order).await
}

#[idempotent(crate = ::idem_runtime, key = "place:{order.no}", fingerprint(order), ttl = "1h",
    scope = "place", shared_scope, store = "pool", tx = tx)]
async fn owned_on_postgres(
    pool: &Pool<Postgres>,
    saga: &Saga<Postgres, Order, Shop<Postgres>>,
    order: &Order,
) -> Result<String, PlaceError> {
    // Effects of the call itself, beside those of the saga.
    sqlx::query("INSERT INTO effect VALUES ('call', $1, 0, '')")
        .bind(order.no)
        .execute(&mut **tx)
        .await?;
    place(saga, order).await
}

#[idempotent(crate = ::idem_runtime, key = "place:{order.no}", fingerprint(order), ttl = "1h",
    scope = "place", shared_scope, store = "pool", tx = tx)]
async fn owned_on_mariadb(
    pool: &Pool<sqlx::MySql>,
    saga: &Saga<sqlx::MySql, Order, Shop<sqlx::MySql>>,
    order: &Order,
) -> Result<String, PlaceError> {
    sqlx::query("INSERT INTO effect VALUES ('call', ?, 0, '')")
        .bind(order.no)
        .execute(&mut **tx)
        .await?;
    place(saga, order).await
}

/// A first call that is run on by a repeat, a replay, and a call whose saga is undone.
async fn calls<D: SagaDialect>(
    world: &World<D>,
    call: impl AsyncFn(&Saga<D, Order, Shop<D>>, &Order) -> Result<String, PlaceError>,
) {
    let shop = Shop::new(&world.pool);
    let saga = saga(&shop);
    shop.at("before:ship", Do::Retry, 2);
    let waits = call(&saga, &order(7)).await.unwrap_err();
    assert!(
        matches!(&waits, PlaceError::Saga(SagaError::Waiting(_))),
        "{waits}"
    );
    world.let_time_pass().await;
    let charge = call(&saga, &order(7)).await.unwrap();
    assert_eq!(effects(&world.pool, 7).await, ALL_DONE);
    let sevens = order(7);
    let (again, seen) = observe(call(&saga, &sevens)).await;
    assert_eq!(again.unwrap(), charge);
    assert!(seen.replayed());

    shop.at("before:ship", Do::Refuse, 1);
    for _ in 0..2 {
        let undone = call(&saga, &order(8)).await.unwrap_err();
        let is = matches!(&undone, PlaceError::Saga(SagaError::Compensated(_)));
        assert!(is, "{undone}");
    }
    assert_all_undone(&effects(&world.pool, 8).await);
}

#[tokio::test]
async fn with_a_lease_on_postgres() {
    let world = postgres().await;
    let leases = LeasedSql::new(world.pool.clone());
    leases.migrate().await.unwrap();
    calls(&world, async |saga, order| {
        leased_on_postgres(&leases, saga, order).await
    })
    .await;
}

#[tokio::test]
async fn with_a_lease_on_sqlite() {
    let world = sqlite().await;
    let leases = LeasedSql::new(world.pool.clone());
    leases.migrate().await.unwrap();
    calls(&world, async |saga, order| {
        leased_on_sqlite(&leases, saga, order).await
    })
    .await;
}

#[tokio::test]
async fn in_a_transaction_of_its_own_on_postgres() {
    let world = postgres().await;
    idem_runtime::store::postgres::migrate(&world.pool)
        .await
        .unwrap();
    calls(&world, async |saga, order| {
        owned_on_postgres(&world.pool, saga, order).await
    })
    .await;
    let committed = "SELECT COUNT(*) FROM effect WHERE step = 'call'";
    assert_eq!(number(&world.pool, committed).await, 1);
}

#[tokio::test]
async fn in_a_transaction_of_its_own_on_mariadb() {
    let world = mariadb().await;
    idem_runtime::store::mysql::migrate(&world.pool)
        .await
        .unwrap();
    calls(&world, async |saga, order| {
        owned_on_mariadb(&world.pool, saga, order).await
    })
    .await;
    let committed = "SELECT COUNT(*) FROM effect WHERE step = 'call'";
    assert_eq!(number(&world.pool, committed).await, 1);
}
