//! Calls inside calls, and savepoints.

use std::time::{Duration, Instant};

use idem::{ErrorKind, idempotent};
use sqlx::Acquire;

use crate::fixture::{
    Backend, Failure, Lite, Pg, Probe, Receipt, Tx, World, begin, effect, kind, pay,
};

/// Calls itself with its own key once.
#[idempotent(key = "same:{id}", ttl = "1h", store = "tx")]
async fn calls_itself<B: Backend>(
    tx: &mut Tx<'_, B>,
    id: &str,
    #[allow(unused)] probe: &Probe,
) -> Result<String, Failure> {
    probe.enter().await;
    let inner = Box::pin(calls_itself::<B>(tx, id, probe)).await;
    B::execute(tx, effect(id)).await?;
    Ok(format!("{:?}", kind(inner)))
}

/// Known at once, and the outer call is none the worse for it.
async fn ip_20_the_same_function_and_key<B: Backend>() {
    for connections in [1, 5] {
        let world = World::<B>::new(connections).await;
        let probe = Probe::new();
        let mut tx = world.begin().await;
        let began = Instant::now();
        let inner = calls_itself::<B>(&mut tx, "one", &probe).await.unwrap();
        assert_eq!(inner, "Reentrant");
        assert!(began.elapsed() < Duration::from_secs(10));
        tx.commit().await.unwrap();
        assert_eq!((world.effects("one").await, probe.runs()), (1, 1));
        let mut tx = world.begin().await;
        assert_eq!(
            calls_itself::<B>(&mut tx, "one", &probe).await.unwrap(),
            inner
        );
    }
}

/// Calls another function under the same key text.
#[idempotent(key = "pay:{id}", ttl = "1h", store = "tx")]
async fn order<B: Backend>(
    tx: &mut Tx<'_, B>,
    id: &str,
    probe: &Probe,
) -> Result<Receipt, Failure> {
    let paid = pay::<B>(tx, id, 100, probe).await?;
    B::execute(tx, effect(&format!("order-{id}"))).await?;
    Ok(paid)
}

async fn ip_20_another_function_with_the_same_key_text<B: Backend>() {
    let world = World::<B>::new(1).await;
    let probe = Probe::new();
    for _ in 0..2 {
        let mut tx = world.begin().await;
        order::<B>(&mut tx, "one", &probe).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(probe.runs(), 1);
    assert_eq!(world.effects("one").await, 1);
    assert_eq!(world.effects("order-one").await, 1);
    assert_eq!(world.records().await, (2, 0));
}

#[idempotent(key = "ping:{id}", ttl = "1h", store = "tx")]
async fn ping<B: Backend>(tx: &mut Tx<'_, B>, id: &str, depth: u32) -> Result<u32, Failure> {
    match depth {
        0 => Ok(0),
        _ => Ok(1 + Box::pin(pong::<B>(tx, id, depth - 1)).await?),
    }
}

#[idempotent(key = "pong:{id}", ttl = "1h", store = "tx")]
async fn pong<B: Backend>(tx: &mut Tx<'_, B>, id: &str, depth: u32) -> Result<u32, Failure> {
    match depth {
        0 => Ok(0),
        _ => Ok(1 + Box::pin(ping::<B>(tx, id, depth - 1)).await?),
    }
}

async fn ip_20_mutual_recursion<B: Backend>() {
    let world = World::<B>::new(1).await;
    let mut tx = world.begin().await;
    assert_eq!(ping::<B>(&mut tx, "one", 1).await.unwrap(), 1);
    assert_eq!(
        kind(ping::<B>(&mut tx, "two", 2).await),
        ErrorKind::Reentrant
    );
    // The error went up through both bodies and released both: only the first two are left.
    tx.commit().await.unwrap();
    assert_eq!(world.records().await, (2, 0));
}

/// Calls itself in a transaction of its own, which cannot see the first one's row.
#[idempotent(key = "other:{id}", ttl = "1h", store = "tx")]
async fn calls_itself_elsewhere(
    tx: &mut Tx<'_, Pg>,
    id: &str,
    pool: &sqlx::PgPool,
) -> Result<String, Failure> {
    Pg::execute(tx, effect(id)).await?;
    let mut other = begin::<Pg>(pool).await;
    let inner = Box::pin(calls_itself_elsewhere(&mut other, id, pool)).await;
    other.rollback().await?;
    Ok(format!("{:?}", kind(inner)))
}

/// Waiting for oneself would never end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ip_20_the_same_call_in_another_transaction() {
    let world = World::<Pg>::new(5).await;
    let began = Instant::now();
    let mut tx = world.begin().await;
    let inner = calls_itself_elsewhere(&mut tx, "one", &world.pool)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(inner, "Reentrant");
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
}

