//! What MariaDB refuses for good is said so, with the cause in the text.

use idem_runtime::{Effect, Error, ErrorKind, Retry};
use idem_test_support::MariaDbServer;
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};

use crate::database::Database;
use crate::service::{Body, pay, pay_alone};

fn is(error: &Error, kind: ErrorKind, retry: Retry, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(
        (error.effect(), error.retry()),
        (Effect::None, retry),
        "{error}"
    );
    for word in words {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

async fn one_by_one(options: MySqlConnectOptions) -> MySqlPool {
    let pool = MySqlPoolOptions::new().max_connections(1);
    pool.connect_with(options).await.unwrap()
}

#[tokio::test]
async fn pg_17_an_account_without_rights_is_refused_for_good() {
    let db = Database::fresh().await;
    // Names of accounts are short.
    let user = format!("u{}", &db.name()[db.name().len() - 12..]);
    db.execute(&format!(
        "CREATE USER {user}@'%' IDENTIFIED BY 'x'; \
         GRANT INSERT ON {0}.orders TO {user}@'%'; GRANT SELECT ON {0}.idem_record TO {user}@'%'",
        db.name()
    ))
    .await;
    let pool = one_by_one(db.options().username(&user).password("x")).await;
    let mut tx = pool.begin().await.unwrap();
    let body = Body::default();
    let error = pay(&mut tx, "1", 1, body.clone()).await.unwrap_err();
    let words = ["permission denied", "error 1142"];
    is(error.idem(), ErrorKind::StoreRefused, Retry::Never, &words);
    tx.rollback().await.unwrap();
    // In a transaction of the framework's own as well, and nothing is tried again.
    let error = pay_alone(&pool, "1", 1, body.clone()).await.unwrap_err();
    is(error.idem(), ErrorKind::StoreRefused, Retry::Never, &words);
    assert_eq!((body.runs(), db.records().await), (0, 0));
    pool.close().await;
    db.execute(&format!("DROP USER {user}@'%'")).await;
}

#[tokio::test]
async fn a_read_only_transaction_is_refused_for_good() {
    let db = Database::fresh().await;
    let mut tx = db
        .pool
        .begin_with("START TRANSACTION READ ONLY")
        .await
        .unwrap();
    let error = pay(&mut tx, "1", 1, Body::default()).await.unwrap_err();
    let words = ["read-only", "error 1792"];
    is(error.idem(), ErrorKind::StoreRefused, Retry::Never, &words);
}

/// Servers of the test's own: what is set here is set for everybody.
#[tokio::test]
async fn a_server_without_room_or_read_only_asks_for_a_pause() {
    let server = MariaDbServer::start(&["--max-connections=10"]);
    let db = Database::fresh_on(&server.url()).await;
    db.execute("CREATE USER app@'%' IDENTIFIED BY 'x'; GRANT ALL ON *.* TO app@'%'")
        .await;
    db.execute("REVOKE SUPER, READ_ONLY ADMIN ON *.* FROM app@'%'")
        .await;
    let pool = one_by_one(db.options().username("app").password("x")).await;
    db.execute("SET GLOBAL read_only = 1").await;
    let error = pay_alone(&pool, "1", 1, Body::default()).await.unwrap_err();
    let error = error.idem();
    assert!(matches!(error.retry(), Retry::Later(Some(_))), "{error:?}");
    let words = ["read-only", "error 1290"];
    is(error, ErrorKind::StoreUnavailable, error.retry(), &words);
    db.execute("SET GLOBAL read_only = 0").await;

    let mut held = Vec::new();
    while let Ok(connection) =
        sqlx::ConnectOptions::connect(&db.options().username("app").password("x")).await
    {
        held.push(connection);
        assert!(held.len() < 20);
    }
    let options = db.options().username("app").password("x");
    let full = MySqlPoolOptions::new().connect_lazy_with(options);
    let error = idem_runtime::store::mysql::check(&full).await.unwrap_err();
    assert!(matches!(error.retry(), Retry::Later(Some(_))), "{error:?}");
    let words = ["too many connections", "error 1040"];
    is(&error, ErrorKind::StoreExhausted, error.retry(), &words);
}

/// An outcome that no packet can hold is as large the next time.
#[tokio::test]
async fn an_outcome_beyond_the_servers_packet_is_refused_for_good() {
    let db = Database::fresh().await;
    let mut tx = db.pool.begin().await.unwrap();
    let error = much::says_much(&mut tx, 17 << 20).await.unwrap_err();
    let words = ["max_allowed_packet"];
    is(error.idem(), ErrorKind::StoreRefused, Retry::Never, &words);
    drop(tx);
    assert_eq!(db.records().await, 0);
}

#[tokio::test]
async fn a_record_table_that_the_body_moves_away_from_is_named() {
    let db = Database::fresh().await;
    let mut tx = db.pool.begin().await.unwrap();
    let body = Body::default().then(crate::service::Then::Execute("USE mysql"));
    let error = pay(&mut tx, "1", 1, body).await.unwrap_err();
    let error = error.idem();
    assert_eq!(error.kind(), ErrorKind::TransactionEnded, "{error}");
    assert!(error.to_string().contains("current database"), "{error}");
    tx.rollback().await.unwrap();
    db.pool.close().await;
    let pool = one_by_one(db.options()).await;
    let left = "SELECT (SELECT COUNT(*) FROM orders) + (SELECT COUNT(*) FROM idem_record)";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&pool).await.unwrap();
    assert_eq!(left, 0);
}

mod much {
    use idem_macros::idempotent;
    use sqlx::mysql::MySqlTransaction;

    use crate::service::PayError;

    #[idempotent(crate = ::idem_runtime, key = "much:{length}", ttl = "1h", store = "tx",
        max_outcome = "64MiB")]
    pub(super) async fn says_much(
        tx: &mut MySqlTransaction<'_>,
        length: u64,
    ) -> Result<String, PayError> {
        let _ = &tx;
        Ok("x".repeat(usize::try_from(length).unwrap_or(0)))
    }
}
