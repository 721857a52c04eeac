//! The states of a record and who decides them. No I/O, no time of its own: stores hand in the
//! record and the moment, and carry the answer out in one atomic step.
//!
//! ```text
//! absent ──reserve──▶ reserved(owner, fence, lease) ──complete──▶ completed(outcome) ──▶ tombstone ──▶ absent
//!   ▲                   │        ▲  │
//!   └─────release───────┘        └──┘ renew (same owner and fence), take-over after the lease (higher fence)
//! ```
//!
//! * A completed record and a tombstone never go back to reserved before their time is over.
//! * `complete`, `release` and `renew` count only for the owner *and* fence that hold the record.
//! * Whether time is over is asked of the record, never of a purge: purging changes no answer.

mod decision;
mod record;
mod transition;

pub use decision::{Decision, OnCrash, decide};
pub use record::{Fence, Owner, Record, State};
pub use transition::{Event, Refused, apply};
