//! One operation name, one function: two functions with one scope would be answered from each other's
//! records.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::Location;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use crate::error::{Error, ErrorKind};

/// The claim of one annotated function to its scope, made by its first call.
#[derive(Debug)]
pub(crate) struct UniqueScope {
    /// Where the function stands; `None` for one that claims nothing.
    pub(crate) place: Option<&'static Location<'static>>,
    /// Where the scope was claimed before, if it was.
    taken_at: OnceLock<Option<&'static Location<'static>>>,
}

impl UniqueScope {
    pub(crate) const fn unclaimed() -> Self {
        Self {
            place: None,
            taken_at: OnceLock::new(),
        }
    }

    /// Claims `scope` for this function, if it claims one.
    ///
    /// # Errors
    /// [`ErrorKind::DuplicateScope`]: another function of this process has claimed it.
    pub(crate) fn claim(&'static self, scope: &'static str) -> Result<(), Error> {
        let Some(here) = self.place else {
            return Ok(());
        };
        let Some(other) = self.taken_at.get_or_init(|| register(scope, self)) else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::DuplicateScope)
            .detail(format!("the functions at {other} and at {here}"))
            .in_operation(scope))
    }
}

/// Who claimed the scope before `claim`, if it was another one.
fn register(
    scope: &'static str,
    claim: &'static UniqueScope,
) -> Option<&'static Location<'static>> {
    static CLAIMS: LazyLock<Mutex<HashMap<&'static str, &'static UniqueScope>>> =
        LazyLock::new(Mutex::default);
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    match claims.entry(scope) {
        Entry::Vacant(vacant) => {
            vacant.insert(claim);
            None
        }
        Entry::Occupied(first) => {
            let first = *first.get();
            (!std::ptr::eq(first, claim))
                .then_some(first.place)
                .flatten()
        }
    }
}
