//! What holds on every database, on MariaDB or MySQL.

pub(crate) use crate::fixture::mysql as db;

#[path = "answers.rs"]
mod answers;
#[path = "races.rs"]
mod races;
#[path = "service.rs"]
mod service;

/// Without strict mode a number beyond its column is cut, and so is a text: a version would not go up,
/// and a row would hold a state that is none.
#[tokio::test]
async fn what_does_not_fit_is_an_error_in_any_mode_of_the_session() {
    use crate::fixture::{Status, orders};
    let shop = db::Shop::open().await;
    shop.order(1, "pending").await;
    shop.run(
        "ALTER TABLE shop_order MODIFY version TINYINT NOT NULL DEFAULT 127; \
         UPDATE shop_order SET version = 127",
    )
    .await;
    let mut conn = shop.pool.acquire().await.unwrap();
    let set = sqlx::raw_sql("SET SESSION sql_mode = ''");
    set.execute(&mut *conn).await.unwrap();
    let full = orders().apply(&mut conn, 1_i64, Status::Paid).await;
    assert_eq!(full.unwrap_err().kind(), idem::ErrorKind::TableMismatch);
    shop.run("ALTER TABLE shop_order MODIFY version BIGINT, MODIFY status VARCHAR(8); UPDATE shop_order SET status = 'paid'")
        .await;
    let cut = orders().apply(&mut conn, 1_i64, Status::Refunding).await;
    assert_eq!(cut.unwrap_err().kind(), idem::ErrorKind::TableMismatch);
    assert_eq!(shop.row(1).await.0, "paid");
}
