//! Postgres' isolation levels: what a duplicate meets while the first call runs, after it committed,
//! after it rolled back.

use std::{sync::Arc, time::Duration};

use idem::{ErrorKind, Retry, idempotent};
use sqlx::AssertSqlSafe;
use tokio::task::JoinHandle;

use crate::fixture::{
    Backend, Failure, Pg, Probe, Receipt, Tx, World, effect, kind, pay, pay_now, until,
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Level {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Level {
    pub(crate) const ALL: [Self; 3] = [
        Self::ReadCommitted,
        Self::RepeatableRead,
        Self::Serializable,
    ];

    pub(crate) async fn begin(self, world: &World<Pg>) -> Tx<'static, Pg> {
        let name = match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        };
        let begin = AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {name}"));
        world.pool.begin_with(begin).await.unwrap()
    }

    /// Whether a transaction keeps seeing what it saw first.
    fn keeps_its_snapshot(self) -> bool {
        self != Self::ReadCommitted
    }
}

struct Case {
    level: Level,
    world: Arc<World<Pg>>,
    probe: Arc<Probe>,
}

impl Case {
    async fn each() -> Vec<Self> {
        let world = Arc::new(World::<Pg>::new(8).await);
        let case = |level| Self {
            level,
            world: Arc::clone(&world),
            probe: Arc::new(Probe::new()),
        };
        Level::ALL.map(case).into()
    }

    /// A key of this case's own.
    fn id(&self) -> String {
        format!("{:?}", self.level)
    }

