//! The suite that every leased store passes, this crate's and those of others.
//!
//! Each case is an async function over a [`Harness`]: a fresh store, and how time passes for it. A
//! case that fails says which law is broken and what that means for the users of the store.
//!
//! ```
//! use idem_runtime::store::memory::MemoryStore;
//! use idem_runtime::testing::clock::ManualClock;
//! use idem_runtime::testing::conformance::{Harness, Time};
//!
//! fn harness() -> Harness<MemoryStore> {
//!     let clock = ManualClock::new();
//!     let store = MemoryStore::builder().clock(clock.clone()).build();
//!     Harness::new(store, Time::Manual(clock))
//! }
//!
//! // One test for each case; in a module of its own, since it brings their names.
//! # #[cfg(any())]
//! mod conformance {
//!     idem_runtime::store_conformance!(super::harness());
//! }
//!
//! // Or by hand.
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! idem_runtime::testing::conformance::a_live_lease_is_not_taken_over(&harness()).await;
//! # }
//! ```

mod admin;
mod cancellation;
mod exclusion;
mod expiry;
mod lease;
mod outcome;
mod support;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::clock::ManualClock;
use crate::store::Store;

pub use admin::*;
pub use cancellation::*;
pub use exclusion::*;
pub use expiry::*;
pub use lease::*;
pub use outcome::*;

/// How time passes for the store under test.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Time {
    /// By this clock, which the store was made with.
    Manual(ManualClock),
    /// As it does; cases wait, and take this as their lease. It is to be long against the time that
    /// a step takes, 400 ms say.
    Real(Duration),
}

/// A fresh store and what a case must know about it.
#[derive(Debug)]
pub struct Harness<S> {
    store: S,
    time: Time,
    neighbour: Option<S>,
    expires_by_itself: bool,
    announces: bool,
    ids: AtomicU64,
}

impl<S: Store> Harness<S> {
    /// A store that nobody else uses, and how time passes for it.
    #[must_use]
    pub fn new(store: S, time: Time) -> Self {
        Self {
            store,
            time,
            neighbour: None,
            expires_by_itself: false,
            announces: false,
            ids: AtomicU64::new(0),
        }
    }

    /// A handle to the same data under another namespace.
    #[must_use]
    pub fn neighbour(mut self, store: S) -> Self {
        self.neighbour = Some(store);
        self
    }

    /// The store drops records by itself when their time is over, reservations with their lease
    /// included: a purge has nothing to count, and an owner whose lease is over has lost it even if
    /// nobody took it over.
    #[must_use]
    pub fn expires_by_itself(mut self) -> Self {
        self.expires_by_itself = true;
        self
    }

    /// [`Store::changed`] announces changes, so that its cases count.
    #[must_use]
    pub fn announces_changes(mut self) -> Self {
        self.announces = true;
        self
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Lets time pass.
    pub async fn pass(&self, time: Duration) {
        match &self.time {
            Time::Manual(clock) => clock.advance(time),
            Time::Real(_) => tokio::time::sleep(time).await,
        }
    }

    /// The lease that cases ask for.
    #[must_use]
    pub fn lease(&self) -> Duration {
        match self.time {
            Time::Manual(_) => Duration::from_secs(10),
            Time::Real(lease) => lease,
        }
    }

    /// Lets most of `span` pass: all but a millisecond where the clock can be moved.
    async fn pass_most_of(&self, span: Duration) {
        match &self.time {
            Time::Manual(clock) => clock.advance(span - Duration::from_millis(1)),
            Time::Real(_) => tokio::time::sleep(span / 2).await,
        }
    }

    /// Lets the rest of `span` pass, after [`pass_most_of`](Self::pass_most_of); not a millisecond
    /// more where the clock can be moved.
    async fn pass_rest_of(&self, span: Duration) {
        match &self.time {
            Time::Manual(clock) => clock.advance(Duration::from_millis(1)),
            Time::Real(lease) => tokio::time::sleep(span / 2 + *lease / 4).await,
        }
    }

    /// Whether `span` is certainly not over since `begun`: on a busy machine a case may sleep longer
    /// than it asked for, and then knows nothing.
    fn not_over(&self, begun: Instant, span: Duration) -> bool {
        matches!(self.time, Time::Manual(_)) || begun.elapsed() < span
    }
}

/// One case of the suite.
#[non_exhaustive]
pub struct Case<S> {
    /// The law, as the name of its function.
    pub name: &'static str,
    run: Run<S>,
}

type Run<S> = fn(Harness<S>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

impl<S> Case<S> {
    /// Runs it.
    ///
    /// # Errors
    /// The law that is broken and what it means.
    pub async fn run(&self, harness: Harness<S>) -> Result<(), String> {
        let Err(ended) = tokio::spawn((self.run)(harness)).await else {
            return Ok(());
        };
        let Ok(panic) = ended.try_into_panic() else {
            return Err("the case did not end".to_owned());
        };
        Err(match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic.downcast::<&str>().map_or_else(
                |_| "a panic without words".to_owned(),
                |text| (*text).into(),
            ),
        })
    }
}

impl<S> fmt::Debug for Case<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

macro_rules! table {
    ($($case:ident)*) => {
        /// All cases, to be run one by one.
        #[must_use]
        pub fn cases<S: Store>() -> Vec<Case<S>> {
            vec![$(Case {
                name: stringify!($case),
                run: |harness| Box::pin(async move { $case(&harness).await }),
            }),*]
        }
    };
}

crate::__conformance_cases!([table]);

/// Runs one case on a runtime of its own.
///
/// # Panics
/// There can be no runtime, or the case fails.
#[doc(hidden)]
pub fn block_on<F: Future>(case: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(case),
        Err(error) => panic!("no runtime: {error}"),
    }
}

