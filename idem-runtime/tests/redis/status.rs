//! How a call stands, asked without running it.

use std::time::Duration;

use idem_macros::idempotent;
use idem_runtime::retention::Left;
use idem_runtime::status::Status;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Error, ErrorKind};
use idem_test_support::RedisServer;
use idem_test_support::child::{Args, say};

use crate::support;

idem_test_support::child_roles!(dies_in_body);

#[idempotent(
    crate = ::idem_runtime, key = "pay:{no}", scope = "status.pay", ttl = "1h", lease = "2s",
    store = store, companion = pay_call, fingerprint = none, max_outcome = "10B",
    oversize = "tombstone"
)]
async fn pay(
    store: &RedisStore,
    no: u64,
    body: impl Future<Output = String> + Send,
) -> Result<String, Error> {
    Ok(body.await)
}

async fn dies_in_body(args: Args) {
    let store = support::store_on(args.get(0)).await;
    let body = async {
        say("in the body");
        std::future::pending().await
    };
    let answer = pay(&store, 7, body).await;
    panic!("{answer:?}");
}

#[tokio::test]
async fn lk_10_a_killed_holder_is_seen_until_its_lease_ends_and_as_abandoned_then() {
    let server = RedisServer::start(&[]);
    let store = support::store_on(&server.url()).await;
    let call = pay_call(&7).unwrap();
    let mut child = child("dies_in_body").arg(server.url()).spawn();
    child.wait_for("in the body").await;
    child.kill9();
    let status = call.status(&store).await.unwrap();
    let Status::InProgress(holder) = status else {
        panic!("{status:?}");
    };
    assert!(holder.owner.is_some() && holder.fence.is_some());
    assert!(holder.since.unwrap() < holder.lease_until.unwrap());
    let free_in = holder.free_in.unwrap();
    assert!(free_in <= Duration::from_secs(2), "{free_in:?}");
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
        (holder.owner, holder.since)
    );
    let paid = pay(&store, 7, async { "paid".to_owned() }).await;
    assert_eq!(paid.unwrap(), "paid");
}

/// IP-17: the call dies with its effect done, and somebody says so.
#[tokio::test]
async fn ip_17_an_abandoned_call_is_resolved_with_its_outcome() {
    let server = RedisServer::start(&[]);
    let store = support::store_on(&server.url()).await;
    let call = pay_call(&7).unwrap();
    let by_hand = Ok("by hand".to_owned());
    let refused = call.resolve(&store, &by_hand).await.unwrap_err();
    assert_eq!(
        refused.kind(),
        ErrorKind::NotAbandoned,
        "nothing is recorded"
    );
    let mut child = child("dies_in_body").arg(server.url()).spawn();
    child.wait_for("in the body").await;
    let refused = call.resolve(&store, &by_hand).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InProgress);
    child.kill9();
    while call.status(&store).await.unwrap().is_in_progress() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let large = Ok("x".repeat(98));
    let refused = call.resolve(&store, &large).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutcomeTooLarge);
    for _ in 0..2 {
        call.resolve(&store, &by_hand).await.unwrap();
    }
    let refused = call.resolve(&store, &Ok("other".to_owned())).await;
    assert_eq!(
        refused.unwrap_err().kind(),
        ErrorKind::NotAbandoned,
        "another outcome"
    );
    let repeat = pay(&store, 7, async { panic!("it ran again") }).await;
    assert_eq!(repeat.unwrap(), "by hand");
}

#[tokio::test]
async fn the_whole_life_of_a_call() {
    let store = support::store().await;
    let call = pay_call(&7).unwrap();
    assert!(call.status(&store).await.unwrap().is_absent());
    let inside = async {
        assert!(call.status(&store).await.unwrap().is_in_progress());
        "paid".to_owned()
    };
    pay(&store, 7, inside).await.unwrap();
    match call.status(&store).await.unwrap() {
        Status::Completed(done) => {
            assert_eq!(done.outcome.unwrap(), "paid");
            assert!(done.recorded_at.is_some());
            let Left::For(left) = done.left else {
                panic!("{:?}", done.left);
            };
            assert!(left > Duration::from_secs(3500) && left <= Duration::from_secs(3600));
        }
        other => panic!("{other:?}"),
    }
    assert!(call.forget(&store).await.unwrap());
    assert!(call.status(&store).await.unwrap().is_absent());
    assert!(!call.forget(&store).await.unwrap());
    pay(&store, 7, async { "x".repeat(98) }).await.unwrap();
    match call.status(&store).await.unwrap() {
        Status::OutcomeGone(gone) => assert_eq!(gone.bytes, Some(100)),
        other => panic!("{other:?}"),
    }
}
