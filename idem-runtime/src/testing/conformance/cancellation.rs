//! A future may be dropped at each of its awaits: whoever tries again finds a record that works.

use super::Harness;
use super::support::{FREE, FREE_MEANS, HOUR, cut, keep, law};
use crate::protocol::State;
use crate::store::{Held, Reservation, Reserved, Store};

/// More awaits than one step of any store has.
const MOST_POLLS: usize = 64;

/// A new reservation for every number of polls after which the step is dropped.
async fn held<S: Store>(harness: &Harness<S>) -> Reservation {
    harness.take(harness.fresh(), FREE, FREE_MEANS).await
}

/// A dropped request is repeated by its owner.
pub async fn a_dropped_reserve_can_be_repeated<S: Store>(harness: &Harness<S>) {
    for polls in 0..MOST_POLLS {
        let request = harness.request(harness.fresh());
        let whole = cut(polls, harness.store().reserve(&request))
            .await
            .is_some();
        let law_text =
            "an owner whose request was dropped midway gets the record when it asks again";
        let meaning = "a call that was cancelled while it reserved blocks itself";
        let held = harness.take_as(request, law_text, meaning).await;
        let completed = harness.complete(&held, b"").await;
        law(
            completed == Held::Yes,
            law_text,
            meaning,
            &(polls, completed),
        );
        if whole {
            return;
        }
    }
}

/// A dropped completion is repeated, and one of the two counts.
pub async fn a_dropped_complete_can_be_repeated<S: Store>(harness: &Harness<S>) {
    for polls in 0..MOST_POLLS {
        let held = held(harness).await;
        let outcome = b"done".as_slice();
        let completion = harness.store().complete(&held, outcome.into(), keep(HOUR));
        let whole = cut(polls, completion).await.is_some();
        let again = harness.complete(&held, outcome).await;
        let answer = harness.reserve(&harness.request(held.id)).await;
        law(
            matches!(&answer, Reserved::Completed { outcome, .. } if **outcome == *b"done"),
            "a completion that was dropped midway can be repeated: the outcome is recorded then",
            "an effect is done and its outcome lost",
            &(polls, again, answer),
        );
        if whole {
            return;
        }
    }
}

/// A dropped release is repeated, and the record is free.
pub async fn a_dropped_release_can_be_repeated<S: Store>(harness: &Harness<S>) {
    for polls in 0..MOST_POLLS {
        let held = held(harness).await;
        let whole = cut(polls, harness.store().release(&held)).await.is_some();
        let _ = harness.release(&held).await;
        let law_text = "a release that was dropped midway can be repeated: the record is free then";
        let _ = harness
            .take(held.id, law_text, "a failed call blocks its key")
            .await;
        if whole {
            return;
        }
    }
}

/// A dropped renewal is repeated, and the reservation holds.
pub async fn a_dropped_renew_can_be_repeated<S: Store>(harness: &Harness<S>) {
    for polls in 0..MOST_POLLS {
        let held = held(harness).await;
        let renewal = harness.store().renew(&held, harness.lease());
        let whole = cut(polls, renewal).await.is_some();
        let answers = (
            harness.renew(&held).await,
            harness.complete(&held, b"").await,
        );
        law(
            answers == (Held::Yes, Held::Yes),
            "a renewal that was dropped midway leaves the reservation to its owner",
            "a body loses its reservation without need",
            &(polls, answers),
        );
        if whole {
            return;
        }
    }
}

/// A dropped look-up changes nothing.
pub async fn a_dropped_lookup_changes_nothing<S: Store>(harness: &Harness<S>) {
    for polls in 0..MOST_POLLS {
        let held = held(harness).await;
        let whole = cut(polls, harness.store().lookup(held.id)).await.is_some();
        let shown = harness.lookup(held.id).await;
        let completed = harness.complete(&held, b"").await;
        law(
            shown.is_some() && completed == Held::Yes,
            "a look-up that was dropped midway changes nothing",
            "a status query destroys what it asks for",
            &(polls, shown, completed),
        );
        if whole {
            return;
        }
    }
}

/// A dropped forget is repeated, and the record is absent.
pub async fn a_dropped_forget_can_be_repeated<S: Store>(harness: &Harness<S>) {
    for polls in 0..MOST_POLLS {
        let id = harness.fresh();
        harness.completed(id, b"", keep(HOUR)).await;
        let whole = cut(polls, harness.store().forget(id)).await.is_some();
        let _ = harness.forget(id).await;
        let shown = harness.lookup(id).await;
        law(
            shown.is_none(),
            "a forget that was dropped midway can be repeated: the record is absent then",
            "an operator cannot let a call run again",
            &(polls, shown),
        );
        if whole {
            return;
        }
    }
}

/// A dropped purge spares what every purge spares, and the next one does the rest.
pub async fn a_dropped_purge_can_be_repeated<S: Store>(harness: &Harness<S>) {
    let kept = harness.fresh();
    harness.completed(kept, b"kept", keep(HOUR)).await;
    for polls in 0..MOST_POLLS {
        let over = harness.fresh();
        let short = std::time::Duration::from_millis(5);
        harness.completed(over, b"", keep(short)).await;
        harness.pass(short * 4).await;
        let whole = cut(polls, harness.store().purge(usize::MAX))
            .await
            .is_some();
        let _ = harness.purge(usize::MAX).await;
        let rest = harness.purge(usize::MAX).await;
        let shown = harness.lookup(kept).await.map(|stored| stored.record.state);
        law(
            rest == 0 && matches!(shown, Some(State::Completed { .. })),
            "a purge that was dropped midway can be repeated, and spares what is kept",
            "purging is not safe to stop",
            &(polls, rest, shown),
        );
        if whole {
            return;
        }
    }
}
