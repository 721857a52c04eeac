//! Who may run a saga: decided under the lock of its row, by the database's clock.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Pool, Transaction};

use super::definition::{Definition, Place};
use super::plan::broken_off;
use super::sql::{Change, Held, NewOwner, NewSaga, SagaDialect};
use super::state::{Cause, Rest, SagaRow, SagaState, Stall, StepRow};
use super::status::complete;
use crate::engine::{Backoff, run_to_end};
use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::retention::MAX_RETENTION;
use crate::retry::Retryable as _;
use crate::store::sql::classify;

/// How long a saga that this build cannot run is left to others.
const PUT_OFF: Duration = Duration::from_secs(10);
/// How long a transaction of our own, or of a step, is run again at once when the database asks for it.
const REPEATING: Duration = Duration::from_secs(10);

/// What it is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// To run it on.
    Resume,
    /// To undo it.
    Cancel,
}

/// What may be done with a saga.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Claim {
        state: SagaState,
        cancelled: bool,
    },
    /// Somebody is at it.
    Busy,
    Resting(Rest),
    Ended(SagaState),
}

pub(super) fn look(row: &SagaRow, intent: Intent) -> Look {
    match (row.state, intent) {
        (SagaState::Completed | SagaState::Compensated, _) => Look::Ended(row.state),
        // Whoever runs it is fenced off.
        (SagaState::Running, Intent::Cancel) => Look::Claim {
            state: SagaState::Compensating,
            cancelled: true,
        },
        (state, _) if row.is_due() => Look::Claim {
            state,
            cancelled: row.cancelled,
        },
        _ => row.rest.map_or(Look::Busy, Look::Resting),
    }
}

/// What came of a claim.
#[derive(Debug)]
pub(super) enum Claimed {
    Ours(Held, SagaRow, Vec<StepRow>),
    Not(Look, SagaRow, Vec<StepRow>),
    /// It was begun under a list that is not accepted here.
    Changed(SagaRow, Vec<StepRow>),
    /// Somebody writes to it at this moment.
    Locked,
    Absent,
}

/// Claims the saga, if that is what may be done with it.
pub(super) async fn claim<D, I, C>(
    definition: &Arc<Definition<D, I, C>>,
    id: RecordId,
    owner: [u8; 16],
    intent: Intent,
) -> Result<Claimed, Error>
where
    D: SagaDialect,
    I: 'static,
    C: Send + Sync + 'static,
{
    let definition = Arc::clone(definition);
    run_to_end(async move {
        let mut pauses = repeating();
        loop {
            match try_claim(&definition, id, owner, intent).await {
                Err(error) if error.calls_for_retry() => match pauses.next() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(failed::<D>(error)),
                },
                other => return other.map_err(failed::<D>),
            }
        }
    })
    .await
}

