//! Processes that die: at every point of every step, and at every statement.

use std::sync::atomic::{AtomicI64, Ordering};

use idem_runtime::steps::{SagaDialect, SagaError};
use idem_test_support::TestDatabase;
use idem_test_support::child::{Args, Child, say};
use idem_test_support::proxy::Fault;
use sqlx::Pool;

use crate::shop::{ALL_DONE, Do, STEPS, Shop, assert_all_undone, effects, key, order, saga};
use crate::world::{Keep, World, number, on_each, with_pool};

idem_test_support::child_roles!(starts, works);

on_each!(
    killed_at_every_point_it_completes_in_another_process
    killed_at_every_point_it_is_undone_in_another_process
    killed_again_and_again_it_comes_to_its_end
    saga_02_killed_after_the_charge_it_is_refunded_once
    saga_05_a_step_that_is_refused_after_a_crash_in_it_is_undone
);

/// Arguments: URL, number of the order, the points to stay at, the points to refuse at.
async fn starts(args: Args) {
    with_pool!(args.get(0), start(&args));
}

fn shop_of<D: SagaDialect>(pool: &Pool<D>, args: &Args) -> Shop<D> {
    let shop = Shop::new(pool);
    for point in args.get(2).split(' ').filter(|point| !point.is_empty()) {
        shop.at(point, Do::SayAndStay, 1);
    }
    for point in args.get(3).split(' ').filter(|point| !point.is_empty()) {
        shop.at(point, Do::Refuse, 1);
    }
    shop
}

async fn start<D: SagaDialect>(pool: Pool<D>, args: &Args) {
    let no = i64::try_from(args.number(1)).unwrap();
    let saga = saga(&shop_of(&pool, args));
    match saga.start(&key(no), &order(no)).await {
        Ok(_) => say("completed"),
        Err(error) => say(&error.to_string()),
    }
}

/// Works until nothing is due.
async fn works(args: Args) {
    with_pool!(args.get(0), work(&args));
}

async fn work<D: SagaDialect>(pool: Pool<D>, args: &Args) {
    let worker = saga(&shop_of(&pool, args)).worker();
    loop {
        let resumed = worker.run_once().await.unwrap();
        if resumed.is_empty() {
            return;
        }
        for one in resumed {
            match one.outcome {
                Ok(()) => say("completed"),
                Err(SagaError::Compensated(_)) => say("compensated"),
                Err(error) => say(&error.to_string()),
            }
        }
    }
}

fn spawn(role: &str, url: &str, no: i64, stay: &str, refuse: &str) -> Child {
    let child = child(role).arg(url).arg(no).arg(stay).arg(refuse);
    child.spawn()
}

impl<D: SagaDialect> World<D> {
    /// Waits until the server knows that a killed process is gone.
    async fn settled(&self) {
        if let Keep::Postgres(database) = &self.keep {
            database.quiet().await;
        }
    }

    /// Kills a process that stays at the point.
    async fn kill_at(&self, role: &str, no: i64, point: &str, refuse: &str) {
        let mut child = spawn(role, &self.url, no, point, refuse);
        child.wait_for(point).await;
        child.kill9();
        self.settled().await;
        self.let_time_pass().await;
    }
}

fn forward_points() -> Vec<String> {
    let points = STEPS.map(|step| [format!("before:{step}"), format!("after:{step}")]);
    points.into_iter().flatten().collect()
}

async fn killed_at_every_point_it_completes_in_another_process<D: SagaDialect>(world: World<D>) {
    for (no, point) in (1..).zip(forward_points()) {
        world.kill_at("starts", no, &point, "").await;
        let worker = spawn("works", &world.url, no, "", "");
        assert_eq!(worker.finish().await, ["completed"], "{point}");
        assert_eq!(effects(&world.pool, no).await, ALL_DONE, "{point}");
    }
    // What was done elsewhere before the crash was asked for again, with the same key.
    let again = "SELECT COUNT(*) FROM other_side WHERE calls = 2";
    assert_eq!(number(&world.pool, again).await, 2);
}

async fn killed_at_every_point_it_is_undone_in_another_process<D: SagaDialect>(world: World<D>) {
    let undo = ["book", "charge", "reserve"]
        .map(|step| [format!("undo-before:{step}"), format!("undo-after:{step}")]);
    for (no, point) in (1..).zip(undo.into_iter().flatten()) {
        let refuse = "before:ship";
        world.kill_at("starts", no, &point, refuse).await;
        // This one refuses nothing: that the saga failed is recorded.
        let worker = spawn("works", &world.url, no, "", "");
        assert_eq!(worker.finish().await, ["compensated"], "{point}");
        let expected = [(1, 1), (1, 1), (1, 1), (0, 0)];
        assert_eq!(effects(&world.pool, no).await, expected, "{point}");
        let repeat = saga(&Shop::new(&world.pool))
            .start(&key(no), &order(no))
            .await;
        assert!(matches!(repeat, Err(SagaError::Compensated(_))));
    }
}

