//! Workers that run several sagas at a time, of several definitions.

use std::time::Duration;

use idem_runtime::steps::{SagaDialect, SagaError, StepTx, Steps, Worker};

use crate::shop::{ALL_DONE, Do, Order, Shop, effects, key, order, saga, steps};
use crate::world::{Keep, World, number, on_each, run};

on_each!(
    a_slow_saga_does_not_keep_quick_ones_waiting
    no_more_sagas_than_it_may_are_run_at_a_time
    two_busy_workers_never_run_one_saga_twice
    one_worker_serves_several_definitions
    attempts_that_deadlock_are_repeated_at_once_and_do_not_count
);

/// Begun, and left before the last step.
async fn left<D: SagaDialect>(world: &World<D>, sagas: std::ops::RangeInclusive<i64>) {
    let shop = Shop::new(&world.pool);
    shop.at("before:ship", Do::Retry, u32::MAX);
    let saga = saga(&shop);
    for no in sagas {
        let error = saga.start(&key(no), &order(no)).await.unwrap_err();
        assert!(matches!(error, SagaError::Waiting(_)), "{error}");
    }
    world.let_time_pass().await;
}

async fn completed<D: SagaDialect>(world: &World<D>) -> i64 {
    let sql = "SELECT COUNT(*) FROM idem_saga WHERE state = 'completed'";
    number(&world.pool, sql).await
}

