//! Every item by itself.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::status::listed;
use super::together::{Panic, caught, together};
use super::{Batch, DONE, Keeper, LIST, Noted, Outcome, Report, ids, note, replayed};
use crate::error::Error;
use crate::key::RecordId;
use crate::observe::observe_only;
use crate::outcome::Outcome as Recordable;
use crate::status::CallRef;

impl Batch {
    /// Calls `call` for every item, [`concurrency`](Self::concurrency) of them at a time. Each is an
    /// idempotent call of its own: `key_of` is the companion of the function that `call` calls, once, and in
    /// this task: what was answered in a spawned one is not seen, and counts as new or as failed.
    ///
    /// An item that fails does not keep the others from running. Send the batch again, with the same
    /// key and the same items, until the report [is finished](Report::is_finished): what is done is
    /// replayed, what failed runs again, and what was not reached runs. Once all items are done that is
    /// recorded, and the batch is answered from that record alone (unless it has more than
    /// [`MAX_BATCH_OUTCOME`](super::MAX_BATCH_OUTCOME) bytes, or a value that JSON cannot give back:
    /// then from its items').
    ///
    /// The same batch may be sent twice at the same time: the items keep each other apart.
    ///
    /// # Errors
    /// Of the batch itself; no item was called. [`FingerprintMismatch`](crate::ErrorKind::FingerprintMismatch): the
    /// batch's key is known with another list of items, or in another order. A key that is empty or too
    /// long, the batch's or an item's. A store that cannot be used.
    ///
    /// # Panics
    /// As `call` does: the other items run to their end, then the panic goes on.
    ///
    /// # Cancel safety
    /// The items that are running are dropped, as their function says; those that are done stay done.
    /// Send the batch again.
    pub async fn each<'i, I, S, KT, KE, T, E, Fut>(
        &self,
        store: &S,
        items: &'i [I],
        key_of: impl Fn(&'i I) -> Result<CallRef<KT, KE>, Error>,
        call: impl Fn(&'i I) -> Fut,
    ) -> Result<Report<T, E>, Error>
    where
        S: Keeper,
        T: Recordable,
        Fut: Future<Output = Result<T, E>>,
    {
        let ids = ids(items, key_of)?;
        let list = self.call(&LIST, &ids, None)?;
        // By the list as well: what it came to must not answer for another one.
        let digest = hex(list.fingerprint().as_bytes());
        store.keep(list, listed(&digest)).await?;
        if let Some(noted) = store.kept(self.call(&DONE, &ids, Some(&digest))?).await? {
            match replayed(&ids, &noted) {
                Ok(report) => return Ok(report),
                // The items' records may still be read.
                Err(error) => {
                    tracing::warn!(%error, batch = %self.name, "a finished batch is answered by its items")
                }
            }
        }
        let report = self.run(items, &ids, call).await;
        if report.is_finished()
            && let Some(noted) = finished(&ids, &report)
        {
            let call = self.call(&DONE, &ids, Some(&digest))?;
            // All items are done, recorded as such or not.
            if let Err(error) = store.keep(call, noted).await {
                tracing::warn!(%error, batch = %self.name, "a finished batch could not be recorded");
            }
        }
        Ok(report)
    }

    async fn run<'i, I, T, E, Fut>(
        &self,
        items: &'i [I],
        ids: &[RecordId],
        call: impl Fn(&'i I) -> Fut,
    ) -> Report<T, E>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        let groups = by_key(ids);
        let next = AtomicUsize::new(0);
        let slots: Vec<Mutex<Option<Outcome<T, E>>>> =
            items.iter().map(|_| Mutex::new(None)).collect();
        let panicked: Mutex<Option<Panic>> = Mutex::new(None);
        let worker = |()| async {
            while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                for &index in group {
                    match caught(observe_only(ids[index], call(&items[index]))).await {
                        Ok((answer, seen)) => {
                            set(&slots[index], Outcome::of(answer, &seen));
                        }
                        Err(panic) => set(&panicked, panic),
                    }
                }
            }
        };
        let workers = self.concurrency.min(groups.len());
        together((0..workers).map(|_| ()).map(worker)).await;
        if let Some(panic) = take(&panicked) {
            std::panic::resume_unwind(panic);
        }
        // Without a panic every slot is filled.
        let outcomes = slots.iter().filter_map(take).collect();
        Report { outcomes }
    }
}

/// The positions that have one key, in the order of the first of them.
fn by_key(ids: &[RecordId]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut at = HashMap::new();
    for (index, id) in ids.iter().enumerate() {
        let group = *at.entry(id).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

fn set<T>(slot: &Mutex<Option<T>>, value: T) {
    *slot
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(value);
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    let mut slot = slot
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    slot.take()
}

/// What is recorded of a finished batch; `None` if that cannot be.
fn finished<T: Recordable, E>(ids: &[RecordId], report: &Report<T, E>) -> Option<Noted> {
    let mut found = Noted::new();
    for (id, outcome) in ids.iter().zip(&report.outcomes) {
        if let Err(error) = note(&mut found, *id, outcome.value()?) {
            tracing::debug!(%error, "a finished batch is not recorded");
            return None;
        }
    }
    Some(found)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
