//! What a transition answers, and what it leaves in the row.

use idem::ErrorKind;
use idem::machine::{RequireError, Transition, Transitioned, UnknownState};

use super::db::{Db, Shop};
use crate::fixture::{Status, orders};

async fn shop() -> Shop {
    let shop = Shop::open().await;
    shop.order(1, "pending").await;
    shop
}

#[tokio::test]
async fn each_answer() {
    let (shop, orders) = (shop().await, orders());
    let mut tx = shop.pool.begin().await.unwrap();
    let paid = orders.apply(&mut tx, 1_i64, Status::Paid).await.unwrap();
    assert!(matches!(
        paid,
        Transitioned::Applied {
            from: Some(Status::Pending),
            ..
        }
    ));
    assert!(paid.is_applied());
    let again = orders.apply(&mut tx, 1_i64, Status::Paid).await.unwrap();
    assert_eq!(again, Transitioned::AlreadyThere);
    let closed = orders
        .apply(&mut tx, 1_i64, Status::Cancelled)
        .await
        .unwrap();
    assert!(matches!(
        closed,
        Transitioned::Refused {
            current: Status::Paid,
            ..
        }
    ));
    // Nothing leads back to the beginning.
    let back = orders.apply(&mut tx, 1_i64, Status::Pending).await.unwrap();
    assert!(matches!(
        back,
        Transitioned::Refused {
            current: Status::Paid,
            ..
        }
    ));
    let none = orders.apply(&mut tx, 2_i64, Status::Paid).await.unwrap();
    assert_eq!(none, Transitioned::NotFound);
    tx.commit().await.unwrap();
    assert_eq!(shop.row(1).await.0, "paid");
}

#[tokio::test]
async fn mr_on_a_transaction_a_connection_and_by_other_ids() {
    let (shop, orders) = (shop().await, orders());
    let mut tx = shop.pool.begin().await.unwrap();
    let connection = &mut *tx;
    let paid = orders
        .apply(connection, &1_i64, Status::Paid)
        .await
        .unwrap();
    assert!(paid.is_applied());
    tx.rollback().await.unwrap();
    assert_eq!(shop.row(1).await, ("pending".to_owned(), 0, None));
    let mut connection = shop.pool.acquire().await.unwrap();
    let paid = orders
        .apply(&mut connection, Some(1_i64), Status::Paid)
        .await;
    assert!(paid.unwrap().is_applied());

    shop.run("CREATE TABLE parcel (no VARCHAR(20) PRIMARY KEY, state VARCHAR(16) NOT NULL)")
        .await;
    shop.run("INSERT INTO parcel VALUES ('p''1', 'pending')")
        .await;
    let parcels = Transition::in_table("parcel")
        .id_column("no")
        .status_column("state");
    let parcels = parcels.build().unwrap();
    let no = "p'1".to_owned();
    let paid = parcels
        .apply(&mut connection, no.as_str(), Status::Paid)
        .await;
    assert!(paid.unwrap().is_applied());
    let again = parcels
        .apply(&mut connection, no, Status::Paid)
        .await
        .unwrap();
    assert_eq!(again, Transitioned::AlreadyThere);
}

#[tokio::test]
async fn cb_the_version_goes_up_and_the_stamp_stays() {
    let (shop, orders) = (shop().await, orders());
    let mut conn = shop.pool.acquire().await.unwrap();
    assert!(
        orders
            .apply(&mut conn, 1_i64, Status::Paid)
            .await
            .unwrap()
            .is_applied()
    );
    let first = shop.row(1).await;
    assert_eq!(first.1, 1);
    assert!(
        first.2.as_ref().is_some_and(|at| at.len() >= 19),
        "{first:?}"
    );
    for _ in 0..3 {
        let again = orders.apply(&mut conn, 1_i64, Status::Paid).await.unwrap();
        assert_eq!(again, Transitioned::AlreadyThere);
    }
    assert_eq!(shop.row(1).await, first);
    assert!(
        orders
            .apply(&mut conn, 1_i64, Status::Refunding)
            .await
            .unwrap()
            .is_applied()
    );
    assert_eq!(shop.row(1).await, ("refunding".to_owned(), 2, first.2));

    // A stamp that is there is left alone, and another target's is not set.
    shop.order(2, "pending").await;
    shop.run("UPDATE shop_order SET paid_at = '2001-02-03 04:05:06' WHERE id = 2")
        .await;
    assert!(
        orders
            .apply(&mut conn, 2_i64, Status::Paid)
            .await
            .unwrap()
            .is_applied()
    );
    assert!(
        shop.row(2)
            .await
            .2
            .unwrap()
            .starts_with("2001-02-03 04:05:06")
    );
    shop.order(3, "pending").await;
    assert!(
        orders
            .apply(&mut conn, 3_i64, Status::Cancelled)
            .await
            .unwrap()
            .is_applied()
    );
    assert_eq!(shop.row(3).await, ("closed".to_owned(), 1, None));
}

