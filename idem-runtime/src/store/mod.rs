//! Stores: atomic steps on records and nothing else. The engine decides what the steps mean.
//!
//! * A **transaction** ([`sql`]) guards the reservation itself; the record commits with the
//!   business rows.
//! * A [`Store`] guards it with a lease: [`memory`], `sql::LeasedSql`, and `redis` with the feature
//!   of that name.
//! * A front before any of them (`tiered`) answers repeats.

#[cfg(feature = "tiered")]
pub mod filter;
mod kept;
mod leased;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "_sqlx")]
pub mod sql;
#[cfg(feature = "tiered")]
pub mod tiered;

#[cfg(feature = "mysql")]
pub use sql::mysql;
#[cfg(feature = "postgres")]
pub use sql::postgres;
#[cfg(feature = "sqlite")]
pub use sql::sqlite;

pub use kept::{Kept, Until};
pub use leased::{Held, Request, Reservation, Reserved, Store, Stored};
