//! Which calls share a record.

use idem_macros::idempotent;
use idem_runtime::ErrorKind;
use idem_runtime::store::sql::Records;
use sqlx::mysql::MySqlTransaction;

use crate::database::Database;
use crate::service::{Body, Paid, PayError, pay_and_commit, pay_on};

#[tokio::test]
async fn my_05_long_keys_that_differ_late_are_two() {
    for mode in ["", "SET SESSION sql_mode = ''"] {
        let db = Database::fresh().await;
        let pool = db.pool(1, mode).await;
        let body = Body::default();
        let (mut a, mut b) = ("k".repeat(300), "k".repeat(300));
        a.replace_range(290..291, "a");
        b.replace_range(290..291, "b");
        for no in [&a, &b, &a, &b] {
            pay_and_commit(&pool, no, 1, body.clone()).await.unwrap();
        }
        assert_eq!((body.runs(), db.records().await), (2, 2), "{mode:?}");
    }
}

#[tokio::test]
async fn my_06_no_collation_makes_keys_equal() {
    let db = Database::fresh().await;
    let body = Body::default();
    let keys = [
        "pub:Bot-A",
        "pub:bot-a",
        "k",
        "k ",
        "straße",
        "strasse",
        "e",
        "é",
    ];
    for no in keys.iter().chain(&keys) {
        pay_and_commit(&db.pool, no, 1, body.clone()).await.unwrap();
    }
    assert_eq!((body.runs(), db.records().await), (8, 8));
}

#[tokio::test]
async fn pg_10_no_part_of_the_identity_can_be_null() {
    let db = Database::fresh().await;
    let body = Body::default();
    for no in ["None", "NULL", "null", "None"] {
        pay_and_commit(&db.pool, no, 1, body.clone()).await.unwrap();
    }
    assert_eq!(body.runs(), 3);
    let nullable = "SELECT COUNT(*) FROM information_schema.columns \
         WHERE table_schema = DATABASE() AND table_name = 'idem_record' \
         AND column_name IN ('id', 'scope', 'owner', 'fingerprint') AND is_nullable = 'YES'";
    assert_eq!(db.number(nullable).await, 0);
}

#[tokio::test]
async fn pg_06_a_long_key_is_taken_or_refused_whatever_it_compresses_to() {
    let db = Database::fresh().await;
    let body = Body::default();
    let random: String = (0..640_u64)
        .map(|n| format!("{:08x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32))
        .collect();
    let keys = [
        random[..3000].to_owned(),
        random[..5000].to_owned(),
        "x".repeat(5000),
        "é".repeat(600),
        "x".repeat(idem_runtime::key::MAX_KEY_BYTES - 4),
    ];
    for no in &keys {
        for _ in 0..2 {
            pay_and_commit(&db.pool, no, 1, body.clone()).await.unwrap();
        }
    }
    assert_eq!(body.runs(), 5);
    let long = "x".repeat(idem_runtime::key::MAX_KEY_BYTES);
    let refused = pay_and_commit(&db.pool, &long, 1, body.clone()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::KeyTooLong);
    assert_eq!(body.runs(), 5);
}

#[idempotent(crate = ::idem_runtime, key = "echo:{text}", ttl = "1h", store = "tx")]
async fn echo(tx: &mut MySqlTransaction<'_>, text: &str) -> Result<String, PayError> {
    Ok(format!("{text}!"))
}

#[tokio::test]
async fn pg_04_every_character_comes_back_in_key_and_result() {
    let db = Database::fresh().await;
    for text in [
        "a\0b",
        "\0c",
        "ab",
        "\u{1f980}\u{10ffff}",
        "'\"\\`; --",
        "\r\n\t\u{7f}d",
    ] {
        for _ in 0..2 {
            let mut tx = db.pool.begin().await.unwrap();
            let echoed = echo(&mut tx, text).await.unwrap();
            assert_eq!(echoed, format!("{text}!"));
            tx.commit().await.unwrap();
        }
    }
    assert_eq!(db.records().await, 6);
}

async fn pay_in(records: &Records, db: &Database, no: &str, body: &Body) -> Paid {
    let mut tx = db.pool.begin().await?;
    let paid = pay_on(records, &mut tx, no, 1, body.clone()).await;
    tx.commit().await?;
    paid
}

#[tokio::test]
async fn tables_and_namespaces_keep_records_apart() {
    let db = Database::fresh().await;
    let body = Body::default();
    let schema = db.name();
    let table = Records::in_table(&format!("{schema}.billing_record")).unwrap();
    idem_runtime::store::mysql::migrate(&table.pool(&db.pool))
        .await
        .unwrap();
    idem_runtime::store::mysql::check(&table.pool(&db.pool))
        .await
        .unwrap();
    let apart = [
        Records::default(),
        Records::default().namespace("eu"),
        Records::default().namespace("us"),
        table.clone(),
        table.namespace("eu"),
    ];
    for records in apart.iter().chain(&apart) {
        pay_in(records, &db, "1", &body).await.unwrap();
    }
    assert_eq!(body.runs(), 5);
    assert_eq!(db.records().await, 3);
}
