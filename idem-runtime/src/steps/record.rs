//! What a run writes down: a step's row and a change of the saga, in one transaction that commits only
//! while the saga is held.

use std::time::Duration;

use sqlx::{SqlStr, Transaction};

use super::claim::millis;
use super::sql::{Change, Held, NewOwner, SagaDialect, Texts};
use super::state::{Rest, SagaRow, SagaState, Stall, StepRow};
use crate::store::sql::refuses_commit;

/// What is written.
#[derive(Clone, Debug, Default)]
pub(super) struct Note {
    pub(super) row: Option<StepRow>,
    pub(super) saga: Option<SagaNote>,
}

/// How the saga itself changes.
#[derive(Clone, Debug)]
pub(super) enum SagaNote {
    /// It is compensated from now on.
    Compensate {
        step: String,
        error: String,
    },
    /// Nobody runs it until then, or until somebody asks for it.
    Rest(Rest, Option<Duration>, Stall),
    End(SagaState),
}

impl Note {
    /// Whether the saga's row shows that it was written: then it is not held any more.
    pub(super) fn let_go(&self, saga: &SagaRow) -> bool {
        match &self.saga {
            Some(SagaNote::Rest(rest, ..)) => saga.rest == Some(*rest),
            Some(SagaNote::End(state)) => saga.state == *state,
            Some(SagaNote::Compensate { .. }) | None => false,
        }
    }

    /// Whether everything of it stands in the tables.
    pub(super) fn is_written(&self, saga: &SagaRow, rows: &[StepRow]) -> bool {
        let saga_is = match &self.saga {
            None => true,
            Some(SagaNote::Compensate { .. }) => saga.state == SagaState::Compensating,
            Some(SagaNote::Rest(..) | SagaNote::End(_)) => self.let_go(saga),
        };
        let row_is = self.row.as_ref().is_none_or(|wanted| {
            rows.iter().any(|row| {
                row.recorded
                    && row.number == wanted.number
                    && row.state == wanted.state
                    && row.attempts == wanted.attempts
                    && row.undo_attempts == wanted.undo_attempts
                    && row.result == wanted.result
            })
        });
        saga_is && row_is
    }
}

/// A transaction that did not come to its end.
#[derive(Debug)]
pub(super) enum Undone {
    /// Nothing remains of it.
    RolledBack(sqlx::Error),
    /// It may have been committed, or may be yet.
    InDoubt(sqlx::Error),
    /// The saga is not held: nothing remains of it.
    Lost,
}

/// Writes the note as the last thing in the transaction, and commits. `hold` is the statement that
/// asks whether the saga is held.
pub(super) async fn write_and_commit<D: SagaDialect>(
    mut tx: Transaction<'static, D>,
    texts: &Texts,
    hold: &SqlStr,
    held: Held,
    lease: Duration,
    note: &Note,
) -> Result<(), Undone> {
    match write(&mut tx, texts, hold, held, lease, note).await {
        Ok(true) => {}
        Ok(false) => {
            // Awaited, so that its locks are gone; a connection that cannot roll back is closed.
            let _ = tx.rollback().await;
            return Err(Undone::Lost);
        }
        Err(error) => {
            let _ = tx.rollback().await;
            return Err(Undone::RolledBack(error));
        }
    }
    tx.commit().await.map_err(|error| {
        if refuses_commit::<D>(&error) {
            Undone::RolledBack(error)
        } else {
            Undone::InDoubt(error)
        }
    })
}

async fn write<D: SagaDialect>(
    tx: &mut Transaction<'static, D>,
    texts: &Texts,
    hold: &SqlStr,
    held: Held,
    lease: Duration,
    note: &Note,
) -> Result<bool, sqlx::Error> {
    if D::hold_saga(tx, hold, held, millis(lease)).await? != 1 {
        return Ok(false);
    }
    if let Some(row) = &note.row {
        D::write_step(tx, texts, held.id, row).await?;
    }
    let changed = match &note.saga {
        None => 1,
        Some(SagaNote::End(state)) => D::end_saga(tx, texts, held, *state).await?,
        Some(SagaNote::Compensate { step, error }) => {
            let change = Change {
                state: SagaState::Compensating,
                rest: None,
                failed_step: Some(step),
                error: Some(error),
                stall: None,
                due_millis: Some(millis(lease)),
            };
            D::change_saga(tx, texts, held, change).await?
        }
        Some(SagaNote::Rest(rest, due, stall)) => {
            let saga = D::read_saga(tx, texts, held.id, false).await?;
            let Some(saga) = saga else { return Ok(false) };
            let change = Change {
                state: saga.state,
                rest: Some(*rest),
                failed_step: None,
                error: None,
                stall: Some(stall),
                due_millis: due.map(millis),
            };
            D::change_saga(tx, texts, held, change).await?
        }
    };
    Ok(changed == 1)
}

/// What is found after a transaction whose end is in doubt.
#[derive(Debug)]
pub(super) enum Found {
    /// Held again, under a new number: the doubtful transaction is over, or can no longer commit.
    Held(Held, SagaRow, Vec<StepRow>),
    /// It was let go, by us.
    LetGo(SagaRow, Vec<StepRow>),
    /// The doubtful transaction still holds the row, or somebody looks at it.
    Locked,
    Lost,
}

/// Claims the saga anew for the owner that it has.
pub(super) async fn reclaim<D: SagaDialect>(
    mut tx: Transaction<'static, D>,
    texts: &Texts,
    held: Held,
    lease: Duration,
) -> Result<Found, sqlx::Error> {
    let Some(saga) = D::read_saga(&mut tx, texts, held.id, true).await? else {
        let there = D::read_saga(&mut tx, texts, held.id, false).await?;
        tx.rollback().await?;
        return Ok(there.map_or(Found::Lost, |_| Found::Locked));
    };
    if saga.owner != held.owner {
        tx.rollback().await?;
        return Ok(Found::Lost);
    }
    let ended = matches!(saga.state, SagaState::Completed | SagaState::Compensated);
    if ended || saga.rest.is_some() {
        let steps = D::read_steps(&mut tx, texts, held.id).await?;
        tx.rollback().await?;
        return Ok(Found::LetGo(saga, steps));
    }
    let new = NewOwner {
        id: held.id,
        owner: held.owner,
        state: saga.state,
        cancelled: saga.cancelled,
        lease_millis: millis(lease),
    };
    D::claim_saga(&mut tx, texts, new).await?;
    let saga = D::read_saga(&mut tx, texts, held.id, false).await?;
    let steps = D::read_steps(&mut tx, texts, held.id).await?;
    tx.commit().await?;
    Ok(saga.map_or(Found::Lost, |saga| {
        let held = Held {
            fence: saga.fence,
            ..held
        };
        Found::Held(held, saga, steps)
    }))
}
