//! Futures that are dropped midway.

use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_runtime::steps::{Saga, SagaDialect, SagaError};
use idem_test_support::poll::{drop_after, drop_after_time};

use crate::shop::{ALL_DONE, Do, Order, Shop, assert_all_undone, effects, key, order, saga, steps};
use crate::world::{World, on_each};

on_each!(
    dropped_at_any_await_it_completes_later
    dropped_at_any_await_it_is_undone_later
    a_dropped_cancellation_is_finished_by_a_worker
);

fn impatient<D: SagaDialect>(shop: &Shop<D>) -> Saga<D, Order, Shop<D>> {
    let wait = Duration::from_millis(50);
    steps(shop).wait(wait).build(&shop.pool).unwrap()
}

/// A write that was on its way when its future was dropped still comes to its end, and extends the
/// lease.
async fn until_it_is_free<D: SagaDialect, T>(
    world: &World<D>,
    call: impl AsyncFn() -> Result<T, SagaError>,
) -> Result<T, SagaError> {
    for _ in 0..600 {
        world.let_time_pass().await;
        match call().await {
            Err(error) if error.kind() == Some(ErrorKind::InProgress) => {}
            other => return other,
        }
    }
    panic!("it is never free");
}

/// After each number of polls, and after times in between: with real I/O neither meets every await in
/// each run. Each order is a run of its own.
async fn dropped<D: SagaDialect>(world: &World<D>, refuse: bool) {
    let mut dropped = 0;
    for no in 0.. {
        let shop = Shop::new(&world.pool);
        if refuse {
            shop.at("before:ship", Do::Refuse, 2);
        }
        let saga = saga(&shop);
        let (key, order) = (key(no), order(no));
        let start = saga.start(&key, &order);
        let turn = usize::try_from(no / 2).unwrap();
        let answer = if no % 2 == 0 {
            drop_after(start, turn).await
        } else {
            let time = Duration::from_micros(500 * u64::try_from(turn).unwrap());
            drop_after_time(start, time).await
        };
        let ended = answer.is_some();
        dropped += usize::from(!ended);
        let later = match answer {
            Some(answer) => answer,
            None => {
                let impatient = impatient(&shop);
                until_it_is_free(world, || impatient.start(&key, &order)).await
            }
        };
        let effects = effects(&world.pool, no).await;
        if refuse {
            let undone = matches!(later, Err(SagaError::Compensated(_)));
            assert!(undone, "{no}: {later:?}");
            assert_all_undone(&effects);
        } else {
            assert!(later.is_ok(), "{no}: {later:?}");
            assert_eq!(effects, ALL_DONE, "{no}");
        }
        if ended && no % 2 == 0 {
            break;
        }
    }
    assert!(dropped > 0);
}

async fn dropped_at_any_await_it_completes_later<D: SagaDialect>(world: World<D>) {
    dropped(&world, false).await;
}

async fn dropped_at_any_await_it_is_undone_later<D: SagaDialect>(world: World<D>) {
    dropped(&world, true).await;
}

async fn a_dropped_cancellation_is_finished_by_a_worker<D: SagaDialect>(world: World<D>) {
    for no in 1..30 {
        let shop = Shop::new(&world.pool);
        shop.at("before:ship", Do::Retry, 2);
        let saga = saga(&shop);
        let error = saga.start(&key(no), &order(no)).await.unwrap_err();
        assert!(matches!(error, SagaError::Waiting(_)), "{error}");
        let time = Duration::from_micros(300 * u64::try_from(no).unwrap());
        let key = key(no);
        let cancelled = drop_after_time(saga.cancel(&key), time).await;
        if cancelled.is_none() {
            let impatient = impatient(&shop);
            let again = || impatient.cancel(&key);
            until_it_is_free(&world, again).await.unwrap();
        }
        let effects = effects(&world.pool, no).await;
        assert_all_undone(&effects);
        assert_eq!(effects[0], (1, 1));
    }
}
