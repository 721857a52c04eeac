use std::time::{Duration, Instant};

use super::Harness;
use super::support::{FREE, FREE_MEANS, HOUR, done, keep, law, payload};
use crate::clock::Moment;
use crate::key::RecordId;
use crate::protocol::State;
use crate::retention::{MAX_RETENTION, Retention};
use crate::store::{Held, Request, Reservation, Reserved, Store};

const KEPT: &str = "an outcome is kept for its whole retention, from the moment it was recorded";
const KEPT_MEANS: &str = "the body runs again while callers may still repeat the call";
const OVER: &str = "an outcome is not kept for longer than its retention";
const OVER_MEANS: &str = "a key that may be used again is answered from the past, or never freed";

async fn is_kept<S: Store>(harness: &Harness<S>, id: RecordId, law_text: &str, meaning: &str) {
    let answer = harness.reserve(&harness.request(id)).await;
    law(
        matches!(answer, Reserved::Completed { .. }),
        law_text,
        meaning,
        &answer,
    );
}

/// An outcome is kept to the last moment of its retention, counted from its completion.
pub async fn an_outcome_is_kept_for_its_retention<S: Store>(harness: &Harness<S>) {
    let retention = harness.lease();
    let held = harness.take(harness.fresh(), FREE, FREE_MEANS).await;
    // Counted from the reservation it would be over too early.
    harness.pass(harness.lease() / 2).await;
    let begun = Instant::now();
    let completed = harness.complete_for(&held, b"kept", keep(retention)).await;
    law(completed == Held::Yes, KEPT, KEPT_MEANS, &completed);
    harness.pass_most_of(retention).await;
    let answer = harness.reserve(&harness.request(held.id)).await;
    if harness.not_over(begun, retention) {
        law(
            matches!(answer, Reserved::Completed { .. }),
            KEPT,
            KEPT_MEANS,
            &answer,
        );
    }
    harness.pass_rest_of(retention).await;
    let _ = harness.take(held.id, OVER, OVER_MEANS).await;
}

/// Neither reading nor completing once more moves the end of a retention.
pub async fn a_retention_is_never_rewritten<S: Store>(harness: &Harness<S>) {
    let retention = harness.lease();
    let short = harness.take(harness.fresh(), FREE, FREE_MEANS).await;
    let long = harness.take(harness.fresh(), FREE, FREE_MEANS).await;
    let _ = harness.complete_for(&short, b"", keep(retention)).await;
    let _ = harness.complete_for(&long, b"", keep(HOUR)).await;
    harness.pass_most_of(retention).await;
    for held in [&short, &long] {
        let _ = harness.reserve(&harness.request(held.id)).await;
        let _ = harness.lookup(held.id).await;
        let _ = harness.renew(held).await;
    }
    let _ = harness.complete_for(&short, b"", keep(HOUR)).await;
    let _ = harness
        .complete_for(&long, b"", keep(Duration::from_millis(1)))
        .await;
    harness.pass_rest_of(retention).await;
    let answer = harness.reserve(&harness.request(short.id)).await;
    law(
        matches!(answer, Reserved::Granted(_)),
        "reading an outcome, or completing it once more, does not extend its retention",
        "a key that is asked for often is never freed",
        &answer,
    );
    is_kept(
        harness,
        long.id,
        "completing once more does not shorten a retention",
        "the body runs again long before the retention is over",
    )
    .await;
}

/// A retention of a fraction of a second is kept, and ends.
pub async fn a_sub_second_retention_is_kept<S: Store>(harness: &Harness<S>) {
    let retention = Duration::from_millis(900);
    let id = harness.fresh();
    let begun = Instant::now();
    harness.completed(id, b"", keep(retention)).await;
    harness.pass(Duration::from_millis(450)).await;
    let answer = harness.reserve(&harness.request(id)).await;
    if harness.not_over(begun, retention) {
        law(
            matches!(answer, Reserved::Completed { .. }),
            "a retention of 900 ms is not rounded down to nothing",
            KEPT_MEANS,
            &answer,
        );
    }
    harness.pass(Duration::from_millis(600)).await;
    let _ = harness
        .take(
            id,
            "a retention of 900 ms is not rounded up, nor read as 900 s",
            OVER_MEANS,
        )
        .await;
}

