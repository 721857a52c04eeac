//! The schema and the check before a service starts.

use idem_runtime::ErrorKind;
use idem_runtime::store::mysql::{check, migrate};
use idem_runtime::store::sql::Records;

use crate::database::Database;

#[tokio::test]
async fn many_processes_may_migrate_at_once() {
    let db = Database::fresh().await;
    let records = Records::in_table("another").unwrap();
    let migrating = (0..8).map(|_| {
        let pool = records.pool(&db.pool);
        tokio::spawn(async move { migrate(&pool).await })
    });
    for migrated in migrating.collect::<Vec<_>>() {
        migrated.await.unwrap().unwrap();
    }
    check(&records.pool(&db.pool)).await.unwrap();
    check(&db.pool).await.unwrap();
}

#[tokio::test]
async fn a_strangers_table_is_left_alone() {
    let db = Database::fresh().await;
    let records = Records::in_table("orders").unwrap();
    let refused = migrate(&records.pool(&db.pool)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Schema, "{refused}");
    let columns = "SELECT COUNT(*) FROM information_schema.columns \
         WHERE table_schema = DATABASE() AND table_name = 'orders'";
    assert_eq!(db.number(columns).await, 3);
}

#[tokio::test]
async fn a_schema_that_cannot_keep_the_promise_is_refused() {
    for (change, says) in [
        ("MODIFY id VARBINARY(16) NOT NULL", "binary(16)"),
        ("MODIFY owner CHAR(16) NOT NULL", "owner"),
        (
            "MODIFY scope TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL",
            "utf8mb4_bin",
        ),
        ("DROP COLUMN outcome", "outcome"),
        ("ENGINE = MyISAM", "InnoDB"),
        (
            "DROP PRIMARY KEY, ADD PRIMARY KEY (id, created_at)",
            "exactly (id)",
        ),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (id(8))", "exactly (id)"),
        ("DROP PRIMARY KEY, ADD UNIQUE KEY (id)", "exactly (id)"),
    ] {
        let db = Database::fresh().await;
        check(&db.pool).await.unwrap();
        let alter = format!("ALTER TABLE idem_record {change}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(alter))
            .execute(&db.pool)
            .await
            .unwrap();
        let refused = check(&db.pool).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Schema, "{change}");
        assert!(refused.to_string().contains(says), "{refused}");
    }
}

#[tokio::test]
async fn values_that_do_not_fit_must_be_refused_by_the_session() {
    let db = Database::fresh().await;
    let lax = db.pool(1, "SET SESSION sql_mode = ''").await;
    let refused = check(&lax).await.unwrap_err();
    assert!(refused.to_string().contains("sql_mode"), "{refused}");
}

#[tokio::test]
async fn without_its_table_a_call_says_what_to_do() {
    let db = Database::fresh().await;
    sqlx::raw_sql("DROP TABLE idem_record")
        .execute(&db.pool)
        .await
        .unwrap();
    let mut tx = db.pool.begin().await.unwrap();
    let paid = crate::service::pay(&mut tx, "1", 1, crate::service::Body::default()).await;
    let error = paid.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("migrations"), "{error}");
}
