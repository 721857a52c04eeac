//! What a definition is when it is built.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use sqlx::Pool;

use super::context::{Step, StepTx};
use super::error::StepError;
use super::list::{Entry, base, entries, text};
use super::options::{DEFAULT_STEP_TIMEOUT, StepOptions};
use super::plan::Traits;
use super::retries::Retries;
use super::sql::{SagaDialect, SagaTable};

pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pub(super) type RunTx<D, I, C> =
    Box<dyn Fn(StepTx<D, I, C>) -> Boxed<Result<Bytes, StepError>> + Send + Sync>;
pub(super) type UndoTx<D, I, C> =
    Box<dyn Fn(StepTx<D, I, C>, &Bytes) -> Boxed<Result<(), StepError>> + Send + Sync>;
pub(super) type Run<I, C> =
    Box<dyn Fn(Step<I, C>) -> Boxed<Result<Bytes, StepError>> + Send + Sync>;
pub(super) type Ask<I, C> =
    Box<dyn Fn(Step<I, C>) -> Boxed<Result<Option<Bytes>, StepError>> + Send + Sync>;
pub(super) type UndoOutside<I, C> =
    Box<dyn Fn(Step<I, C>, Option<&Bytes>) -> Boxed<Result<(), StepError>> + Send + Sync>;

/// One step of a definition.
pub(super) struct Defined<D: SagaDialect, I, C> {
    /// As it was declared, with its version.
    pub(super) name: String,
    pub(super) body: Body<D, I, C>,
    pub(super) options: StepOptions,
}

impl<D: SagaDialect, I, C> Defined<D, I, C> {
    pub(super) fn entry(&self) -> Entry {
        let (outside, undo) = match &self.body {
            Body::Tx { undo, .. } => (false, undo.is_some()),
            Body::Outside { undo, .. } => (true, undo.is_some()),
        };
        Entry {
            name: self.name.clone(),
            outside,
            undo,
        }
    }
}

pub(super) enum Body<D: SagaDialect, I, C> {
    Tx {
        run: RunTx<D, I, C>,
        undo: Option<UndoTx<D, I, C>>,
    },
    Outside {
        run: Run<I, C>,
        ask: Option<Ask<I, C>>,
        undo: Option<UndoOutside<I, C>>,
    },
}

/// How the definition's sagas are run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) lease: Duration,
    pub(super) wait: Duration,
    pub(super) retries: Retries,
    pub(super) timeout: Duration,
    pub(super) shows_key: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            wait: Duration::from_secs(30),
            retries: Retries::default(),
            timeout: DEFAULT_STEP_TIMEOUT,
            shows_key: false,
        }
    }
}

/// What a definition is when it is built, shared by its handles.
pub(super) struct Definition<D: SagaDialect, I, C> {
    pub(super) name: String,
    pub(super) context: C,
    pub(super) steps: Vec<Defined<D, I, C>>,
    pub(super) accepted: Vec<Vec<String>>,
    pub(super) table: SagaTable,
    pub(super) settings: Settings,
    pub(super) pool: Pool<D>,
}

impl<D: SagaDialect, I, C> Definition<D, I, C> {
    /// The list that new sagas are begun under.
    pub(super) fn list(&self) -> String {
        let entries: Vec<_> = self.steps.iter().map(Defined::entry).collect();
        text(&entries)
    }

    /// The steps of a saga that was begun under this list, in its order; `None` if the list is neither
    /// the current one nor accepted.
    pub(super) fn order(&self, stored: &str) -> Option<Vec<Place>> {
        let stored = entries(stored);
        let is_current = stored.len() == self.steps.len()
            && self
                .steps
                .iter()
                .zip(&stored)
                .all(|(step, stored)| step.entry().continues(stored));
        let names = || stored.iter().map(|entry| entry.name.as_str());
        let is_accepted = |list: &Vec<String>| list.iter().map(String::as_str).eq(names());
        if !is_current && !self.accepted.iter().any(is_accepted) {
            return None;
        }
        let place = |entry: &Entry| {
            let mut steps = self.steps.iter();
            let step = steps.position(|step| base(&step.name) == base(&entry.name))?;
            Some(Place {
                step,
                had_undo: entry.undo,
            })
        };
        stored.iter().map(place).collect()
    }

    pub(super) fn traits(&self, place: Place) -> Traits {
        let entry = self.steps[place.step].entry();
        Traits {
            outside: entry.outside,
            undo: entry.undo,
            had_undo: place.had_undo,
        }
    }

    pub(super) fn retries(&self, place: Place) -> Retries {
        let options = self.steps[place.step].options;
        options.retries.unwrap_or(self.settings.retries)
    }

    pub(super) fn timeout(&self, place: Place) -> Duration {
        let options = self.steps[place.step].options;
        options.timeout.unwrap_or(self.settings.timeout)
    }

    /// The key where it may be shown.
    pub(super) fn shown<'k>(&self, key: &'k str) -> Option<&'k str> {
        Some(key).filter(|_| self.settings.shows_key)
    }
}

/// A step at its place in the list that a saga was begun under.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Its position in the definition.
    pub(super) step: usize,
    /// Whether it had a compensation then.
    pub(super) had_undo: bool,
}