/// Two databases have nothing to do with each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ip_20_the_same_call_in_another_database_runs() {
    #[idempotent(
        key = "both:{id}",
        ttl = "1h",
        store = "tx",
        scope = "test.both",
        shared_scope
    )]
    async fn second(tx: &mut Tx<'_, Lite>, id: &str) -> Result<Receipt, Failure> {
        Lite::execute(tx, effect(id)).await?;
        Ok(Receipt::of(id))
    }
    #[idempotent(
        key = "both:{id}",
        ttl = "1h",
        store = "tx",
        scope = "test.both",
        shared_scope
    )]
    async fn first(tx: &mut Tx<'_, Pg>, id: &str, other: &World<Lite>) -> Result<Receipt, Failure> {
        Pg::execute(tx, effect(id)).await?;
        let mut theirs = other.begin().await;
        let receipt = second(&mut theirs, id).await?;
        theirs.commit().await?;
        Ok(receipt)
    }
    let (pg, lite) = (World::<Pg>::new(1).await, World::<Lite>::new(2).await);
    let mut tx = pg.begin().await;
    first(&mut tx, "one", &lite).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((pg.effects("one").await, lite.effects("one").await), (1, 1));
}

/// A savepoint takes a call with it, and the outer transaction can call again.
async fn a_rolled_back_savepoint<B: Backend>() {
    let world = World::<B>::new(2).await;
    let probe = Probe::new();
    let mut tx = world.begin().await;
    let mut inner = tx.begin().await.unwrap();
    let first = pay::<B>(&mut inner, "one", 100, &probe).await.unwrap();
    inner.rollback().await.unwrap();
    let second = pay::<B>(&mut tx, "one", 100, &probe).await.unwrap();
    assert_ne!(first, second);
    // In a released savepoint it stays, and a repeat in the outer transaction replays.
    let mut inner = tx.begin().await.unwrap();
    let third = pay::<B>(&mut inner, "two", 100, &probe).await.unwrap();
    inner.commit().await.unwrap();
    assert_eq!(pay::<B>(&mut tx, "two", 100, &probe).await.unwrap(), third);
    assert_eq!(pay::<B>(&mut tx, "one", 100, &probe).await.unwrap(), second);
    tx.commit().await.unwrap();
    assert_eq!(probe.runs(), 3);
    assert_eq!(
        (world.effects("one").await, world.effects("two").await),
        (1, 1)
    );
    assert_eq!(world.pay("one", &probe).await.unwrap(), second);
}

/// The reservation of a rolled back savepoint is gone at once, for other transactions too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolled_back_savepoint_frees_the_key_for_others() {
    let world = World::<Pg>::new(2).await;
    let probe = Probe::new();
    let mut tx = world.begin().await;
    let mut inner = tx.begin().await.unwrap();
    pay::<Pg>(&mut inner, "one", 100, &probe).await.unwrap();
    inner.rollback().await.unwrap();
    let theirs = world.pay("one", &probe).await.unwrap();
    assert_eq!(
        pay::<Pg>(&mut tx, "one", 100, &probe).await.unwrap(),
        theirs
    );
    tx.commit().await.unwrap();
    assert_eq!(world.effects("one").await, 1);
}

/// A caller that uses a savepoint can go on after a call poisoned it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_savepoint_saves_the_outer_transaction_from_a_poisoned_call() {
    #[idempotent(key = "{id}", ttl = "1h", store = "tx")]
    async fn poisons(tx: &mut Tx<'_, Pg>, id: &str) -> Result<(), Failure> {
        Pg::execute(tx, "SELECT 1 / 0").await.ok();
        Ok(())
    }
    let world = World::<Pg>::new(2).await;
    let mut tx = world.begin().await;
    let mut inner = tx.begin().await.unwrap();
    assert_eq!(
        kind(poisons(&mut inner, "one").await),
        ErrorKind::TransactionEnded
    );
    inner.rollback().await.unwrap();
    pay::<Pg>(&mut tx, "one", 100, &Probe::new()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.records().await, (1, 0));
}

on_both! {
    ip_20_the_same_function_and_key,
    ip_20_another_function_with_the_same_key_text,
    ip_20_mutual_recursion,
    a_rolled_back_savepoint,
}
