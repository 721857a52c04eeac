//! Records whose time is over.

use std::time::Duration;

use idem_macros::idempotent;
use idem_runtime::ErrorKind;
use idem_runtime::key::RecordId;
use idem_runtime::observe::observe;
use idem_runtime::retention::MAX_RETENTION;
use idem_runtime::store::sql::Records;
use sqlx::mysql::{MySqlPool, MySqlTransaction};

use crate::database::Database;
use crate::service::{Body, Paid, PayError, pay_alone, pay_and_commit, pay_for};

async fn pay_and_keep(pool: &MySqlPool, no: &str, keep: Duration, body: Body) -> Paid {
    let mut tx = pool.begin().await?;
    let paid = pay_for(&mut tx, no, 100, keep, body).await;
    if paid.is_ok() {
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    paid
}

const SHORT: Duration = Duration::from_millis(1000);

#[tokio::test]
async fn ttl_05_an_expired_record_counts_as_absent_purged_or_not() {
    for purges in [false, true] {
        let db = Database::fresh().await;
        let body = Body::default();
        let records = Records::default();
        let (first, seen) = observe(pay_and_keep(&db.pool, "1", SHORT, body.clone())).await;
        let id = seen.record_id().unwrap();
        let again = pay_and_keep(&db.pool, "1", SHORT, body.clone()).await;
        assert_eq!(again.unwrap(), *first.as_ref().unwrap());
        assert!(records.lookup(&db.pool, id).await.unwrap().is_some());

        tokio::time::sleep(SHORT + SHORT / 2).await;
        if purges {
            assert_eq!(records.purge(&db.pool, 10).await.unwrap(), 1);
        }
        assert_eq!(records.lookup(&db.pool, id).await.unwrap(), None);
        assert!(!records.forget(&db.pool, id).await.unwrap());
        let second = pay_and_keep(&db.pool, "1", SHORT, body.clone()).await;
        assert_ne!(*second.as_ref().unwrap(), first.unwrap());
        assert_eq!(body.runs(), 2);
        let again = pay_and_keep(&db.pool, "1", SHORT, body.clone()).await;
        assert_eq!((again.unwrap(), body.runs()), (second.unwrap(), 2));
        assert_eq!(db.records().await, 1);
    }
}

/// A transaction that was open for long before the call takes nothing from the retention.
#[tokio::test]
async fn ttl_02_it_counts_from_the_recording_and_not_from_the_begin() {
    let db = Database::fresh().await;
    let mut tx = db.pool.begin().await.unwrap();
    sqlx::query("SELECT COUNT(*) FROM orders")
        .fetch_all(&mut *tx)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let began = std::time::Instant::now();
    let keep = Duration::from_secs(60);
    pay_for(&mut tx, "1", 100, keep, Body::default())
        .await
        .unwrap();
    let left =
        "SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(3), expires_at) DIV 1000 FROM idem_record";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&mut *tx).await.unwrap();
    let spent = i64::try_from(began.elapsed().as_millis()).unwrap();
    assert!(left <= 60_050 && left + spent >= 59_950, "{left}");
    tx.rollback().await.unwrap();
}