/// "For ever" has no end, and the longest retention does not wrap into the past.
pub async fn the_longest_retentions_do_not_wrap<S: Store>(harness: &Harness<S>) {
    let (longest, forever) = (harness.fresh(), harness.fresh());
    harness.completed(longest, b"", keep(MAX_RETENTION)).await;
    harness.completed(forever, b"", Retention::FOREVER).await;
    let shown = harness
        .lookup(forever)
        .await
        .map(|stored| stored.record.state);
    law(
        matches!(
            shown,
            Some(State::Completed {
                keep_until: None,
                ..
            })
        ),
        "a retention without an end is shown as one",
        "a status query tells an end that there is not",
        &shown,
    );
    for wait in [Duration::ZERO, harness.lease(), MAX_RETENTION / 2] {
        if wait > HOUR && matches!(harness.time, super::Time::Real(_)) {
            break;
        }
        harness.pass(wait).await;
        let _ = harness.purge(usize::MAX).await;
        is_kept(
            harness,
            longest,
            "the longest retention does not wrap",
            KEPT_MEANS,
        )
        .await;
        is_kept(harness, forever, "\"for ever\" has no end", KEPT_MEANS).await;
    }
    if matches!(harness.time, super::Time::Manual(_)) {
        harness.pass(MAX_RETENTION).await;
        let _ = harness.take(longest, OVER, OVER_MEANS).await;
        is_kept(harness, forever, "\"for ever\" has no end", KEPT_MEANS).await;
    }
}

/// A record whose time is over is absent to every step, whether or not it was purged.
pub async fn an_expired_record_counts_as_absent<S: Store>(harness: &Harness<S>) {
    let retention = harness.lease();
    let ids = [harness.fresh(), harness.fresh(), harness.fresh()];
    for id in ids {
        harness.completed(id, b"old", keep(retention)).await;
    }
    harness.pass(retention * 5 / 4).await;
    let shown = harness.lookup(ids[0]).await;
    law(
        shown.is_none(),
        "a look-up shows a record that is over as absent, purged or not",
        "answers depend on when the cleaner ran",
        &shown,
    );
    let forgotten = harness.forget(ids[1]).await;
    law(
        !forgotten,
        "there is nothing to forget of a record that is over",
        "an operator is told that an outcome was dropped which nobody was answered from",
        &forgotten,
    );
    let request = Request::new(ids[2], payload(2), harness.lease());
    let law_text = "a record that is over is reserved anew, for any payload, purged or not";
    let new = harness
        .take_as(request, law_text, "answers depend on when the cleaner ran")
        .await;
    let completed = harness.complete(&new, b"new").await;
    let answer = harness
        .reserve(&Request::new(ids[2], payload(2), harness.lease()))
        .await;
    law(
        completed == Held::Yes
            && matches!(&answer, Reserved::Completed { outcome, .. } if **outcome == *b"new"),
        "the new outcome of a record that was over replaces the old one",
        "callers are answered from the past",
        &answer,
    );
}

const KNOWN: &str = "a key is known for its whole tombstone, counted from the end of its outcome";
const KNOWN_MEANS: &str = "a late repeat has its effect a second time";

/// After its retention the outcome is gone, and the key still known: nothing runs, purged or not.
pub async fn a_tombstone_outlives_its_outcome<S: Store>(harness: &Harness<S>) {
    let (retention, tombstone) = (harness.lease(), harness.lease() * 3);
    let kept = done(keep(retention).with_tombstone(tombstone));
    let ids = [harness.fresh(), harness.fresh()];
    let begun = Instant::now();
    for id in ids {
        harness.completed(id, b"paid", kept).await;
    }
    harness.pass(retention * 5 / 4).await;
    for (id, purging) in ids.into_iter().zip([false, true]) {
        if purging {
            let _ = harness.purge(usize::MAX).await;
        }
        let answer = harness.reserve(&harness.request(id)).await;
        let other = Request::new(id, payload(2), harness.lease());
        let other = harness.reserve(&other).await;
        let shown = harness.lookup(id).await.map(|stored| stored.record.state);
        if harness.not_over(begun, retention + tombstone) {
            law(
                answer == Reserved::OutcomeGone && other == Reserved::Mismatch,
                KNOWN,
                KNOWN_MEANS,
                &(answer, other),
            );
            law(
                matches!(shown, Some(State::Tombstone { until: Some(_) })),
                "a look-up shows a tombstone as one, purged or not",
                "what is shown is not what a call would be answered",
                &shown,
            );
        }
    }
    harness.pass(retention + tombstone).await;
    for id in ids {
        let _ = harness.take(id, OVER, OVER_MEANS).await;
    }
}

