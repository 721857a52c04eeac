use std::time::{Duration, Instant};

use super::Harness;
use super::support::{FREE, FREE_MEANS, HOUR, done, keep, law};
use crate::protocol::{OnCrash, State};
use crate::store::{Held, Request, Reservation, Reserved, Store};

const TAKEN_OVER: &str = "a reservation whose lease is over can be taken over";
const TAKEN_OVER_MEANS: &str = "a crash blocks its key for longer than the lease";
const LIVE: &str = "a reservation is not taken over before its lease is over";
const LIVE_MEANS: &str = "the body runs twice at the same time";

/// Asks for a record that another owner holds, and whose lease began after `begun`.
async fn refused<S: Store>(harness: &Harness<S>, held: &Reservation, begun: Instant) {
    let answer = harness.reserve(&harness.request(held.id)).await;
    if !harness.not_over(begun, harness.lease()) {
        return;
    }
    let Reserved::InProgress { free_in } = answer else {
        return law(false, LIVE, LIVE_MEANS, &answer);
    };
    law(
        free_in.is_none_or(|time| !time.is_zero() && time <= harness.lease()),
        "the time until others may take over is within the lease",
        "callers come back much too late, or hammer the store",
        &free_in,
    );
}

/// A live lease keeps others out to its last moment.
pub async fn a_live_lease_is_not_taken_over<S: Store>(harness: &Harness<S>) {
    let begun = Instant::now();
    let held = harness.take(harness.fresh(), FREE, FREE_MEANS).await;
    refused(harness, &held, begun).await;
    harness.pass_most_of(harness.lease()).await;
    refused(harness, &held, begun).await;
}

/// After the end of a lease the next call with the same payload takes the record over.
pub async fn a_lapsed_lease_is_taken_over<S: Store>(harness: &Harness<S>) {
    let ids = [harness.fresh(), harness.fresh()];
    let mut old = Vec::new();
    for id in ids {
        old.push(harness.take(id, FREE, FREE_MEANS).await);
    }
    harness.pass_most_of(harness.lease()).await;
    harness.pass_rest_of(harness.lease()).await;
    for old in old {
        let request = harness.request(old.id);
        let begun = Instant::now();
        let new = harness.take_as(request, TAKEN_OVER, TAKEN_OVER_MEANS).await;
        law(
            new.fence > old.fence,
            "a take-over has a higher fence",
            "a resource cannot tell the old owner from the new one",
            &(old.fence, new.fence),
        );
        let answer = harness
            .reserve(&Request {
                owner: crate::protocol::Owner::fresh(),
                ..request
            })
            .await;
        law(
            matches!(answer, Reserved::InProgress { .. })
                || !harness.not_over(begun, harness.lease()),
            "a take-over has a lease of its own",
            LIVE_MEANS,
            &answer,
        );
    }
}

/// A renewal counts from the moment it is made.
pub async fn a_renewed_lease_holds<S: Store>(harness: &Harness<S>) {
    let begun = Instant::now();
    let held = harness.take(harness.fresh(), FREE, FREE_MEANS).await;
    harness.pass_most_of(harness.lease()).await;
    if !harness.not_over(begun, harness.lease()) {
        return;
    }
    let begun = Instant::now();
    let renewed = harness.renew(&held).await;
    law(
        renewed == Held::Yes,
        "the holder of a live reservation can renew it",
        "a body that runs for long loses its reservation",
        &renewed,
    );
    harness.pass_most_of(harness.lease()).await;
    refused(harness, &held, begun).await;
    harness.pass_rest_of(harness.lease()).await;
    let _ = harness.take(held.id, TAKEN_OVER, TAKEN_OVER_MEANS).await;
}

