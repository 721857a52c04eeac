//! Many calls as one: a key for each item and a key for the batch.
//!
//! An import, a payout run, a page of webhooks is sent, fails in the middle, and is sent again. Each item
//! is an idempotent call under its **own** key, so a batch that is repeated, split or merged does no item
//! twice. The **batch key** says that this list is this batch: the same key with another list is refused,
//! and a batch that is finished is answered from one record. Give it the [`contents`](Batch::contents), and
//! the same list with other amounts is refused as well.
//!
//! # Two modes
//! | | [`each`](Batch::each) | [`all`](Batch::all), [`all_in`](Batch::all_in) |
//! |---|---|---|
//! | an item that fails | is that item's outcome; the others go on | undoes everything; nothing is recorded |
//! | transactions | as the function has them: one an item, or a lease | one for all |
//! | items at the same time | up to [`concurrency`](Batch::concurrency) | one after another, in the order of their keys |
//! | sent again after a failure | done items replay, the others run | runs from the beginning |
//! | a finished batch, other payloads | refused, if it was given its [`contents`](Batch::contents) | the same |
//! | a key twice with another payload | [`Outcome::Mismatch`] for that entry | undoes everything |
//!
//! # What is matched by what
//! Outcomes come in the order of the items, one for each. They are matched by the items' keys, never by
//! position or count. Entries with one key run one after another: the first of them runs, the others are
//! answered from its record, or refused if their payload is another one.
//!
//! The call of an item must have the key that the batch was told for it: a companion of another function,
//! or other arguments, are refused before anything runs
//! ([`KeyMismatch`](crate::ErrorKind::KeyMismatch)).
//!
//! # Order, and deadlocks
//! In one transaction the items run in the order of their record ids, so that two batches with the same
//! items in another order reserve them in the same order and cannot deadlock over them. Rows that items
//! share (one account that all of them pay from) are the business's own: the database may end one of two
//! transactions over them. The whole transaction is then to be run again, as after any serialization
//! failure.

#[cfg(feature = "_sqlx")]
mod all;
mod each;
mod keeper;
#[cfg(feature = "_sqlx")]
mod lent;
mod outcome;
mod status;
mod together;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::fingerprint::{Fingerprint, FingerprintBuilder, FingerprintPart};
use crate::key::{KeyBuilder, KeyPart, RecordId, Scope};
use crate::operation::{Call, Operation};
use crate::outcome::{CodecId, Outcome as Recordable, Recorded, decode_ok, encode_ok, recorded};
use crate::status::CallRef;
#[cfg(feature = "_sqlx")]
use crate::store::sql::Records;

pub use keeper::Keeper;
#[cfg(feature = "_sqlx")]
pub use lent::Lent;
pub use outcome::{BatchError, Outcome, Report};
pub use status::BatchStatus;

/// How many items run at the same time unless it is told otherwise.
pub const DEFAULT_CONCURRENCY: usize = 8;

/// The most bytes that the record of a finished batch has.
pub const MAX_BATCH_OUTCOME: u64 = 16 << 20;

const fn operation(scope: &'static str) -> Operation {
    Operation::new(Scope::fixed(scope))
        .retention_at_run_time()
        .max_outcome(MAX_BATCH_OUTCOME)
}

/// Which list a batch key stands for, item by item.
static LIST: Operation = operation("idem.batch").lease_millis(5_000);
/// What a finished list came to.
static DONE: Operation = operation("idem.batch.done").lease_millis(5_000);
/// A batch in one transaction: list and outcomes in one record.
static ALL: Operation = operation("idem.batch.all");

/// What a record of a batch holds: the values by their items' record ids, as JSON.
type Noted = BTreeMap<String, String>;

/// A batch: its name, its key, and how it is run. See the [module](self).
///
/// ```
/// # use idem_macros::idempotent;
/// use std::time::Duration;
/// use idem_runtime::{batch::{Batch, Outcome}, store::memory::MemoryStore};
///
/// #[idempotent(key = "{no}", ttl = "30d", store = store, companion = pay_call
/// # , crate = ::idem_runtime
/// )]
/// async fn pay(store: &MemoryStore, no: u64, cents: i64) -> Result<i64, idem_runtime::Error> {
///     Ok(cents)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem_runtime::Error> {
/// let store = MemoryStore::new();
/// let payouts = [(1, 500), (2, 700), (1, 500), (2, 9)];
/// let report = Batch::new("payouts", "2024-05", Duration::from_secs(30 * 86_400))
///     .contents(&payouts)?
///     .each(&store, &payouts, |(no, _)| pay_call(no), |(no, cents)| pay(&store, *no, *cents))
///     .await?;
/// assert!(matches!(
///     report.outcomes[..],
///     [Outcome::New(500), Outcome::New(700), Outcome::Replayed(500), Outcome::Mismatch(_)]
/// ));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a batch does nothing until it is run"]
pub struct Batch {
    name: String,
    key: Result<String, usize>,
    ttl: Duration,
    contents: Option<Fingerprint>,
    concurrency: usize,
    #[cfg(feature = "_sqlx")]
    records: Option<Records>,
}