/// A fresh number for a record.
fn next(ids: &AtomicU64) -> u64 {
    ids.fetch_add(1, Ordering::Relaxed)
}

/// Expands to one test for each case of the [conformance suite](crate::testing::conformance).
///
/// It takes an expression that makes a fresh [`Harness`](crate::testing::conformance::Harness) each
/// time it is evaluated, inside an async block: it may await. Put it into a module of its own.
#[macro_export]
macro_rules! store_conformance {
    ($constructor:expr $(,)?) => {
        $crate::__conformance_cases!([$crate::__conformance_tests] { $constructor });
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ({ $constructor:expr } $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::testing::conformance::block_on(async {
                    let harness = $constructor;
                    $crate::testing::conformance::$case(&harness).await;
                });
            }
        )*
    };
}

/// The one list of cases: hands it to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ([$($callback:tt)*] $($args:tt)*) => {
        $($callback)*! {
            $($args)*
            reserve_grants_a_free_record
            reserve_is_exclusive
            take_over_is_exclusive
            the_same_owner_is_granted_again
            completing_and_taking_over_exclude_each_other
            distinct_records_do_not_meet
            namespaces_are_separate
            a_released_record_is_free
            fences_grow
            outcomes_come_back_byte_equal
            a_large_outcome_comes_back
            a_completed_record_is_never_overwritten
            one_of_two_completions_counts
            another_payload_is_refused_while_running
            another_payload_is_refused_after_completion
            another_payload_is_refused_after_the_lease
            a_live_lease_is_not_taken_over
            a_lapsed_lease_is_taken_over
            a_renewed_lease_holds
            a_late_owner_changes_nothing
            a_stranger_changes_nothing
            a_lapsed_lease_still_completes
            a_lapsed_reservation_is_completed_by_what_is_shown_of_it
            lease_and_retention_are_separate
            a_sub_second_lease_holds
            a_shortest_lease_ends
            an_abandoned_reservation_is_held
            a_claim_that_is_not_confirmed_is_not_held
            an_outcome_is_kept_for_its_retention
            a_retention_is_never_rewritten
            a_sub_second_retention_is_kept
            the_longest_retentions_do_not_wrap
            an_expired_record_counts_as_absent
            a_tombstone_outlives_its_outcome
            a_tombstone_lasts_for_its_period
            a_tombstone_may_stay_for_ever
            purging_changes_no_answer
            moments_are_those_of_the_records_life
            lookup_shows_a_reservation
            lookup_shows_an_outcome
            forget_removes_a_completed_record
            forget_is_refused_while_the_lease_is_live
            forget_removes_a_lapsed_reservation
            purge_removes_only_what_is_over
            purge_honours_its_limit
            purges_together_count_right
            a_change_is_announced
            a_dropped_reserve_can_be_repeated
            a_dropped_complete_can_be_repeated
            a_dropped_release_can_be_repeated
            a_dropped_renew_can_be_repeated
            a_dropped_lookup_changes_nothing
            a_dropped_forget_can_be_repeated
            a_dropped_purge_can_be_repeated
        }
    };
}
