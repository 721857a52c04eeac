//! How a call stands, asked without running it.

use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_runtime::status::{Completed, Holder, Status};

use crate::database::Database;
use crate::service::{Body, Paid, Then, pay, pay_and_commit, pay_call, pay_or_be_refused};

const NEVER: Duration = Duration::from_secs(600);

async fn asked(db: &Database, no: &str) -> Status<Paid> {
    pay_call(no).unwrap().status(&db.pool).await.unwrap()
}

#[track_caller]
fn running(status: Status<Paid>) -> Holder {
    match status {
        Status::InProgress(holder) => holder,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn done(status: Status<Paid>) -> Completed<Paid> {
    match status {
        Status::Completed(done) => done,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_running_call_is_seen_by_a_dirty_read_and_nothing_is_locked() {
    let db = Database::fresh().await;
    let body = Body::default();
    assert!(asked(&db, "1").await.is_absent());
    let mut tx = db.pool.begin().await.unwrap();
    body.drop_in_pause(pay(&mut tx, "1", 100, body.then(Then::Pause(NEVER))))
        .await;
    let holder = running(asked(&db, "1").await);
    assert!(
        holder.owner.is_some() && holder.since.is_some(),
        "{holder:?}"
    );
    assert!(asked(&db, "2").await.is_absent());
    let error = pay_call("1").unwrap().forget(&db.pool).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InProgress);
    tx.rollback().await.unwrap();
    assert!(asked(&db, "1").await.is_absent());
    // The level of the session is as it was.
    for _ in 0..10 {
        let mut tx = db.pool.begin().await.unwrap();
        let level: String = sqlx::query_scalar("SELECT @@SESSION.tx_isolation")
            .fetch_one(&mut *tx)
            .await
            .unwrap();
        assert_eq!(level, "REPEATABLE-READ");
        let dirty: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM orders")
            .fetch_one(&mut *tx)
            .await
            .unwrap();
        assert_eq!(dirty, 0);
    }
}

#[tokio::test]
async fn what_is_recorded_counts_when_it_is_committed() {
    let db = Database::fresh().await;
    let body = Body::default();
    let mut tx = db.pool.begin().await.unwrap();
    let paid = pay(&mut tx, "1", 100, body.clone()).await.unwrap();
    running(asked(&db, "1").await);
    let inside = pay_call("1").unwrap().status(&mut tx).await.unwrap();
    assert_eq!(done(inside).outcome.unwrap(), paid);
    tx.commit().await.unwrap();
    let completed = done(asked(&db, "1").await);
    assert_eq!(completed.outcome.unwrap(), paid);
    assert!(completed.recorded_at.is_some());
    // Over, and taken over again.
    sqlx::query("UPDATE idem_record SET expires_at = created_at - INTERVAL 1 SECOND")
        .execute(&db.pool)
        .await
        .unwrap();
    assert!(asked(&db, "1").await.is_absent());
    let mut tx = db.pool.begin().await.unwrap();
    pay(&mut tx, "1", 100, body.clone()).await.unwrap();
    running(asked(&db, "1").await);
    tx.commit().await.unwrap();
    assert!(pay_call("1").unwrap().forget(&db.pool).await.unwrap());
    assert!(asked(&db, "1").await.is_absent());
    assert!(!pay_call("1").unwrap().forget(&db.pool).await.unwrap());
}

#[tokio::test]
async fn what_was_committed_midway_is_abandoned_until_it_is_forgotten() {
    let db = Database::fresh().await;
    let body = Body::default();
    let mut tx = db.pool.begin().await.unwrap();
    body.drop_in_pause(pay(&mut tx, "1", 100, body.then(Then::Pause(NEVER))))
        .await;
    tx.commit().await.unwrap();
    let status = asked(&db, "1").await;
    let Status::Abandoned(holder) = status else {
        panic!("{status:?}");
    };
    assert!(holder.owner.is_some() && holder.since.is_some());
    assert!(pay_call("1").unwrap().forget(&db.pool).await.unwrap());
    pay_and_commit(&db.pool, "1", 100, body.clone())
        .await
        .unwrap();
    done(asked(&db, "1").await);
}

/// IP-17: the effects that were committed with it happened, and somebody says so.
#[tokio::test]
async fn ip_17_what_was_committed_midway_is_resolved_with_its_outcome() {
    for inside in [false, true] {
        let db = Database::fresh().await;
        let body = Body::default();
        let mut tx = db.pool.begin().await.unwrap();
        body.drop_in_pause(pay(&mut tx, "1", 100, body.then(Then::Pause(NEVER))))
            .await;
        let call = pay_call("1").unwrap();
        let by_hand: Paid = Ok(77);
        let refused = call.resolve(&db.pool, &by_hand).await.unwrap_err();
        assert_eq!(
            refused.kind(),
            ErrorKind::InProgress,
            "its transaction runs"
        );
        tx.commit().await.unwrap();
        for _ in 0..2 {
            if inside {
                let mut tx = db.pool.begin().await.unwrap();
                call.resolve(&mut tx, &by_hand).await.unwrap();
                tx.commit().await.unwrap();
            } else {
                call.resolve(&db.pool, &by_hand).await.unwrap();
            }
        }
        done(asked(&db, "1").await);
        let replayed = pay_and_commit(&db.pool, "1", 100, body.clone()).await;
        assert_eq!(replayed.unwrap(), 77);
        assert_eq!(body.runs(), 1);
    }
}

#[tokio::test]
async fn a_hundred_questions_refuse_nobody() {
    let db = Database::fresh().await;
    let ask = async {
        for n in 0..100 {
            let _ = asked(&db, &n.to_string()).await;
        }
    };
    let calls = async {
        for n in 0..100 {
            let mut tx = db.pool.begin().await.unwrap();
            let no = n.to_string();
            let paid = pay_or_be_refused(&mut tx, &no, 1, Body::default()).await;
            paid.unwrap();
            tx.commit().await.unwrap();
        }
    };
    tokio::join!(ask, calls);
    assert_eq!(db.orders().await, 100);
}

/// Between the question who is at it and the one what is committed lies the commit.
#[tokio::test]
async fn a_call_that_ends_while_it_is_asked_for_is_never_absent() {
    let db = Database::fresh().await;
    for n in 0..100 {
        let no = n.to_string();
        let pay = async {
            let paid = pay_and_commit(&db.pool, &no, 1, Body::default()).await;
            paid.unwrap();
        };
        let ask = async {
            let mut begun = false;
            loop {
                match asked(&db, &no).await {
                    Status::Completed(_) => return,
                    Status::InProgress(_) => begun = true,
                    Status::Absent => assert!(!begun, "absent after it was in progress"),
                    other => panic!("{other:?}"),
                }
            }
        };
        tokio::join!(pay, ask);
    }
}

/// A transaction that replayed the call has its record locked to its end.
#[tokio::test]
async fn what_an_open_transaction_has_replayed_is_not_forgotten_and_not_waited_for() {
    let db = Database::fresh().await;
    let body = Body::default();
    pay_and_commit(&db.pool, "1", 100, body.clone())
        .await
        .unwrap();
    let mut reader = db.pool.begin().await.unwrap();
    pay(&mut reader, "1", 100, body.clone()).await.unwrap();
    let call = pay_call("1").unwrap();
    let began = std::time::Instant::now();
    let error = call.forget(&db.pool).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InProgress, "{error}");
    // In a transaction too, which goes on.
    let mut other = db.pool.begin().await.unwrap();
    pay(&mut other, "2", 100, body.clone()).await.unwrap();
    let error = call.forget(&mut other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InProgress, "{error}");
    other.commit().await.unwrap();
    // The server's own patience is 50 s.
    assert!(began.elapsed() < Duration::from_secs(30));
    reader.commit().await.unwrap();
    assert!(call.forget(&db.pool).await.unwrap());
    assert_eq!(db.orders().await, 2);
}
