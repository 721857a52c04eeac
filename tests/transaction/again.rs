//! `retry_transaction` around idempotent functions: the one loop for a transaction of the caller's.

use std::time::Duration;

use idem::machine::Connection;
use idem::retry::{Attempt, RetryPolicy, Retryable};
use idem::{ErrorKind, retry_transaction};
use idem_test_support::proxy::Fault;

use crate::fixture::{Backend, Failure, Pg, Probe, World, pay};

impl Retryable for Failure {
    fn calls_for_retry(&self) -> bool {
        match self {
            Self::Idem(error) => error.calls_for_retry(),
            Self::Sql(error) => error.calls_for_retry(),
            Self::Business(_) => false,
        }
    }
}

/// Makes the next `times` transactions fail with this code at this place. A sequence counts, which
/// no roll-back turns back.
async fn failing(world: &World<Pg>, place: &str, code: &str, times: u32) {
    world
        .backend
        .0
        .execute(&format!(
            "DROP TRIGGER IF EXISTS fail ON idem_record; DROP TRIGGER IF EXISTS fail ON effect; \
             DROP SEQUENCE IF EXISTS failed; CREATE SEQUENCE failed; \
             CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF nextval('failed') <= {times} THEN \
             RAISE EXCEPTION 'injected' USING ERRCODE = '{code}'; END IF; \
             RETURN NEW; END $$; \
             CREATE {place} FOR EACH ROW EXECUTE FUNCTION fail();"
        ))
        .await;
}

const RESERVING: &str = "TRIGGER fail BEFORE INSERT ON idem_record";
const IN_THE_BODY: &str = "TRIGGER fail BEFORE INSERT ON effect";
const RECORDING: &str = "TRIGGER fail BEFORE UPDATE ON idem_record";
const AT_THE_COMMIT: &str =
    "CONSTRAINT TRIGGER fail AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED";
const PLACES: [&str; 4] = [RESERVING, IN_THE_BODY, RECORDING, AT_THE_COMMIT];

async fn run(world: &World<Pg>, id: &str, probe: &Probe) -> Result<u32, (Failure, u32, bool)> {
    let mut attempts = 0;
    retry_transaction(&world.pool, RetryPolicy::default(), |mut tx| {
        attempts += 1;
        async move { pay::<Pg>(&mut tx, id, 100, probe).await }
    })
    .await
    .map_err(|gave_up| (gave_up.attempts, gave_up.in_doubt, gave_up.into_error()))
    .map_or_else(
        |(attempts, in_doubt, error)| Err((error, attempts, in_doubt)),
        |_| Ok(attempts),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_race_is_run_again_wherever_it_is_lost() {
    let world = World::<Pg>::new(2).await;
    for (n, place) in PLACES.into_iter().enumerate() {
        for code in ["40001", "40P01"] {
            failing(&world, place, code, 2).await;
            let id = format!("{n}-{code}");
            let probe = Probe::new();
            let attempts = run(&world, &id, &probe).await.unwrap();
            assert_eq!(
                (attempts, world.effects(&id).await),
                (3, 1),
                "{place} {code}"
            );
            // The same key replays, with nothing to be run again.
            assert_eq!(run(&world, &id, &probe).await.unwrap(), 1);
            assert_eq!(world.effects(&id).await, 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_retry_cannot_mend_is_told_at_once() {
    let world = World::<Pg>::new(2).await;
    for (n, place) in PLACES.into_iter().enumerate() {
        for code in [
            "42501", "25006", "22P05", "23505", "53100", "53200", "P0001",
        ] {
            failing(&world, place, code, u32::MAX).await;
            let id = format!("{n}-{code}");
            let (_, attempts, in_doubt) = run(&world, &id, &Probe::new()).await.unwrap_err();
            assert_eq!(attempts, 1, "{place} {code}");
            // A commit that failed for want of room may have failed after it had held.
            let unsure = place == AT_THE_COMMIT && code.starts_with("53");
            assert_eq!(in_doubt, unsure, "{place} {code}");
            assert_eq!(world.effects(&id).await, 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_and_time_are_bounded() {
    let world = World::<Pg>::new(2).await;
    failing(&world, IN_THE_BODY, "40001", u32::MAX).await;
    let (error, attempts, _) = run(&world, "one", &Probe::new()).await.unwrap_err();
    assert_eq!((error.code().as_deref(), attempts), (Some("40001"), 10));
    let policy = RetryPolicy::default()
        .attempts(u32::MAX)
        .budget(Duration::from_millis(200));
    let gave_up = retry_transaction(&world.pool, policy, |mut tx| async move {
        pay::<Pg>(&mut tx, "two", 100, &Probe::new()).await
    });
    let gave_up = tokio::time::timeout(Duration::from_secs(60), gave_up).await;
    assert!(gave_up.unwrap().unwrap_err().attempts > 1);
    assert_eq!(world.records().await, (0, 0));
}

/// The answer of the commit is lost: the transaction is not run again, since it may have held; the
/// repeated call with the same key replays it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_in_doubt_is_not_run_again_and_the_key_replays_it() {
    let world = World::<Pg>::new(2).await;
    for (id, fault, held) in [
        ("held", Fault::CutAnswer, true),
        ("not", Fault::CutBefore, false),
    ] {
        let proxy = world.backend.0.proxy();
        let pool = world.backend.0.pool_through(&proxy, 1);
        let lost = proxy.on("COMMIT", fault);
        let probe = Probe::new();
        let gave_up = retry_transaction(&pool, RetryPolicy::default(), |mut tx| {
            let probe = &probe;
            async move { pay::<Pg>(&mut tx, id, 100, probe).await }
        });
        let gave_up = gave_up.await.unwrap_err();
        assert!(lost.fired());
        assert_eq!((gave_up.attempts, gave_up.in_doubt), (1, true));
        let text = gave_up.to_string();
        assert!(text.contains("with the same key"), "{text}");
        world.backend.0.quiet().await;
        run(&world, id, &probe).await.unwrap();
        let runs = if held { 1 } else { 2 };
        assert_eq!((world.effects(id).await, probe.runs()), (1, runs));
    }
}

/// An error that the body does not pass on: no commit, and no loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_that_the_body_hides_is_not_run_again() {
    let world = World::<Pg>::new(1).await;
    let probe = &Probe::new();
    let gave_up = retry_transaction(&world.pool, RetryPolicy::default(), |mut tx| async move {
        Pg::execute(&mut tx, "SELECT 1 / 0").await.ok();
        pay::<Pg>(&mut tx, "one", 100, probe).await
    });
    let gave_up = gave_up.await.unwrap_err();
    assert_eq!(gave_up.attempts, 1);
    assert_eq!(gave_up.error.kind(), Some(ErrorKind::TransactionEnded));
    assert_eq!(probe.runs(), 0);
}

/// What is lent to a body stands where a transaction or a connection is asked for.
#[test]
fn an_attempt_is_a_connection() {
    fn is_connection<C: Connection>() {}
    is_connection::<Attempt<sqlx::Postgres>>();
    is_connection::<Attempt<sqlx::Sqlite>>();
    is_connection::<Attempt<sqlx::MySql>>();
    is_connection::<idem::batch::Lent<sqlx::Transaction<'static, sqlx::Postgres>>>();
    is_connection::<idem::batch::Lent<&mut sqlx::Transaction<'static, sqlx::Sqlite>>>();
}
