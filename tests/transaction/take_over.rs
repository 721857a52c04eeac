//! Records that end while many callers use them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use idem::{ErrorKind, idempotent, store::sql::Records};
use tokio::task::JoinSet;

use crate::{
    fixture::{Backend, Failure, Pg, Probe, Receipt, Tx, World, until},
    retention::{keep_for, kept, purging, record_id},
};

/// Many callers on records that end all the time: never two runs within one retention.
async fn ttl_05_take_over_storm<B: Backend>() {
    take_over_storm::<B>("", false).await;
    take_over_storm::<B>("", true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ttl_05_take_over_storm_at_the_snapshot_levels() {
    take_over_storm::<Pg>("BEGIN ISOLATION LEVEL REPEATABLE READ", true).await;
    take_over_storm::<Pg>("BEGIN ISOLATION LEVEL SERIALIZABLE", false).await;
}

/// A snapshot still shows the record that a purge has removed, beside the transaction's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ttl_05_purged_after_the_snapshot() {
    let world = World::<Pg>::new(2).await;
    let (records, probe) = (Records::default(), Probe::new());
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for how in ["purged", "forgotten"] {
            let id = format!("{level}-{how}");
            let keep = if how == "purged" { 1 } else { 3_600_000 };
            let first = kept(&world, &id, Duration::from_millis(keep), &probe)
                .await
                .unwrap();
            let begin = sqlx::AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}"));
            let mut tx = world.pool.begin_with(begin).await.unwrap();
            Pg::number(&mut tx, "SELECT count(*) FROM idem_record")
                .await
                .unwrap();
            if how == "purged" {
                let gone = || async { records.purge(&world.pool, 10).await.unwrap() == 1 };
                until("the purge", gone).await;
            } else {
                assert!(records.forget(&world.pool, record_id(&id)).await.unwrap());
            }
            let keep = Duration::from_secs(3600);
            let second = keep_for::<Pg>(&mut tx, &id, keep, &probe).await.unwrap();
            assert_ne!(second, first, "{id}");
            let again = keep_for::<Pg>(&mut tx, &id, keep, &probe).await.unwrap();
            assert_eq!(again, second, "{id}");
            tx.commit().await.unwrap();
            assert_eq!(kept(&world, &id, keep, &probe).await.unwrap(), second);
        }
    }
    assert_eq!(probe.runs(), 8);
}

async fn take_over_storm<B: Backend>(begin: &'static str, purged: bool) {
    let begin = if begin.is_empty() { B::BEGIN } else { begin };
    let world = Arc::new(World::<B>::new(7).await);
    let history = "CREATE TABLE history (id text, began text, ends text)";
    world.execute(history).await;
    let purge = purged.then(|| purging::<B>(&world.pool));
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let world = Arc::clone(&world);
        tasks.spawn(async move {
            let end = Instant::now() + Duration::from_millis(1000);
            while Instant::now() < end {
                let id = format!("key-{}", task % 3);
                match once(&world, begin, &id).await {
                    Ok(()) => {}
                    Err(failure) => {
                        let retry = failure.kind() == Some(ErrorKind::RetryTransaction)
                            || failure.code().as_deref() == Some("40001");
                        assert!(retry && begin != B::BEGIN, "{failure:?}");
                    }
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }
    tasks.join_all().await;
    if let Some((stop, purge)) = purge {
        stop.store(true, Ordering::Relaxed);
        purge.await.unwrap();
    }
    let runs = world.number("SELECT count(*) FROM history").await;
    assert!(runs > 10, "only {runs} runs");
    let endless = "SELECT count(*) FROM history WHERE ends IS NULL";
    assert_eq!(world.number(endless).await, 0);
    // Of two runs under one key, the later began when the earlier's time was over.
    let time = if B::NAME == Pg::NAME {
        "timestamptz"
    } else {
        "integer"
    };
    let overlap = format!(
        "SELECT count(*) FROM history a, history b WHERE a.id = b.id \
         AND CAST(a.began AS {time}) < CAST(b.began AS {time}) \
         AND CAST(b.began AS {time}) < CAST(a.ends AS {time})"
    );
    assert_eq!(world.number(overlap).await, 0, "{begin}");
}

/// Writes down when it ran. That is after its reservation; the row's own `created_at` may be before
/// it by as long as a busy machine stops the reserving statement.
#[idempotent(key = "log:{id}", ttl = "20ms", store = "tx", scope = "test.log")]
async fn logged<B: Backend>(tx: &mut Tx<'_, B>, id: &str) -> Result<Receipt, Failure> {
    let now = if B::NAME == Pg::NAME {
        "clock_timestamp()"
    } else {
        "CAST(unixepoch('subsec') * 1000 AS INTEGER)"
    };
    let began = format!("INSERT INTO history (id, began) VALUES ('{id}', CAST({now} AS text))");
    B::execute(tx, began).await?;
    Ok(Receipt::of(id))
}

/// One transaction; after a first run it writes down until when the record counts.
async fn once<B: Backend>(world: &World<B>, begin: &'static str, id: &str) -> Result<(), Failure> {
    let mut tx = world.pool.begin_with(begin).await.unwrap();
    let (answer, seen) = idem::observe(logged::<B>(&mut tx, id)).await;
    let done = match answer {
        Ok(_) if seen.replayed() => Ok(0),
        Ok(_) => {
            let ends = format!(
                "UPDATE history SET ends = (SELECT CAST(expires_at AS text) FROM idem_record \
                 WHERE key_text = 'log:{id}' ORDER BY created_at DESC LIMIT 1) \
                 WHERE id = '{id}' AND ends IS NULL"
            );
            B::execute(&mut tx, ends).await.map_err(Failure::from)
        }
        Err(failure) => Err(failure),
    };
    match done {
        Ok(_) => Ok(tx.commit().await?),
        Err(failure) => {
            tx.rollback().await?;
            Err(failure)
        }
    }
}

on_both! {
    ttl_05_take_over_storm,
}
