use std::collections::HashSet;

use super::Harness;
use super::support::{FREE, FREE_MEANS, HOUR, done, keep, law, payload, together};
use crate::key::RecordId;
use crate::protocol::{Fence, State};
use crate::store::{Held, Request, Reservation, Reserved, Store};

const CALLERS: usize = 24;
const ROUNDS: usize = 12;

fn granted(answers: &[Reserved]) -> Vec<&Reservation> {
    answers
        .iter()
        .filter_map(|answer| match answer {
            Reserved::Granted(reservation) => Some(reservation),
            _ => None,
        })
        .collect()
}

/// A record that is absent is reserved, and shown as reserved.
pub async fn reserve_grants_a_free_record<S: Store>(harness: &Harness<S>) {
    let id = harness.fresh();
    let held = harness.take(id, FREE, FREE_MEANS).await;
    let shown = harness.lookup(id).await;
    law(
        shown
            .as_ref()
            .is_some_and(|at| at.record.is_reserved_by(held.owner)),
        "a granted reservation is in the store",
        "the next caller runs the body as well",
        &shown,
    );
}

/// Of many callers at the same time one gets the record.
pub async fn reserve_is_exclusive<S: Store>(harness: &Harness<S>) {
    for _ in 0..ROUNDS {
        let id = harness.fresh();
        let answers = race(harness, id).await;
        one_is_granted(&answers);
        let progress = answers
            .iter()
            .all(|answer| matches!(answer, Reserved::Granted(_) | Reserved::InProgress { .. }));
        law(
            progress,
            "who comes second is told that the record is in progress",
            "concurrent callers get a wrong answer",
            &answers,
        );
    }
}

async fn race<S: Store>(harness: &Harness<S>, id: RecordId) -> Vec<Reserved> {
    together(CALLERS, |_| {
        let (store, request) = (harness.store().clone(), harness.request(id));
        async move { done(store.reserve(&request).await) }
    })
    .await
}

#[track_caller]
fn one_is_granted(answers: &[Reserved]) {
    law(
        granted(answers).len() == 1,
        "of concurrent requests for one record exactly one is granted",
        "the claim is not one atomic step: the body runs twice, or not at all",
        &granted(answers),
    );
}

/// Of many callers at the same time one takes a lapsed reservation over.
pub async fn take_over_is_exclusive<S: Store>(harness: &Harness<S>) {
    let mut lapsed = Vec::new();
    for _ in 0..ROUNDS {
        lapsed.push(harness.take(harness.fresh(), FREE, FREE_MEANS).await);
    }
    harness.pass(harness.lease() * 5 / 4).await;
    for old in lapsed {
        let answers = race(harness, old.id).await;
        one_is_granted(&answers);
        law(
            granted(&answers)[0].fence > old.fence,
            "a take-over has a higher fence",
            "a resource cannot tell the old owner from the new one",
            &(&old, granted(&answers)),
        );
    }
}

/// A request that arrives twice is granted twice, under one fence.
pub async fn the_same_owner_is_granted_again<S: Store>(harness: &Harness<S>) {
    let request = harness.request(harness.fresh());
    let first = harness.take_as(request, FREE, FREE_MEANS).await;
    let law_text = "a request that was sent twice is granted twice, under the same fence";
    let meaning = "a client that repeats a request whose answer was lost waits for itself";
    let second = harness.take_as(request, law_text, meaning).await;
    law(first == second, law_text, meaning, &(&first, &second));

    for _ in 0..ROUNDS {
        let request = harness.request(harness.fresh());
        let answers = together(CALLERS, |n| {
            let store = harness.store().clone();
            let request = match n % 2 {
                0 => request,
                _ => harness.request(request.id),
            };
            async move { done(store.reserve(&request).await) }
        })
        .await;
        let holders: HashSet<_> = granted(&answers)
            .iter()
            .map(|held| (held.owner, held.fence))
            .collect();
        law(
            holders.len() == 1,
            "copies of one request never count as two owners",
            "the body runs twice",
            &holders,
        );
    }
}

/// A completion and a take-over at the same time: one of them counts.
pub async fn completing_and_taking_over_exclude_each_other<S: Store>(harness: &Harness<S>) {
    let mut lapsed = Vec::new();
    for _ in 0..ROUNDS * 2 {
        lapsed.push(harness.take(harness.fresh(), FREE, FREE_MEANS).await);
    }
    harness.pass(harness.lease() * 5 / 4).await;
    for old in lapsed {
        let answers = together(2, |n| {
            let (store, old) = (harness.store().clone(), old.clone());
            let request = harness.request(old.id);
            async move {
                if n == 0 {
                    let outcome = b"late".as_slice().into();
                    Ok(done(store.complete(&old, outcome, keep(HOUR)).await))
                } else {
                    Err(done(store.reserve(&request).await))
                }
            }
        })
        .await;
        let completed = answers.contains(&Ok(Held::Yes));
        let taken = answers
            .iter()
            .any(|answer| matches!(answer, Err(Reserved::Granted(_))));
        law(
            completed != taken,
            "a late completion and a take-over exclude each other",
            "a caller runs the body although its outcome is recorded",
            &answers,
        );
    }
}

