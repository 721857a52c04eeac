//! Records in a table of the application's own database, written by its own transactions.
//!
//! Three statements carry the protocol: a reserving `INSERT` that never waits for another
//! reservation and never overwrites, a `SELECT` where it found the key taken, and a completing
//! `UPDATE`. While a body runs its row points, by a deferred foreign key, at a row that does not
//! exist: the database refuses to commit a reservation without its outcome. MySQL and MariaDB have
//! no such key; there a reservation that was committed unfinished is reported and never run again.

mod admin;
mod cause;
mod dialect;
pub mod guarded;
mod handle;
pub mod lease;
#[cfg(feature = "mysql")]
pub mod mysql;
mod names;
mod owner_registry;
#[cfg(feature = "postgres")]
pub mod postgres;
pub(crate) mod schema;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use admin::Completed;
pub(crate) use admin::held_or_failed;
pub use cause::Meaning;
pub(crate) use cause::{
    classify, describe, gives_the_transaction_up, in_transaction, refuses_commit, table_is_gone,
    was_given_up,
};
pub use dialect::{AtIt, Dialect, Inserted, NewRow, Row, Statements, Times, Watched};
pub use guarded::Guarded;
pub use handle::{Asked, Fill, OnTx, OwnPool, PoolWith, Records};
pub use lease::LeasedSql;
pub(crate) use names::{check_columns, checked_own_table, checked_user_table, quoted};
pub(crate) use owner_registry::Running;
pub use schema::Migration;
