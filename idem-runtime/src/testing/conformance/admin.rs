use std::time::{Duration, Instant};

use super::Harness;
use super::support::{FREE, FREE_MEANS, HOUR, done, keep, law, payload, together};
use crate::protocol::State;
use crate::retention::Retention;
use crate::store::{Held, Request, Reserved, Store};

/// A look-up shows who holds a record, for what, and until when, and the store's time.
pub async fn lookup_shows_a_reservation<S: Store>(harness: &Harness<S>) {
    let id = harness.fresh();
    let nothing = harness.lookup(id).await;
    law(
        nothing.is_none(),
        "a record that was never reserved is absent",
        "a status query answers for calls that were never made",
        &nothing,
    );
    let request = Request {
        scope: "shop::pay",
        key_text: Some("order:7/ü"),
        ..harness.request(id)
    };
    let held = harness.take_as(request, FREE, FREE_MEANS).await;
    let hidden = harness.take(harness.fresh(), FREE, FREE_MEANS).await;
    let shown = harness.lookup(id).await;
    let right = shown.as_ref().is_some_and(|stored| {
        let State::Reserved {
            owner, lease_until, ..
        } = stored.record.state
        else {
            return false;
        };
        owner == held.owner
            && stored.record.fence == held.fence
            && stored.record.fingerprint == held.fingerprint
            && lease_until.is_some()
            && stored.read_at.is_some()
            && stored.scope == "shop::pay"
            && stored.key_text.as_deref() == Some("order:7/ü")
    });
    law(
        right,
        "a look-up shows owner, fence, payload, lease, operation and key of a reservation, and the time",
        "operators cannot see who holds a key",
        &shown,
    );
    let shown = harness.lookup(hidden.id).await;
    law(
        shown
            .as_ref()
            .is_some_and(|stored| stored.key_text.is_none()),
        "the text of a key is not kept where it is hidden",
        "what a user wanted hidden is stored",
        &shown,
    );
}

/// A look-up shows an outcome, and runs nothing.
pub async fn lookup_shows_an_outcome<S: Store>(harness: &Harness<S>) {
    let id = harness.fresh();
    let request = Request {
        scope: "shop::pay",
        key_text: Some("order:8"),
        ..harness.request(id)
    };
    let held = harness.take_as(request, FREE, FREE_MEANS).await;
    let _ = harness.complete(&held, b"paid").await;
    for _ in 0..2 {
        let shown = harness.lookup(id).await;
        let right = shown.as_ref().is_some_and(|stored| {
            let State::Completed {
                outcome,
                recorded_at,
                keep_until,
                ..
            } = &stored.record.state
            else {
                return false;
            };
            **outcome == *b"paid"
                && keep_until.is_some_and(|until| until > *recorded_at)
                && stored.record.fingerprint == held.fingerprint
                && stored.record.fence == held.fence
                && stored.scope == "shop::pay"
                && stored.key_text.as_deref() == Some("order:8")
        });
        law(
            right,
            "a look-up shows outcome, retention, payload, fence, operation and key",
            "who is unsure after a time-out cannot find out",
            &shown,
        );
    }
}

/// Forgetting a completed record makes it absent.
pub async fn forget_removes_a_completed_record<S: Store>(harness: &Harness<S>) {
    let id = harness.fresh();
    let nothing = harness.forget(id).await;
    harness.completed(id, b"", Retention::FOREVER).await;
    let first = harness.forget(id).await;
    let second = harness.forget(id).await;
    let shown = harness.lookup(id).await;
    law(
        (nothing, first, second) == (false, true, false) && shown.is_none(),
        "a completed record is forgotten once, and absent then",
        "an operator cannot let a call run again, or is not told whether it will",
        &(nothing, first, second, shown),
    );
    let request = Request::new(id, payload(2), harness.lease());
    let _ = harness.take_as(request, FREE, FREE_MEANS).await;
}

/// What is running is not forgotten.
pub async fn forget_is_refused_while_the_lease_is_live<S: Store>(harness: &Harness<S>) {
    let id = harness.fresh();
    let begun = Instant::now();
    let held = harness.take(id, FREE, FREE_MEANS).await;
    let forgotten = harness.forget(id).await;
    let answer = harness.reserve(&harness.request(id)).await;
    if harness.not_over(begun, harness.lease()) {
        law(
            !forgotten && matches!(answer, Reserved::InProgress { .. }),
            "a reservation whose lease is live is not forgotten",
            "the body runs twice at the same time",
            &(forgotten, answer),
        );
    }
    let completed = harness.complete(&held, b"").await;
    law(
        completed == Held::Yes,
        "a forget that was refused changes nothing",
        "its outcome is lost",
        &completed,
    );
}