/// Many records at the same time keep to themselves.
pub async fn distinct_records_do_not_meet<S: Store>(harness: &Harness<S>) {
    const RECORDS: usize = 200;
    let ids: Vec<_> = (0..RECORDS).map(|_| harness.fresh()).collect();
    let fine = together(RECORDS, |n| {
        let (store, request) = (harness.store().clone(), harness.request(ids[n]));
        async move {
            let Reserved::Granted(held) = done(store.reserve(&request).await) else {
                return false;
            };
            let outcome = n.to_string().into_bytes();
            done(store.complete(&held, outcome.into(), keep(HOUR)).await) == Held::Yes
        }
    })
    .await;
    law(
        fine.iter().all(|fine| *fine),
        "records do not block each other",
        "calls with different keys are refused for each other's sake",
        &fine,
    );
    for (n, id) in ids.into_iter().enumerate() {
        let answer = harness.reserve(&harness.request(id)).await;
        let own = matches!(&answer, Reserved::Completed { outcome, .. } if **outcome == *n.to_string().as_bytes());
        law(
            own,
            "a record keeps its own outcome",
            "callers get other callers' answers",
            &(n, answer),
        );
    }
}

/// The same operation and key under two namespaces are two records.
pub async fn namespaces_are_separate<S: Store>(harness: &Harness<S>) {
    let here = harness.store();
    let other = harness.neighbour.as_ref();
    let (ours, theirs) = match other {
        Some(other) => (here.namespace(), other.namespace()),
        None => ("one", "two"),
    };
    let id = |namespace: &str| RecordId::new(namespace, "conformance", &[], "namespaces");
    law(
        id(ours) != id(theirs),
        "two namespaces have two names",
        "records of two users of one store meet",
        &(ours, theirs),
    );
    harness.completed(id(ours), b"ours", keep(HOUR)).await;
    let there = other.unwrap_or(here);
    let answer = done(there.reserve(&harness.request(id(theirs))).await);
    law(
        matches!(answer, Reserved::Granted(_)),
        "a record of one namespace is not seen in another",
        "a call is answered with another user's outcome",
        &answer,
    );
    let kept = harness
        .lookup(id(ours))
        .await
        .map(|stored| stored.record.state);
    law(
        matches!(&kept, Some(State::Completed { outcome, .. }) if **outcome == *b"ours"),
        "what happens in one namespace leaves another alone",
        "one user of a store destroys another's records",
        &kept,
    );
}

/// A released record is free at once, for any payload.
pub async fn a_released_record_is_free<S: Store>(harness: &Harness<S>) {
    let id = harness.fresh();
    let held = harness.take(id, FREE, FREE_MEANS).await;
    let released = harness.release(&held).await;
    law(
        released == Held::Yes,
        "the holder of a live reservation can release it",
        "a failed call blocks its key until the lease ends",
        &released,
    );
    let shown = harness.lookup(id).await;
    law(
        shown.is_none(),
        "a released record is absent",
        "operators see a call that is not running",
        &shown,
    );
    let request = Request::new(id, payload(2), harness.lease());
    let next = harness.take_as(request, FREE, FREE_MEANS).await;
    for (step, answer) in [
        ("complete", harness.complete(&held, b"late").await),
        ("renew", harness.renew(&held).await),
        ("release", harness.release(&held).await),
    ] {
        law(
            answer == Held::No,
            "a reservation that was released counts no more",
            "a repeated or delayed step of the old owner ends the new owner's reservation",
            &(step, answer),
        );
    }
    let completed = harness.complete(&next, b"next").await;
    law(
        completed == Held::Yes,
        "a record that was released and reserved again completes",
        "its outcome is lost",
        &completed,
    );
}

/// Fences grow over everything that can end a reservation or a record.
pub async fn fences_grow<S: Store>(harness: &Harness<S>) {
    let id = harness.fresh();
    let mut last = harness.take(id, FREE, FREE_MEANS).await;
    let grows = |last: Fence, now: Fence, over: &str| {
        law(
            now > last,
            &format!("the fence of a record grows over {over}"),
            "a resource that compares fences lets an owner in that lost its reservation",
            &(last, now),
        );
    };
    let short = keep(harness.lease());

    let _ = harness.release(&last).await;
    let next = harness.take(id, FREE, FREE_MEANS).await;
    grows(last.fence, next.fence, "a release");
    last = next;

    harness.pass(harness.lease() * 5 / 4).await;
    let next = harness.take(id, FREE, FREE_MEANS).await;
    grows(last.fence, next.fence, "a lapsed lease");
    last = next;

    let _ = harness.complete_for(&last, b"", short).await;
    harness.pass(harness.lease() * 5 / 4).await;
    let next = harness.take(id, FREE, FREE_MEANS).await;
    grows(last.fence, next.fence, "an expiry");
    last = next;

    let _ = harness.complete(&last, b"").await;
    let _ = harness.forget(id).await;
    let next = harness.take(id, FREE, FREE_MEANS).await;
    grows(last.fence, next.fence, "a forget");
    last = next;

    let _ = harness.complete_for(&last, b"", short).await;
    harness.pass(harness.lease() * 5 / 4).await;
    let _ = harness.purge(usize::MAX).await;
    let next = harness.take(id, FREE, FREE_MEANS).await;
    grows(last.fence, next.fence, "a purge");
}
