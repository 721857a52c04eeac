//! The wire between the caller and Postgres: what is sent, and what is lost.

use std::time::Duration;

use idem::{Effect, ErrorKind, Retry, idempotent, store::sql::Records};
use idem_test_support::{Proxy, proxy::Fault};
use sqlx::PgPool;

use crate::fixture::{
    Backend, Failure, Pg, Probe, Receipt, Tx, World, begin, effect, kind, pay, pay_now, until,
};

struct Wire {
    proxy: Proxy,
    pool: PgPool,
    world: World<Pg>,
    probe: Probe,
}

impl Wire {
    async fn new() -> Self {
        let world = World::<Pg>::new(3).await;
        let proxy = world.backend.0.proxy();
        let pool = world.backend.0.pool_through(&proxy, 3);
        let probe = Probe::new();
        Self {
            proxy,
            pool,
            world,
            probe,
        }
    }

    async fn begin(&self) -> Tx<'static, Pg> {
        begin::<Pg>(&self.pool).await
    }

    /// What was executed since the log was cleared: the first two words of each statement.
    fn sent(&self) -> Vec<String> {
        let short = |text: String| {
            let words: Vec<_> = text.split_whitespace().take(2).collect();
            words.join(" ")
        };
        self.proxy.statements().into_iter().map(short).collect()
    }
}

#[idempotent(
    key = "pay:{id}",
    ttl = "1h",
    store = "tx",
    scope = "test.pay",
    shared_scope
)]
async fn fails(
    tx: &mut Tx<'_, Pg>,
    id: &str,
    cents: i64,
    probe: &Probe,
) -> Result<Receipt, Failure> {
    probe.enter().await;
    Pg::execute(tx, effect(id)).await?;
    Err(Failure::Business(id.to_owned()))
}

/// The price: two statements for a first run, two for a replay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_statements_of_a_call() {
    let wire = Wire::new().await;
    // Twice, so that the statements have been prepared the second time.
    for id in ["one", "two"] {
        let mut tx = wire.begin().await;
        wire.proxy.clear_log();
        pay::<Pg>(&mut tx, id, 100, &wire.probe).await.unwrap();
        assert_eq!(
            wire.sent(),
            ["INSERT INTO", "INSERT INTO", "UPDATE idem_record"]
        );

        let mut other = wire.begin().await;
        wire.proxy.clear_log();
        assert_eq!(
            kind(pay_now::<Pg>(&mut other, id, 100, &wire.probe).await),
            ErrorKind::InProgress
        );
        assert_eq!(
            wire.sent(),
            ["INSERT INTO", "SELECT fingerprint,"].repeat(2)
        );
        tx.commit().await.unwrap();

        wire.proxy.clear_log();
        pay::<Pg>(&mut other, id, 100, &wire.probe).await.unwrap();
        assert_eq!(wire.sent(), ["INSERT INTO", "SELECT fingerprint,"]);
        wire.proxy.clear_log();
        let answer = pay::<Pg>(&mut other, id, 5, &wire.probe).await;
        assert_eq!(kind(answer), ErrorKind::FingerprintMismatch);
        assert_eq!(wire.sent(), ["INSERT INTO", "SELECT fingerprint,"]);

        wire.proxy.clear_log();
        fails(&mut other, "released", 100, &wire.probe)
            .await
            .unwrap_err();
        assert_eq!(wire.sent(), ["INSERT INTO", "INSERT INTO", "DELETE FROM"]);
        other.commit().await.unwrap();
    }
    assert!(
        wire.proxy
            .executed()
            .iter()
            .filter(|s| s.text.contains("idem_record"))
            .all(|s| s.prepared)
    );
}

/// The connection is lost at each statement, before it ran and after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_is_lost_at_each_statement_of_a_first_run() {
    let wire = Wire::new().await;
    for (n, (statement, framework)) in [
        ("INSERT INTO idem_record", true),
        ("INSERT INTO effect", false),
        ("UPDATE idem_record", true),
    ]
    .into_iter()
    .enumerate()
    {
        for fault in [Fault::CutBefore, Fault::CutAnswer] {
            let id = format!("{n}-{fault:?}");
            let mut tx = wire.begin().await;
            let lost = wire.proxy.on(statement, fault);
            let failure = pay::<Pg>(&mut tx, &id, 100, &wire.probe).await.unwrap_err();
            assert!(lost.fired(), "{id}");
            if framework {
                let error = failure.idem();
                assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
                assert_eq!(error.effect(), Effect::None);
                assert_eq!(error.retry(), Retry::NewTransaction);
                assert!(error.to_string().contains("roll back"), "{error}");
            } else {
                assert!(matches!(failure, Failure::Sql(_)), "{failure:?}");
            }
            tx.commit().await.unwrap_err();
            retried(&wire, &id).await;
        }
    }
}

