//! The table: created, checked, purged.

use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_runtime::token::{Reason, StoredTokens, TokenDialect, TokenTable};
use idem_test_support::{MariaDb, Postgres, Sqlite};
use sqlx::Pool;

use crate::world::{HOUR, Tokens, WHAT, WHO, reason};

async fn created_and_checked<D: TokenDialect>(pool: &Pool<D>) {
    let table = TokenTable::default();
    let missing = table.check(pool).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Schema);
    let (one, two) = tokio::join!(table.migrate(pool), table.migrate(pool));
    one.and(two).unwrap();
    table.check(pool).await.unwrap();

    let other = TokenTable::named("other_token").unwrap();
    assert_eq!(other.migrations::<D>().len(), 1);
    other.migrate(pool).await.unwrap();
    other.check(pool).await.unwrap();
    let tokens = StoredTokens::new(other);
    let mut tx = D::begin(pool).await.unwrap();
    let token = tokens.issue(&mut tx, WHO, WHAT, HOUR).await.unwrap();
    tokens
        .consume(&mut tx, token.as_str(), WHO, WHAT)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let elsewhere = Tokens::stored().check(pool, token.as_str()).await;
    assert_eq!(reason(elsewhere), Some(Reason::Unknown));
}

/// One that is not used goes, with the caller's transaction; one that is used stays used.
async fn withdrawn<D: TokenDialect>(pool: &Pool<D>) {
    let tokens = StoredTokens::default();
    let good = Tokens::stored();
    let (one, used) = (good.issue(pool, HOUR).await, good.issue(pool, HOUR).await);
    good.spend(pool, used.as_str()).await.unwrap();
    let mut tx = D::begin(pool).await.unwrap();
    assert!(tokens.withdraw(&mut tx, one.as_str()).await.unwrap());
    tx.rollback().await.unwrap();
    good.check(pool, one.as_str()).await.unwrap();
    let mut tx = D::begin(pool).await.unwrap();
    assert!(tokens.withdraw(&mut tx, one.as_str()).await.unwrap());
    assert!(!tokens.withdraw(&mut tx, one.as_str()).await.unwrap());
    assert!(!tokens.withdraw(&mut tx, used.as_str()).await.unwrap());
    tx.commit().await.unwrap();
    let gone = good.spend(pool, one.as_str()).await;
    assert_eq!(reason(gone), Some(Reason::Unknown));
    let late = good.spend(pool, used.as_str()).await;
    assert_eq!(reason(late), Some(Reason::Used));
}

async fn has_another_key<D: TokenDialect>(pool: &Pool<D>) {
    let wrong = TokenTable::default().check(pool).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Schema);
    assert!(wrong.to_string().contains("primary key"), "{wrong}");
}

async fn ttl_09_purged<D: TokenDialect>(pool: &Pool<D>, good: &Tokens) {
    let table = TokenTable::default();
    let token = good.issue(pool, HOUR).await;
    // Just expired: it stays for an hour, in case the clock is set back.
    let gone = good.issue(pool, Duration::from_millis(1)).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    // What the test has made old, in pieces.
    assert_eq!(table.purge(pool, 2).await.unwrap(), 2);
    assert_eq!(table.purge(pool, 2).await.unwrap(), 1);
    assert_eq!(table.purge(pool, 2).await.unwrap(), 0);
    let late = good.spend(pool, gone.as_str()).await;
    assert_eq!(reason(late), Some(Reason::Expired));
    good.spend(pool, token.as_str()).await.unwrap();
}

#[tokio::test]
async fn on_postgres() {
    let database = Postgres::database().await;
    let pool = database.pool(5).await;
    created_and_checked(&pool).await;
    withdrawn(&pool).await;
    database
        .execute(
            "INSERT INTO idem_token SELECT gen_random_uuid(), '', \
             now() - interval '2 hours', CASE n WHEN 1 THEN now() END FROM generate_series(1, 3) n",
        )
        .await;
    ttl_09_purged(&pool, &Tokens::stored()).await;
    database
        .execute(
            "ALTER TABLE idem_token DROP CONSTRAINT idem_token_pkey, \
             ADD PRIMARY KEY (id, expires_at)",
        )
        .await;
    has_another_key(&pool).await;
}

#[tokio::test]
async fn on_mariadb() {
    let database = MariaDb::database().await;
    let pool = database.pool(5).await;
    created_and_checked(&pool).await;
    withdrawn(&pool).await;
    database
        .execute(
            "INSERT INTO idem_token SELECT UNHEX(MD5(seq)), '', \
             (UNIX_TIMESTAMP() - 7200) * 1000, IF(seq = 1, 1, NULL) FROM seq_1_to_3",
        )
        .await;
    ttl_09_purged(&pool, &Tokens::stored()).await;
    database
        .execute("ALTER TABLE idem_token DROP PRIMARY KEY, ADD PRIMARY KEY (id, expires_at)")
        .await;
    has_another_key(&pool).await;
    // Without transactions a token that was rolled back would be used.
    database
        .execute("ALTER TABLE idem_token DROP PRIMARY KEY, ADD PRIMARY KEY (id), ENGINE = Aria")
        .await;
    let wrong = TokenTable::default().check(&pool).await.unwrap_err();
    assert!(wrong.to_string().contains("InnoDB"), "{wrong}");
}

#[tokio::test]
async fn on_sqlite() {
    let file = Sqlite::file().await;
    let pool = file.pool(3).await;
    created_and_checked(&pool).await;
    withdrawn(&pool).await;
    sqlx::raw_sql(
        "INSERT INTO idem_token SELECT randomblob(16), x'', (unixepoch() - 7200) * 1000, \
         iif(value = 1, 1, NULL) FROM json_each('[1, 2, 3]')",
    )
    .execute(&pool)
    .await
    .unwrap();
    ttl_09_purged(&pool, &Tokens::stored()).await;
    sqlx::raw_sql(
        "DROP TABLE idem_token; CREATE TABLE idem_token (id BLOB, binding BLOB, \
         expires_at INTEGER, used_at INTEGER, PRIMARY KEY (id, expires_at))",
    )
    .execute(&pool)
    .await
    .unwrap();
    has_another_key(&pool).await;
}
