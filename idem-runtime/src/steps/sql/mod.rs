//! The tables of sagas. Every operation here is one statement; [`claim`](super::claim) and the runner
//! put them into transactions.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statements;
mod table;
mod texts;

use std::future::Future;

use sqlx::SqlStr;

use super::filter::{SagaFilter, SagaSummary};
use super::state::{Rest, SagaRow, SagaState, Stall, StepRow};
use crate::key::RecordId;
use crate::store::sql::schema::Shape;
use crate::version::VersionDialect;

pub use table::SagaTable;
pub(super) use texts::Texts;

/// A saga that is about to be begun.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct NewSaga<'a> {
    pub(super) id: RecordId,
    pub(super) name: &'a str,
    pub(super) key: &'a str,
    pub(super) fingerprint: &'a [u8; 17],
    pub(super) input: &'a [u8],
    pub(super) steps: &'a str,
    pub(super) owner: [u8; 16],
    pub(super) lease_millis: i64,
}

/// Whose saga it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Held {
    pub(super) id: RecordId,
    pub(super) owner: [u8; 16],
    pub(super) fence: i64,
}

/// How a saga's row changes while it is held.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Change<'a> {
    pub(super) state: SagaState,
    pub(super) rest: Option<Rest>,
    pub(super) failed_step: Option<&'a str>,
    pub(super) error: Option<&'a str>,
    pub(super) stall: Option<&'a Stall>,
    /// Until it may be touched again; `None`: not before somebody asks for it.
    pub(super) due_millis: Option<i64>,
}

/// How a saga's row changes when it is claimed.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct NewOwner {
    pub(super) id: RecordId,
    pub(super) owner: [u8; 16],
    pub(super) state: SagaState,
    pub(super) cancelled: bool,
    pub(super) lease_millis: i64,
}

/// A database that keeps sagas. Sealed with [`Dialect`](crate::store::sql::Dialect).
pub trait SagaDialect: VersionDialect {
    /// Whether a transaction that writes keeps every other one from writing: its lease can neither be
    /// extended nor taken while it lasts.
    #[doc(hidden)]
    const ONE_WRITER: bool;

    /// Whether the driver survives a statement whose future is dropped. Where it does not, a step whose
    /// future is dropped comes to its end in the background, and is rolled back then.
    #[doc(hidden)]
    const DROPPABLE: bool;

    /// The first statement in the transaction of a step: if that transaction ends inside the step,
    /// either `UNMARK` fails or `hold` finds nothing.
    #[doc(hidden)]
    const MARK: Option<&'static str>;

    /// The statement before `hold`.
    #[doc(hidden)]
    const UNMARK: Option<&'static str>;

    #[doc(hidden)]
    fn saga_texts(table: &str) -> Texts;

    #[doc(hidden)]
    fn saga_shape() -> &'static Shape;

    /// Does nothing where there is a row.
    #[doc(hidden)]
    fn begin_saga(
        conn: &mut Self::Connection,
        texts: &Texts,
        new: NewSaga<'_>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Records a saga that was cancelled before it began; does nothing where there is a row.
    #[doc(hidden)]
    fn begin_cancelled(
        conn: &mut Self::Connection,
        texts: &Texts,
        new: NewSaga<'_>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// With `lock`: `None` also where another transaction holds the row.
    #[doc(hidden)]
    fn read_saga(
        conn: &mut Self::Connection,
        texts: &Texts,
        id: RecordId,
        lock: bool,
    ) -> impl Future<Output = Result<Option<SagaRow>, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn read_steps(
        conn: &mut Self::Connection,
        texts: &Texts,
        id: RecordId,
    ) -> impl Future<Output = Result<Vec<StepRow>, sqlx::Error>> + Send;

    /// The row is locked.
    #[doc(hidden)]
    fn claim_saga(
        conn: &mut Self::Connection,
        texts: &Texts,
        new: NewOwner,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Extends the lease if it is still this owner's, and locks the row; `sql` is `hold` or `renew`.
    #[doc(hidden)]
    fn hold_saga(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        held: Held,
        lease_millis: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn change_saga(
        conn: &mut Self::Connection,
        texts: &Texts,
        held: Held,
        change: Change<'_>,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn end_saga(
        conn: &mut Self::Connection,
        texts: &Texts,
        held: Held,
        state: SagaState,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Puts the claimable saga off, and says why; the row is locked.
    #[doc(hidden)]
    fn put_off_saga(
        conn: &mut Self::Connection,
        texts: &Texts,
        id: RecordId,
        millis: i64,
        stall: &Stall,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Inserts the row, or updates the one that is there.
    #[doc(hidden)]
    fn write_step(
        conn: &mut Self::Connection,
        texts: &Texts,
        id: RecordId,
        row: &StepRow,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// The ids and keys of what is due, the longest due first.
    #[doc(hidden)]
    fn due_sagas(
        conn: &mut Self::Connection,
        texts: &Texts,
        name: &str,
        limit: i64,
    ) -> impl Future<Output = Result<Vec<(RecordId, String)>, sqlx::Error>> + Send;

    /// What is stuck is due now; says whether it was.
    #[doc(hidden)]
    fn unstick_saga(
        conn: &mut Self::Connection,
        texts: &Texts,
        id: RecordId,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Begins to count anew the attempts of what is not finished.
    #[doc(hidden)]
    fn recount_attempts(
        conn: &mut Self::Connection,
        texts: &Texts,
        id: RecordId,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// A page of the sagas that the filter lets through, by id.
    #[doc(hidden)]
    fn list_sagas(
        conn: &mut Self::Connection,
        texts: &Texts,
        filter: &SagaFilter,
        after: RecordId,
        limit: i64,
    ) -> impl Future<Output = Result<Vec<SagaSummary>, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn count_sagas(
        conn: &mut Self::Connection,
        texts: &Texts,
        filter: &SagaFilter,
    ) -> impl Future<Output = Result<i64, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn purge_sagas(
        conn: &mut Self::Connection,
        texts: &Texts,
        over_for_millis: i64,
        limit: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
}
