//! Two transactions that each want what the other one holds: one of them is told soon, and no
//! waiting duplicate leaves anything behind in its transaction.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use idem::{ErrorKind, Retry, idempotent};
use idem_test_support::poll::drop_after_time;
use sqlx::{PgPool, PgTransaction, Row as _};
use tokio::sync::Barrier;

use crate::fixture::{Failure, Pg, Probe, World, effect, kind, pay, until};

/// Far less than a call waits here, far more than the database needs to find a circle.
const SOON: Duration = Duration::from_secs(25);

#[idempotent(key = "{id}", ttl = "1h", wait = "60s", store = tx, scope = "test.circle", fingerprint(id))]
async fn take(
    tx: &mut PgTransaction<'_>,
    id: &str,
    met: Option<&Barrier>,
    row: bool,
) -> Result<u8, Failure> {
    sqlx::query("INSERT INTO effect VALUES ($1)")
        .bind(id)
        .execute(&mut **tx)
        .await?;
    if let Some(met) = met {
        met.wait().await;
    }
    if row {
        lock_row(tx).await?;
    }
    Ok(7)
}

async fn lock_row(tx: &mut PgTransaction<'_>) -> Result<(), Failure> {
    let lock = sqlx::query("UPDATE orders SET paid = paid + 1 WHERE no = 1");
    lock.execute(&mut **tx).await?;
    Ok(())
}

async fn world() -> Arc<World<Pg>> {
    let world = World::<Pg>::new(12).await;
    world
        .execute("CREATE TABLE orders (no int PRIMARY KEY, paid int NOT NULL)")
        .await;
    world.execute("INSERT INTO orders VALUES (1, 0)").await;
    Arc::new(world)
}

async fn finish(tx: PgTransaction<'_>, answer: Result<u8, Failure>) -> Result<u8, Failure> {
    match answer {
        Ok(answer) => tx.commit().await.map(|()| answer).map_err(Failure::from),
        Err(failure) => {
            tx.rollback().await?;
            Err(failure)
        }
    }
}

/// Told by the framework before a body ran, or by the database in a statement of a body's own.
#[track_caller]
fn assert_told(failure: &Failure) {
    match failure {
        Failure::Idem(error) => {
            assert_eq!(error.kind(), ErrorKind::RetryTransaction, "{error}");
            assert_eq!(error.retry(), Retry::NewTransaction);
            assert!(error.to_string().contains("wait"), "{error}");
        }
        other => assert_eq!(other.code().as_deref(), Some("40P01"), "{other:?}"),
    }
}

/// One transaction takes these keys, and meets the others after the first.
async fn keys(pool: PgPool, met: Arc<Barrier>, ids: [String; 2]) -> Result<u8, Failure> {
    let mut tx = pool.begin().await?;
    let taken = take(&mut tx, &ids[0], None, false).await;
    met.wait().await;
    let taken = match taken {
        Ok(_) => take(&mut tx, &ids[1], None, false).await,
        failed => failed,
    };
    finish(tx, taken).await
}

