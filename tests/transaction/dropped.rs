//! The call's future is dropped midway.

use std::time::Duration;

use idem::{ErrorKind, idempotent};
use idem_test_support::{
    poll::{drop_after, drop_after_time},
    proxy::Direction,
};
use sqlx::{Acquire, PgPool};

use crate::fixture::{
    Backend, Failure, Lite, Pg, Probe, Receipt, Tx, World, begin, effect, kind, pay,
};

/// Three awaits, so that there is something to be dropped between.
#[idempotent(key = "slow:{id}", ttl = "1h", store = "tx")]
async fn three_steps<B: Backend>(tx: &mut Tx<'_, B>, id: &str) -> Result<Receipt, Failure> {
    for _ in 0..3 {
        // So that there is something to be dropped at also where the database answers at once.
        tokio::task::yield_now().await;
        B::execute(tx, effect(id)).await?;
    }
    Ok(Receipt::of(id))
}

async fn retried<B: Backend>(world: &World<B>, id: &str) {
    let mut tx = world.begin().await;
    three_steps::<B>(&mut tx, id).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.effects(id).await, 3, "{id}");
}

async fn tx_06_dropped_then_rolled_back<B: Backend>() {
    let world = World::<B>::new(2).await;
    for polls in 0..400 {
        let id = format!("drop-{polls}");
        let mut tx = world.begin().await;
        let answer = drop_after(three_steps::<B>(&mut tx, &id), polls).await;
        tx.rollback().await.unwrap();
        assert_eq!(world.effects(&id).await, 0, "{id}");
        retried(&world, &id).await;
        if answer.is_some() {
            assert!(
                polls > 3,
                "the call was dropped at least between its statements"
            );
            return;
        }
    }
    panic!("the call never ends");
}

/// The transaction itself is dropped with the future, as when a server drops a handler.
async fn tx_06_dropped_with_its_transaction<B: Backend>() {
    let world = World::<B>::new(2).await;
    for polls in 0..400 {
        let id = format!("drop-{polls}");
        let handler = async {
            let mut tx = world.begin().await;
            let receipt = three_steps::<B>(&mut tx, &id).await?;
            tx.commit().await.map_err(Failure::from).map(|()| receipt)
        };
        // Begun outside: see the decision on beginning in a task of its own.
        let answer = drop_after(handler, polls + 6).await;
        retried(&world, &id).await;
        if answer.is_some() {
            return;
        }
    }
    panic!("the call never ends");
}

/// The database refuses the commit of a reservation without outcome.
async fn tx_06_dropped_then_committed<B: Backend>() {
    let world = World::<B>::new(2).await;
    let mut refused = 0;
    for polls in 0..400 {
        let id = format!("drop-{polls}");
        let mut tx = world.begin().await;
        B::execute(&mut tx, effect(&format!("caller-{polls}")))
            .await
            .unwrap();
        let answer = drop_after(three_steps::<B>(&mut tx, &id), polls).await;
        let committed = tx.commit().await;
        let effects = world.effects(&id).await;
        match (&answer, &committed) {
            // Done before it could be dropped, or dropped when only its answer was outstanding.
            (_, Ok(())) if effects == 3 => {}
            (None, Ok(())) => assert_eq!(effects, 0, "nothing was begun: {id}"),
            (None, Err(error)) => {
                assert!(B::is_half_done(error), "{error:?}");
                assert_eq!(effects, 0, "{id}");
                assert_eq!(world.effects(&format!("caller-{polls}")).await, 0);
                refused += 1;
            }
            (Some(_), _) => panic!("{answer:?} {committed:?}"),
        }
        assert_eq!(world.records().await.1, 0, "no unfinished row is committed");
        retried(&world, &id).await;
        if answer.is_some() {
            assert!(refused >= 3, "{refused}");
            return;
        }
    }
    panic!("the call never ends");
}

/// Dropped inside a savepoint that goes with it: the outer transaction can go on and commit.
async fn tx_06_dropped_in_a_savepoint<B: Backend>() {
    let world = World::<B>::new(2).await;
    let (stuck, probe) = (Probe::gated(), Probe::new());
    let mut tx = world.begin().await;
    {
        let mut inner = tx.begin().await.unwrap();
        tokio::select! {
            answer = pay::<B>(&mut inner, "one", 100, &stuck) => panic!("{answer:?}"),
            () = stuck.entered(1) => {}
        }
        inner.rollback().await.unwrap();
    }
    pay::<B>(&mut tx, "one", 100, &probe).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.effects("one").await, 1);
    assert_eq!(world.records().await, (1, 0));
}

/// Called again in the transaction in which it was dropped: not run, not replayed, and the error
/// says that this transaction is to be rolled back.
async fn tx_06_dropped_and_called_again_in_the_same_transaction<B: Backend>() {
    let world = World::<B>::new(2).await;
    let (stuck, probe) = (Probe::gated(), Probe::new());
    let mut tx = world.begin().await;
    tokio::select! {
        answer = pay::<B>(&mut tx, "one", 100, &stuck) => panic!("{answer:?}"),
        () = stuck.entered(1) => {}
    }
    let error = pay::<B>(&mut tx, "one", 100, &probe)
        .await
        .unwrap_err()
        .idem();
    assert_eq!(error.kind(), ErrorKind::Abandoned);
    assert!(error.to_string().contains("roll"), "{error}");
    assert_eq!(probe.runs(), 0);
    assert!(B::is_half_done(&tx.commit().await.unwrap_err()));
    world.pay("one", &probe).await.unwrap();
    assert_eq!(world.effects("one").await, 1);
}