#[tokio::test]
async fn sm_07_a_text_that_is_no_state_is_an_error_that_names_it() {
    let (shop, orders) = (shop().await, orders());
    shop.order(2, "lost in space").await;
    let mut conn = shop.pool.acquire().await.unwrap();
    let error = orders
        .apply(&mut conn, 2_i64, Status::Paid)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownState);
    let source = std::error::Error::source(&error).unwrap();
    let unknown = source.downcast_ref::<UnknownState>().unwrap();
    assert_eq!(
        (unknown.machine(), unknown.text()),
        ("Status", "lost in space")
    );
    assert!(
        error
            .to_string()
            .contains("\"lost in space\" is no state of `Status`")
    );

    shop.run("INSERT INTO shop_order (id) VALUES (3)").await;
    let error = orders
        .apply(&mut conn, 3_i64, Status::Paid)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownState);
    assert!(error.to_string().contains("NULL is no state of `Status`"));
}

#[tokio::test]
async fn a_state_is_bound_and_read_as_text() {
    let shop = shop().await;
    shop.order(2, "closed").await;
    let read = sqlx::query_scalar::<Db, Status>("SELECT status FROM shop_order ORDER BY id");
    let states = read.fetch_all(&shop.pool).await.unwrap();
    assert_eq!(states, [Status::Pending, Status::Cancelled]);
    let sql = match idem::machine::Transition::<Status>::in_table("shop_order")
        .build()
        .unwrap()
        .reading_statement::<Db>()
        .contains("$1")
    {
        true => "SELECT id FROM shop_order WHERE status = $1",
        false => "SELECT id FROM shop_order WHERE status = ?",
    };
    let find = sqlx::query_scalar::<Db, i64>(sql).bind(Status::Cancelled);
    assert_eq!(find.fetch_all(&shop.pool).await.unwrap(), [2]);

    shop.order(3, "lost").await;
    let read = sqlx::query_scalar::<Db, Status>("SELECT status FROM shop_order WHERE id = 3");
    let error = read.fetch_one(&shop.pool).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("\"lost\" is no state of `Status`"),
        "{error}"
    );
}

#[tokio::test]
async fn sm_05_an_id_that_is_not_unique_is_an_error() {
    let shop = shop().await;
    shop.run("CREATE TABLE twice (id BIGINT NOT NULL, status VARCHAR(16) NOT NULL)")
        .await;
    shop.run("INSERT INTO twice VALUES (1, 'pending'), (1, 'pending')")
        .await;
    let twice = Transition::in_table("twice").build().unwrap();
    let mut tx = shop.pool.begin().await.unwrap();
    let error = twice.apply(&mut tx, 1_i64, Status::Paid).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StateNotChanged);
    assert!(error.to_string().contains("2 rows have that id"), "{error}");
}

#[tokio::test]
async fn sm_07_a_missing_table_or_column_is_a_schema_error() {
    let shop = shop().await;
    let mut conn = shop.pool.acquire().await.unwrap();
    let builder = || Transition::in_table("shop_order");
    for wrong in [
        Transition::in_table("shop_orders"),
        builder().id_column("idd"),
        builder().status_column("state"),
        builder().bump_version("revision"),
    ] {
        let wrong = wrong.build().unwrap();
        let error = wrong
            .apply(&mut conn, 1_i64, Status::Paid)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    }
    assert_eq!(shop.row(1).await.0, "pending");
}

#[tokio::test]
async fn sm_03_what_is_required_is_now_before_or_refused() {
    let (shop, orders) = (shop().await, orders());
    let mut conn = shop.pool.acquire().await.unwrap();
    assert!(
        orders
            .require(&mut conn, 1_i64, Status::Paid)
            .await
            .unwrap()
            .is_now()
    );
    assert!(
        !orders
            .require(&mut conn, 1_i64, Status::Paid)
            .await
            .unwrap()
            .is_now()
    );
    let refused = orders
        .require(&mut conn, 1_i64, Status::Refunded)
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`paid` cannot become `refunded`: that is allowed from `refunding`"
    );
    assert_eq!(refused.current(), Some(Status::Paid));
    assert_eq!(refused.retry(), idem::Retry::Never);
    let none = orders
        .require(&mut conn, 9_i64, Status::Paid)
        .await
        .unwrap_err();
    assert!(matches!(none, RequireError::NotFound { .. }));
    assert_eq!(none.to_string(), "there is no row that could become `paid`");
}
