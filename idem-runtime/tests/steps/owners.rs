//! One owner at a time, and nothing of a late one.

use std::time::Duration;

use idem_runtime::steps::{SagaDialect, SagaError, SagaState};
use idem_test_support::child::{Args, say};
use sqlx::Pool;

use crate::shop::{ALL_DONE, Do, Shop, effects, key, order, saga, steps};
use crate::world::{World, number, on_each, with_pool};

idem_test_support::child_roles!(starts_slowly, works);

on_each!(
    a_running_step_keeps_its_lease
    two_workers_share_the_work
    workers_in_three_processes_share_the_work
    a_process_that_was_stopped_past_its_lease_is_fenced_off
    a_dead_owner_is_followed_when_its_lease_is_over
);

const LEASE: Duration = Duration::from_millis(600);

async fn a_running_step_keeps_its_lease<D: SagaDialect>(world: World<D>) {
    for (no, point) in (1..).zip(["before:charge", "before:book", "undo-before:charge"]) {
        let shop = Shop::new(&world.pool);
        shop.at(point, Do::Wait, 1);
        if point.starts_with("undo") {
            shop.at("before:book", Do::Refuse, 1);
        }
        let saga = steps(&shop).lease(LEASE).build(&world.pool).unwrap();
        let running = tokio::spawn({
            let saga = saga.clone();
            async move { saga.start(&key(no), &order(no)).await }
        });
        // Far longer than the lease: either it is renewed or nobody can take it.
        let until = tokio::time::Instant::now() + LEASE * 4;
        while D::INDEX != 1 && tokio::time::Instant::now() < until {
            assert!(
                saga.worker().run_once().await.unwrap().is_empty(),
                "{point}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if D::INDEX == 1 {
            tokio::time::sleep_until(until).await;
        }
        shop.go();
        let ended = running.await.unwrap();
        assert_eq!(shop.times(point), 1, "{point}");
        if point.starts_with("undo") {
            assert!(matches!(ended, Err(SagaError::Compensated(_))), "{ended:?}");
        } else {
            assert!(ended.is_ok(), "{ended:?}");
            assert_eq!(effects(&world.pool, no).await, ALL_DONE);
        }
    }
}

/// Begun, and left before the last step.
async fn left<D: SagaDialect>(world: &World<D>, sagas: i64) {
    let shop = Shop::new(&world.pool);
    shop.at("before:ship", Do::Retry, u32::MAX);
    let saga = saga(&shop);
    for no in 1..=sagas {
        let error = saga.start(&key(no), &order(no)).await.unwrap_err();
        assert!(matches!(error, SagaError::Waiting(_)), "{error}");
    }
    world.let_time_pass().await;
}

async fn two_workers_share_the_work<D: SagaDialect>(world: World<D>) {
    left(&world, 20).await;
    let shop = Shop::new(&world.pool);
    let worker = saga(&shop).worker();
    let (one, other) = tokio::join!(worker.run_once(), worker.run_once());
    let mut keys: Vec<_> = one.unwrap().into_iter().chain(other.unwrap()).collect();
    for resumed in &keys {
        assert!(resumed.outcome.is_ok(), "{:?}", resumed.outcome);
    }
    keys.sort_by(|one, other| one.key().cmp(other.key()));
    keys.dedup_by(|one, other| one.key() == other.key());
    assert_eq!((keys.len(), shop.times("before:ship")), (20, 20));
    for no in 1..=20 {
        assert_eq!(effects(&world.pool, no).await, ALL_DONE);
    }
}

/// Argument: URL.
async fn works(args: Args) {
    with_pool!(args.get(0), work(&args));
}

async fn work<D: SagaDialect>(pool: Pool<D>, args: &Args) {
    let worker = saga(&Shop::new(&pool)).worker().batch(7);
    args.line_up().await;
    loop {
        let resumed = worker.run_once().await.unwrap();
        for one in &resumed {
            assert!(one.outcome.is_ok(), "{:?}", one.outcome);
            say(one.key());
        }
        let left = "SELECT COUNT(*) FROM idem_saga WHERE state <> 'completed'";
        if number(&pool, left).await == 0 {
            return;
        }
    }
}

async fn workers_in_three_processes_share_the_work<D: SagaDialect>(world: World<D>) {
    left(&world, 30).await;
    let said = child("works").arg(&world.url).run_many(3).await;
    let mut keys: Vec<_> = said.into_iter().flatten().collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 30);
    for no in 1..=30 {
        assert_eq!(effects(&world.pool, no).await, ALL_DONE);
    }
    // One for each failed attempt of the first process, and one.
    assert_eq!(
        number(&world.pool, "SELECT MAX(calls) FROM other_side").await,
        1
    );
}

