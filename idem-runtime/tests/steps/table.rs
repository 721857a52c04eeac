//! The tables: created, checked, purged.

use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_runtime::steps::{SagaDialect, SagaError, SagaTable};

use crate::shop::{ALL_DONE, Do, Shop, effects, key, order, saga, steps};
use crate::world::{World, number, on_each, run};

on_each!(
    it_is_created_once_and_checked
    another_table_is_another_world
    purging_spares_what_is_not_finished
    a_fence_is_higher_than_that_of_a_saga_that_was_purged
);

async fn it_is_created_once_and_checked<D: SagaDialect>(world: World<D>) {
    let table = SagaTable::default();
    let again = (0..4).map(|_| {
        let (table, pool) = (table.clone(), world.pool.clone());
        tokio::spawn(async move { table.migrate(&pool).await })
    });
    for one in again.collect::<Vec<_>>() {
        one.await.unwrap().unwrap();
    }
    table.check(&world.pool).await.unwrap();
    assert_eq!(table.migrations::<D>().len(), 1);
    // One connection: another one's idea of the schema is from before.
    let mut conn = world.pool.acquire().await.unwrap();
    for sql in [
        "ALTER TABLE idem_saga_step RENAME COLUMN result TO outcome",
        "ALTER TABLE idem_saga RENAME COLUMN due_at TO due",
        "DELETE FROM idem_saga_schema",
    ] {
        run::<D>(&mut conn, sql).await.unwrap();
        let error = table.check(&world.pool).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema, "{sql}: {error}");
        if let Some((table, rest)) = sql.split_once("RENAME COLUMN ") {
            let (from, to) = rest.split_once(" TO ").unwrap();
            let back = format!("{table}RENAME COLUMN {to} TO {from}");
            run::<D>(&mut conn, back).await.unwrap();
        }
    }
    assert!(SagaTable::named("no table").is_err());
}

async fn another_table_is_another_world<D: SagaDialect>(world: World<D>) {
    let table = SagaTable::named("shop_saga").unwrap();
    table.migrate(&world.pool).await.unwrap();
    table.check(&world.pool).await.unwrap();
    let shop = Shop::new(&world.pool);
    let other = steps(&shop)
        .table(table.clone())
        .build(&world.pool)
        .unwrap();
    let _ = other.start(&key(7), &order(7)).await.unwrap();
    assert_eq!(
        number(&world.pool, "SELECT COUNT(*) FROM shop_saga_step").await,
        4
    );
    assert_eq!(saga(&shop).status(&key(7)).await.unwrap(), None);
    let status = table.status(&world.pool, "order.place", &key(7)).await;
    assert!(status.unwrap().is_some());
}

async fn purging_spares_what_is_not_finished<D: SagaDialect>(world: World<D>) {
    let table = SagaTable::default();
    let shop = Shop::new(&world.pool);
    let saga = saga(&shop);
    for no in 1..=3 {
        let _ = saga.start(&key(no), &order(no)).await.unwrap();
    }
    shop.at("before:book", Do::Refuse, 1);
    let undone = saga.start(&key(4), &order(4)).await.unwrap_err();
    assert!(matches!(undone, SagaError::Compensated(_)));
    saga.cancel(&key(5)).await.unwrap();
    shop.at("before:book", Do::Retry, 2);
    let waiting = saga.start(&key(6), &order(6)).await.unwrap_err();
    assert!(matches!(waiting, SagaError::Waiting(_)));
    shop.at("before:book", Do::Refuse, 1)
        .at("undo-before:reserve", Do::Refuse, 1);
    let stuck = saga.start(&key(7), &order(7)).await.unwrap_err();
    assert!(matches!(stuck, SagaError::Stuck(_)), "{stuck}");

    let hour = Duration::from_secs(3600);
    assert_eq!(table.purge(&world.pool, hour, 100).await.unwrap(), 0);
    assert_eq!(
        table.purge(&world.pool, Duration::ZERO, 2).await.unwrap(),
        2
    );
    assert_eq!(
        table.purge(&world.pool, Duration::ZERO, 100).await.unwrap(),
        3
    );
    for no in 1..=5 {
        assert_eq!(saga.status(&key(no)).await.unwrap(), None);
    }
    for no in [6, 7] {
        assert!(saga.status(&key(no)).await.unwrap().is_some());
    }
    let left = "SELECT COUNT(DISTINCT saga) FROM idem_saga_step";
    assert_eq!(number(&world.pool, left).await, 2);
    // Its steps went with it: the key is new again.
    let _ = saga.start(&key(1), &order(1)).await.unwrap();
    assert_eq!(effects(&world.pool, 1).await[0], (2, 0));
    assert_ne!(effects(&world.pool, 1).await, ALL_DONE);
}

async fn a_fence_is_higher_than_that_of_a_saga_that_was_purged<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    let saga = saga(&shop);
    let mut last = None;
    for _ in 0..3 {
        shop.at("before:book", Do::Retry, 2);
        let _ = saga.start(&key(7), &order(7)).await.unwrap_err();
        let first = saga.status(&key(7)).await.unwrap().unwrap().fence;
        world.let_time_pass().await;
        let _ = saga.start(&key(7), &order(7)).await.unwrap();
        let second = saga.status(&key(7)).await.unwrap().unwrap().fence;
        assert!(
            Some(first) > last && second > first,
            "{last:?} {first:?} {second:?}"
        );
        last = Some(second);
        let table = SagaTable::default();
        assert_eq!(
            table.purge(&world.pool, Duration::ZERO, 9).await.unwrap(),
            1
        );
    }
}