async fn killed_again_and_again_it_comes_to_its_end<D: SagaDialect>(world: World<D>) {
    let points = forward_points();
    let (first, rest) = points.split_first().unwrap();
    world.kill_at("starts", 1, first, "").await;
    for point in rest {
        world.kill_at("works", 1, point, "").await;
    }
    let worker = spawn("works", &world.url, 1, "", "");
    assert_eq!(worker.finish().await, ["completed"]);
    assert_eq!(effects(&world.pool, 1).await, ALL_DONE);
}

async fn saga_02_killed_after_the_charge_it_is_refunded_once<D: SagaDialect>(world: World<D>) {
    world.kill_at("starts", 7, "before:book", "").await;
    let worker = spawn("works", &world.url, 7, "", "before:ship");
    assert_eq!(worker.finish().await, ["compensated"]);
    assert_eq!(effects(&world.pool, 7).await[1], (1, 1));
    // The refund names the charge that the dead process made.
    let named = "SELECT COUNT(*) FROM other_side done JOIN other_side refund \
                 ON refund.reference = done.reference WHERE done.step = 'charge' \
                 AND done.undone = 0 AND refund.step = 'charge' AND refund.undone = 1";
    assert_eq!(number(&world.pool, named).await, 1);
}

/// Kills the process with a statement of its run on the way, or with its answer on the way; then this
/// process goes on.
async fn killed_at_each_statement(refuse: &str) {
    let world = crate::world::postgres().await;
    let Keep::Postgres(database) = &world.keep else {
        return;
    };
    let faults = [
        ("COMMIT", Fault::HoldBefore),
        ("COMMIT", Fault::HoldAnswer),
        ("idem_saga", Fault::HoldBefore),
    ];
    let mut killed = 0;
    for (pattern, fault) in faults {
        let count = statements(database, pattern, refuse).await;
        assert!(count > 5, "{pattern}: {count}");
        for nth in 1..=count {
            killed += 1;
            let point = format!("{pattern} {nth} {fault:?}");
            let proxy = database.proxy();
            let armed = proxy.on_nth(pattern, nth, fault);
            let child = spawn("starts", &database.url_through(&proxy), killed, "", refuse);
            armed.wait().await;
            child.kill9();
            proxy.cut_all();
            world.settled().await;
            world.let_time_pass().await;
            let shop = Shop::new(&world.pool);
            for point in refuse.split(' ').filter(|point| !point.is_empty()) {
                shop.at(point, Do::Refuse, 1);
            }
            let ended = saga(&shop).start(&key(killed), &order(killed)).await;
            let effects = effects(&world.pool, killed).await;
            if refuse.is_empty() {
                assert!(ended.is_ok(), "{point}: {ended:?}");
                assert_eq!(effects, ALL_DONE, "{point}");
            } else {
                let undone = matches!(ended, Err(SagaError::Compensated(_)));
                assert!(undone, "{point}: {ended:?}");
                assert_all_undone(&effects);
            }
        }
    }
}

async fn saga_05_a_step_that_is_refused_after_a_crash_in_it_is_undone<D: SagaDialect>(
    world: World<D>,
) {
    world.kill_at("starts", 7, "after:charge", "").await;
    // The worker does not know of the charge of the dead process, and its own is refused.
    let worker = spawn("works", &world.url, 7, "", "before:charge");
    assert_eq!(worker.finish().await, ["compensated"]);
    let expected = [(1, 1), (1, 1), (0, 0), (0, 0)];
    assert_eq!(effects(&world.pool, 7).await, expected);
}

fn number_of_a_fresh_order() -> i64 {
    static NEXT: AtomicI64 = AtomicI64::new(10_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// How many statements with this pattern one run has.
async fn statements(database: &TestDatabase, pattern: &str, refuse: &str) -> usize {
    let proxy = database.proxy();
    let no = number_of_a_fresh_order();
    let child = spawn("starts", &database.url_through(&proxy), no, "", refuse);
    child.finish().await;
    let sent = proxy.statements();
    sent.iter().filter(|sql| sql.contains(pattern)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_each_statement_of_a_saga_that_completes() {
    killed_at_each_statement("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_each_statement_of_a_saga_that_is_undone() {
    killed_at_each_statement("before:ship").await;
}
