//! A call behind an equal one of the same process: it waits without a connection.

use std::time::Duration;

use bytes::Bytes;

use crate::engine::backoff::Backoff;
use crate::engine::coalesce::{Follower, Stage};
use crate::engine::transaction::RETRY_AFTER;
use crate::error::{Effect, Error, ErrorKind};
use crate::operation::{Call, InProgress};

/// Waits for the call that went first. `None`: it is for this call to look.
///
/// `patience` is how long one that does not wait for others gives the database. `runs`: a body is known to
/// run elsewhere, from the call in front or from one that was in front before it.
pub(super) async fn follow(
    call: &Call,
    mut first: Follower,
    polling: &Backoff,
    patience: Duration,
    runs: &mut bool,
) -> Result<Option<Bytes>, Error> {
    let other_payload = !first.fingerprint.matches(call.fingerprint());
    // One that only looks may itself be the one that is wrong, or about to be answered.
    let (enough, patience): (fn(&Stage) -> bool, _) = match (other_payload, call.in_progress()) {
        (_, InProgress::Reject) => (|stage| !matches!(stage, Stage::Looking), patience),
        (true, InProgress::Wait(_)) => (
            |stage| !matches!(stage, Stage::Looking | Stage::Elsewhere),
            polling.left(),
        ),
        (false, InProgress::Wait(_)) => (
            |stage| matches!(stage, Stage::Landed(_) | Stage::Failed(_)),
            polling.left(),
        ),
    };
    let reached = tokio::time::timeout(patience, first.reaches(enough)).await;
    *runs |= first.saw_it_run_elsewhere();
    let Ok(reached) = reached else {
        return Err(if *runs || !first.looks() {
            in_progress(call)
        } else {
            not_answered(call)
        });
    };
    match reached {
        Some(Stage::Running) if other_payload => Err(call.error(ErrorKind::FingerprintMismatch)),
        Some(Stage::Landed(outcome)) if !other_payload => Ok(Some(outcome)),
        Some(Stage::Landed(_)) | None => Ok(None),
        Some(Stage::Failed(failure)) => Err(call.name(failure.again())),
        Some(Stage::Looking | Stage::Elsewhere | Stage::Running) => Err(in_progress(call)),
    }
}

fn in_progress(call: &Call) -> Error {
    call.error(ErrorKind::InProgress).after(RETRY_AFTER)
}

/// Nothing is known to run.
fn not_answered(call: &Call) -> Error {
    call.error(ErrorKind::StoreUnavailable)
        .detail("an equal call of this process still waits for a connection or for the database")
        .effect_is(Effect::None)
}
