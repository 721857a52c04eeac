//! How long a record counts: by the database's clock, purged or not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use idem::{ErrorKind, idempotent, key::RecordId, retention::MAX_RETENTION, store::sql::Records};
use sqlx::Pool;
use tokio::task::JoinHandle;

use crate::fixture::{
    Backend, Connection, Failure, Pg, Probe, Receipt, Tx, World, effect, kind, until,
};

#[idempotent(key = "keep:{id}", ttl = keep, store = "tx", scope = "test.keep", fingerprint(id))]
pub(crate) async fn keep_for<B: Backend>(
    tx: &mut Tx<'_, B>,
    id: &str,
    keep: Duration,
    probe: &Probe,
) -> Result<Receipt, Failure> {
    probe.enter().await;
    B::execute(tx, effect(id)).await?;
    Ok(Receipt::of(id))
}

pub(crate) async fn kept<B: Backend>(
    world: &World<B>,
    id: &str,
    keep: Duration,
    probe: &Probe,
) -> Result<Receipt, Failure> {
    let mut tx = world.begin().await;
    let receipt = keep_for::<B>(&mut tx, id, keep, probe).await?;
    tx.commit().await?;
    Ok(receipt)
}

pub(crate) fn record_id(id: &str) -> RecordId {
    RecordId::new("", "test.keep", &[], &format!("keep:{id}"))
}

/// Zero and too much are refused alike, before anything is sent.
async fn ttl_01_03_retentions_that_are_refused<B: Backend>() {
    let world = World::<B>::new(1).await;
    let probe = Probe::new();
    let mut tx = world.begin().await;
    for keep in [
        Duration::ZERO,
        Duration::from_nanos(999_999),
        MAX_RETENTION + Duration::from_nanos(1),
        Duration::from_millis(i64::MAX as u64),
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ] {
        let answer = keep_for::<B>(&mut tx, "one", keep, &probe).await;
        assert_eq!(kind(answer), ErrorKind::InvalidTtl, "{keep:?}");
    }
    assert_eq!(probe.runs(), 0);
    // The transaction is as it was, and the longest retention is one that every store can hold.
    keep_for::<B>(&mut tx, "one", MAX_RETENTION, &probe)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert!(
        Records::default()
            .lookup(&world.pool, record_id("one"))
            .await
            .unwrap()
            .is_some()
    );
}

#[idempotent(key = "{id}", ttl = "900ms", store = "tx", scope = "test.900ms")]
async fn for_900_ms<B: Backend>(tx: &mut Tx<'_, B>, id: u32) -> Result<(), Failure> {
    Ok(())
}

#[idempotent(key = "{id}", ttl = "1m30s", store = "tx", scope = "test.1m30s")]
async fn for_90_s<B: Backend>(tx: &mut Tx<'_, B>, id: u32) -> Result<(), Failure> {
    Ok(())
}

#[idempotent(key = "{id}", ttl = "never", store = "tx", scope = "test.never")]
async fn for_ever<B: Backend>(tx: &mut Tx<'_, B>, id: u32) -> Result<(), Failure> {
    Ok(())
}

/// The time that is left of the only record, in milliseconds; -1 where it has no end.
async fn time_left<B: Backend>(conn: &mut Connection<B>) -> i64 {
    let sql = if B::NAME == Pg::NAME {
        "SELECT coalesce((extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint, -1) \
         FROM idem_record"
    } else {
        "SELECT coalesce(expires_at - CAST(unixepoch('subsec') * 1000 AS INTEGER), -1) \
         FROM idem_record"
    };
    B::number(conn, sql).await.unwrap()
}

async fn ttl_02_what_is_left_is_what_was_asked_for<B: Backend>() {
    let world = World::<B>::new(1).await;
    let probe = Probe::new();
    let millis = [1, 900, 1000, 1500, 90_000, 86_400_000, 3_153_600_000_000];
    for asked in millis.into_iter().map(Some).chain([None; 3]).enumerate() {
        let (n, asked) = asked;
        // Read in the same transaction, so that only a few statements lie in between.
        let mut tx = world.begin().await;
        let began = Instant::now();
        let expected = match asked {
            Some(asked) => {
                let keep = Duration::from_millis(asked);
                keep_for::<B>(&mut tx, "one", keep, &probe).await.unwrap();
                asked as i64
            }
            None if n == millis.len() => {
                for_900_ms::<B>(&mut tx, 1).await.unwrap();
                900
            }
            None if n == millis.len() + 1 => {
                for_90_s::<B>(&mut tx, 1).await.unwrap();
                90_000
            }
            None => {
                for_ever::<B>(&mut tx, 1).await.unwrap();
                -1
            }
        };
        let left = time_left::<B>(&mut tx).await;
        let spent = began.elapsed().as_millis() as i64;
        tx.rollback().await.unwrap();
        if expected == -1 {
            assert_eq!(left, -1);
        } else {
            assert!(
                left <= expected + 50 && left + spent >= expected - 50,
                "{expected}: {left}"
            );
        }
    }
}

