//! Circles of calls in one process: the body of each waits for a call that the body of another one runs.
//! They wait in the process and not in the database, which therefore cannot find them.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::call_path;
use super::coalesce::Lane;

static WAITS: LazyLock<Mutex<Vec<Wait>>> = LazyLock::new(Mutex::default);

fn waits() -> MutexGuard<'static, Vec<Wait>> {
    WAITS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body that holds one record waits for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wait {
    held: Lane,
    wanted: Lane,
}

/// What a call notes while it waits; it is taken back when this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Waiting(Vec<Wait>);

/// Notes that this call waits for a record. `None`: whoever has it waits, itself or by others, for a
/// body on this call path. So the call that closes a circle is told, and no other one.
pub(super) fn wait_for(wanted: &Lane) -> Option<Waiting> {
    let held = call_path::lanes();
    if held.is_empty() {
        return Some(Waiting(Vec::new()));
    }
    let mut all = waits();
    let mut reached = vec![wanted.clone()];
    let mut next = 0;
    while let Some(lane) = reached.get(next).cloned() {
        next += 1;
        for wait in all.iter().filter(|wait| wait.held == lane) {
            if held.contains(&wait.wanted) {
                return None;
            }
            if !reached.contains(&wait.wanted) {
                reached.push(wait.wanted.clone());
            }
        }
    }
    let waits: Vec<Wait> = held
        .into_iter()
        .map(|held| Wait {
            held,
            wanted: wanted.clone(),
        })
        .collect();
    all.extend_from_slice(&waits);
    Some(Waiting(waits))
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        let mut all = waits();
        for wait in &self.0 {
            if let Some(at) = all.iter().position(|noted| noted == wait) {
                all.swap_remove(at);
            }
        }
    }
}
