//! The suite on the memory store, and on stores that are broken in one way each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "stores/plain.rs"]
mod plain;

use idem_runtime::store::Store;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::testing::clock::ManualClock;
use idem_runtime::testing::conformance::{Harness, Time, cases};
use plain::{Flaw, PlainStore};
use std::time::Duration;

fn memory() -> Harness<MemoryStore> {
    let clock = ManualClock::new();
    let store = MemoryStore::builder()
        .namespace("here")
        .clock(clock.clone())
        .build();
    Harness::new(store, Time::Manual(clock)).announces_changes()
}

mod memory_with_a_manual_clock {
    idem_runtime::store_conformance!(super::memory());
}

mod memory_in_real_time {
    use super::*;

    idem_runtime::store_conformance!(
        Harness::new(MemoryStore::new(), Time::Real(Duration::from_millis(400)))
            .announces_changes()
    );
}

mod plain_store {
    use super::*;

    idem_runtime::store_conformance!(plain(&[]));
}

fn plain(flaws: &'static [Flaw]) -> Harness<PlainStore> {
    let clock = ManualClock::new();
    let store = PlainStore::new(clock.clone(), flaws);
    let neighbour = store.in_namespace("there");
    Harness::new(store, Time::Manual(clock)).neighbour(neighbour)
}

/// The cases that fail, with what they say.
async fn failing<S: Store>(harness: impl Fn() -> Harness<S>) -> Vec<(&'static str, String)> {
    let mut failing = Vec::new();
    for case in cases() {
        if let Err(broken) = case.run(harness()).await {
            failing.push((case.name, broken));
        }
    }
    failing
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suite_passes_on_a_right_store() {
    assert_eq!(failing(memory).await, []);
    assert_eq!(failing(|| plain(&[])).await, []);
}

/// Every broken store is caught, by the case that is about its flaw.
macro_rules! caught {
    ($($test:ident: $flaw:ident by $($case:ident),+;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $test() {
                let failing = failing(|| plain(&[Flaw::$flaw])).await;
                $(
                    let broken = failing.iter().find(|(case, _)| *case == stringify!($case));
                    let Some((_, message)) = broken else {
                        panic!("{} did not catch it; failing: {failing:#?}", stringify!($case));
                    };
                    assert!(message.contains("broken law: ") && message.contains("what it means: "), "{message}");
                )+
            }
        )*
        const TESTED: &[Flaw] = &[$(Flaw::$flaw),*];
    };
}

caught! {
    a_claim_in_two_steps_is_caught: TwoStepClaim by reserve_is_exclusive, take_over_is_exclusive;
    a_release_without_its_owner_is_caught: ReleaseAnybodys by a_late_owner_changes_nothing, a_stranger_changes_nothing;
    expiry_by_purge_alone_is_caught: ExpiresByPurge by an_expired_record_counts_as_absent, purging_changes_no_answer;
    a_retention_rewritten_by_reading_is_caught: ReadingExtends by a_retention_is_never_rewritten;
    a_retention_rewritten_by_completing_is_caught: CompletingExtends by a_retention_is_never_rewritten;
    a_retention_counted_from_the_reservation_is_caught: CountsFromReservation by an_outcome_is_kept_for_its_retention;
    a_lost_fingerprint_is_caught: LosesFingerprint by another_payload_is_refused_after_completion;
    an_overwritten_outcome_is_caught: Overwrites by a_completed_record_is_never_overwritten, one_of_two_completions_counts;
    fences_that_begin_again_are_caught: FencesBeginAgain by fences_grow;
    whole_seconds_are_caught: WholeSeconds by a_sub_second_lease_holds, a_sub_second_retention_is_kept;
    a_reservation_kept_for_the_retention_is_caught: LeaseIsForever by a_lapsed_lease_is_taken_over;
    a_take_over_of_what_is_held_is_caught: IgnoresHold by an_abandoned_reservation_is_held;
    a_claim_that_is_held_is_caught: HoldsFromTheClaim by a_claim_that_is_not_confirmed_is_not_held;
    a_take_over_by_another_payload_is_caught: ForgetsPayloadWithLease by another_payload_is_refused_after_the_lease;
    a_purge_of_reservations_is_caught: PurgesReservations by purge_removes_only_what_is_over;
    text_that_ends_at_a_zero_is_caught: EndsAtZero by outcomes_come_back_byte_equal;
    a_key_forgotten_with_its_outcome_is_caught: ForgetsWithTheOutcome by a_tombstone_outlives_its_outcome, a_tombstone_may_stay_for_ever;
    an_outcome_kept_as_long_as_its_key_is_caught: ReplaysFromTheGrave by a_tombstone_outlives_its_outcome, a_tombstone_may_stay_for_ever;
    a_purge_of_tombstones_is_caught: PurgesTombstones by a_tombstone_outlives_its_outcome, a_tombstone_may_stay_for_ever;
    a_repeated_request_that_is_refused_is_caught: RefusesItself by the_same_owner_is_granted_again, a_dropped_reserve_can_be_repeated;
    a_late_completion_that_is_refused_is_caught: RefusesLate by a_lapsed_lease_still_completes, a_lapsed_reservation_is_completed_by_what_is_shown_of_it;
}

#[test]
fn every_flaw_is_tested() {
    assert_eq!(TESTED, Flaw::ALL);
}
