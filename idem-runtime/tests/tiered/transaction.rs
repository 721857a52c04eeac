//! The caller's transaction behind a front.

use idem_runtime::ErrorKind;
use idem_runtime::observe::{Answered, observe};
use idem_runtime::store::tiered::{Front as _, MemoryFront, Tier};
use idem_test_support::proxy::Fault;
use sqlx::Acquire as _;

use crate::support::{Asked, committed, database, effects, id, over, pay, refused};

fn memory() -> Tier<MemoryFront> {
    Tier::new(MemoryFront::new(1 << 20))
}

/// TX-12: whatever the rolled-back transaction did and read, the front knows nothing of it.
#[tokio::test]
async fn tx_12_a_rollback_leaves_no_mark() {
    let (_database, pool) = database().await;
    let tier = memory();
    let mut tx = pool.begin().await.unwrap();
    let after = tier.after_commit();
    assert_eq!(
        over(&tier, &mut tx, Some(&after), pay("7", 1))
            .await
            .unwrap(),
        1
    );
    // A repeat in the transaction that wrote the record reads it, and it is not committed.
    assert_eq!(
        over(&tier, &mut tx, Some(&after), pay("7", 2))
            .await
            .unwrap(),
        1
    );
    tx.rollback().await.unwrap();
    drop(after);
    assert!(tier.front().is_empty());
    assert_eq!(committed(&tier, &pool, pay("7", 3)).await.unwrap(), 3);
    assert_eq!(effects(&pool, "7").await, 1);
}

/// The numbers of savepoints are not the transaction's own.
#[tokio::test]
async fn tx_12_a_record_of_a_savepoint_is_not_committed() {
    let (_database, pool) = database().await;
    let tier = memory();
    let mut tx = pool.begin().await.unwrap();
    for (key, value) in [("1", 1), ("2", 2)] {
        let mut savepoint = tx.begin().await.unwrap();
        assert_eq!(
            over(&tier, &mut savepoint, None, pay(key, value))
                .await
                .unwrap(),
            value
        );
        let mut inner = savepoint.begin().await.unwrap();
        assert_eq!(
            over(&tier, &mut inner, None, pay(key, 9)).await.unwrap(),
            value
        );
        inner.commit().await.unwrap();
        savepoint.commit().await.unwrap();
        assert_eq!(
            over(&tier, &mut tx, None, pay(key, 9)).await.unwrap(),
            value
        );
    }
    assert!(tier.front().is_empty());
    tx.rollback().await.unwrap();
    assert_eq!(committed(&tier, &pool, pay("1", 3)).await.unwrap(), 3);
}

/// A transaction that has written before it repeats a call knows what is older than itself.
#[tokio::test]
async fn a_repeat_of_a_committed_call_fills_the_front() {
    let (database, pool) = database().await;
    let tier = memory();
    assert_eq!(committed(&tier, &pool, pay("7", 1)).await.unwrap(), 1);
    assert!(tier.front().is_empty(), "nobody said that it was committed");
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(
        over(&tier, &mut tx, None, pay("other", 5)).await.unwrap(),
        5
    );
    assert_eq!(over(&tier, &mut tx, None, pay("7", 2)).await.unwrap(), 1);
    tx.commit().await.unwrap();
    assert_eq!(tier.front().len(), 1);

    let proxy = database.proxy();
    let watched = database.pool_through(&proxy, 1);
    let (answer, seen) = observe(committed(&tier, &watched, pay("7", 3))).await;
    assert_eq!(answer.unwrap(), 1);
    assert!(matches!(
        seen.answered(),
        Some(Answered::Replay {
            recorded_at: Some(_)
        })
    ));
    let asked = proxy.statements();
    assert!(
        asked.iter().all(|sql| !sql.contains("idem_record")),
        "{asked:?}"
    );
    assert_eq!(effects(&pool, "7").await, 1);
}

#[tokio::test]
async fn what_is_noted_is_put_after_the_commit() {
    let (database, pool) = database().await;
    let tier = memory();
    let after = tier.after_commit();
    let mut tx = pool.begin().await.unwrap();
    for (key, value) in [("1", 1), ("2", 2)] {
        over(&tier, &mut tx, Some(&after), pay(key, value))
            .await
            .unwrap();
    }
    assert!(tier.front().is_empty());
    tx.commit().await.unwrap();
    after.committed(&pool).await;
    assert_eq!(tier.front().len(), 2);
    let proxy = database.proxy();
    let watched = database.pool_through(&proxy, 1);
    assert_eq!(committed(&tier, &watched, pay("2", 9)).await.unwrap(), 2);
    assert!(
        !proxy
            .statements()
            .iter()
            .any(|sql| sql.contains("idem_record"))
    );
}