/// A key is known to the last moment of its tombstone, which begins where the retention ends.
pub async fn a_tombstone_lasts_for_its_period<S: Store>(harness: &Harness<S>) {
    let (retention, tombstone) = (harness.lease(), harness.lease() * 2);
    let kept = done(keep(retention).with_tombstone(tombstone));
    let id = harness.fresh();
    let begun = Instant::now();
    harness.completed(id, b"paid", kept).await;
    harness.pass_most_of(retention).await;
    let answer = harness.reserve(&harness.request(id)).await;
    if harness.not_over(begun, retention) {
        law(
            matches!(answer, Reserved::Completed { .. }),
            KEPT,
            KEPT_MEANS,
            &answer,
        );
    }
    harness.pass_rest_of(retention).await;
    harness.pass_most_of(tombstone).await;
    let answer = harness.reserve(&harness.request(id)).await;
    if harness.not_over(begun, retention + tombstone) {
        law(answer == Reserved::OutcomeGone, KNOWN, KNOWN_MEANS, &answer);
    }
    harness.pass_rest_of(tombstone).await;
    let shown = harness.lookup(id).await;
    let forgotten = harness.forget(id).await;
    law(
        shown.is_none() && !forgotten,
        "a tombstone that is over counts as absent, purged or not",
        "answers depend on when the cleaner ran",
        &(shown, forgotten),
    );
    let _ = harness.take(id, OVER, OVER_MEANS).await;
}

/// A tombstone without an end stays; forgetting it frees the key.
pub async fn a_tombstone_may_stay_for_ever<S: Store>(harness: &Harness<S>) {
    let id = harness.fresh();
    let kept = keep(harness.lease()).with_tombstone_forever();
    harness.completed(id, b"paid", kept).await;
    harness.pass(harness.lease() * 5 / 4).await;
    let shown = harness.lookup(id).await.map(|stored| stored.record.state);
    law(
        shown == Some(State::Tombstone { until: None }),
        "a tombstone without an end is shown as one",
        "a status query tells an end that there is not",
        &shown,
    );
    if matches!(harness.time, super::Time::Manual(_)) {
        harness.pass(MAX_RETENTION).await;
    }
    // The first may drop the outcome.
    let _ = harness.purge(usize::MAX).await;
    let purged = harness.purge(usize::MAX).await;
    let answer = harness.reserve(&harness.request(id)).await;
    law(
        answer == Reserved::OutcomeGone && purged == 0,
        "a tombstone \"for ever\" has no end",
        KNOWN_MEANS,
        &(answer, purged),
    );
    let forgotten = harness.forget(id).await;
    law(
        forgotten,
        "a tombstone can be forgotten",
        "an operator cannot let a call run again",
        &forgotten,
    );
    let _ = harness.take(id, FREE, FREE_MEANS).await;
}

/// The same steps at the same times have the same answers, however often somebody purges.
pub async fn purging_changes_no_answer<S: Store>(harness: &Harness<S>) {
    let quiet = transcript(harness, false).await;
    let purged = transcript(harness, true).await;
    for (quiet, purged) in quiet.iter().zip(&purged) {
        law(
            quiet == purged,
            "purging changes no answer",
            "what a call does depends on when the cleaner ran",
            &(
                "without a purge",
                quiet,
                "with one before every step",
                purged,
            ),
        );
    }
}

struct Transcript<'a, S> {
    harness: &'a Harness<S>,
    purging: bool,
    told: Vec<(&'static str, String)>,
}

impl<S: Store> Transcript<'_, S> {
    /// Does a step and writes down what it answered, without what differs from run to run.
    async fn step(&mut self, what: &'static str, step: impl Future<Output = Answer>) -> Answer {
        if self.purging {
            let _ = self.harness.purge(usize::MAX).await;
        }
        let answer = step.await;
        let shape = match &answer {
            Answer::Reserved(Reserved::Granted(_)) => "granted".to_owned(),
            Answer::Reserved(Reserved::InProgress { .. }) => "in progress".to_owned(),
            Answer::Reserved(Reserved::Completed { outcome, .. }) => format!("{outcome:?}"),
            other => format!("{other:?}"),
        };
        self.told.push((what, shape));
        answer
    }

    async fn reserve(&mut self, what: &'static str, id: RecordId) -> Option<Reservation> {
        let harness = self.harness;
        let step = async { Answer::Reserved(harness.reserve(&harness.request(id)).await) };
        match self.step(what, step).await {
            Answer::Reserved(Reserved::Granted(held)) => Some(held),
            _ => None,
        }
    }
}

