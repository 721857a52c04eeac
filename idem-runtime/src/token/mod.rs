//! One-time tokens: issued by the server, bound to a subject and an operation, good once until they
//! expire.
//!
//! | | needs storage when issued | length | can be withdrawn |
//! |---|---|---|---|
//! | [`SignedTokens`] | no; a mark when it is used | 103 characters | with its key, and all that it signed |
//! | [`StoredTokens`] | a row | 34 characters | one by one (`withdraw`) |
//! | [`MemoryTokens`] | in this process | 34 characters | one by one (`withdraw`) |
//! | `RedisTokens` (feature `redis`) | a key | 34 characters | one by one (`withdraw`) |
//!
//! `check` has no effect, for the page that a link leads to: scanners and previews open links.
//! `consume` belongs to the call itself (`POST`) and to its transaction: what is rolled back has not
//! used its token up. Which reason a token is refused for is for the log
//! ([`TokenError::reason`]); outside there is one text for all of them.
//!
//! Both of the first two are kept in Postgres, MySQL, MariaDB (tested on 10.11; no MySQL was at hand) or
//! SQLite.
//!
//! A function that is `#[idempotent]` names its token in the argument `token`: a repeat of the same call
//! answers from its record and never comes to the token, which is used by then.

mod error;
mod form;
#[cfg(feature = "_sqlx")]
mod keys;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "_sqlx")]
mod signed;
#[cfg(feature = "_sqlx")]
mod sql;
#[cfg(feature = "_sqlx")]
mod stored;

pub use error::{Reason, TokenError};
pub use form::{Consumed, Token};
#[cfg(feature = "_sqlx")]
pub use keys::{KeyError, SigningKeys};
pub use memory::{Hold, MemoryTokens};
#[cfg(feature = "redis")]
pub use redis::{RedisHold, RedisTokens};
#[cfg(feature = "_sqlx")]
pub use signed::SignedTokens;
#[cfg(feature = "_sqlx")]
pub use sql::{TokenDialect, TokenTable};
#[cfg(feature = "_sqlx")]
pub use stored::StoredTokens;
