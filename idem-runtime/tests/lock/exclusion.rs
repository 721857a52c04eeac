//! One holder at a time, whoever asks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use idem_runtime::lock::advisory::lock_tx;
use idem_test_support::child::{Args, say};
use idem_test_support::postgres;

use crate::support::{ALL, LONG, Locks, PATIENCE, Place, SHARED};

idem_test_support::child_roles!(contender, tx_contender);

const TASKS: usize = 50;
const ROUNDS: usize = 2;
const PROCESSES: usize = 3;

/// What the lock protects: a file that must not be there twice, a number that is read and written,
/// and a list of who was there.
#[derive(Clone, Debug)]
struct Ground(PathBuf);

impl Ground {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(crate::support::unique());
        std::fs::create_dir(&folder).unwrap();
        let ground = Self(folder);
        std::fs::write(ground.0.join("number"), "0").unwrap();
        ground
    }

    async fn enter(&self, fence: u64) {
        let inside = self.0.join("inside");
        std::fs::File::create_new(&inside).expect("nobody else is inside");
        let number: usize = self.read("number").parse().unwrap();
        let been = self.read("been");
        tokio::time::sleep(Duration::from_micros(500)).await;
        std::fs::write(self.0.join("number"), (number + 1).to_string()).unwrap();
        let line = format!("{been}{fence} {}\n", std::process::id());
        std::fs::write(self.0.join("been"), line).unwrap();
        std::fs::remove_file(inside).unwrap();
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join(file)).unwrap_or_default()
    }

    fn number(&self) -> usize {
        self.read("number").parse().unwrap()
    }

    fn fences(&self) -> Vec<u64> {
        let been = self.read("been");
        let fence = |line: &str| line.split_once(' ').unwrap().0.parse().unwrap();
        been.lines().map(fence).collect()
    }
}

impl AsRef<Path> for Ground {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

async fn contend(locks: &Locks, ground: &Ground) {
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (locks, ground) = (locks.clone(), ground.clone());
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = locks.acquire("the ground").await.unwrap();
                    ground.enter(guard.fence().get()).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn contender(args: Args) {
    let locks = Locks::of(&args).await.wait(PATIENCE * 5);
    args.line_up().await;
    contend(&locks, &Ground(args.get(4).into())).await;
    say("done");
}

async fn several_processes(kind: &'static str) {
    let (place, ground) = (Place::of(kind).await, Ground::new());
    let contenders = child("contender")
        .arg(kind)
        .arg(&place.url)
        .arg(&place.space)
        .arg(LONG.as_millis())
        .arg(ground.0.display());
    contenders.run_many(PROCESSES).await;
    let fences = ground.fences();
    assert_eq!(ground.number(), PROCESSES * TASKS * ROUNDS, "{kind}");
    assert_eq!(fences.len(), PROCESSES * TASKS * ROUNDS, "{kind}");
    assert!(fences.is_sorted_by(|a, b| a < b), "{kind}: {fences:?}");
    std::fs::remove_dir_all(ground).unwrap();
}

#[tokio::test]
async fn several_processes_exclude_each_other_on_redis() {
    several_processes(SHARED[0]).await;
}

#[tokio::test]
async fn several_processes_exclude_each_other_on_postgres() {
    several_processes(SHARED[1]).await;
}

#[tokio::test]
async fn several_processes_exclude_each_other_on_sqlite() {
    several_processes(SHARED[2]).await;
}

#[tokio::test]
async fn several_processes_exclude_each_other_on_mysql() {
    several_processes(SHARED[3]).await;
}

#[tokio::test]
async fn several_processes_exclude_each_other_by_sessions() {
    several_processes("session").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_lines_over_one_memory_exclude_each_other() {
    let (place, ground) = (Place::of("memory").await, Ground::new());
    let store = place.store().await;
    let lines = (0..PROCESSES).map(|_| {
        let (locks, ground) = (Locks::on(store.clone(), LONG), ground.clone());
        tokio::spawn(async move { contend(&locks, &ground).await })
    });
    let lines: Vec<_> = lines.collect();
    for line in lines {
        line.await.unwrap();
    }
    assert_eq!(ground.number(), PROCESSES * TASKS * ROUNDS);
    assert!(ground.fences().is_sorted_by(|a, b| a < b));
    std::fs::remove_dir_all(ground).unwrap();
}

async fn tx_contender(args: Args) {
    let pool = postgres::pool(args.get(0), 10).await;
    let ground = Ground(args.get(1).into());
    args.line_up().await;
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            let (pool, ground) = (pool.clone(), ground.clone());
            tokio::spawn(async move {
                let mut tx = pool.begin().await.unwrap();
                lock_tx(&mut tx, "the ground", PATIENCE).await.unwrap();
                ground.enter(0).await;
                match n % 3 {
                    0 => tx.commit().await.unwrap(),
                    1 => tx.rollback().await.unwrap(),
                    _ => drop(tx),
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn several_processes_exclude_each_other_by_transactions() {
    let (place, ground) = (Place::of("session").await, Ground::new());
    let contenders = child("tx_contender")
        .arg(&place.url)
        .arg(ground.0.display());
    contenders.run_many(PROCESSES).await;
    assert_eq!(ground.number(), PROCESSES * 20);
    std::fs::remove_dir_all(ground).unwrap();
}

#[tokio::test]
async fn fences_grow_over_releases_and_a_release_leaves_the_lock_free() {
    for kind in ALL {
        let place = Place::of(kind).await;
        let (locks, others) = (place.locks(LONG).await, place.locks(LONG).await);
        let mut last = 0;
        for n in 0..6 {
            // Memory is of one store; the others are seen by all.
            let by = if n % 2 == 0 || kind == "memory" {
                &locks
            } else {
                &others
            };
            let guard = by.acquire("again").await.unwrap();
            assert!(guard.fence().get() > last, "{kind}");
            last = guard.fence().get();
            assert!(!guard.is_lost());
            if kind != "session" {
                let holder = by.holder("again").await.unwrap();
                assert_eq!(holder.fence, guard.fence());
            }
            guard.release().await.unwrap();
            if kind != "session" {
                assert_eq!(by.holder("again").await, None, "{kind}");
            }
        }
    }
}

#[tokio::test]
async fn different_names_are_different_locks() {
    for kind in ALL {
        let locks = Place::of(kind).await.locks(LONG).await;
        let first = locks.acquire("a").await.unwrap();
        let second = locks.try_acquire("b").await.unwrap();
        assert!(locks.try_acquire("a").await.unwrap_err().is_busy());
        first.release().await.unwrap();
        second.release().await.unwrap();
        // A name is any text: control characters, NUL, much of it.
        for name in ["a\0b", "\u{1b}[31m", "%00", &"x".repeat(3000)] {
            let guard = locks.try_acquire(name).await.unwrap();
            assert!(
                locks.try_acquire(name).await.unwrap_err().is_busy(),
                "{kind}"
            );
            guard.release().await.unwrap();
        }
    }
}