/// After a take-over nothing that the old owner asks for counts.
pub async fn a_late_owner_changes_nothing<S: Store>(harness: &Harness<S>) {
    let id = harness.fresh();
    let old = harness.take(id, FREE, FREE_MEANS).await;
    harness.pass(harness.lease() * 5 / 4).await;
    let new = harness.take(id, TAKEN_OVER, TAKEN_OVER_MEANS).await;
    nothing_counts(harness, &old, "after another owner took over").await;
    let shown = harness.lookup(id).await;
    law(
        shown
            .as_ref()
            .is_some_and(|at| at.record.is_reserved_by(new.owner) && at.record.fence == new.fence),
        "a late owner changes nothing of its successor's reservation",
        "a third caller comes in while the second runs",
        &shown,
    );
    let completed = harness.complete(&new, b"new").await;
    law(
        completed == Held::Yes,
        "a successor completes as if the late owner were not there",
        "its outcome is lost",
        &completed,
    );
    nothing_counts(harness, &old, "after its successor has completed").await;
    let answer = harness.reserve(&harness.request(id)).await;
    law(
        matches!(&answer, Reserved::Completed { outcome, .. } if **outcome == *b"new"),
        "a late owner changes nothing of its successor's outcome",
        "callers of one key get different answers",
        &answer,
    );
}

async fn nothing_counts<S: Store>(harness: &Harness<S>, held: &Reservation, when: &str) {
    for (step, answer) in [
        ("renew", harness.renew(held).await),
        ("complete", harness.complete(held, b"late").await),
        ("release", harness.release(held).await),
    ] {
        law(
            answer == Held::No,
            &format!("`{step}` of an owner that does not hold the record answers `No` {when}"),
            "an owner that lost its reservation ends, or believes it has, somebody else's",
            &answer,
        );
    }
}

/// Owner and fence count together: either alone is not enough.
pub async fn a_stranger_changes_nothing<S: Store>(harness: &Harness<S>) {
    let held = harness.take(harness.fresh(), FREE, FREE_MEANS).await;
    let other = harness.take(harness.fresh(), FREE, FREE_MEANS).await;
    let forged = [
        Reservation {
            owner: other.owner,
            ..held.clone()
        },
        Reservation {
            fence: crate::protocol::Fence::new(held.fence.get() + 1),
            ..held.clone()
        },
        Reservation {
            id: harness.fresh(),
            ..held.clone()
        },
    ];
    for forged in &forged {
        nothing_counts(harness, forged, "with another owner, fence or record").await;
    }
    let completed = harness.complete(&held, b"own").await;
    law(
        completed == Held::Yes,
        "what strangers ask for leaves the holder alone",
        "its outcome is lost",
        &completed,
    );
}

/// A lease that is over is still its owner's while nobody has taken it over.
pub async fn a_lapsed_lease_still_completes<S: Store>(harness: &Harness<S>) {
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(harness.take(harness.fresh(), FREE, FREE_MEANS).await);
    }
    harness.pass(harness.lease() * 5 / 4).await;
    let begun = Instant::now();
    let answers = [
        harness.renew(&held[0]).await,
        harness.complete(&held[1], b"late").await,
        harness.release(&held[2]).await,
    ];
    law(
        answers == [Held::Yes; 3] || harness.expires_by_itself,
        "a lease that is over and was not taken over still counts",
        "a body that overran its lease alone reports a lost reservation without need",
        &answers,
    );
    if answers[0] == Held::Yes {
        refused(harness, &held[0], begun).await;
    }
    let answer = harness.reserve(&harness.request(held[1].id)).await;
    let kept = matches!(&answer, Reserved::Completed { outcome, .. } if **outcome == *b"late");
    law(
        kept == (answers[1] == Held::Yes),
        "a late completion is kept if and only if it was acknowledged",
        "the body runs again although its outcome was recorded, or its owner takes it for lost",
        &(answers[1], answer),
    );
    let _ = harness.take(held[2].id, FREE, FREE_MEANS).await;
}

