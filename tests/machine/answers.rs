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
    // Nothing leads back to the beginning, where it has been.
    let back = orders.apply(&mut tx, 1_i64, Status::Pending).await.unwrap();
    assert!(matches!(
        back,
        Transitioned::Passed {
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
            .contains("\"lost in space\" is not a state of `Status`")
    );

    shop.run("INSERT INTO shop_order (id) VALUES (3)").await;
    let error = orders
        .apply(&mut conn, 3_i64, Status::Paid)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownState);
    assert!(
        error
            .to_string()
            .contains("NULL is not a state of `Status`")
    );
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
            .contains("\"lost\" is not a state of `Status`"),
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
async fn sm_07_a_missing_table_or_column_is_told_by_the_tables_name() {
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
        let checked = wrong.check(&mut conn).await.unwrap_err();
        assert_eq!(checked.kind(), ErrorKind::TableMismatch, "{checked}");
        let error = wrong
            .apply(&mut conn, 1_i64, Status::Paid)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TableMismatch, "{error}");
        assert!(error.to_string().contains("`shop_order"), "{error}");
    }
    assert_eq!(shop.row(1).await.0, "pending");
    orders().check(&mut conn).await.unwrap();
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

/// A notice that comes after the row has gone on is a repeat; one that may never have been true is not.
#[tokio::test]
async fn msg_19_a_late_event_is_told_from_a_forbidden_one() {
    let (shop, orders) = (Shop::open().await, orders());
    shop.order(1, "refunded").await;
    shop.order(2, "closed").await;
    let mut conn = shop.pool.acquire().await.unwrap();
    let late = orders.apply(&mut conn, 1_i64, Status::Paid).await.unwrap();
    assert!(matches!(
        late,
        Transitioned::Passed {
            current: Status::Refunded,
            ..
        }
    ));
    let required = orders.require(&mut conn, 1_i64, Status::Paid).await;
    assert!(!required.unwrap().is_now());
    assert_eq!(shop.row(1).await, ("refunded".to_owned(), 0, None));
    let forbidden = orders.apply(&mut conn, 2_i64, Status::Paid).await.unwrap();
    assert!(matches!(
        forbidden,
        Transitioned::Refused {
            current: Status::Cancelled,
            ..
        }
    ));
}

/// One object, one connection: a prepared statement must not read an id as of another type.
#[tokio::test]
async fn ids_of_several_types_find_the_same_row() {
    let (shop, orders) = (shop().await, orders());
    let mut conn = shop.pool.acquire().await.unwrap();
    for _ in 0..2 {
        let wide = orders.apply(&mut conn, 1_i64, Status::Paid).await;
        assert!(wide.unwrap() != Transitioned::NotFound);
        let narrow = orders.apply(&mut conn, 1_i32, Status::Paid).await.unwrap();
        assert_eq!(narrow, Transitioned::AlreadyThere);
        let none = orders.apply(&mut conn, 7_i16, Status::Paid).await.unwrap();
        assert_eq!(none, Transitioned::NotFound);
    }
    assert_eq!(shop.row(1).await.1, 1);
}

/// A collation that is blind to case or to trailing spaces makes no state of what is none.
#[tokio::test]
async fn sm_07_a_state_is_compared_byte_by_byte() {
    let (shop, orders) = (Shop::open().await, orders());
    shop.run(super::db::BLIND).await;
    for (id, text) in [(1, "PENDING"), (2, "pending ")] {
        shop.order(id, text).await;
        let mut conn = shop.pool.acquire().await.unwrap();
        let error = orders.apply(&mut conn, id, Status::Paid).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownState, "{text:?}: {error}");
        assert_eq!(shop.row(id).await, (text.to_owned(), 0, None));
    }
}

/// A version that is a time is refused before anything is added to it.
#[tokio::test]
async fn a_version_that_does_not_count_is_refused() {
    let shop = shop().await;
    let by_time = Transition::in_table("shop_order").bump_version("paid_at");
    let by_time = by_time.build().unwrap();
    for _ in 0..2 {
        let mut tx = shop.pool.begin().await.unwrap();
        let refused = by_time.apply(&mut tx, 1_i64, Status::Paid).await;
        tx.rollback().await.unwrap();
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TableMismatch, "{refused}");
        assert!(
            refused.to_string().contains("`paid_at` of `shop_order`"),
            "{refused}"
        );
    }
    assert_eq!(shop.row(1).await.0, "pending");
}

/// An id of the wrong type is the caller's mistake and no outage. SQLite's columns take any type.
#[tokio::test]
async fn an_id_of_the_wrong_type_is_told_by_the_tables_name() {
    let (shop, orders) = (shop().await, orders());
    let mut conn = shop.pool.acquire().await.unwrap();
    let wrong = orders.apply(&mut conn, "one", Status::Paid).await;
    match wrong {
        Ok(answer) => assert_eq!(answer, Transitioned::NotFound),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::TableMismatch, "{error}");
            assert_eq!(error.retry(), idem::Retry::Never);
            assert_eq!(error.effect(), idem::Effect::None);
            assert!(error.to_string().contains("`shop_order`"), "{error}");
        }
    }
    assert_eq!(shop.row(1).await.0, "pending");
}