async fn try_claim<D: SagaDialect, I, C>(
    definition: &Definition<D, I, C>,
    id: RecordId,
    owner: [u8; 16],
    intent: Intent,
) -> Result<Claimed, sqlx::Error> {
    let texts = definition.table.texts::<D>();
    let mut tx = D::begin(&definition.pool).await?;
    let Some(row) = D::read_saga(&mut tx, texts, id, true).await? else {
        let there = D::read_saga(&mut tx, texts, id, false).await?;
        tx.rollback().await?;
        return Ok(there.map_or(Claimed::Absent, |_| Claimed::Locked));
    };
    if row.name != definition.name {
        // An id of another definition's.
        tx.rollback().await?;
        return Ok(Claimed::Absent);
    }
    let Look::Claim { state, cancelled } = look(&row, intent) else {
        let steps = D::read_steps(&mut tx, texts, id).await?;
        tx.rollback().await?;
        let steps = complete(&row.steps, steps);
        return Ok(Claimed::Not(look(&row, intent), row, steps));
    };
    let order = definition.order(&row.steps);
    let changed = Stall {
        cause: Cause::StepsChanged,
        step: None,
        error: Some(format!("a build has the steps {}", definition.list())),
    };
    if order.is_none() && intent == Intent::Resume {
        let steps = D::read_steps(&mut tx, texts, id).await?;
        D::put_off_saga(&mut tx, texts, id, millis(PUT_OFF), &changed).await?;
        tx.commit().await?;
        return Ok(Claimed::Changed(row, steps));
    }
    let new = NewOwner {
        id,
        owner,
        state,
        cancelled,
        lease_millis: millis(definition.settings.lease),
    };
    let let_go = row.rest.is_some() || row.state != state;
    D::claim_saga(&mut tx, texts, new).await?;
    let Some(row) = D::read_saga(&mut tx, texts, id, false).await? else {
        tx.rollback().await?;
        return Ok(Claimed::Absent);
    };
    let held = Held {
        id,
        owner,
        fence: row.fence,
    };
    let Some(order) = order else {
        // What cannot be undone here is cancelled all the same, and due for a build that can.
        let rests = Change {
            state,
            rest: Some(Rest::Waiting),
            failed_step: None,
            error: None,
            stall: Some(&changed),
            due_millis: Some(0),
        };
        let steps = D::read_steps(&mut tx, texts, id).await?;
        D::change_saga(&mut tx, texts, held, rests).await?;
        tx.commit().await?;
        return Ok(Claimed::Changed(row, steps));
    };
    let steps = D::read_steps(&mut tx, texts, id).await?;
    let mut steps = complete(&row.steps, steps);
    if !let_go {
        count_broken_off(definition, &mut tx, held, state, &order, &mut steps).await?;
    }
    tx.commit().await?;
    Ok(Claimed::Ours(held, row, steps))
}

/// Counts the attempt that the owner before was at: a process that dies of it again and again must not
/// go on for ever.
async fn count_broken_off<D: SagaDialect, I, C>(
    definition: &Definition<D, I, C>,
    tx: &mut Transaction<'static, D>,
    held: Held,
    state: SagaState,
    order: &[Place],
    steps: &mut [StepRow],
) -> Result<(), sqlx::Error> {
    let rows = order.iter().zip(steps.iter().cloned());
    let traits = |(place, row): (&Place, _)| (definition.traits(*place), row);
    let rows: Vec<_> = rows.map(traits).collect();
    let Some(mut row) = broken_off(state, &rows) else {
        return Ok(());
    };
    D::write_step(tx, definition.table.texts::<D>(), held.id, &row).await?;
    row.recorded = true;
    let place = usize::try_from(row.number).ok();
    if let Some(place) = place.and_then(|at| steps.get_mut(at)) {
        *place = row;
    }
    Ok(())
}

/// Records a new saga, ours at once, or one that was cancelled before it began; does nothing where
/// there is a row.
pub(super) async fn begin<D, I, C>(
    definition: &Arc<Definition<D, I, C>>,
    key: &str,
    owner: [u8; 16],
    begun: Option<(Fingerprint, bytes::Bytes)>,
) -> Result<(), Error>
where
    D: SagaDialect,
    I: 'static,
    C: Send + Sync + 'static,
{
    let (definition, key) = (Arc::clone(definition), key.to_owned());
    run_to_end(async move {
        let texts = definition.table.texts::<D>();
        let mut conn = definition.pool.acquire().await.map_err(failed::<D>)?;
        let (fingerprint, input) = begun
            .clone()
            .unwrap_or((Fingerprint::NONE, bytes::Bytes::new()));
        let steps = definition.list();
        let new = NewSaga {
            id: saga_id(&definition.name, &key),
            name: &definition.name,
            key: &key,
            fingerprint: fingerprint.as_bytes(),
            input: &input,
            steps: &steps,
            owner,
            lease_millis: millis(definition.settings.lease),
        };
        let mut pauses = repeating();
        loop {
            let done = match begun {
                Some(_) => D::begin_saga(&mut conn, texts, new).await,
                None => D::begin_cancelled(&mut conn, texts, new).await,
            };
            match done {
                Err(error) if error.calls_for_retry() => match pauses.next() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(failed::<D>(error)),
                },
                other => return other.map_err(failed::<D>),
            }
        }
    })
    .await
}

/// The pauses before a transaction that the database gave up is run again.
pub(super) fn repeating() -> Backoff {
    let (first, longest) = (Duration::from_millis(2), Duration::from_millis(200));
    Backoff::new(Some(REPEATING), first, longest)
}

