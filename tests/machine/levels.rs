//! Isolation levels, and what a server says when it cannot go on.

use idem::machine::Transitioned;
use idem::{ErrorKind, Retry};
use sqlx::Executor as _;

use crate::fixture::{Status, mysql, orders, postgres, sqlite};

#[tokio::test]
async fn sm_01_a_conflict_above_read_committed_asks_for_a_new_transaction() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let shop = postgres::Shop::open().await;
        shop.order(1, "pending").await;
        let mut late = shop.pool.begin().await.unwrap();
        let set = format!("SET TRANSACTION ISOLATION LEVEL {level}");
        late.execute(sqlx::AssertSqlSafe(set)).await.unwrap();
        late.execute("SELECT 1 FROM shop_order").await.unwrap();
        let mut conn = shop.pool.acquire().await.unwrap();
        let first = orders().apply(&mut conn, 1_i64, Status::Paid).await;
        assert!(first.unwrap().is_applied());

        let error = orders()
            .apply(&mut late, 1_i64, Status::Cancelled)
            .await
            .unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::RetryTransaction,
            "{level}: {error}"
        );
        assert_eq!(error.retry(), Retry::NewTransaction);
        let source = std::error::Error::source(&error).unwrap();
        let source = source.downcast_ref::<sqlx::Error>().unwrap();
        let code = source.as_database_error().unwrap().code().unwrap();
        assert_eq!(code, "40001");
    }
}

#[tokio::test]
async fn my_02_under_repeatable_read_the_second_read_sees_the_winner() {
    let shop = mysql::Shop::open().await;
    shop.order(1, "pending").await;
    let mut late = shop.pool.begin().await.unwrap();
    // The snapshot of the transaction is from before.
    late.execute("SELECT status FROM shop_order").await.unwrap();
    let mut conn = shop.pool.acquire().await.unwrap();
    let first = orders().apply(&mut conn, 1_i64, Status::Paid).await;
    assert!(first.unwrap().is_applied());

    let again = orders().apply(&mut late, 1_i64, Status::Paid).await;
    let other = orders().apply(&mut late, 1_i64, Status::Cancelled).await;
    match (again, other) {
        (Ok(again), Ok(other)) => {
            assert_eq!(again, Transitioned::AlreadyThere);
            assert!(matches!(
                other,
                Transitioned::Refused {
                    current: Status::Paid,
                    ..
                }
            ));
        }
        // A server that guards its snapshots (`innodb_snapshot_isolation`).
        (Err(error), _) => assert_eq!(error.kind(), ErrorKind::RetryTransaction),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn my_02_it_does_not_matter_which_rows_the_connection_counts() {
    let shop = mysql::Shop::open().await;
    // sqlx always asks for the rows found; the row is changed whenever it is found, so both are one.
    shop.order(1, "pending").await;
    let mut conn = shop.pool.acquire().await.unwrap();
    let plain = idem::machine::Transition::in_table("shop_order")
        .build()
        .unwrap();
    assert!(
        plain
            .apply(&mut conn, 1_i64, Status::Paid)
            .await
            .unwrap()
            .is_applied()
    );
    for _ in 0..2 {
        let again = plain.apply(&mut conn, 1_i64, Status::Paid).await.unwrap();
        assert_eq!(again, Transitioned::AlreadyThere);
    }
}

#[tokio::test]
async fn on_sqlite_a_snapshot_that_is_over_asks_for_a_new_transaction() {
    let shop = sqlite::Shop::open().await;
    shop.order(1, "pending").await;
    let mut late = shop.pool.begin().await.unwrap();
    let seen: Vec<i64> = sqlx::query_scalar("SELECT id FROM shop_order")
        .fetch_all(&mut *late)
        .await
        .unwrap();
    assert_eq!(seen, [1]);
    let mut conn = shop.pool.acquire().await.unwrap();
    assert!(
        orders()
            .apply(&mut conn, 1_i64, Status::Paid)
            .await
            .unwrap()
            .is_applied()
    );
    let error = orders()
        .apply(&mut late, 1_i64, Status::Paid)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RetryTransaction, "{error}");
}

#[tokio::test]
async fn a_trigger_that_swallows_the_update_is_found_out() {
    let shop = postgres::Shop::open().await;
    shop.order(1, "pending").await;
    shop.run(
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER nothing BEFORE UPDATE ON shop_order FOR EACH ROW EXECUTE FUNCTION nothing()",
    )
    .await;
    let mut conn = shop.pool.acquire().await.unwrap();
    let error = orders()
        .apply(&mut conn, 1_i64, Status::Paid)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StateNotChanged, "{error}");
}

#[tokio::test]
async fn a_column_of_an_enumerated_type_will_do() {
    let shop = postgres::Shop::open().await;
    shop.run(
        "CREATE TYPE state AS ENUM ('pending', 'paid', 'refunding', 'refunded', 'closed'); \
         CREATE TABLE typed (id BIGINT PRIMARY KEY, status state NOT NULL); \
         INSERT INTO typed VALUES (1, 'pending')",
    )
    .await;
    let typed = idem::machine::Transition::in_table("typed")
        .build()
        .unwrap();
    let mut conn = shop.pool.acquire().await.unwrap();
    assert!(
        typed
            .apply(&mut conn, 1_i64, Status::Paid)
            .await
            .unwrap()
            .is_applied()
    );
    let again = typed.apply(&mut conn, 1_i64, Status::Paid).await.unwrap();
    assert_eq!(again, Transitioned::AlreadyThere);
}

#[tokio::test]
async fn a_column_of_an_enumerated_type_will_do_on_mysql() {
    let shop = mysql::Shop::open().await;
    shop.run(
        "CREATE TABLE typed (id BIGINT PRIMARY KEY, status \
         ENUM('pending', 'paid', 'refunding', 'refunded', 'closed') NOT NULL) ENGINE = InnoDB",
    )
    .await;
    shop.run("INSERT INTO typed VALUES (1, 'pending')").await;
    let typed = idem::machine::Transition::in_table("typed")
        .build()
        .unwrap();
    let mut conn = shop.pool.acquire().await.unwrap();
    let paid = typed.apply(&mut conn, 1_i64, Status::Paid).await.unwrap();
    assert!(paid.is_applied());
    let again = typed.apply(&mut conn, 1_i64, Status::Paid).await.unwrap();
    assert_eq!(again, Transitioned::AlreadyThere);
}

#[tokio::test]
async fn states_are_bound_as_an_array() {
    let shop = postgres::Shop::open().await;
    shop.order(1, "paid").await;
    shop.order(2, "closed").await;
    let find = sqlx::query_scalar("SELECT id FROM shop_order WHERE status = ANY($1)")
        .bind(Status::sources_of(Status::Refunding));
    let found: Vec<i64> = find.fetch_all(&shop.pool).await.unwrap();
    assert_eq!(found, [1]);
}