/// The caller does not know whether it is committed, so the front is not told; the repeat is.
#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_put_by_a_repeat() {
    let (database, pool) = database().await;
    let tier = memory();
    let proxy = database.proxy();
    let cut = database.pool_through(&proxy, 1);
    let lost = proxy.on("COMMIT", Fault::CutAnswer);
    let after = tier.after_commit();
    let mut tx = cut.begin().await.unwrap();
    over(&tier, &mut tx, Some(&after), pay("7", 1))
        .await
        .unwrap();
    assert!(tx.commit().await.is_err());
    assert!(lost.fired());
    drop(after);
    assert!(tier.front().is_empty());
    assert_eq!(committed(&tier, &pool, pay("7", 2)).await.unwrap(), 1);
    assert_eq!((tier.front().len(), effects(&pool, "7").await), (1, 1));
}

#[tokio::test]
async fn another_payload_is_refused_by_the_front() {
    let (_database, pool) = database().await;
    let tier = memory();
    for _ in 0..2 {
        committed(&tier, &pool, pay("7", 1)).await.unwrap();
    }
    assert_eq!(tier.front().len(), 1);
    let other = Asked {
        payload: 5,
        ..pay("7", 1)
    };
    let answer = committed(&tier, &pool, other).await;
    assert_eq!(refused(answer), ErrorKind::FingerprintMismatch);
    assert_eq!(effects(&pool, "7").await, 1);
}

#[tokio::test]
async fn forgetting_reaches_the_front_and_keeps_late_copies_out() {
    let (_database, pool) = database().await;
    let tier = memory();
    for _ in 0..2 {
        committed(&tier, &pool, pay("7", 1)).await.unwrap();
    }
    let late = tier.front().get_to_copy(id("7")).await.unwrap().unwrap();
    assert!(tier.forget(&pool, id("7")).await.unwrap());
    assert!(!tier.forget(&pool, id("7")).await.unwrap());
    // A repeat that had read the record before it went.
    tier.front().put(id("7"), &late.0, late.1).await.unwrap();
    assert!(tier.front().get(id("7")).await.unwrap().is_none());
    assert_eq!(committed(&tier, &pool, pay("7", 2)).await.unwrap(), 2);
    assert_eq!(committed(&tier, &pool, pay("7", 3)).await.unwrap(), 2);
}

/// Records under a namespace, in another table.
#[tokio::test]
async fn fronts_keep_to_the_records_they_are_told() {
    let (_database, pool) = database().await;
    let front = MemoryFront::new(1 << 20);
    let records = idem_runtime::store::sql::Records::in_table("other_record").unwrap();
    let records = records.namespace("there");
    idem_runtime::store::postgres::migrate(&records.pool(&pool))
        .await
        .unwrap();
    let here = Tier::new(front.clone());
    let there = Tier::new(front.clone()).records(&records);
    for _ in 0..2 {
        assert_eq!(committed(&here, &pool, pay("7", 1)).await.unwrap(), 1);
        assert_eq!(committed(&there, &pool, pay("7", 2)).await.unwrap(), 2);
    }
    assert_eq!(front.len(), 2);
    assert_eq!(committed(&here, &pool, pay("7", 9)).await.unwrap(), 1);
    assert_eq!(committed(&there, &pool, pay("7", 9)).await.unwrap(), 2);
}

/// In SQLite nothing tells a record of this transaction from one committed before: only records of
/// other processes are copied, and what the caller says is committed.
mod sqlite {
    use idem_runtime::__private::{Entered, Run as _, contract, enter, leave};
    use idem_runtime::store::tiered::AfterCommit;
    use idem_test_support::Sqlite;
    use sqlx::SqliteTransaction;

    use super::*;
    use crate::support::{DAY, Failure, prepare};

    async fn over_sqlite(
        tier: &Tier<MemoryFront>,
        tx: &mut SqliteTransaction<'_>,
        after: &AfterCommit<MemoryFront>,
        value: u64,
    ) -> u64 {
        let contract = contract::<u64, Failure>();
        let call = prepare(&DAY, "7", 0);
        let run = match enter(&mut tier.over(tx).noting(after), call, &contract).await {
            Entered::Run(run) => run,
            Entered::Answer(answer) => return answer.unwrap(),
        };
        let driven = run.driver().drive(async { Ok(value) }).await;
        leave(&mut tier.over(tx).noting(after), run, driven, &contract)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn tx_12_a_rollback_leaves_no_mark() {
        let file = Sqlite::file().await;
        let pool = file.pool(2).await;
        idem_runtime::store::sqlite::migrate(&pool).await.unwrap();
        let tier = memory();
        let after = tier.after_commit();
        let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        assert_eq!(over_sqlite(&tier, &mut tx, &after, 1).await, 1);
        assert_eq!(over_sqlite(&tier, &mut tx, &after, 2).await, 1);
        tx.rollback().await.unwrap();
        drop(after);
        assert!(tier.front().is_empty());

        let after = tier.after_commit();
        let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        assert_eq!(over_sqlite(&tier, &mut tx, &after, 3).await, 3);
        tx.commit().await.unwrap();
        after.committed(&pool).await;
        assert_eq!(tier.front().len(), 1);
    }
}