/// A transaction that was open for long before the call takes nothing from the retention.
async fn ttl_02_it_counts_from_the_recording_and_not_from_the_begin<B: Backend>() {
    let world = World::<B>::new(1).await;
    let probe = Probe::new();
    let mut tx = world.begin().await;
    B::number(&mut tx, "SELECT count(*) FROM effect")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let began = Instant::now();
    let keep = Duration::from_secs(60);
    keep_for::<B>(&mut tx, "one", keep, &probe).await.unwrap();
    let left = time_left::<B>(&mut tx).await;
    let spent = began.elapsed().as_millis() as i64;
    assert!(left <= 60_050 && left + spent >= 59_950, "{left}");
    tx.rollback().await.unwrap();
}

/// A purge that never stops, until it is told to.
pub(crate) fn purging<B: Backend>(pool: &Pool<B::Db>) -> (Arc<AtomicBool>, JoinHandle<u64>) {
    let (pool, stop) = (pool.clone(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let purge = tokio::spawn(async move {
        let mut gone = 0;
        while !stopped.load(Ordering::Relaxed) {
            match Records::default().purge(&pool, 10).await {
                Ok(count) => gone += count,
                // SQLite's only writer may be taken for long.
                Err(error) => assert_eq!(error.kind(), ErrorKind::RetryTransaction),
            }
            let pause = if B::NAME == Pg::NAME { 1 } else { 10 };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        gone
    });
    (stop, purge)
}

/// The same answers with and without a purge.
async fn ttl_05_expired_and_not_yet_purged<B: Backend>() {
    for purged in [false, true] {
        let world = World::<B>::new(3).await;
        let records = Records::default();
        let purge = purged.then(|| purging::<B>(&world.pool));
        let probe = Probe::new();
        let keep = Duration::from_secs(1);
        let began = Instant::now();
        let first = kept(&world, "one", keep, &probe).await.unwrap();
        let again = kept(&world, "one", keep, &probe).await.unwrap();
        if began.elapsed() < keep {
            assert_eq!(again, first);
        }
        let absent = || async {
            records
                .lookup(&world.pool, record_id("one"))
                .await
                .unwrap()
                .is_none()
        };
        until("the end of the retention", absent).await;
        assert!(
            began.elapsed() >= keep - Duration::from_millis(50),
            "{:?}",
            began.elapsed()
        );
        assert!(
            !records.forget(&world.pool, record_id("one")).await.unwrap(),
            "{purged}"
        );
        let (second, seen) = idem::observe(kept(&world, "one", keep, &probe)).await;
        assert!(!seen.replayed(), "{purged}");
        assert_ne!(second.unwrap(), first);
        if let Some((stop, purge)) = purge {
            stop.store(true, Ordering::Relaxed);
            purge.await.unwrap();
        }
        assert_eq!(world.effects("one").await, 2, "{purged}");
        assert_eq!(world.records().await, (1, 0), "{purged}");
    }
}

/// A repeat with another payload after the end of the retention is a new call.
async fn ttl_05_another_payload_after_the_end<B: Backend>() {
    #[idempotent(key = "{id}", ttl = "30ms", store = "tx", scope = "test.payload")]
    async fn short<B: Backend>(tx: &mut Tx<'_, B>, id: u32, cents: u32) -> Result<u32, Failure> {
        Ok(cents)
    }
    let world = World::<B>::new(1).await;
    for cents in [1, 2] {
        let mut tx = world.begin().await;
        assert_eq!(short::<B>(&mut tx, 1, cents).await.unwrap(), cents);
        tx.commit().await.unwrap();
        let mut tx = world.begin().await;
        until("the end", || async { world.pool.size() > 0 }).await;
        let mut left = time_left::<B>(&mut tx).await;
        while left > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            left = time_left::<B>(&mut tx).await;
        }
        tx.rollback().await.unwrap();
    }
    assert_eq!(world.records().await, (1, 0));
}

/// A purge takes exactly what is over, in portions, and nothing that is not.
async fn sl_02_purge_removes_exactly_the_expired<B: Backend>() {
    let world = World::<B>::new(2).await;
    let (records, probe) = (Records::default(), Probe::new());
    for n in 0..25 {
        let keep = Duration::from_millis(1);
        kept(&world, &format!("short-{n}"), keep, &probe)
            .await
            .unwrap();
    }
    kept(&world, "hour", Duration::from_secs(3600), &probe)
        .await
        .unwrap();
    let mut tx = world.begin().await;
    for_ever::<B>(&mut tx, 1).await.unwrap();
    tx.commit().await.unwrap();
    let last = || async {
        records
            .lookup(&world.pool, record_id("short-24"))
            .await
            .unwrap()
            .is_none()
    };
    until("the end of the retention", last).await;
    let mut portions = Vec::new();
    while portions.last() != Some(&0) {
        portions.push(records.purge(&world.pool, 10).await.unwrap());
    }
    assert_eq!(portions, [10, 10, 5, 0]);
    assert_eq!(world.records().await, (2, 0));
    if B::NAME != Pg::NAME {
        let integers = "SELECT count(*) FROM idem_record WHERE typeof(created_at) = 'integer' \
                        AND typeof(coalesce(expires_at, 0)) = 'integer'";
        assert_eq!(
            world.number(integers).await,
            2,
            "epoch milliseconds, not text"
        );
    }
}

#[idempotent(
    key = "grave:{id}",
    ttl = "50ms",
    tombstone = "30d",
    store = "tx",
    scope = "test.grave",
    shared_scope
)]
async fn buried<B: Backend>(
    tx: &mut Tx<'_, B>,
    id: &str,
    probe: &Probe,
) -> Result<Receipt, Failure> {
    probe.enter().await;
    B::execute(tx, effect(id)).await?;
    Ok(Receipt::of(id))
}