/// A reservation whose lease is over can be forgotten.
pub async fn forget_removes_a_lapsed_reservation<S: Store>(harness: &Harness<S>) {
    let id = harness.fresh();
    let held = harness.take(id, FREE, FREE_MEANS).await;
    harness.pass(harness.lease() * 5 / 4).await;
    let forgotten = harness.forget(id).await;
    let shown = harness.lookup(id).await;
    law(
        (forgotten || harness.expires_by_itself) && shown.is_none(),
        "a reservation whose lease is over can be forgotten",
        "an operator cannot clear what a crash left behind",
        &(forgotten, shown),
    );
    let completed = harness.complete(&held, b"late").await;
    law(
        completed == Held::No,
        "a forgotten reservation counts no more",
        "an outcome appears under a key that was given up",
        &completed,
    );
}

/// Purging removes what is over, says how much, and spares everything else.
pub async fn purge_removes_only_what_is_over<S: Store>(harness: &Harness<S>) {
    const OVER: usize = 7;
    let short = keep(harness.lease());
    let lapsed = harness.take(harness.fresh(), FREE, FREE_MEANS).await;
    for _ in 0..OVER {
        harness.completed(harness.fresh(), b"over", short).await;
    }
    harness.pass(harness.lease() * 5 / 4).await;
    let (kept, forever) = (harness.fresh(), harness.fresh());
    harness.completed(kept, b"kept", keep(HOUR)).await;
    harness
        .completed(forever, b"kept", Retention::FOREVER)
        .await;
    let live = harness.take(harness.fresh(), FREE, FREE_MEANS).await;
    let purged = harness.purge(usize::MAX).await;
    let again = harness.purge(usize::MAX).await;
    law(
        (purged == OVER || harness.expires_by_itself && purged < OVER) && again == 0,
        "a purge says how many records it has removed, and removes those that are over",
        "the backlog grows unseen",
        &("over", OVER, "purged", purged, "purged again", again),
    );
    for id in [kept, forever] {
        let answer = harness.reserve(&harness.request(id)).await;
        law(
            matches!(&answer, Reserved::Completed { outcome, .. } if **outcome == *b"kept"),
            "a purge spares outcomes that are kept",
            "the body runs again while callers may still repeat the call",
            &answer,
        );
    }
    let answers = (
        harness.complete(&live, b"").await,
        harness.complete(&lapsed, b"").await,
    );
    law(
        answers.0 == Held::Yes && (answers.1 == Held::Yes || harness.expires_by_itself),
        "a purge spares reservations, whether their lease is over or not",
        "effects that nobody knows about yet lose their record",
        &answers,
    );
}

/// A purge does no more than it is asked for, so that it can be done in small steps.
pub async fn purge_honours_its_limit<S: Store>(harness: &Harness<S>) {
    const OVER: usize = 7;
    for _ in 0..OVER {
        harness
            .completed(harness.fresh(), b"", keep(Duration::from_millis(20)))
            .await;
    }
    harness.pass(Duration::from_millis(200)).await;
    let mut steps = vec![harness.purge(0).await];
    for _ in 0..4 {
        steps.push(harness.purge(3).await);
    }
    law(
        steps == [0, 3, 3, 1, 0] || harness.expires_by_itself && steps.iter().all(|n| *n <= 3),
        "a purge removes at most as many records as it is asked to, and all of them in the end",
        "a purge holds up live calls, or never catches up",
        &steps,
    );
}

/// Purges at the same time do not count a record twice, nor get into each other's way.
pub async fn purges_together_count_right<S: Store>(harness: &Harness<S>) {
    const OVER: usize = 40;
    for _ in 0..OVER {
        harness
            .completed(harness.fresh(), b"", keep(Duration::from_millis(20)))
            .await;
    }
    harness.pass(Duration::from_millis(200)).await;
    let counts = together(4, |_| {
        let store = harness.store().clone();
        async move {
            let mut count = 0;
            for _ in 0..20 {
                count += done(store.purge(5).await);
            }
            count
        }
    })
    .await;
    let total: usize = counts.iter().sum();
    law(
        total == OVER || harness.expires_by_itself && total <= OVER,
        "purges that run at the same time count every record once",
        "statistics lie, or purges on two nodes stop each other",
        &counts,
    );
}

/// A change after [`Store::changed`] was called ends its future, polled before the change or not.
pub async fn a_change_is_announced<S: Store>(harness: &Harness<S>) {
    if !harness.announces {
        return;
    }
    for step in ["complete", "release"] {
        let held = harness.take(harness.fresh(), FREE, FREE_MEANS).await;
        let changed = harness.store().changed(held.id);
        let _ = match step {
            "complete" => harness.complete(&held, b"").await,
            _ => harness.release(&held).await,
        };
        let heard = tokio::time::timeout(Duration::from_secs(5), changed).await;
        law(
            heard.is_ok(),
            "a store that announces changes announces those since it was asked",
            "waiting calls answer late, at their next poll",
            &step,
        );
    }
}
