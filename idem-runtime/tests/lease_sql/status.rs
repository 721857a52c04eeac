//! How a call stands, asked without running it.

use std::time::Duration;

use idem_macros::idempotent;
use idem_runtime::status::{Holder, Status};
use idem_runtime::store::Store as _;
use idem_runtime::store::sql::LeasedSql;
use idem_runtime::store::sql::lease::LeaseDialect;
use idem_runtime::{Error, ErrorKind};
use idem_test_support::child::{Args, say};
use idem_test_support::{mariadb, postgres};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{MySql, Postgres, Sqlite};

use crate::support;

idem_test_support::child_roles!(dies_in_body);

#[idempotent(
    crate = ::idem_runtime, key = "pay:{no}", scope = "status.pay", ttl = "1h", lease = "2s",
    store = store, companion = pay_call, fingerprint = none
)]
async fn pay<D: LeaseDialect>(
    store: &LeasedSql<D>,
    no: u64,
    body: impl Future<Output = u64> + Send,
) -> Result<u64, Error> {
    Ok(body.await)
}

async fn dies_in_body(args: Args) {
    let body = async {
        say("in the body");
        std::future::pending().await
    };
    let url = args.get(1);
    let answer = match args.get(0) {
        "postgres" => {
            let store = LeasedSql::<Postgres>::new(postgres::pool(url, 2).await);
            pay(&store, 7, body).await
        }
        "mariadb" => {
            let store = LeasedSql::<MySql>::new(mariadb::pool(url, 2).await);
            pay(&store, 7, body).await
        }
        _ => {
            let pool = SqlitePoolOptions::new().connect(url).await.unwrap();
            pay(&LeasedSql::<Sqlite>::new(pool), 7, body).await
        }
    };
    panic!("{answer:?}");
}

#[track_caller]
fn running(status: &Status<Result<u64, Error>>) -> Holder {
    match status {
        Status::InProgress(holder) => holder.clone(),
        other => panic!("{other:?}"),
    }
}

/// LK-10: owner, start and end of the lease of what a killed process left behind are seen; it ends
/// by itself, and nothing is lost without a word.
async fn a_killed_holder<D: LeaseDialect>(kind: &str, url: String, store: LeasedSql<D>) {
    let call = pay_call::<D>(&7).unwrap();
    assert!(call.status(&store).await.unwrap().is_absent());
    let mut child = child("dies_in_body").arg(kind).arg(url).spawn();
    child.wait_for("in the body").await;
    let before = running(&call.status(&store).await.unwrap());
    child.kill9();
    let status = call.status(&store).await.unwrap();
    let holder = running(&status);
    assert!(holder.owner.is_some() && holder.owner == before.owner);
    assert!(holder.fence.is_some() && holder.fence == before.fence);
    assert_eq!(holder.since, before.since);
    let (since, until) = (holder.since.unwrap(), holder.lease_until.unwrap());
    assert!(since < until, "{holder:?}");
    assert!(holder.free_in.unwrap() <= Duration::from_secs(2));
    let error = call.forget(&store).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InProgress);
    let abandoned = loop {
        match call.status(&store).await.unwrap() {
            Status::InProgress(holder) => {
                let pause = holder.free_in.unwrap() + Duration::from_millis(1);
                tokio::time::sleep(pause).await;
            }
            Status::Abandoned(holder) => break holder,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        (abandoned.owner, abandoned.since),
        (before.owner, before.since)
    );
    assert_eq!(abandoned.free_in, Some(Duration::ZERO));
    assert_eq!(pay(&store, 7, async { 2 }).await.unwrap(), 2);
    match call.status(&store).await.unwrap() {
        Status::Completed(done) => {
            assert_eq!(done.outcome.unwrap(), 2);
            assert!(done.recorded_at.unwrap() > since);
        }
        other => panic!("{other:?}"),
    }
    assert!(call.forget(&store).await.unwrap());
    assert!(call.status(&store).await.unwrap().is_absent());
}

/// IP-17: the call dies with its effect done, and somebody says so.
async fn is_resolved<D: LeaseDialect>(kind: &str, url: String, store: LeasedSql<D>) {
    let call = pay_call::<D>(&7).unwrap();
    let refused = call.resolve(&store, &Ok(5)).await.unwrap_err();
    assert_eq!(
        refused.kind(),
        ErrorKind::NotAbandoned,
        "nothing is recorded"
    );
    let mut child = child("dies_in_body").arg(kind).arg(url).spawn();
    child.wait_for("in the body").await;
    let refused = call.resolve(&store, &Ok(5)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InProgress);
    child.kill9();
    while call.status(&store).await.unwrap().is_in_progress() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for _ in 0..2 {
        call.resolve(&store, &Ok(5)).await.unwrap();
    }
    let refused = call.resolve(&store, &Ok(6)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotAbandoned, "another outcome");
    let repeat = pay(&store, 7, async { panic!("it ran again") }).await;
    assert_eq!(repeat.unwrap(), 5);
}

#[tokio::test]
async fn ip_17_an_abandoned_call_is_resolved_with_its_outcome() {
    let (database, pool) = support::postgres().await;
    is_resolved("postgres", database.url().to_owned(), LeasedSql::new(pool)).await;
    let (database, pool) = support::mariadb().await;
    is_resolved("mariadb", database.url().to_owned(), LeasedSql::new(pool)).await;
    let (file, pool) = support::sqlite().await;
    is_resolved("sqlite", file.url(), LeasedSql::new(pool)).await;
}

#[tokio::test]
async fn lk_10_a_killed_holder_is_seen_until_its_lease_ends_and_as_abandoned_then() {
    let (database, pool) = support::postgres().await;
    a_killed_holder("postgres", database.url().to_owned(), LeasedSql::new(pool)).await;
    let (database, pool) = support::mariadb().await;
    a_killed_holder("mariadb", database.url().to_owned(), LeasedSql::new(pool)).await;
    let (file, pool) = support::sqlite().await;
    a_killed_holder("sqlite", file.url(), LeasedSql::new(pool)).await;
}

#[tokio::test]
async fn an_abandoned_reservation_can_be_forgotten_and_a_namespace_is_honoured() {
    let (_database, pool) = support::postgres().await;
    let store = LeasedSql::<Postgres>::builder().namespace("eu").build(pool);
    let call = pay_call::<Postgres>(&1).unwrap();
    let mut request = support::request("any", Duration::from_millis(1));
    request.id = call.record_id("eu");
    let held = support::granted(store.reserve(&request).await.unwrap());
    drop(held);
    while call.status(&store).await.unwrap().is_in_progress() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(call.forget(&store).await.unwrap());
    assert!(!call.forget(&store).await.unwrap());
}
