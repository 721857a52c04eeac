//! How a call stands behind a front: the store is asked, and `forget` reaches the front.

use std::time::Duration;

use idem_macros::idempotent;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::status::{CallRef, Status};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::tiered::{MemoryFront, Tier, Tiered};
use idem_runtime::store::{Request, Reserved, Store as _};
use idem_runtime::testing::clock::ManualClock;
use idem_runtime::{Error, ErrorKind};
use sqlx::{PgPool, PgTransaction};

use crate::support::database;

type Front = Tier<MemoryFront>;

fn memory() -> Front {
    Tier::new(MemoryFront::new(1 << 20))
}

#[idempotent(crate = ::idem_runtime, key = "{no}", ttl = "1h", store = store, fingerprint = none,
    companion = leased_call)]
async fn leased(
    store: &Tiered<MemoryFront, MemoryStore>,
    no: u64,
    value: u64,
) -> Result<u64, Error> {
    Ok(value)
}

#[idempotent(crate = ::idem_runtime, key = "{no}", ttl = "1h", store = front.pool(pool), tx = tx,
    scope = "pay", shared_scope, fingerprint = none, companion = owned_call)]
async fn owned(front: &Front, pool: &PgPool, no: u64, value: u64) -> Result<u64, Error> {
    let _ = tx;
    Ok(value)
}

#[idempotent(crate = ::idem_runtime, key = "{no}", ttl = "1h", store = front.over(tx),
    scope = "pay", shared_scope, fingerprint = none)]
async fn over(
    front: &Front,
    tx: &mut PgTransaction<'_>,
    no: u64,
    value: u64,
) -> Result<u64, Error> {
    Ok(value)
}

#[track_caller]
fn value(status: Status<Result<u64, Error>>) -> u64 {
    match status {
        Status::Completed(done) => done.outcome.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_leased_store_behind_a_front() {
    let store = Tiered::new(MemoryFront::new(1 << 20), MemoryStore::new());
    let call = leased_call(&7).unwrap();
    for _ in 0..2 {
        assert_eq!(leased(&store, 7, 1).await.unwrap(), 1);
    }
    assert_eq!(value(call.status(&store).await.unwrap()), 1);
    assert!(call.forget(&store).await.unwrap());
    assert!(call.status(&store).await.unwrap().is_absent());
    assert_eq!(leased(&store, 7, 2).await.unwrap(), 2);
}

#[tokio::test]
async fn a_database_behind_a_front() {
    let (_database, pool) = database().await;
    let front = memory();
    let call: CallRef<u64, Error> = owned_call(&7).unwrap();
    assert_eq!(owned(&front, &pool, 7, 1).await.unwrap(), 1);
    assert_eq!(front.front().len(), 1);
    assert_eq!(value(call.status(front.pool(&pool)).await.unwrap()), 1);
    // Gone behind the front's back, which the front does not know and the status does.
    assert!(call.forget(&pool).await.unwrap());
    assert_eq!(owned(&front, &pool, 7, 2).await.unwrap(), 1);
    assert!(call.status(front.pool(&pool)).await.unwrap().is_absent());
    // Nothing is left to forget but the copy.
    assert!(!call.forget(front.pool(&pool)).await.unwrap());
    assert_eq!(owned(&front, &pool, 7, 2).await.unwrap(), 2);
}

#[tokio::test]
async fn a_transaction_behind_a_front() {
    let (_database, pool) = database().await;
    let front = memory();
    let call = owned_call(&7).unwrap();
    owned(&front, &pool, 7, 1).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(value(call.status(front.over(&mut tx)).await.unwrap()), 1);
    assert!(call.forget(front.over(&mut tx)).await.unwrap());
    assert!(call.status(front.over(&mut tx)).await.unwrap().is_absent());
    assert_eq!(over(&front, &mut tx, 7, 2).await.unwrap(), 2);
    // Elsewhere the old outcome still stands, but somebody is about to replace it.
    assert_eq!(value(call.status(&pool).await.unwrap()), 1);
    tx.commit().await.unwrap();
    assert_eq!(value(call.status(&pool).await.unwrap()), 2);
    assert_eq!(owned(&front, &pool, 7, 3).await.unwrap(), 2);
}

#[tokio::test]
async fn what_runs_is_not_forgotten() {
    let store = Tiered::new(MemoryFront::new(1 << 20), MemoryStore::new());
    let call = leased_call(&7).unwrap();
    let gate = tokio::sync::Notify::new();
    #[idempotent(crate = ::idem_runtime, key = "{no}", ttl = "1h", store = store, scope = "held",
        companion = held_call, fingerprint = none)]
    async fn held(
        store: &Tiered<MemoryFront, MemoryStore>,
        no: u64,
        gate: &tokio::sync::Notify,
    ) -> Result<u64, Error> {
        gate.notify_one();
        std::future::pending().await
    }
    let asked = held_call(&7).unwrap();
    let running = held(&store, 7, &gate);
    let refused = async {
        gate.notified().await;
        asked.forget(&store).await
    };
    let error = tokio::select! {
        answer = running => panic!("{answer:?}"),
        refused = refused => refused.unwrap_err(),
    };
    assert_eq!(error.kind(), ErrorKind::InProgress);
    assert!(call.status(&store).await.unwrap().is_absent());
}

/// What is resolved behind a front is what the front answers from then on.
#[tokio::test]
async fn a_resolved_call_is_answered_by_the_front() {
    let clock = ManualClock::new();
    let inner = MemoryStore::builder().clock(clock.clone()).build();
    let store = Tiered::new(MemoryFront::new(1 << 20), inner);
    let call = leased_call(&7).unwrap();
    let left = Request::new(
        call.record_id(""),
        Fingerprint::NONE,
        Duration::from_secs(1),
    );
    let held = store.reserve(&left).await.unwrap();
    assert!(matches!(held, Reserved::Granted(_)), "{held:?}");
    clock.advance(Duration::from_secs(1));
    call.resolve(&store, &Ok(5)).await.unwrap();
    for _ in 0..2 {
        assert_eq!(leased(&store, 7, 1).await.unwrap(), 5);
    }
}

/// Of transactions on Postgres nothing is ever left behind: there is nothing to resolve.
#[tokio::test]
async fn a_database_has_nothing_to_resolve_and_says_so() {
    let (_database, pool) = database().await;
    let front = memory();
    let call: CallRef<u64, Error> = owned_call(&7).unwrap();
    let refused = call.resolve(front.pool(&pool), &Ok(5)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotAbandoned);
    assert_eq!(owned(&front, &pool, 7, 1).await.unwrap(), 1);
    call.resolve(front.pool(&pool), &Ok(1)).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let refused = call.resolve(front.over(&mut tx), &Ok(5)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotAbandoned, "another outcome");
    assert_eq!(owned(&front, &pool, 7, 2).await.unwrap(), 1);
}
