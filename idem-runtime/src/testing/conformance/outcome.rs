use super::Harness;
use super::support::{FREE, FREE_MEANS, HOUR, done, keep, law, payload, together};
use crate::fingerprint::Fingerprint;
use crate::protocol::State;
use crate::store::{Held, Request, Reserved, Store};

async fn come_back<S: Store>(harness: &Harness<S>, outcome: &[u8]) {
    let id = harness.fresh();
    harness.completed(id, outcome, keep(HOUR)).await;
    let answer = harness.reserve(&harness.request(id)).await;
    let size = match &answer {
        Reserved::Completed { outcome, .. } => Some(outcome.len()),
        _ => None,
    };
    law(
        matches!(&answer, Reserved::Completed { outcome: kept, .. } if **kept == *outcome),
        "an outcome comes back byte for byte",
        "a replay answers with another value than the first run, or does not decode",
        &("bytes recorded", outcome.len(), "bytes read", size),
    );
    let shown = harness.lookup(id).await.map(|stored| stored.record.state);
    law(
        matches!(&shown, Some(State::Completed { outcome: kept, .. }) if **kept == *outcome),
        "a look-up shows the outcome byte for byte",
        "a status query shows another value than the first run",
        &outcome.len(),
    );
}

/// Outcomes come back as they are: empty ones, zeros, every byte.
pub async fn outcomes_come_back_byte_equal<S: Store>(harness: &Harness<S>) {
    let every: Vec<u8> = (0..=255).collect();
    let outcomes: [&[u8]; 8] = [
        b"",
        b"\0",
        b"\xff",
        b"\0\0after\0",
        b"\r\n\t' \" \\ ; -- %s {} $1",
        b"\xc3\x28 no UTF-8",
        "\u{feff}grün 🙂".as_bytes(),
        &every,
    ];
    for outcome in outcomes {
        come_back(harness, outcome).await;
    }
}

/// An outcome of 1 MiB comes back.
pub async fn a_large_outcome_comes_back<S: Store>(harness: &Harness<S>) {
    let large: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
    come_back(harness, &large).await;
}

/// What is completed stays completed as it is.
pub async fn a_completed_record_is_never_overwritten<S: Store>(harness: &Harness<S>) {
    let id = harness.fresh();
    let held = harness.take(id, FREE, FREE_MEANS).await;
    let first = harness.complete(&held, b"first").await;
    let second = harness.complete(&held, b"second").await;
    let renewed = harness.renew(&held).await;
    let released = harness.release(&held).await;
    let answer = harness.reserve(&harness.request(id)).await;
    law(
        matches!(&answer, Reserved::Completed { outcome, .. } if **outcome == *b"first"),
        "a completed record is never overwritten, released or reserved before its time is over",
        "callers of one key get different answers, or the body runs again",
        &answer,
    );
    law(
        (first, second, renewed, released) == (Held::Yes, Held::No, Held::No, Held::No),
        "a step on a reservation that has ended answers `No`",
        "an owner takes a step for done that was not",
        &(first, second, renewed, released),
    );
}

/// Two completions of one reservation at the same time: one counts, and it is the one that is kept.
pub async fn one_of_two_completions_counts<S: Store>(harness: &Harness<S>) {
    for _ in 0..10 {
        let held = harness.take(harness.fresh(), FREE, FREE_MEANS).await;
        let answers = together(8, |n| {
            let (store, held) = (harness.store().clone(), held.clone());
            async move {
                let outcome = vec![n as u8].into();
                (n, done(store.complete(&held, outcome, keep(HOUR)).await))
            }
        })
        .await;
        let counted: Vec<_> = answers
            .iter()
            .filter(|(_, answer)| *answer == Held::Yes)
            .map(|(n, _)| *n as u8)
            .collect();
        let answer = harness.reserve(&harness.request(held.id)).await;
        law(
            matches!(&answer, Reserved::Completed { outcome, .. } if counted == **outcome),
            "of concurrent completions one counts, and its outcome is kept",
            "a caller's answer differs from every replay",
            &(counted, answer),
        );
    }
}

/// A key that is known with another payload is refused while its first call runs.
pub async fn another_payload_is_refused_while_running<S: Store>(harness: &Harness<S>) {
    let id = harness.fresh();
    let held = harness.take(id, FREE, FREE_MEANS).await;
    another_payload_is_refused(harness, id, "while the first call runs").await;
    let renewed = harness.renew(&held).await;
    law(
        renewed == Held::Yes,
        "a refused request changes nothing",
        "a call with a mistaken key ends the right one's reservation",
        &renewed,
    );
    another_payload_is_refused(harness, id, "after a renewal").await;
}

/// What the first payload did is not known: another one is not its repeat.
pub async fn another_payload_is_refused_after_the_lease<S: Store>(harness: &Harness<S>) {
    let id = harness.fresh();
    let left = harness.take(id, FREE, FREE_MEANS).await;
    harness.pass(harness.lease() * 2).await;
    if harness.lookup(id).await.is_none() {
        // A store that drops reservations with their lease knows nothing of it any more.
        return;
    }
    another_payload_is_refused(harness, id, "after the first call's lease has ended").await;
    let unchecked = Request {
        fingerprint: Fingerprint::NONE,
        ..harness.request(id)
    };
    let next = harness
        .take_as(
            unchecked,
            "a payload that is not checked takes a lapsed reservation over",
            "a key stays blocked after a crash and a change of what is compared",
        )
        .await;
    law(
        next.fence > left.fence,
        "a matching payload takes a lapsed reservation over",
        "a key stays blocked after a crash",
        &(left.fence, next.fence),
    );
}

/// The payload is remembered with the outcome.
pub async fn another_payload_is_refused_after_completion<S: Store>(harness: &Harness<S>) {
    let id = harness.fresh();
    harness.completed(id, b"first", keep(HOUR)).await;
    another_payload_is_refused(harness, id, "after the first call has completed").await;
    let answer = harness.reserve(&harness.request(id)).await;
    law(
        matches!(&answer, Reserved::Completed { outcome, .. } if **outcome == *b"first"),
        "the right payload is still answered after another one was refused",
        "one mistaken call breaks the key for everybody",
        &answer,
    );
}

async fn another_payload_is_refused<S: Store>(
    harness: &Harness<S>,
    id: crate::key::RecordId,
    when: &str,
) {
    let request = Request::new(id, payload(2), harness.lease());
    let answer = harness.reserve(&request).await;
    law(
        answer == Reserved::Mismatch,
        &format!("a known key with another payload is a mismatch {when}"),
        "a caller is answered with the outcome of another intent",
        &answer,
    );
}
