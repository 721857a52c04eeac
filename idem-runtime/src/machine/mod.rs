//! State machines: a status column that only ever takes declared transitions.
//!
//! `#[derive(StateMachine)]` declares and checks them while compiling; [`Transition`] makes one in a
//! database, as one statement that carries its own condition:
//!
//! ```sql
//! UPDATE shop_order SET status = 'paid' WHERE id = ? AND status IN ('pending')
//! ```
//!
//! Of two calls that read the same old state the database lets one through. Nothing that was read
//! before decides.

mod answer;
#[cfg(feature = "_sqlx")]
mod database;
#[cfg(feature = "_sqlx")]
mod sqlx_impls;
mod state;
#[cfg(feature = "_sqlx")]
mod texts;
#[cfg(feature = "_sqlx")]
mod transition;

pub use answer::{Progress, RequireError, Transitioned};
#[cfg(feature = "_sqlx")]
pub use database::Connection;
pub use state::{State, UnknownState};
#[cfg(feature = "_sqlx")]
pub use transition::{Transition, TransitionBuilder};

#[cfg(feature = "_sqlx")]
pub use crate::store::sql::Guarded;

#[doc(hidden)]
pub use state::parse_state;

/// Without a database there is nothing to implement.
#[cfg(not(feature = "_sqlx"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __impl_state_sqlx {
    ($state:ident) => {};
}