/// Begins a transaction; to its end, since a connection whose `BEGIN` was dropped is of no use.
pub(super) async fn transaction<D: SagaDialect>(
    pool: &Pool<D>,
) -> Result<Transaction<'static, D>, sqlx::Error> {
    let pool = pool.clone();
    run_to_end(async move { D::begin(&pool).await }).await
}

/// An error of a transaction of our own, which is over.
pub(super) fn failed<D: SagaDialect>(error: sqlx::Error) -> Error {
    let error = classify::<D>(error);
    match error.kind() {
        ErrorKind::RetryTransaction => error
            .of_kind(ErrorKind::StoreUnavailable)
            .detail("the database gave the transaction up again and again"),
        _ => error,
    }
}

/// The id of a saga's row.
pub(super) fn saga_id(name: &str, key: &str) -> RecordId {
    RecordId::new("", name, &[], key)
}

/// What the other side is given as the idempotency key of a step, or of its compensation.
pub(super) fn idempotency_key(name: &str, key: &str, step: &str, undo: bool) -> RecordId {
    let kind = if undo { "undo" } else { "run" };
    RecordId::new("idem.steps", name, &[step, kind], key)
}

/// Whole milliseconds, rounded up, and no more than a date can hold.
pub(super) fn millis(time: Duration) -> i64 {
    let millis = time.as_nanos().div_ceil(1_000_000);
    i64::try_from(millis.min(MAX_RETENTION.as_millis())).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(state: SagaState, rest: Option<Rest>, due_in: Option<i64>) -> SagaRow {
        SagaRow {
            name: "n".to_owned(),
            key: "k".to_owned(),
            fingerprint: [0; 17],
            input: None,
            steps: "a".to_owned(),
            state,
            cancelled: false,
            rest,
            owner: [0; 16],
            fence: 1,
            failed_step: None,
            error: None,
            stall: None,
            due_in,
        }
    }

    #[test]
    fn a_saga_is_run_on_only_when_it_is_due() {
        use Look as L;
        for state in [SagaState::Running, SagaState::Compensating] {
            let mine = L::Claim {
                state,
                cancelled: false,
            };
            for (rest, due, expected) in [
                (None, Some(1), L::Busy),
                (None, Some(0), mine),
                (None, Some(-5), mine),
                (Some(Rest::Waiting), Some(1), L::Resting(Rest::Waiting)),
                (Some(Rest::Waiting), Some(0), mine),
                (Some(Rest::Stuck), None, L::Resting(Rest::Stuck)),
            ] {
                assert_eq!(look(&row(state, rest, due), Intent::Resume), expected);
            }
        }
    }

    #[test]
    fn cancelling_takes_a_running_saga_from_whoever_runs_it_and_no_other() {
        let cancels = Look::Claim {
            state: SagaState::Compensating,
            cancelled: true,
        };
        for (rest, due) in [
            (None, Some(60_000)),
            (None, Some(-1)),
            (Some(Rest::Waiting), Some(60_000)),
            (Some(Rest::Stuck), None),
        ] {
            let running = row(SagaState::Running, rest, due);
            assert_eq!(look(&running, Intent::Cancel), cancels);
        }
        let busy = row(SagaState::Compensating, None, Some(60_000));
        assert_eq!(look(&busy, Intent::Cancel), Look::Busy);
        let stuck = row(SagaState::Compensating, Some(Rest::Stuck), None);
        assert_eq!(look(&stuck, Intent::Cancel), Look::Resting(Rest::Stuck));
        for state in [SagaState::Completed, SagaState::Compensated] {
            assert_eq!(
                look(&row(state, None, None), Intent::Cancel),
                Look::Ended(state)
            );
        }
    }

    /// The other side keeps these for as long as it likes.
    #[test]
    fn idempotency_keys_never_change() {
        let key = |step, undo| idempotency_key("order.place", "order:7", step, undo).to_string();
        assert_eq!(key("charge", false), "0c927b3cea4703584aab38898d1c9133");
        assert_eq!(key("charge", true), "4022019531e859f0e87b222a342b4e20");
        assert_ne!(key("ship", false), key("charge", false));
    }
}