impl Batch {
    /// A batch of the operation `name` with this key, remembered for `ttl`.
    ///
    /// Choose `ttl` no longer than the items': an item whose own time is over runs again when it is
    /// called again.
    pub fn new(name: impl Into<String>, key: impl KeyPart, ttl: Duration) -> Self {
        let mut text = KeyBuilder::new("");
        text.part(&key);
        let bytes = text.text().len();
        Self {
            name: name.into(),
            key: text
                .finish()
                .map(|key| key.as_str().to_owned())
                .map_err(|_| bytes),
            ttl,
            contents: None,
            concurrency: DEFAULT_CONCURRENCY,
            #[cfg(feature = "_sqlx")]
            records: None,
        }
    }

    /// What the batch is beside the keys of its items: usually the items, with their amounts. The batch
    /// key then stands for these contents, and with others it is refused
    /// ([`FingerprintMismatch`](ErrorKind::FingerprintMismatch)) before any item is called.
    ///
    /// **Without this only the keys are compared.** A payload that was changed under an old key is then
    /// found out by the items' own functions, and those are not called any more once the batch is
    /// finished: it is answered from its record, whatever the items say by now.
    ///
    /// # Errors
    /// Contents that cannot be compared, as a function's payload.
    pub fn contents(mut self, contents: &(impl FingerprintPart + ?Sized)) -> Result<Self, Error> {
        let mut fingerprint = FingerprintBuilder::new();
        fingerprint.part(contents);
        self.contents = Some(fingerprint.finish()?);
        Ok(self)
    }

    /// At most so many items run at the same time ([`Batch::each`]); 0 counts as 1.
    pub fn concurrency(mut self, items: usize) -> Self {
        self.concurrency = items.max(1);
        self
    }

    /// The call that stands for the batch, of this list or of any.
    fn call(
        &self,
        operation: &'static Operation,
        list: &[RecordId],
        more: Option<&str>,
    ) -> Result<Call, Error> {
        fn here() {}
        let mut key = KeyBuilder::new(":");
        key.part(&*self.name);
        key.literal(":");
        match &self.key {
            Ok(text) => key.part(&**text),
            Err(0) => key.part(""),
            Err(bytes) => {
                let detail = format!("the batch's key has {bytes} bytes");
                return Err(Error::new(ErrorKind::KeyTooLong).detail(detail));
            }
        }
        if let Some(more) = more {
            key.literal(":");
            key.part(more);
        }
        let mut fingerprint = FingerprintBuilder::new();
        let ids: Vec<&[u8; 16]> = list.iter().map(RecordId::as_bytes).collect();
        fingerprint.part(&ids);
        if let Some(contents) = &self.contents {
            fingerprint.part(contents.as_bytes());
        }
        Call::prepare(operation, &here, &[], key, fingerprint)?.retain_for(self.ttl)
    }
}

/// The items' keys, all of them before anything is written.
fn ids<'i, I, T, E>(
    items: &'i [I],
    key_of: impl Fn(&'i I) -> Result<CallRef<T, E>, Error>,
) -> Result<Vec<RecordId>, Error> {
    let mut ids = Vec::with_capacity(items.len());
    for (n, item) in items.iter().enumerate() {
        match key_of(item) {
            Ok(call) => ids.push(call.record_id("")),
            Err(error) => {
                return Err(Error::new(error.kind())
                    .detail(format!(
                        "item {n} of the batch has no key: nothing was done"
                    ))
                    .caused_by(error));
            }
        }
    }
    Ok(ids)
}

/// Adds the value of one item.
///
/// # Errors
/// It is not recordable, or another entry with this key gave another value.
fn note<T: Recordable>(found: &mut Noted, id: RecordId, value: &T) -> Result<(), Error> {
    let value = noted(value)?;
    let same = found.insert(id.to_string(), value.clone());
    if same.is_some_and(|other| other != value) {
        return Err(Error::new(ErrorKind::OutcomeNotRecordable).detail(
            "two entries with one key gave different values: `call` must make the idempotent call \
             itself, in its own task",
        ));
    }
    Ok(())
}

/// A value as the record of a batch holds it.
fn noted<T: Recordable>(value: &T) -> Result<String, Error> {
    let envelope = encode_ok(value, CodecId::Json, 0, None)?;
    match recorded(&envelope)? {
        Recorded::Ok(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        _ => Err(Error::new(ErrorKind::OutcomeNotRecordable)),
    }
}

/// The outcomes of a finished batch, in the order of its items.
fn replayed<T: Recordable, E>(ids: &[RecordId], noted: &Noted) -> Result<Report<T, E>, Error> {
    let of = |id: &RecordId| {
        let text = noted.get(&id.to_string()).ok_or_else(|| {
            let detail = "the record of the batch lacks an item of its list";
            Error::new(ErrorKind::OutcomeUndecodable).detail(detail)
        })?;
        decode_ok(&crate::outcome::json(text)).map(Outcome::Replayed)
    };
    let outcomes = ids.iter().map(of).collect::<Result<_, _>>()?;
    Ok(Report { outcomes })
}
