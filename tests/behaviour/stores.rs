//! One store, several functions.

use idem::{MemoryStore, idempotent, store::sql::Records};
use idem_test_support::Body;
use sqlx::SqliteTransaction;

use crate::support::{Failure, Fresh};

#[idempotent(key = "{no}", ttl = "1h", store = store)]
async fn f(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[idempotent(key = "{no}", ttl = "1h", store = store)]
async fn g(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[tokio::test]
async fn rd_12_functions_that_share_a_store_keep_their_keys() {
    let (of_f, of_g) = (Body::new(), Body::new());
    let store = MemoryStore::builder().namespace("shop").build();
    let clone = store.clone();
    for store in [&store, &store, &clone, &store, &clone] {
        assert_eq!(f(store, 1, &of_f).await.unwrap(), 1);
        assert_eq!(g(store, 1, &of_g).await.unwrap(), 1);
    }
    assert_eq!((of_f.runs(), of_g.runs(), store.len()), (1, 1, 2));
}

#[idempotent(key = "{no}", ttl = "1h", store = records.on(tx))]
async fn f_in(
    records: &Records,
    tx: &mut SqliteTransaction<'_>,
    no: u64,
    body: &Body,
) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[idempotent(key = "{no}", ttl = "1h", store = records.on(tx))]
async fn g_in(
    records: &Records,
    tx: &mut SqliteTransaction<'_>,
    no: u64,
    body: &Body,
) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[tokio::test]
async fn rd_12_records_built_twice_and_cloned_are_the_same() {
    let (fresh, of_f, of_g) = (Fresh::new().await, Body::new(), Body::new());
    let built = || {
        Records::in_table("idem_record")
            .unwrap()
            .namespace("billing")
    };
    let one = built();
    for records in [one.clone(), one.clone(), built(), one] {
        let mut tx = fresh.begin().await;
        assert_eq!(f_in(&records, &mut tx, 1, &of_f).await.unwrap(), 1);
        assert_eq!(g_in(&records, &mut tx, 1, &of_g).await.unwrap(), 1);
        assert_eq!(f_in(&records, &mut tx, 1, &of_f).await.unwrap(), 1);
        tx.commit().await.unwrap();
    }
    // Another namespace, and none, are other records.
    for records in [built().namespace("shop"), Records::default()] {
        let mut tx = fresh.begin().await;
        f_in(&records, &mut tx, 1, &of_f).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!((of_f.runs(), of_g.runs()), (3, 1));
}