/// Both hold the row shared by then; one of them must not be refused until the other ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_record_is_taken_over_by_one_of_many() {
    for _ in 0..5 {
        let db = Database::fresh().await;
        let body = Body::default();
        pay_and_keep(&db.pool, "1", Duration::from_millis(1), body.clone())
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let calls = (0..8).map(|_| {
            let (pool, body) = (db.pool.clone(), body.clone());
            tokio::spawn(async move {
                loop {
                    let paid = pay_and_keep(&pool, "1", Duration::from_secs(60), body.clone());
                    match paid.await {
                        Err(PayError::Idem(e)) if e.kind() == ErrorKind::RetryTransaction => {}
                        paid => return paid,
                    }
                }
            })
        });
        let mut answers = Vec::new();
        let begun = std::time::Instant::now();
        for call in calls.collect::<Vec<_>>() {
            answers.push(call.await.unwrap().unwrap());
        }
        answers.dedup();
        assert_eq!((answers.len(), body.runs()), (1, 2));
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(db.orders().await, 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_record_is_taken_over_once_from_two_pools() {
    let db = Database::fresh().await;
    let body = Body::default();
    pay_and_keep(&db.pool, "1", Duration::from_millis(1), body.clone())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let pools = [db.pool(5, "").await, db.pool(5, "").await, db.pool.clone()];
    let calls = (0..30).map(|n| {
        let (pool, body) = (pools[n % 3].clone(), body.clone());
        tokio::spawn(async move { pay_alone(&pool, "1", 100, body).await })
    });
    let mut answers = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        answers.push(call.await.unwrap().unwrap());
    }
    answers.dedup();
    assert_eq!((answers.len(), body.runs()), (1, 2));
}

#[tokio::test]
async fn ttl_01_the_longest_retention_is_kept_and_more_is_refused() {
    let db = Database::fresh().await;
    let body = Body::default();
    for _ in 0..2 {
        pay_and_keep(&db.pool, "1", MAX_RETENTION, body.clone())
            .await
            .unwrap();
    }
    assert_eq!(body.runs(), 1);
    let days = "SELECT TIMESTAMPDIFF(DAY, completed_at, expires_at) FROM idem_record";
    assert_eq!(db.number(days).await, 36_500);
    for ttl in [Duration::MAX, Duration::ZERO, Duration::from_nanos(1)] {
        let paid = pay_and_keep(&db.pool, "2", ttl, body.clone()).await;
        assert_eq!(paid.unwrap_err().kind(), ErrorKind::InvalidTtl);
    }
    assert_eq!(body.runs(), 1);
}

#[tokio::test]
async fn ttl_02_less_than_a_second_is_kept_exactly() {
    let db = Database::fresh().await;
    for (no, millis) in [("1", 900), ("2", 1500), ("3", 1)] {
        let keep = Duration::from_millis(millis);
        pay_and_keep(&db.pool, no, keep, Body::default())
            .await
            .unwrap();
    }
    let kept: Vec<(i64,)> = sqlx::query_as(
        "SELECT TIMESTAMPDIFF(MICROSECOND, completed_at, expires_at) DIV 1000 FROM idem_record \
         ORDER BY 1",
    )
    .fetch_all(&db.pool)
    .await
    .unwrap();
    assert_eq!(kept, [(1,), (900,), (1500,)]);
}

#[tokio::test]
async fn ttl_09_a_purge_takes_what_is_over_and_nothing_else() {
    let db = Database::fresh().await;
    let records = Records::default();
    let body = Body::default();
    for n in 0..30 {
        let keep = Duration::from_millis(1);
        pay_and_keep(&db.pool, &format!("over-{n}"), keep, body.clone())
            .await
            .unwrap();
    }
    let live = pay_and_commit(&db.pool, "live", 100, body.clone()).await;
    let mut running = db.pool.begin().await.unwrap();
    let keep = Duration::from_secs(60);
    pay_for(&mut running, "running", 100, keep, body.clone())
        .await
        .unwrap();
    // One of the expired ones is taken over just now.
    pay_for(&mut running, "over-0", 100, keep, body.clone())
        .await
        .unwrap();

    assert_eq!(records.purge(&db.pool, 10).await.unwrap(), 10);
    assert_eq!(records.purge(&db.pool, 100).await.unwrap(), 19);
    assert_eq!(records.purge(&db.pool, 100).await.unwrap(), 0);
    running.commit().await.unwrap();
    assert_eq!(db.records().await, 3);
    let again = pay_and_commit(&db.pool, "live", 100, body.clone()).await;
    assert_eq!(again.unwrap(), live.unwrap());
    // The level that the purge chose is not left to the transactions after it.
    let level = "SELECT @@tx_isolation = 'REPEATABLE-READ'";
    assert_eq!(db.number(level).await, 1);
}

#[idempotent(crate = ::idem_runtime, scope = "pay", shared_scope, key = "pay:{no}", fingerprint(cents),
    ttl = "50ms", tombstone = "30d", store = "tx")]
async fn buried(
    tx: &mut MySqlTransaction<'_>,
    no: &str,
    cents: i64,
    body: Body,
) -> Result<i64, PayError> {
    body.run(tx, no, cents).await
}

#[idempotent(crate = ::idem_runtime, scope = "pay", shared_scope, key = "pay:{no}", fingerprint(cents),
    ttl = "50ms", tombstone = "forever", store = pool, tx = tx)]
async fn buried_alone(pool: &MySqlPool, no: &str, cents: i64, body: Body) -> Result<i64, PayError> {
    body.run(tx, no, cents).await
}