/// No effect of what was lost; the retry runs once, and is replayed.
async fn retried(wire: &Wire, id: &str) {
    assert_eq!(wire.world.effects(id).await, 0, "{id}");
    let before = wire.probe.runs();
    let mut receipts = Vec::new();
    for _ in 0..2 {
        let mut tx = wire.begin().await;
        receipts.push(pay::<Pg>(&mut tx, id, 100, &wire.probe).await.unwrap());
        tx.commit().await.unwrap();
    }
    assert_eq!(receipts[0], receipts[1]);
    assert_eq!(
        (wire.world.effects(id).await, wire.probe.runs() - before),
        (1, 1),
        "{id}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_is_lost_in_a_replay() {
    let wire = Wire::new().await;
    let first = wire.world.pay("one", &wire.probe).await.unwrap();
    for statement in ["INSERT INTO idem_record", "SELECT fingerprint"] {
        for fault in [Fault::CutBefore, Fault::CutAnswer] {
            let mut tx = wire.begin().await;
            let lost = wire.proxy.on(statement, fault);
            let error = pay::<Pg>(&mut tx, "one", 100, &wire.probe)
                .await
                .unwrap_err()
                .idem();
            assert!(lost.fired());
            assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
            assert_eq!(error.retry(), Retry::NewTransaction);
            drop(tx);
            let mut tx = wire.begin().await;
            assert_eq!(
                pay::<Pg>(&mut tx, "one", 100, &wire.probe).await.unwrap(),
                first
            );
            tx.commit().await.unwrap();
        }
    }
    assert_eq!((wire.world.effects("one").await, wire.probe.runs()), (1, 1));
}

/// The body's own error is the answer also where its release is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_is_lost_at_the_release() {
    let wire = Wire::new().await;
    for fault in [Fault::CutBefore, Fault::CutAnswer] {
        let id = format!("{fault:?}");
        let mut tx = wire.begin().await;
        let lost = wire.proxy.on("DELETE FROM idem_record", fault);
        let failure = fails(&mut tx, &id, 100, &wire.probe).await.unwrap_err();
        assert!(lost.fired());
        assert!(matches!(failure, Failure::Business(_)), "{failure:?}");
        tx.commit().await.unwrap_err();
        retried(&wire, &id).await;
    }
}

/// The caller's commit is the caller's matter; repeating the call tells what became of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_is_lost_at_the_callers_commit() {
    let wire = Wire::new().await;
    for (fault, held) in [(Fault::CutBefore, false), (Fault::CutAnswer, true)] {
        let id = format!("{fault:?}");
        let mut tx = wire.begin().await;
        let first = pay::<Pg>(&mut tx, &id, 100, &wire.probe).await.unwrap();
        let lost = wire.proxy.on("COMMIT", fault);
        tx.commit().await.unwrap_err();
        assert!(lost.fired());
        let mut tx = wire.begin().await;
        let call = pay::<Pg>(&mut tx, &id, 100, &wire.probe);
        let (again, seen) = idem::observe(call).await;
        assert_eq!((again.unwrap() == first, seen.replayed()), (held, held));
        tx.commit().await.unwrap();
        assert_eq!(wire.world.effects(&id).await, 1, "{id}");
    }
}

/// The client is gone and its session is not: the key stays reserved as long as the session, and no
/// longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_outlives_its_client_holds_its_key() {
    let wire = Wire::new().await;
    let mut lost = wire.begin().await;
    pay::<Pg>(&mut lost, "one", 100, &wire.probe).await.unwrap();
    wire.proxy.cut_clients();
    // A commit must not slip through before the cut is made.
    while Pg::execute(&mut lost, "SELECT 1").await.is_ok() {}
    lost.commit().await.unwrap_err();
    let mut tx = wire.world.begin().await;
    let busy = pay_now::<Pg>(&mut tx, "one", 100, &wire.probe).await;
    assert_eq!(kind(busy), ErrorKind::InProgress);
    wire.proxy.cut_all();
    // Waits for the server to notice.
    pay::<Pg>(&mut tx, "one", 100, &wire.probe).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((wire.world.effects("one").await, wire.probe.runs()), (1, 2));
}

/// What the documentation advises against clients that hang in a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_transaction_is_ended_by_the_servers_time_out() {
    let world = World::<Pg>::new(3).await;
    let probe = Probe::new();
    let mut hangs = world.begin().await;
    let limit = "SET LOCAL idle_in_transaction_session_timeout = '200ms'";
    Pg::execute(&mut hangs, limit).await.unwrap();
    let first = pay::<Pg>(&mut hangs, "one", 100, &probe).await.unwrap();
    let second = world.pay("one", &probe).await.unwrap();
    assert_ne!(first, second);
    hangs.commit().await.unwrap_err();
    assert_eq!((world.effects("one").await, probe.runs()), (1, 2));
}

#[idempotent(
    key = "short:{id}",
    ttl = "1ms",
    store = "tx",
    scope = "test.short",
    reject
)]
async fn short_or_busy(tx: &mut Tx<'_, Pg>, id: &str, probe: &Probe) -> Result<Receipt, Failure> {
    probe.enter().await;
    Pg::execute(tx, effect(id)).await?;
    Ok(Receipt::of(id))
}

/// An expired record that a purge removes between two statements of a call: nobody is at it, so
/// even a call that does not wait runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ttl_05_purged_between_two_statements() {
    let wire = Wire::new().await;
    let records = Records::default();
    for statement in ["SELECT fingerprint", "UPDATE idem_record SET scope"] {
        let mut tx = wire.begin().await;
        let first = short_or_busy(&mut tx, statement, &wire.probe)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let id = idem::key::RecordId::new("", "test.short", &[], &format!("short:{statement}"));
        let pool = &wire.world.pool;
        until("the end of the retention", || async {
            records.lookup(pool, id).await.unwrap().is_none()
        })
        .await;
        let mut tx = wire.begin().await;
        let held = wire.proxy.on(statement, Fault::HoldBefore);
        let (again, ()) = tokio::join!(short_or_busy(&mut tx, statement, &wire.probe), async {
            held.wait().await;
            assert_eq!(records.purge(pool, 10).await.unwrap(), 1);
            held.release();
        });
        assert_ne!(again.unwrap(), first);
        tx.commit().await.unwrap();
        assert_eq!(wire.world.effects(statement).await, 2);
        // Let the next round's purge find one record only.
        tokio::time::sleep(Duration::from_millis(5)).await;
        records.purge(pool, 10).await.unwrap();
    }
}