/// So many transactions, each of which takes a key and then its neighbour's.
async fn ring(world: &World<Pg>, size: usize) -> Vec<Result<u8, Failure>> {
    let met = Arc::new(Barrier::new(size));
    let tasks: Vec<_> = (0..size)
        .map(|n| {
            let ids = [format!("ring-{n}"), format!("ring-{}", (n + 1) % size)];
            tokio::spawn(keys(world.pool.clone(), Arc::clone(&met), ids))
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_12_keys_in_opposite_order() {
    for size in [2, 3] {
        let world = world().await;
        let began = Instant::now();
        let answers = ring(&world, size).await;
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        let told: Vec<_> = answers.iter().filter_map(|a| a.as_ref().err()).collect();
        assert_eq!(told.len(), 1, "{answers:?}");
        assert_told(told[0]);
        // Whoever is told runs its transaction again.
        for n in 0..size {
            let met = Arc::new(Barrier::new(1));
            let ids = [format!("ring-{n}"), format!("ring-{}", (n + 1) % size)];
            assert_eq!(keys(world.pool.clone(), met, ids).await.unwrap(), 7);
            assert_eq!(world.effects(&format!("ring-{n}")).await, 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_12_key_against_row() {
    let world = world().await;
    let met = Arc::new(Barrier::new(2));
    let webhook = tokio::spawn({
        let (pool, met) = (world.pool.clone(), Arc::clone(&met));
        async move {
            let mut tx = pool.begin().await?;
            let taken = take(&mut tx, "order", Some(&*met), true).await;
            finish(tx, taken).await
        }
    });
    let began = Instant::now();
    let mut tx = world.pool.begin().await.unwrap();
    sqlx::query("SELECT paid FROM orders WHERE no = 1 FOR UPDATE")
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    met.wait().await;
    let taken = take(&mut tx, "order", None, true).await;
    let page = finish(tx, taken).await;
    let webhook = webhook.await.unwrap();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    match (&webhook, &page) {
        (Ok(7), Err(told)) | (Err(told), Ok(7)) => assert_told(told),
        other => panic!("{other:?}"),
    }
    let mut again = world.pool.begin().await.unwrap();
    let taken = take(&mut again, "order", None, true).await;
    assert_eq!(finish(again, taken).await.unwrap(), 7);
    assert_eq!(world.effects("order").await, 1);
}

/// A session's own limits for its statements neither end a wait of ours nor are changed by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_12_the_settings_of_a_session_stay() {
    let world = world().await;
    let probe = Probe::gated();
    let mut held = world.begin().await;
    let mut held = std::pin::pin!(pay::<Pg>(&mut held, "a", 100, &probe));
    tokio::select! {
        _ = &mut held => panic!("it is gated"),
        () = probe.entered(1) => {}
    }
    let mut tx = world.begin().await;
    sqlx::raw_sql("SET LOCAL statement_timeout = '400ms'; SET LOCAL lock_timeout = '300ms'")
        .execute(&mut *tx)
        .await
        .unwrap();
    assert_eq!(
        kind(pay_for_four_seconds(&mut tx, "a", &Probe::new()).await),
        ErrorKind::InProgress
    );
    let row = sqlx::query(
        "SELECT current_setting('statement_timeout'), current_setting('lock_timeout'), \
         (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())",
    )
    .fetch_one(&mut *tx)
    .await
    .unwrap();
    let settings: (String, String, i64) = (row.get(0), row.get(1), row.get(2));
    assert_eq!(settings, ("400ms".into(), "300ms".into(), 0));
    sqlx::query(sqlx::AssertSqlSafe(effect("mine")))
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.effects("mine").await, 1);
}

#[idempotent(key = "pay:{id}", ttl = "1h", wait = "4s", store = tx, scope = "test.pay", fingerprint(cents))]
async fn pay_and_wait(
    tx: &mut PgTransaction<'_>,
    id: &str,
    cents: i64,
) -> Result<crate::fixture::Receipt, Failure> {
    sqlx::query(sqlx::AssertSqlSafe(effect(id)))
        .execute(&mut **tx)
        .await?;
    Ok(crate::fixture::Receipt::of(id))
}

async fn pay_for_four_seconds(
    tx: &mut PgTransaction<'_>,
    id: &str,
    _probe: &Probe,
) -> Result<crate::fixture::Receipt, Failure> {
    pay_and_wait(tx, id, 100).await
}

const WAITING: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' \
     AND mode = 'ShareLock' AND NOT granted \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// A duplicate that is dropped while it waits in the database leaves its transaction as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_call_that_is_dropped_leaves_the_transaction_usable() {
    let world = world().await;
    let probe = Probe::gated();
    let mut held = world.begin().await;
    let mut held = std::pin::pin!(pay::<Pg>(&mut held, "a", 100, &probe));
    tokio::select! {
        _ = &mut held => panic!("it is gated"),
        () = probe.entered(1) => {}
    }
    let mut tx = world.begin().await;
    sqlx::query(sqlx::AssertSqlSafe(effect("before")))
        .execute(&mut *tx)
        .await
        .unwrap();
    {
        let mut waiting = std::pin::pin!(pay::<Pg>(&mut tx, "a", 100, &probe));
        tokio::select! {
            _ = &mut waiting => panic!("the first is gated"),
            () = until("the wait", || async { world.number(WAITING).await == 1 }) => {}
        }
    }
    sqlx::query(sqlx::AssertSqlSafe(effect("after")))
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let effects = (world.effects("before").await, world.effects("after").await);
    assert_eq!(effects, (1, 1));
}

/// At any moment, in a circle: what a dropped call leaves can be committed or says that it cannot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_12_a_call_that_is_dropped_in_a_circle() {
    let world = world().await;
    for millis in [900, 1050, 1950, 2050, 2150] {
        let (a, b) = (format!("a{millis}"), format!("b{millis}"));
        let mut one = world.begin().await;
        take(&mut one, &a, None, false).await.unwrap();
        let mut two = world.begin().await;
        take(&mut two, &b, None, false).await.unwrap();
        let other = tokio::spawn({
            let a = a.clone();
            async move {
                let taken = take(&mut two, &a, None, false).await;
                finish(two, taken).await
            }
        });
        let time = Duration::from_millis(millis);
        let dropped = drop_after_time(take(&mut one, &b, None, false), time).await;
        let kept = match dropped {
            Some(Err(_)) => {
                one.rollback().await.unwrap();
                false
            }
            _ => one.commit().await.is_ok(),
        };
        let other = other.await.unwrap();
        assert!(kept || other.is_ok(), "{millis}: {other:?}");
        let took = world.effects(&a).await;
        assert_eq!(took, 1, "{millis}: what a commit says holds");
    }
}

/// When the first rolls back, those who wait in the database go on without errors, and one runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_calls_go_on_when_the_first_rolls_back() {
    let world = world().await;
    let gate = Probe::gated();
    let mut held = world.begin().await;
    {
        let mut first = std::pin::pin!(pay::<Pg>(&mut held, "a", 100, &gate));
        tokio::select! {
            _ = &mut first => panic!("it is gated"),
            () = gate.entered(1) => {}
        }
    }
    let probe = Arc::new(Probe::new());
    let waiters: Vec<_> = (0..8)
        .map(|_| {
            let (world, probe) = (Arc::clone(&world), Arc::clone(&probe));
            tokio::spawn(async move { world.pay("a", &probe).await })
        })
        .collect();
    until("the waits", || async { world.number(WAITING).await >= 6 }).await;
    held.rollback().await.unwrap();
    let mut answers = Vec::new();
    for waiter in waiters {
        answers.push(waiter.await.unwrap().unwrap());
    }
    answers.dedup();
    assert_eq!((answers.len(), probe.runs()), (1, 1));
    assert_eq!(world.effects("a").await, 1);
}