/// What a look-up shows of a lapsed reservation is enough to complete it: somebody has found out that
/// the effect of a call happened that did not come to its end. While the call may run, and after a
/// take-over, it is not this reservation that is completed.
pub async fn a_lapsed_reservation_is_completed_by_what_is_shown_of_it<S: Store>(
    harness: &Harness<S>,
) {
    let ids = [harness.fresh(), harness.fresh()];
    let mut shown = Vec::new();
    for id in ids {
        let _ = harness.take(id, FREE, FREE_MEANS).await;
    }
    harness.pass(harness.lease() * 5 / 4).await;
    for id in ids {
        let Some(stored) = harness.lookup(id).await else {
            law(
                harness.expires_by_itself,
                "a look-up shows a reservation that is over and was not taken over",
                "nobody can find out which calls were left behind",
                &id,
            );
            return;
        };
        let State::Reserved { owner, .. } = stored.record.state else {
            law(false, "a look-up shows a reservation", FREE_MEANS, &stored);
            return;
        };
        let request = Request {
            owner,
            ..harness.request(id)
        };
        shown.push(Reservation::new(&request, stored.record.fence));
    }
    let answer = harness.complete(&shown[0], b"by hand").await;
    let replayed = harness.reserve(&harness.request(ids[0])).await;
    law(
        answer == Held::Yes
            && matches!(&replayed, Reserved::Completed { outcome, .. } if **outcome == *b"by hand"),
        "a lapsed reservation is completed by the owner and number that a look-up shows",
        "an abandoned call cannot be resolved, and its effect is repeated",
        &(answer, replayed),
    );
    let _ = harness.take(ids[1], FREE, FREE_MEANS).await;
    let answer = harness.complete(&shown[1], b"by hand").await;
    law(
        answer == Held::No,
        "what was shown of a reservation completes none that took it over",
        "a call that runs is completed with the outcome of another one",
        &answer,
    );
}

/// A crash frees the key after the lease, whatever retention the operation has; an outcome is kept
/// for its retention, whatever lease it was made under.
pub async fn lease_and_retention_are_separate<S: Store>(harness: &Harness<S>) {
    let long = Request {
        lease: harness.lease() * 8,
        ..harness.request(harness.fresh())
    };
    let held = harness.take_as(long, FREE, FREE_MEANS).await;
    let _ = harness
        .complete_for(&held, b"", keep(harness.lease()))
        .await;
    let kept = harness.fresh();
    harness
        .completed(kept, b"kept", keep(harness.lease() * 100))
        .await;
    harness.pass(harness.lease() * 5 / 4).await;
    let answer = harness.reserve(&harness.request(held.id)).await;
    law(
        matches!(answer, Reserved::Granted(_)),
        "an outcome is not kept longer because its lease was long",
        "retention cannot be relied upon",
        &answer,
    );
    let answer = harness.reserve(&harness.request(kept)).await;
    law(
        matches!(answer, Reserved::Completed { .. }),
        "an outcome is kept after the lease it was made under is over",
        "the body runs again as soon as the lease would have ended",
        &answer,
    );
}

/// Leases of a fraction of a second hold, and end.
pub async fn a_sub_second_lease_holds<S: Store>(harness: &Harness<S>) {
    let lease = Duration::from_millis(900);
    let request = Request {
        lease,
        ..harness.request(harness.fresh())
    };
    let begun = Instant::now();
    let held = harness.take_as(request, FREE, FREE_MEANS).await;
    harness.pass(Duration::from_millis(450)).await;
    let answer = harness.reserve(&harness.request(held.id)).await;
    if harness.not_over(begun, lease) {
        law(
            matches!(&answer, Reserved::InProgress { free_in } if free_in.is_none_or(|time| time <= lease)),
            "a lease of 900 ms is not rounded down to nothing, nor up",
            LIVE_MEANS,
            &answer,
        );
    }
    harness.pass(Duration::from_millis(600)).await;
    let _ = harness.take(held.id, TAKEN_OVER, TAKEN_OVER_MEANS).await;
}