#[idempotent(
    key = "grave:{id}", ttl = "50ms", tombstone = "forever", store = pool, tx = tx,
    scope = "test.grave", shared_scope, fingerprint(id)
)]
async fn buried_alone<B: Backend>(
    pool: &Pool<B::Db>,
    id: &str,
    probe: &Probe,
) -> Result<Receipt, Failure> {
    probe.enter().await;
    B::execute(tx, effect(id)).await?;
    Ok(Receipt::of(id))
}

/// After the outcome the key is known: no second run, purged or not; forgetting frees it.
async fn a12_a_tombstone_keeps_the_key_known<B: Backend>() {
    let world = World::<B>::new(2).await;
    let (probe, records) = (Probe::new(), Records::default());
    let call = |id: &'static str| async {
        let mut tx = world.begin().await;
        let answer = buried::<B>(&mut tx, id, &probe).await;
        tx.commit().await?;
        answer
    };
    let first = call("one").await.unwrap();
    assert_eq!(call("one").await.unwrap(), first);
    let alone = buried_alone::<B>(&world.pool, "two", &probe).await.unwrap();
    assert_eq!(alone.id, "two");
    tokio::time::sleep(Duration::from_millis(80)).await;
    for purged in [2, 0] {
        for answer in [
            call("one").await,
            buried_alone::<B>(&world.pool, "two", &probe).await,
        ] {
            let error = answer.unwrap_err().idem();
            assert_eq!(error.kind(), ErrorKind::OutcomeGone);
            assert_eq!(error.effect(), idem::Effect::Done);
        }
        // The outcomes go, the keys stay.
        assert_eq!(records.purge(&world.pool, 10).await.unwrap(), purged);
    }
    let grave = |id: &str| RecordId::new("", "test.grave", &[], &format!("grave:{id}"));
    let shown = records.lookup(&world.pool, grave("one")).await.unwrap();
    let tombstone = idem::outcome::tombstone();
    assert_eq!(shown.unwrap().outcome, tombstone);
    assert_eq!(probe.runs(), 2);

    // The tombstone's own time is over.
    let past = "UPDATE idem_record SET expires_at = completed_at, known_until = completed_at \
                WHERE scope = 'test.grave'";
    world.execute(past).await;
    assert!(!records.forget(&world.pool, grave("one")).await.unwrap());
    call("one").await.unwrap();
    assert_eq!(records.purge(&world.pool, 10).await.unwrap(), 1);
    assert_eq!(probe.runs(), 3);
    // The row that was taken over has a tombstone of its own, which can be forgotten.
    tokio::time::sleep(Duration::from_millis(80)).await;
    assert_eq!(kind(call("one").await), ErrorKind::OutcomeGone);
    assert!(records.forget(&world.pool, grave("one")).await.unwrap());
    call("one").await.unwrap();
    assert_eq!(probe.runs(), 4);
}

/// An end that an older build left, which knew no tombstones, ends nothing.
async fn a12_the_later_end_counts<B: Backend>() {
    let world = World::<B>::new(1).await;
    let (probe, records) = (Probe::new(), Records::default());
    let (first, seen) = idem::observe(world.pay("one", &probe)).await;
    let (first, id) = (first.unwrap(), seen.record_id().unwrap());
    for stale in [
        "UPDATE idem_record SET known_until = created_at",
        "UPDATE idem_record SET expires_at = NULL",
    ] {
        world.execute(stale).await;
        assert_eq!(records.purge(&world.pool, 10).await.unwrap(), 0);
        assert_eq!(world.pay("one", &probe).await.unwrap(), first);
    }
    let ids = "SELECT count(*) FROM idem_record WHERE known_until IS NOT NULL";
    let mut conn = world.pool.acquire().await.unwrap();
    assert_eq!(B::number(&mut conn, ids).await.unwrap(), 1);
    drop(conn);
    assert!(records.forget(&world.pool, id).await.unwrap());
    world.pay("one", &probe).await.unwrap();
    assert_eq!(probe.runs(), 2);
}

on_both! {
    a12_the_later_end_counts,
    a12_a_tombstone_keeps_the_key_known,
    ttl_01_03_retentions_that_are_refused,
    ttl_02_what_is_left_is_what_was_asked_for,
    ttl_02_it_counts_from_the_recording_and_not_from_the_begin,
    ttl_05_expired_and_not_yet_purged,
    ttl_05_another_payload_after_the_end,
    sl_02_purge_removes_exactly_the_expired,
}