async fn until(mut done: impl AsyncFnMut() -> bool) {
    for _ in 0..3000 {
        if done().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("after thirty seconds still not");
}

async fn a_slow_saga_does_not_keep_quick_ones_waiting<D: SagaDialect>(world: World<D>) {
    left(&world, 1..=5).await;
    let shop = Shop::new(&world.pool);
    shop.at("before:ship", Do::Wait, 1);
    let worker = saga(&shop).worker();
    let stop = async {
        until(async || completed(&world).await == 4).await;
        shop.go();
        until(async || completed(&world).await == 5).await;
    };
    worker.run_until(stop, Duration::from_millis(50)).await;
    for no in 1..=5 {
        assert_eq!(effects(&world.pool, no).await, ALL_DONE);
    }
}

async fn no_more_sagas_than_it_may_are_run_at_a_time<D: SagaDialect>(world: World<D>) {
    left(&world, 1..=6).await;
    let shop = Shop::new(&world.pool);
    shop.at("before:ship", Do::Wait, 3)
        .at("after:ship", Do::Wait, 3);
    let worker = saga(&shop).worker().concurrency(3);
    let stop = async {
        until(async || shop.times("before:ship") == 3).await;
        // A fourth would show itself; if it is slow to, the test passes all the same.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(shop.times("before:ship"), 3);
        shop.go();
        until(async || completed(&world).await == 6).await;
    };
    worker.run_until(stop, Duration::from_millis(50)).await;
}

async fn two_busy_workers_never_run_one_saga_twice<D: SagaDialect>(world: World<D>) {
    left(&world, 1..=30).await;
    let shop = Shop::new(&world.pool);
    let saga = saga(&shop);
    let work = || {
        let (saga, pool) = (saga.clone(), world.pool.clone());
        tokio::spawn(async move {
            let all = "SELECT COUNT(*) FROM idem_saga WHERE state = 'completed'";
            let stop = async {
                while number(&pool, all).await < 30 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            let pause = Duration::from_millis(50);
            saga.worker().batch(7).run_until(stop, pause).await;
        })
    };
    for worker in [work(), work()] {
        worker.await.unwrap();
    }
    assert_eq!(shop.times("before:ship"), 30);
    for no in 1..=30 {
        assert_eq!(effects(&world.pool, no).await, ALL_DONE);
    }
}

async fn one_worker_serves_several_definitions<D: SagaDialect>(world: World<D>) {
    left(&world, 1..=2).await;
    let shop = Shop::new(&world.pool);
    let other = Steps::named(format!("other.{}", 1), shop.clone())
        .step_without_undo(
            String::from("only"),
            |step: StepTx<D, Order, Shop<D>>| async move {
                step.context().mark("only");
                if step.attempt() < 4 {
                    return Err(idem_runtime::steps::StepError::retry("not now"));
                }
                Ok(())
            },
        )
        .build(&world.pool)
        .unwrap();
    let _ = other.start(&key(9), &order(9)).await.unwrap_err();
    world.let_time_pass().await;
    let worker = Worker::new().and(&saga(&shop)).and(&other);
    let resumed = worker.run_once().await.unwrap();
    let mut names: Vec<_> = resumed
        .iter()
        .map(|one| (one.name.as_str(), one.key()))
        .collect();
    names.sort_unstable();
    let expected = [
        ("order.place", "order:1"),
        ("order.place", "order:2"),
        ("other.1", "order:9"),
    ];
    assert_eq!(names, expected);
    assert!(resumed.iter().all(|one| one.outcome.is_ok()), "{resumed:?}");
    assert!(!format!("{resumed:?}").contains("order:9"));
}

/// Each takes a row, waits until the other has taken its own, and wants that.
async fn attempts_that_deadlock_are_repeated_at_once_and_do_not_count<D: SagaDialect>(
    world: World<D>,
) {
    let mut conn = world.pool.acquire().await.unwrap();
    for sql in [
        "CREATE TABLE pair (no BIGINT PRIMARY KEY, added BIGINT NOT NULL)",
        "INSERT INTO pair VALUES (1, 0), (2, 0)",
    ] {
        run::<D>(&mut conn, sql).await.unwrap();
    }
    drop(conn);
    let shop = Shop::new(&world.pool);
    let both = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let runs = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let saga = Steps::named("deadlocks", shop)
        .step_without_undo("rows", move |mut step: StepTx<D, Order, Shop<D>>| {
            let (both, runs) = (both.clone(), runs.clone());
            async move {
                assert_eq!(step.attempt(), 1);
                let no = step.input().no;
                let add = |row| format!("UPDATE pair SET added = added + 1 WHERE no = {row}");
                run::<D>(step.tx(), add(no)).await?;
                let first = {
                    let mut runs = runs.lock().unwrap();
                    runs.push(no);
                    runs.iter().filter(|run| **run == no).count() == 1
                };
                // Where a transaction keeps all others from writing there is no deadlock.
                if first && D::INDEX != 1 {
                    both.wait().await;
                }
                run::<D>(step.tx(), add(3 - no)).await?;
                Ok(())
            }
        })
        .build(&world.pool)
        .unwrap();
    let (one, two) = (order(1), order(2));
    let (one, two) = tokio::join!(saga.start("one", &one), saga.start("two", &two));
    let _ = (one.unwrap(), two.unwrap());
    let both = "SELECT COUNT(*) FROM pair WHERE added = 2";
    assert_eq!(number(&world.pool, both).await, 2);
    for key in ["one", "two"] {
        let status = saga.status(key).await.unwrap().unwrap();
        assert_eq!(status.steps[0].attempts, 1);
    }
}

/// Write skew at SERIALIZABLE: most of the first tries are given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_that_do_not_serialize_are_repeated_and_do_not_count() {
    let world = crate::world::postgres().await;
    let options: sqlx::postgres::PgConnectOptions = world.url.parse().unwrap();
    let options = options.options([("default_transaction_isolation", "serializable")]);
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(20)
        .connect_with(options);
    let pool = pool.await.unwrap();
    let saga = Steps::named("sums", ())
        .step_without_undo(
            "sum",
            |mut step: StepTx<sqlx::Postgres, Order>| async move {
                let (step, tx) = step.split();
                let sum: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM effect")
                    .fetch_one(&mut **tx)
                    .await?;
                sqlx::query("INSERT INTO effect VALUES ('sum', $1, $2, '')")
                    .bind(step.input().no)
                    .bind(sum)
                    .execute(&mut **tx)
                    .await?;
                Ok(())
            },
        )
        .build(&pool)
        .unwrap();
    let starts = (0..20).map(|no| {
        let saga = saga.clone();
        tokio::spawn(async move { saga.start(&key(no), &order(no)).await })
    });
    for start in starts.collect::<Vec<_>>() {
        let _ = start.await.unwrap().unwrap();
    }
    let serial = "SELECT COUNT(DISTINCT undone) FROM effect";
    assert_eq!(number(&world.pool, serial).await, 20);
    assert_eq!(
        number(
            &world.pool,
            "SELECT MAX(attempts)::bigint FROM idem_saga_step"
        )
        .await,
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_a_pause_does_not_spin() {
    let world = crate::world::postgres().await;
    let Keep::Postgres(database) = &world.keep else {
        return;
    };
    let proxy = database.proxy();
    let pool = database.pool_through(&proxy, 4);
    let saga = steps(&Shop::new(&pool)).build(&pool).unwrap();
    let stop = tokio::time::sleep(Duration::from_secs(2));
    saga.worker().run_until(stop, Duration::ZERO).await;
    let looks = proxy.statements();
    let looks = looks.iter().filter(|sql| sql.contains("due_at <=")).count();
    assert!((1..=100).contains(&looks), "{looks}");
}

/// Equal starts of one process stand behind one, which alone asks the database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_equal_starts_ask_the_database_little() {
    let world = crate::world::postgres().await;
    let Keep::Postgres(database) = &world.keep else {
        return;
    };
    let proxy = database.proxy();
    let pool = database.pool_through(&proxy, 10);
    let shop = Shop::new(&pool);
    shop.at("before:ship", Do::Wait, 1);
    let saga = saga(&shop);
    let starts = (0..1000).map(|_| {
        let saga = saga.clone();
        tokio::spawn(async move { saga.start(&key(7), &order(7)).await })
    });
    let starts = starts.collect::<Vec<_>>();
    until(async || shop.times("before:ship") == 1).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let waiting = proxy.statements().len();
    assert!(waiting < 100, "{waiting}");
    shop.go();
    for start in starts {
        let _ = start.await.unwrap().unwrap();
    }
    let all = proxy.statements();
    let looks = all.iter().filter(|sql| sql.contains("idem_saga")).count();
    assert!(looks < 3000, "{looks}");
    assert_eq!(effects(&world.pool, 7).await, ALL_DONE);
}

/// What is due of one name is found beside two hundred thousand of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_or_stuck_is_found_by_an_index() {
    let world = crate::world::postgres().await;
    let many = "INSERT INTO idem_saga (id, name, key_text, fingerprint, steps, state, cancelled, owner, \
         fence, due_at, created_at) SELECT gen_random_uuid(), 'other', '', '', '', 'running', false, \
         gen_random_uuid(), 1, now() - n * interval '1 ms', now() FROM generate_series(1, 200000) n";
    sqlx::query(many).execute(&world.pool).await.unwrap();
    sqlx::query("ANALYZE idem_saga")
        .execute(&world.pool)
        .await
        .unwrap();
    for look in [
        "SELECT id, key_text FROM idem_saga WHERE name = 'order.place' AND due_at <= clock_timestamp() \
         ORDER BY due_at LIMIT 20",
        "SELECT id FROM idem_saga WHERE id > '00000000-0000-0000-0000-000000000000' AND rest = 'stuck' \
         ORDER BY id LIMIT 100",
    ] {
        let explain = sqlx::AssertSqlSafe(format!("EXPLAIN {look}"));
        let plan: Vec<String> = sqlx::query_scalar(explain)
            .fetch_all(&world.pool)
            .await
            .unwrap();
        let plan = plan.join("\n");
        assert!(
            !plan.contains("Seq Scan") && plan.contains("Index"),
            "{plan}"
        );
    }
}
