//! Several processes on one server, and processes that are killed.

use std::time::Duration;

use idem_runtime::key::Scope;
use idem_runtime::operation::Operation;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{Reserved, Store};
use idem_runtime::{ErrorKind, retention::Retention};
use idem_test_support::RedisServer;
use idem_test_support::child::{Args, say};
use redis::AsyncCommands;

use crate::support::{self, call, raw, request_for};

idem_test_support::child_roles!(calls_together, dies_in_its_body, dies_anywhere);

static PAY: Operation = Operation::new(Scope::fixed("pay")).retention_millis(604_800_000);
static SHORT: Operation = Operation::new(Scope::fixed("pay"))
    .retention_millis(604_800_000)
    .lease_millis(1_000)
    .reject();

async fn calls_together(args: Args) {
    let store = support::store_on(args.get(0)).await;
    let effects = raw(args.get(0)).await;
    args.line_up().await;
    let calls: Vec<_> = (0..args.number(1))
        .map(|_| {
            let (store, effects) = (store.clone(), effects.clone());
            tokio::spawn(async move {
                let mut effects = effects;
                let body = async move || {
                    let run: u64 = effects.incr("effects", 1).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    Ok(run + 100)
                };
                call(&store, &PAY, "order:7", body).await
            })
        })
        .collect();
    for answer in calls {
        say(&answer.await.unwrap().unwrap().to_string());
    }
}

/// F5, IP-11: five processes with two hundred equal calls each: one runs, all get its answer.
#[tokio::test]
async fn of_equal_calls_in_five_processes_one_runs() {
    let server = RedisServer::start(&[]);
    let child = child("calls_together").arg(server.url()).arg(200);
    let answers = child.run_many(5).await.concat();
    assert_eq!(answers.len(), 1000);
    assert!(answers.iter().all(|answer| answer == "101"), "{answers:?}");
    assert_eq!(server.command(&["GET", "effects"]).text(), "1");
}

async fn dies_in_its_body(args: Args) {
    let store = support::store_on(args.get(0)).await;
    let body = || async {
        say("in the body");
        std::future::pending().await
    };
    let _ = call(&store, &SHORT, "order:7", body).await;
}

/// IP-06, LK-10: a killed process blocks its key for its lease, not for the seven days of retention.
#[tokio::test]
async fn a_killed_process_blocks_its_key_for_its_lease() {
    let server = RedisServer::start(&[]);
    let store = support::store_on(&server.url()).await;
    let mut child = child("dies_in_its_body").arg(server.url()).spawn();
    child.wait_for("in the body").await;
    child.kill9();
    let killed = std::time::Instant::now();
    let retry = || call(&store, &SHORT, "order:7", || async { Ok(1) });
    let busy = retry().await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::InProgress);
    let answer = loop {
        match retry().await {
            Ok(answer) => break answer,
            Err(error) => assert_eq!(error.kind(), ErrorKind::InProgress),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(answer, 1);
    assert!(
        killed.elapsed() < Duration::from_secs(3),
        "{:?}",
        killed.elapsed()
    );
}

/// A process that is stopped past its lease learns that it lost it; its successor's outcome stays.
#[tokio::test]
async fn a_stopped_process_loses_its_key() {
    let server = RedisServer::start(&[]);
    let store = support::store_on(&server.url()).await;
    let mut child = child("dies_in_its_body").arg(server.url()).spawn();
    child.wait_for("in the body").await;
    child.sigstop();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert_eq!(
        call(&store, &SHORT, "order:7", || async { Ok(2) })
            .await
            .unwrap(),
        2
    );
    child.sigcont();
    // Its body is dropped when its next renewal is refused.
    assert!(child.ended().await.success());
    let replay = call(&store, &SHORT, "order:7", || async {
        panic!("it is recorded")
    })
    .await;
    assert_eq!(replay.unwrap(), 2);
}

/// All steps, on a few keys, until somebody kills the process.
async fn dies_anywhere(args: Args) {
    let store = support::store_on(args.get(0)).await;
    say("ready");
    let mut tasks = Vec::new();
    for task in 0..4_u32 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            for n in 0.. {
                step(&store, n, n * 4 + task).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// One life of one of twenty records.
pub(crate) async fn step(store: &RedisStore, n: u32, what: u32) {
    let id = support::id(store, n % 20);
    let short = Retention::new(Duration::from_millis(50)).unwrap();
    let reserved = store
        .reserve(&request_for(id, Duration::from_millis(20)))
        .await;
    if let Ok(Reserved::Granted(held)) = reserved {
        let _ = store.renew(&held, Duration::from_millis(20)).await;
        match what % 3 {
            0 => drop(store.complete(&held, vec![1; 300].into(), short).await),
            1 => drop(store.release(&held).await),
            _ => {}
        }
    }
    if what.is_multiple_of(7) {
        let _ = store.forget(id).await;
    }
}

/// RD-05: real kills of real processes; the thousand random ones are cut connections, in `faults`.
#[tokio::test]
async fn killed_processes_leave_no_key_without_an_end() {
    let server = RedisServer::start(&[]);
    for n in 0..40_u64 {
        let mut child = child("dies_anywhere").arg(server.url()).spawn();
        child.wait_for("ready").await;
        tokio::time::sleep(Duration::from_micros(n * 977 % 20_000)).await;
        child.kill9();
        support::assert_every_key_ends(&server);
    }
}
