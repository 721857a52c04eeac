//! Sagas: named steps whose results are recorded, and what undoes them.
//!
//! A business call often has effects in several places that no one transaction holds together. Here
//! each effect is a step. Its result is recorded, and the step is not run again after a crash; when a
//! later step fails for good, the steps before it are undone backwards, each by its compensation, which
//! gets the *recorded* result.
//!
//! | | a transactional step | an outside step |
//! |---|---|---|
//! | its effect | in this database, in the transaction it is given | elsewhere |
//! | its record | commits with it | "started" before, "done" after |
//! | a crash in it | nothing remains; it is run again: **exactly once** | unknown: asked after if it can be, else run again with the same key for the other side |
//! | its compensation gets | the result | [`Undo::Done`] with the result, or [`Undo::Unknown`] |
//! | a late attempt of a former owner | is rolled back | is not recorded; the other side can tell it by its [fence](Step::fence) |
//!
//! One process at a time runs a saga: it holds a lease, by the database's clock, and a fencing number.
//! Whoever finds the lease over goes on, a [`Worker`] or the next call with the same key. The input is
//! stored with the saga, so that any process that has the definition can.
//!
//! See [`Steps`] for an example, and `docs/guide/steps.md`.

mod attempt;
mod builder;
mod claim;
mod context;
mod definition;
mod error;
mod filter;
mod lease;
mod list;
mod operate;
mod options;
mod plan;
mod record;
mod reference;
mod retries;
mod runner;
mod saga;
mod sql;
mod stall;
mod state;
mod status;
mod stop;
mod worker;

pub use builder::Steps;
pub use context::{Results, Step, StepTx, Undo};
pub use error::{DefinitionError, Failure, SagaError, StepError, Unfinished};
pub use filter::{SagaFilter, SagaSummary};
pub use options::{DEFAULT_STEP_TIMEOUT, StepOptions};
pub use reference::SagaRef;
pub use retries::Retries;
pub use saga::Saga;
pub use sql::{SagaDialect, SagaTable};
pub use state::{Cause, Rest, SagaState, StepState};
pub use status::{SagaStatus, StepStatus};
pub use worker::{DEFAULT_CONCURRENCY, DEFAULT_GRACE, Resumed, Worker};

pub use crate::operation::KeyText;