/// Arguments: URL, number of the order, the point at which it is told to go on.
async fn starts_slowly(args: Args) {
    with_pool!(args.get(0), start_slowly(&args));
}

async fn start_slowly<D: SagaDialect>(pool: Pool<D>, args: &Args) {
    let no = i64::try_from(args.number(1)).unwrap();
    let shop = Shop::new(&pool);
    shop.at(args.get(2), Do::Wait, 1);
    let saga = steps(&shop).lease(LEASE).build(&pool).unwrap();
    let start = tokio::spawn(async move { saga.start(&key(no), &order(no)).await });
    while shop.times(args.get(2)) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    say("there");
    assert_eq!(args.hear().await, "go on");
    shop.go();
    match start.await.unwrap() {
        Ok(results) => say(&results.get::<String>("ship").unwrap()),
        Err(error) => say(&error.to_string()),
    }
}

async fn a_process_that_was_stopped_past_its_lease_is_fenced_off<D: SagaDialect>(world: World<D>) {
    let mut points = vec!["before:charge", "after:charge", "after:ship"];
    if D::INDEX != 1 {
        // A stopped process keeps SQLite's one lock: nobody goes on meanwhile.
        points.extend(["before:book", "after:book"]);
    }
    for (no, point) in (1..).zip(points) {
        let mut late = child("starts_slowly")
            .arg(&world.url)
            .arg(no)
            .arg(point)
            .spawn();
        late.wait_for("there").await;
        late.sigstop();
        let shop = Shop::new(&world.pool);
        let saga = saga(&shop);
        let before = saga.status(&key(no)).await.unwrap().unwrap();
        // By the database's clock.
        let mut resumed = Vec::new();
        while resumed.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            resumed = saga.worker().run_once().await.unwrap();
        }
        assert!(
            resumed[0].outcome.is_ok(),
            "{point}: {:?}",
            resumed[0].outcome
        );
        let after = saga.status(&key(no)).await.unwrap().unwrap();
        assert!(after.fence > before.fence);
        assert_eq!(after.state, SagaState::Completed);
        late.sigcont();
        late.tell("go on");
        // It gets the results of the one that went on.
        let results = saga.start(&key(no), &order(no)).await.unwrap();
        late.wait_for(&results.get::<String>("ship").unwrap()).await;
        late.finish().await;
        assert_eq!(effects(&world.pool, no).await, ALL_DONE, "{point}");
        assert_eq!(saga.status(&key(no)).await.unwrap().unwrap(), after);
    }
}

async fn a_dead_owner_is_followed_when_its_lease_is_over<D: SagaDialect>(world: World<D>) {
    let mut dies = child("starts_slowly")
        .arg(&world.url)
        .arg(1)
        .arg("after:charge")
        .spawn();
    dies.wait_for("there").await;
    dies.kill9();
    // A repeat waits for the lease and goes on by itself.
    let shop = Shop::new(&world.pool);
    let results = saga(&shop).start(&key(1), &order(1)).await.unwrap();
    assert_eq!(shop.times("before:reserve"), 0);
    assert_eq!(shop.times("before:charge"), 1);
    assert!(
        results
            .get::<String>("reserve")
            .unwrap()
            .starts_with("reserve-1-")
    );
    assert_eq!(effects(&world.pool, 1).await, ALL_DONE);
}
