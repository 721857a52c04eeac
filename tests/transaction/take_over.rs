//! Records that end while many callers use them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use idem::{ErrorKind, store::sql::Records};
use tokio::task::JoinSet;

use crate::{
    fixture::{Backend, Failure, Pg, Probe, World, until},
    retention::{keep_for, kept, purging, record_id},
};

const SHORT: Duration = Duration::from_millis(20);

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
    let (probe, retried) = (Arc::new(Probe::new()), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let (world, probe) = (Arc::clone(&world), Arc::clone(&probe));
        let retried = Arc::clone(&retried);
        tasks.spawn(async move {
            let end = Instant::now() + Duration::from_millis(1000);
            while Instant::now() < end {
                let id = format!("key-{}", task % 3);
                match once(&world, begin, &id, &probe).await {
                    Ok(()) => {}
                    Err(failure) => {
                        let retry = failure.kind() == Some(ErrorKind::RetryTransaction)
                            || failure.code().as_deref() == Some("40001");
                        assert!(retry && begin != B::BEGIN, "{failure:?}");
                        retried.fetch_add(1, Ordering::Relaxed);
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
    assert_eq!(world.number("SELECT count(*) FROM effect").await, runs);
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

/// One transaction; a first run writes down from when to when its record counts.
async fn once<B: Backend>(
    world: &World<B>,
    begin: &'static str,
    id: &str,
    probe: &Probe,
) -> Result<(), Failure> {
    let mut tx = world.pool.begin_with(begin).await.unwrap();
    let (answer, seen) = idem::observe(keep_for::<B>(&mut tx, id, SHORT, probe)).await;
    let done = match answer {
        Ok(_) if seen.replayed() => Ok(0),
        Ok(_) => {
            let history = format!(
                "INSERT INTO history SELECT '{id}', CAST(created_at AS text), \
                 CAST(expires_at AS text) FROM idem_record WHERE key_text = 'keep:{id}' \
                 ORDER BY created_at DESC LIMIT 1"
            );
            B::execute(&mut tx, history).await.map_err(Failure::from)
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