    async fn begin(&self) -> Tx<'static, Pg> {
        self.level.begin(&self.world).await
    }

    /// The first call has run and its transaction is still open.
    async fn winner(&self) -> (Tx<'static, Pg>, Receipt) {
        let mut tx = self.begin().await;
        let receipt = pay::<Pg>(&mut tx, &self.id(), 100, &self.probe)
            .await
            .unwrap();
        (tx, receipt)
    }

    /// A duplicate that waits, and commits when it is answered.
    fn waiter(&self) -> JoinHandle<Result<Receipt, Failure>> {
        let case = Self {
            level: self.level,
            world: Arc::clone(&self.world),
            probe: Arc::clone(&self.probe),
        };
        tokio::spawn(async move {
            let mut tx = case.begin().await;
            let answer = pay::<Pg>(&mut tx, &case.id(), 100, &case.probe).await;
            match answer {
                Ok(receipt) => tx.commit().await.map(|()| receipt).map_err(Failure::from),
                Err(failure) => tx.rollback().await.map_err(Failure::from).and(Err(failure)),
            }
        })
    }

    /// So many duplicates have found the key taken, and ask again.
    async fn are_waiting(&self, count: i64) {
        let asking = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                      AND state LIKE 'idle in transaction%' AND query LIKE 'SELECT fingerprint%'";
        until("a waiting duplicate", || async {
            self.world.number(asking).await >= count
        })
        .await;
    }

    async fn replays(&self, first: &Receipt) {
        let mut tx = self.begin().await;
        let call = pay_now::<Pg>(&mut tx, &first.id, 100, &self.probe);
        let (answer, seen) = idem::observe(call).await;
        assert_eq!(&answer.unwrap(), first);
        assert!(seen.replayed());
        tx.commit().await.unwrap();
    }

    async fn ran(&self, runs: usize) {
        assert_eq!(self.probe.runs(), runs, "{:?}", self.level);
        assert_eq!(self.world.effects(&self.id()).await, 1, "{:?}", self.level);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_01_in_flight_and_refused() {
    for case in Case::each().await {
        let (winner, first) = case.winner().await;
        let mut tx = case.begin().await;
        Pg::execute(&mut tx, effect("before")).await.unwrap();
        let error = pay_now::<Pg>(&mut tx, &first.id, 100, &case.probe).await;
        let error = error.unwrap_err().idem();
        assert_eq!(error.kind(), ErrorKind::InProgress);
        assert!(matches!(error.retry(), Retry::Later(Some(_))));
        Pg::execute(&mut tx, effect("after")).await.unwrap();
        tx.commit().await.unwrap();
        winner.commit().await.unwrap();
        case.replays(&first).await;
        case.ran(1).await;
        assert_eq!(
            case.world.effects("before").await,
            case.world.effects("after").await
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_02_in_flight_and_waits_for_the_commit() {
    for case in Case::each().await {
        let (winner, first) = case.winner().await;
        let waiter = case.waiter();
        case.are_waiting(1).await;
        winner.commit().await.unwrap();
        let answer = waiter.await.unwrap();
        if case.level.keeps_its_snapshot() {
            assert_eq!(kind(answer), ErrorKind::RetryTransaction);
        } else {
            assert_eq!(answer.unwrap(), first);
        }
        case.replays(&first).await;
        case.ran(1).await;
    }
}

/// Never "neither inserted nor found": a hundred times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_02_a_hundred_rounds() {
    let world = World::<Pg>::new(2).await;
    let probe = Probe::new();
    for round in 0..100 {
        let id = format!("round-{round}");
        let mut winner = world.begin().await;
        let first = pay::<Pg>(&mut winner, &id, 100, &probe).await.unwrap();
        let (again, committed) = tokio::join!(world.pay(&id, &probe), async {
            tokio::time::sleep(Duration::from_millis(round % 5)).await;
            winner.commit().await
        });
        committed.unwrap();
        assert_eq!(again.unwrap(), first);
    }
    assert_eq!(probe.runs(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_01_the_winner_rolls_back() {
    for case in Case::each().await {
        let (winner, first) = case.winner().await;
        let waiter = case.waiter();
        case.are_waiting(1).await;
        winner.rollback().await.unwrap();
        assert_ne!(waiter.await.unwrap().unwrap(), first);
        case.ran(2).await;
    }
}

/// No overlap at all: the duplicate's snapshot is older than the first call's commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_01_committed_after_the_snapshot() {
    for case in Case::each().await {
        let mut tx = case.begin().await;
        Pg::number(&mut tx, "SELECT count(*) FROM effect")
            .await
            .unwrap();
        let (winner, first) = case.winner().await;
        winner.commit().await.unwrap();
        let answer = pay_now::<Pg>(&mut tx, &first.id, 100, &case.probe).await;
        if case.level.keeps_its_snapshot() {
            let error = answer.unwrap_err().idem();
            assert_eq!(error.kind(), ErrorKind::RetryTransaction);
            assert_eq!(error.retry(), Retry::NewTransaction);
            tx.rollback().await.unwrap();
        } else {
            assert_eq!(answer.unwrap(), first);
            tx.commit().await.unwrap();
        }
        case.replays(&first).await;
        case.ran(1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_01_four_waiters_and_the_winner_rolls_back() {
    for case in Case::each().await {
        let (winner, first) = case.winner().await;
        let waiters: Vec<_> = (0..4).map(|_| case.waiter()).collect();
        case.are_waiting(4).await;
        winner.rollback().await.unwrap();
        let mut receipts = Vec::new();
        for waiter in waiters {
            match waiter.await.unwrap() {
                Ok(receipt) => receipts.push(receipt),
                Err(failure) => {
                    assert!(case.level.keeps_its_snapshot(), "{failure}");
                    assert_eq!(failure.kind(), Some(ErrorKind::RetryTransaction));
                }
            }
        }
        assert!(
            receipts
                .iter()
                .all(|receipt| receipt == &receipts[0] && receipt != &first)
        );
        if !case.level.keeps_its_snapshot() {
            assert_eq!(receipts.len(), 4);
        }
        case.replays(&receipts[0]).await;
        case.ran(2).await;
    }
}

/// A dead connection frees its key as a rollback does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_01_the_winners_connection_dies() {
    for case in Case::each().await {
        let (mut winner, _) = case.winner().await;
        let session = Pg::number(&mut winner, "SELECT pg_backend_pid()::bigint")
            .await
            .unwrap();
        let waiter = case.waiter();
        case.are_waiting(1).await;
        let kill = format!("SELECT pg_terminate_backend({session})::int::bigint");
        assert_eq!(case.world.number(kill).await, 1);
        waiter.await.unwrap().unwrap();
        case.ran(2).await;
    }
}

#[idempotent(
    key = "pay:{id}",
    ttl = "1h",
    store = "tx",
    scope = "test.pay",
    shared_scope,
    wait = "300ms"
)]
async fn pay_soon(
    tx: &mut Tx<'_, Pg>,
    id: &str,
    cents: i64,
    probe: &Probe,
) -> Result<Receipt, Failure> {
    probe.enter().await;
    Pg::execute(tx, effect(id)).await?;
    Ok(Receipt::of(id))
}

/// Both are told when their short wait ends, before either waits inside the database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_01_two_keys_in_opposite_order() {
    for case in Case::each().await {
        let (one, two) = (format!("{}-1", case.id()), format!("{}-2", case.id()));
        let (mut a, mut b) = (case.begin().await, case.begin().await);
        pay_soon(&mut a, &one, 100, &case.probe).await.unwrap();
        pay_soon(&mut b, &two, 100, &case.probe).await.unwrap();
        let (in_a, in_b) = tokio::join!(
            pay_soon(&mut a, &two, 100, &case.probe),
            pay_soon(&mut b, &one, 100, &case.probe),
        );
        assert_eq!(kind(in_a), ErrorKind::InProgress);
        assert_eq!(kind(in_b), ErrorKind::InProgress);
        // Both are whole: one gives way and the other goes on.
        b.rollback().await.unwrap();
        pay_soon(&mut a, &two, 100, &case.probe).await.unwrap();
        a.commit().await.unwrap();
        for id in [one, two] {
            assert_eq!(case.world.effects(&id).await, 1);
        }
    }
}

/// Locks two accounts; the second step waits until both calls have done the first.
#[idempotent(key = "move:{from}", ttl = "1h", store = "tx")]
async fn crossing(
    tx: &mut Tx<'_, Pg>,
    from: u32,
    to: u32,
    both: &tokio::sync::Barrier,
    swallow: bool,
) -> Result<u32, Failure> {
    Pg::execute(
        tx,
        format!("UPDATE account SET cents = cents - 1 WHERE id = {from}"),
    )
    .await?;
    both.wait().await;
    let second = format!("UPDATE account SET cents = cents + 1 WHERE id = {to}");
    match Pg::execute(tx, second).await {
        Err(_) if swallow => Ok(from),
        done => Ok(done.map(|_| from)?),
    }
}

/// A deadlock of the user's own statements: the body's error, by which the whole transaction is run
/// again, or, where the body hides it, the framework's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_01_a_deadlock_of_the_bodys_own_statements() {
    let world = World::<Pg>::new(2).await;
    world
        .execute("CREATE TABLE account (id int PRIMARY KEY, cents int)")
        .await;
    world
        .execute("INSERT INTO account VALUES (1, 0), (2, 0)")
        .await;
    for swallow in [false, true] {
        world.execute("DELETE FROM idem_record").await;
        let both = tokio::sync::Barrier::new(2);
        let transfer = async |from, to| {
            let mut tx = world.begin().await;
            Pg::execute(&mut tx, "SET LOCAL deadlock_timeout = '20ms'")
                .await
                .unwrap();
            let answer = crossing(&mut tx, from, to, &both, swallow).await;
            match answer {
                Ok(from) => tx.commit().await.map(|()| from).map_err(Failure::from),
                Err(failure) => tx.rollback().await.map_err(Failure::from).and(Err(failure)),
            }
        };
        let (one, two) = tokio::join!(transfer(1, 2), transfer(2, 1));
        let (done, failure) = match (one, two) {
            (Ok(done), Err(failure)) | (Err(failure), Ok(done)) => (done, failure),
            both => panic!("exactly one is the deadlock's victim: {both:?}"),
        };
        if swallow {
            let error = failure.idem();
            // The server no longer tells what aborted it: perhaps nothing that a retry mends.
            assert_eq!(error.kind(), ErrorKind::TransactionEnded);
            assert_eq!(error.retry(), Retry::Never);
            assert!(error.to_string().contains("not passed on"), "{error}");
        } else {
            assert_eq!(failure.code().as_deref(), Some("40P01"));
        }
        assert_eq!(world.records().await, (1, 0));
        // The victim's retry, alone this time.
        let alone = tokio::sync::Barrier::new(1);
        let mut tx = world.begin().await;
        crossing(&mut tx, 3 - done, done, &alone, swallow)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let total = "SELECT sum(abs(cents))::bigint FROM account";
        assert_eq!(world.number(total).await, 0, "one unit each way");
    }
}
