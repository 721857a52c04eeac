//! Many equal calls at once, in one process and in several; and processes killed in the middle.

use std::{collections::HashSet, sync::Arc};

use idem_test_support::child::{Args, say};
use tokio::{sync::Barrier, task::JoinSet};

use crate::fixture::{Backend, Lite, Pg, Probe, Receipt, World, begin, pay};

idem_test_support::child_roles!(many_calls, dies_in_body, dies_before_commit);

async fn one_call<B: Backend>(pool: &sqlx::Pool<B::Db>, probe: &Probe) -> Receipt {
    let mut tx = begin::<B>(pool).await;
    let receipt = pay::<B>(&mut tx, "one", 100, probe).await.unwrap();
    tx.commit().await.unwrap();
    receipt
}

/// So many equal calls at once: their answers.
async fn storm<B: Backend>(
    pool: &sqlx::Pool<B::Db>,
    calls: usize,
    probe: Arc<Probe>,
) -> HashSet<String> {
    let barrier = Arc::new(Barrier::new(calls));
    let mut tasks = JoinSet::new();
    for _ in 0..calls {
        let (pool, probe, barrier) = (pool.clone(), Arc::clone(&probe), Arc::clone(&barrier));
        tasks.spawn(async move {
            barrier.wait().await;
            one_call::<B>(&pool, &probe).await.run
        });
    }
    let runs = tasks.join_all().await;
    assert_eq!(runs.len(), calls);
    runs.into_iter().collect()
}

async fn a_thousand<B: Backend>(connections: u32) {
    let world = World::<B>::new(connections).await;
    let probe = Arc::new(Probe::new());
    let answers = storm::<B>(&world.pool, 1000, Arc::clone(&probe)).await;
    assert_eq!(answers.len(), 1, "one answer for all");
    assert_eq!(probe.runs(), 1);
    assert_eq!(world.effects("one").await, 1);
    assert_eq!(world.records().await, (1, 0));
}

async fn ip_11_a_thousand_equal_calls_on_5_connections<B: Backend>() {
    a_thousand::<B>(5).await;
}

async fn ip_11_a_thousand_equal_calls_on_20_connections<B: Backend>() {
    a_thousand::<B>(20).await;
}

async fn ip_11_five_processes_of_200_equal_calls<B: Backend>() {
    let world = World::<B>::new(2).await;
    let launch = child("many_calls").arg(B::NAME).arg(world.backend.url());
    let said = launch.run_many(5).await;
    let (mut answers, mut runs) = (HashSet::new(), 0);
    for messages in said {
        let [run_count, process_answers @ ..] = messages.as_slice() else {
            panic!("a process said nothing");
        };
        runs += run_count.parse::<usize>().unwrap();
        answers.extend(process_answers.iter().cloned());
    }
    assert_eq!((answers.len(), runs), (1, 1), "{answers:?}");
    assert_eq!(world.effects("one").await, 1);
    assert_eq!(world.records().await, (1, 0));
}

async fn many_calls(args: Args) {
    async fn run<B: Backend>(args: Args) {
        let pool = B::open(args.get(1), 5).await;
        let probe = Arc::new(Probe::new());
        args.line_up().await;
        let answers = storm::<B>(&pool, 200, Arc::clone(&probe)).await;
        say(&probe.runs().to_string());
        answers.iter().for_each(|answer| say(answer));
    }
    match args.get(0) {
        Pg::NAME => run::<Pg>(args).await,
        _ => run::<Lite>(args).await,
    }
}

async fn ip_06_killed_in_the_body<B: Backend>() {
    killed::<B>("dies_in_body").await;
}

async fn ip_06_killed_between_body_and_commit<B: Backend>() {
    killed::<B>("dies_before_commit").await;
}

/// Nothing of a killed call remains, and the retry runs at once.
async fn killed<B: Backend>(role: &str) {
    let world = World::<B>::new(2).await;
    let launch = child(role).arg(B::NAME).arg(world.backend.url());
    let mut process = launch.spawn();
    process.wait_for("here").await;
    process.kill9();
    assert_eq!(world.records().await, (0, 0));
    assert_eq!(world.effects("one").await, 0);
    let probe = Probe::new();
    let first = world.pay("one", &probe).await.unwrap();
    assert_eq!(world.pay("one", &probe).await.unwrap(), first);
    assert_eq!(probe.runs(), 1);
    assert_eq!(world.effects("one").await, 1);
    assert_eq!(world.records().await, (1, 0));
}

async fn dies_in_body(args: Args) {
    async fn run<B: Backend>(args: Args) {
        let pool = B::open(args.get(1), 1).await;
        let mut tx = begin::<B>(&pool).await;
        B::execute(&mut tx, crate::fixture::effect("one"))
            .await
            .unwrap();
        let probe = Probe::gated();
        tokio::join!(
            async { pay::<B>(&mut tx, "one", 100, &probe).await.unwrap() },
            async {
                probe.entered(1).await;
                say("here");
            }
        );
    }
    match args.get(0) {
        Pg::NAME => run::<Pg>(args).await,
        _ => run::<Lite>(args).await,
    }
}

async fn dies_before_commit(args: Args) {
    async fn run<B: Backend>(args: Args) {
        let pool = B::open(args.get(1), 1).await;
        let mut tx = begin::<B>(&pool).await;
        pay::<B>(&mut tx, "one", 100, &Probe::new()).await.unwrap();
        say("here");
        std::future::pending::<()>().await;
        drop(tx);
    }
    match args.get(0) {
        Pg::NAME => run::<Pg>(args).await,
        _ => run::<Lite>(args).await,
    }
}

on_both! {
    ip_11_a_thousand_equal_calls_on_5_connections,
    ip_11_a_thousand_equal_calls_on_20_connections,
    ip_11_five_processes_of_200_equal_calls,
    ip_06_killed_in_the_body,
    ip_06_killed_between_body_and_commit,
}