/// A waiting duplicate is dropped: its transaction is as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tx_06_a_waiting_duplicate_is_dropped() {
    let world = World::<Pg>::new(4).await;
    let probe = Probe::new();
    let mut winner = world.begin().await;
    pay::<Pg>(&mut winner, "one", 100, &probe).await.unwrap();
    for polls in 1..30 {
        let mut tx = world.begin().await;
        Pg::execute(&mut tx, effect("caller")).await.unwrap();
        let waited = drop_after(pay::<Pg>(&mut tx, "one", 100, &probe), polls).await;
        assert!(waited.is_none(), "{waited:?}");
        tx.commit().await.unwrap();
    }
    winner.commit().await.unwrap();
    assert_eq!(world.effects("caller").await, 29);
    assert_eq!((world.effects("one").await, probe.runs()), (1, 1));
}

#[idempotent(key = "owned:{id}", ttl = "1h", store = "pool", tx = "tx")]
async fn owned(pool: &PgPool, id: &str) -> Result<Receipt, Failure> {
    Pg::execute(tx, effect(id)).await?;
    Ok(Receipt::of(id))
}

/// Calls are dropped while `BEGIN` and everything after it is on the wire; afterwards no session is
/// left inside a transaction and every call works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tx_01_dropped_begins_leave_no_transaction_open() {
    let world = World::<Pg>::new(2).await;
    let proxy = world.backend.0.proxy();
    let pool = world.backend.0.pool_through(&proxy, 3);
    proxy.delay(Direction::ToServer, Duration::from_millis(5));
    let mut finished = 0;
    for n in 0..250_u64 {
        // Spread over 0 to 10 ms, so that drops fall before, on and after each statement.
        let time = Duration::from_micros(n * 7919 % 10_000);
        let call = owned(&pool, "dropped");
        finished += u32::from(drop_after_time(call, time).await.is_some());
    }
    proxy.heal();
    assert!(finished < 250);
    for n in 0..100 {
        let id = format!("after-{n}");
        owned(&pool, &id).await.unwrap();
        assert_eq!(
            world.effects(&id).await,
            1,
            "visible from another connection"
        );
    }
    world.backend.0.quiet().await;
    assert_eq!(world.backend.0.idle_in_transaction().await, 0);
    owned(&pool, "dropped").await.unwrap();
    assert_eq!(world.effects("dropped").await, 1);
}

/// The caller's own transaction, begun outside the time-out as the documentation asks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tx_01_dropped_calls_leave_no_transaction_open() {
    let world = World::<Pg>::new(2).await;
    let proxy = world.backend.0.proxy();
    let pool = world.backend.0.pool_through(&proxy, 3);
    proxy.delay(Direction::ToServer, Duration::from_millis(2));
    for n in 0..100_u64 {
        let mut tx = begin::<Pg>(&pool).await;
        let time = Duration::from_micros(n * 7919 % 10_000);
        drop_after_time(three_steps::<Pg>(&mut tx, "dropped"), time).await;
    }
    proxy.heal();
    world.backend.0.quiet().await;
    assert_eq!(world.effects("dropped").await, 0);
    let mut tx = begin::<Pg>(&pool).await;
    three_steps::<Pg>(&mut tx, "dropped").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.effects("dropped").await, 3);
}

/// A dropped call holds SQLite's only writer no longer than its transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tx_06_a_dropped_sqlite_call_frees_the_writer() {
    let world = World::<Lite>::new(4).await;
    for n in 0..20 {
        let stuck = Probe::gated();
        let mut tx = world.begin().await;
        tokio::select! {
            answer = pay::<Lite>(&mut tx, "one", 100, &stuck) => panic!("{answer:?}"),
            () = stuck.entered(1) => {}
        }
        drop(tx);
        world
            .pay(&format!("other-{n}"), &Probe::new())
            .await
            .unwrap();
    }
    assert_eq!(world.effects("one").await, 0);
}

/// A busy writer is an error to retry, not a hang.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sl_01_a_busy_writer_is_met_at_the_reservation() {
    let world = World::<Lite>::new(2).await;
    let mut holder = world.begin().await;
    Lite::execute(&mut holder, effect("holder")).await.unwrap();
    let mut tx = world.pool.begin().await.unwrap();
    Lite::execute(&mut tx, "PRAGMA busy_timeout = 50")
        .await
        .unwrap();
    let probe = Probe::new();
    let answer = pay::<Lite>(&mut tx, "one", 100, &probe).await;
    assert_eq!(
        (kind(answer), probe.runs()),
        (ErrorKind::RetryTransaction, 0)
    );
    tx.rollback().await.unwrap();
    holder.commit().await.unwrap();
    world.pay("one", &probe).await.unwrap();
}

on_both! {
    tx_06_dropped_then_rolled_back,
    tx_06_dropped_with_its_transaction,
    tx_06_dropped_then_committed,
    tx_06_dropped_in_a_savepoint,
    tx_06_dropped_and_called_again_in_the_same_transaction,
}