#[derive(Debug)]
enum Answer {
    Reserved(Reserved),
    Held(#[allow(dead_code, reason = "shown")] Held),
    Bool(#[allow(dead_code, reason = "shown")] bool),
}

async fn transcript<S: Store>(harness: &Harness<S>, purging: bool) -> Vec<(&'static str, String)> {
    use Answer::{Bool, Held};
    let id = harness.fresh();
    let retention = keep(harness.lease());
    let over = harness.lease() * 5 / 4;
    let mut t = Transcript {
        harness,
        purging,
        told: Vec::new(),
    };
    let Some(held) = t.reserve("reserve", id).await else {
        return t.told;
    };
    t.reserve("a second caller", id).await;
    t.step("renew", async { Held(harness.renew(&held).await) })
        .await;
    let completion = async { Held(harness.complete_for(&held, b"kept", retention).await) };
    t.step("complete", completion).await;
    t.reserve("replay", id).await;
    harness.pass(over).await;
    let lookup = async { Bool(harness.lookup(id).await.is_some()) };
    t.step("look up what is over", lookup).await;
    let forget = async { Bool(harness.forget(id).await) };
    t.step("forget what is over", forget).await;
    let late = async { Held(harness.complete(&held, b"late").await) };
    t.step("complete what is over", late).await;
    let Some(lapsing) = t.reserve("reserve what is over", id).await else {
        return t.told;
    };
    let release = async { Held(harness.release(&held).await) };
    t.step("release of the old owner", release).await;
    harness.pass(over).await;
    let renewal = async { Held(harness.renew(&lapsing).await) };
    t.step("renew what has lapsed", renewal).await;
    harness.pass(over).await;
    let next = t.reserve("take over", id).await;
    let late = async { Held(harness.complete(&lapsing, b"late").await) };
    t.step("complete of the late owner", late).await;
    if let Some(next) = next {
        let completion = async { Held(harness.complete(&next, b"next").await) };
        t.step("complete of the successor", completion).await;
    }
    for what in ["forget", "forget again"] {
        let forget = async { Bool(harness.forget(id).await) };
        t.step(what, forget).await;
    }
    t.told
}

/// The moments that a record shows are those of its life.
pub async fn moments_are_those_of_the_records_life<S: Store>(harness: &Harness<S>) {
    let retention = harness.lease() * 3;
    let held = harness.take(harness.fresh(), FREE, FREE_MEANS).await;
    let reserved = harness.lookup(held.id).await;
    let wait = Duration::from_millis(40);
    harness.pass(wait).await;
    let _ = harness.complete_for(&held, b"", keep(retention)).await;
    let completed = harness.lookup(held.id).await;
    let moments = |stored: &Option<crate::store::Stored>| {
        stored.as_ref().map(|stored| {
            let ends: Vec<Option<Moment>> = match &stored.record.state {
                State::Reserved { lease_until, .. } => vec![*lease_until],
                State::Completed {
                    recorded_at,
                    keep_until,
                    ..
                } => vec![Some(*recorded_at), *keep_until],
                State::Tombstone { until } => vec![*until],
            };
            (stored.created_at, ends)
        })
    };
    let got = (moments(&reserved), moments(&completed));
    let (Some((created, _)), Some((still_created, ends))) = &got else {
        return law(
            false,
            "a record is shown while it is kept",
            KEPT_MEANS,
            &got,
        );
    };
    let &[Some(recorded), Some(kept)] = ends.as_slice() else {
        return law(false, "a completed record shows its end", KEPT_MEANS, &got);
    };
    law(
        created == still_created && created.until(recorded) >= wait / 2,
        "a record was recorded after it was reserved, by the store's own clock",
        "a status query, or `Age` of a replay, tells nonsense",
        &got,
    );
    let apart = recorded.until(kept).abs_diff(retention);
    law(
        apart <= Duration::from_millis(50),
        "the end shown is the retention after the completion, to 50 ms",
        "units are mixed, or fractions of seconds cut off",
        &got,
    );
}