/// "No time" is not "no limit".
pub async fn a_shortest_lease_ends<S: Store>(harness: &Harness<S>) {
    for lease in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_millis(1),
    ] {
        let request = Request {
            lease,
            ..harness.request(harness.fresh())
        };
        match harness.store().reserve(&request).await {
            // A store may refuse a lease that it cannot hold.
            Err(_) if lease < Duration::from_millis(1) => continue,
            answer => drop(done(answer)),
        }
        harness.pass(Duration::from_millis(1500)).await;
        let answer = harness.reserve(&harness.request(request.id)).await;
        law(
            matches!(answer, Reserved::Granted(_)),
            "a lease of next to nothing is never one without an end",
            "a call that started at its deadline blocks its key for ever",
            &(lease, answer),
        );
    }
}

/// A reservation that was left behind is kept for somebody to decide, where the operation asks so.
pub async fn an_abandoned_reservation_is_held<S: Store>(harness: &Harness<S>) {
    let hold = |id| Request {
        on_crash: OnCrash::Hold,
        ..harness.request(id)
    };
    let ids = [harness.fresh(), harness.fresh()];
    let left = harness.take_as(hold(ids[0]), FREE, FREE_MEANS).await;
    let late = harness.take_as(hold(ids[1]), FREE, FREE_MEANS).await;
    for held in [&left, &late] {
        let confirmed = harness.renew(held).await;
        law(
            confirmed == Held::Yes,
            "a reservation is held from its first renewal on",
            "no body can begin",
            &confirmed,
        );
    }
    let answer = harness.reserve(&hold(left.id)).await;
    law(
        matches!(answer, Reserved::InProgress { .. } | Reserved::Abandoned),
        LIVE,
        LIVE_MEANS,
        &answer,
    );
    harness.pass(harness.lease() * 5).await;
    let _ = harness.purge(usize::MAX).await;
    let answer = harness.reserve(&hold(left.id)).await;
    law(
        answer == Reserved::Abandoned,
        "a lapsed reservation that is held is found abandoned, purged or not",
        "an effect that nobody knows about is repeated, or calls wait for nobody",
        &answer,
    );
    let shown = harness
        .lookup(left.id)
        .await
        .map(|stored| stored.record.state);
    law(
        matches!(&shown, Some(State::Reserved { owner, .. }) if *owner == left.owner),
        "an abandoned reservation is shown",
        "nobody can find out whose effect is in doubt",
        &shown,
    );
    let completed = harness.complete_for(&late, b"late", keep(HOUR)).await;
    law(
        completed == Held::Yes,
        "an abandoned reservation can still be completed by its owner",
        "an owner that was only slow cannot clear the doubt",
        &completed,
    );
    let forgotten = harness.forget(left.id).await;
    law(
        forgotten,
        "an abandoned reservation can be forgotten",
        "a key stays blocked for ever",
        &forgotten,
    );
    let new = harness.take_as(hold(left.id), FREE, FREE_MEANS).await;
    law(
        new.fence > left.fence,
        "the fence of a record grows over a forget",
        "a resource cannot tell the old owner from the new one",
        &(left.fence, new.fence),
    );
}

/// A claim whose answer never came is as good as none once its lease has ended: its body never ran.
pub async fn a_claim_that_is_not_confirmed_is_not_held<S: Store>(harness: &Harness<S>) {
    let hold = |id| Request {
        on_crash: OnCrash::Hold,
        ..harness.request(id)
    };
    let unheard = harness
        .take_as(hold(harness.fresh()), FREE, FREE_MEANS)
        .await;
    harness.pass(harness.lease() * 2).await;
    let late = harness.renew(&unheard).await;
    law(
        late == Held::No,
        "a first renewal after the lease does not hold the reservation",
        "a request that was on its way for too long blocks its key for ever",
        &late,
    );
    let _ = harness
        .take_as(
            hold(unheard.id),
            "a claim that nobody confirmed is taken over after its lease",
            "a call that never ran blocks its key for ever",
        )
        .await;
}