/// In the server's strict mode, which refuses dates that do not fit.
#[tokio::test]
async fn a12_a_tombstone_keeps_the_key_known() {
    let db = Database::fresh().await;
    let strict = "SELECT @@sql_mode LIKE '%STRICT_TRANS_TABLES%'";
    assert_eq!(db.number(strict).await, 1);
    let (body, records) = (Body::default(), Records::default());
    let call = async |no: &str, cents| {
        let mut tx = db.pool.begin().await?;
        let paid = buried(&mut tx, no, cents, body.clone()).await;
        tx.commit().await?;
        paid
    };
    call("1", 5).await.unwrap();
    let alone = buried_alone(&db.pool, "2", 5, body.clone()).await;
    alone.unwrap();
    let days = "SELECT MIN(TIMESTAMPDIFF(DAY, expires_at, known_until)) FROM idem_record";
    assert_eq!(db.number(days).await, 30);
    tokio::time::sleep(Duration::from_millis(80)).await;
    let id = |no: &str| RecordId::new("", "pay", &[], &format!("pay:{no}"));
    for purged in [2, 0] {
        for answer in [
            call("1", 5).await,
            buried_alone(&db.pool, "2", 5, body.clone()).await,
        ] {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::OutcomeGone);
        }
        let other = call("1", 6).await.unwrap_err();
        assert_eq!(other.kind(), ErrorKind::FingerprintMismatch);
        let shown = records.lookup(&db.pool, id("1")).await.unwrap().unwrap();
        assert_eq!(shown.outcome, idem_runtime::outcome::tombstone());
        // The outcomes go, the keys stay.
        assert_eq!(records.purge(&db.pool, 10).await.unwrap(), purged);
    }
    let kept = "SELECT COUNT(*) FROM idem_record WHERE LENGTH(outcome) <> 7";
    assert_eq!((db.number(kept).await, body.runs()), (0, 2));

    let past = "UPDATE idem_record SET expires_at = completed_at, known_until = completed_at";
    sqlx::raw_sql(past).execute(&db.pool).await.unwrap();
    assert_eq!(records.lookup(&db.pool, id("1")).await.unwrap(), None);
    assert!(!records.forget(&db.pool, id("1")).await.unwrap());
    call("1", 6).await.unwrap();
    assert_eq!(records.purge(&db.pool, 10).await.unwrap(), 1);
    // The row that was taken over has a tombstone of its own, which can be forgotten.
    tokio::time::sleep(Duration::from_millis(80)).await;
    assert_eq!(
        call("1", 6).await.unwrap_err().kind(),
        ErrorKind::OutcomeGone
    );
    assert!(records.forget(&db.pool, id("1")).await.unwrap());
    call("1", 6).await.unwrap();
    assert_eq!(body.runs(), 4);
}

/// An end that an older build left, which knew no tombstones, ends nothing.
#[tokio::test]
async fn a12_the_later_end_counts() {
    let db = Database::fresh().await;
    let body = Body::default();
    pay_and_commit(&db.pool, "1", 100, body.clone())
        .await
        .unwrap();
    let stale = "UPDATE idem_record SET known_until = created_at - INTERVAL 1 DAY";
    for retention in ["", ", expires_at = NULL"] {
        let stale = sqlx::AssertSqlSafe(format!("{stale}{retention}"));
        sqlx::raw_sql(stale).execute(&db.pool).await.unwrap();
        assert_eq!(Records::default().purge(&db.pool, 10).await.unwrap(), 0);
        pay_and_commit(&db.pool, "1", 100, body.clone())
            .await
            .unwrap();
        assert_eq!(body.runs(), 1);
    }
    let id = RecordId::new("", "pay", &[], "pay:1");
    assert!(Records::default().forget(&db.pool, id).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ttl_07_a_purge_is_in_nobodys_way() {
    let db = Database::fresh().await;
    let fill = "INSERT INTO idem_record (id, scope, fingerprint, owner, outcome, created_at, \
         completed_at, expires_at) SELECT UNHEX(MD5(seq)), 'old', 'f', UNHEX(MD5(seq)), 'o', \
         UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) - INTERVAL 1 DAY FROM seq_1_to_20000";
    sqlx::raw_sql(fill).execute(&db.pool).await.unwrap();
    let purges = (0..2).map(|_| {
        let pool = db.pool.clone();
        tokio::spawn(async move {
            let (records, mut gone) = (Records::default(), 0);
            loop {
                match records.purge(&pool, 500).await.unwrap() {
                    0 => return gone,
                    some => gone += some,
                }
            }
        })
    });
    let purges = purges.collect::<Vec<_>>();
    let calls = (0..4).map(|worker| {
        let pool = db.pool.clone();
        tokio::spawn(async move {
            for n in 0..100 {
                // Refused rather than held up: the answer would tell.
                let mut tx = pool.begin().await?;
                let no = format!("{worker}-{n}");
                let body = Body::default();
                crate::service::pay_or_be_refused(&mut tx, &no, 1, body).await?;
                tx.commit().await?;
            }
            Ok::<_, PayError>(())
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    let mut gone = 0;
    for purge in purges {
        gone += purge.await.unwrap();
    }
    assert_eq!(gone, 20_000);
    assert_eq!(db.records().await, 400);
}
