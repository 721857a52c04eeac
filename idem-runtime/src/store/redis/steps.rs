//! The steps of the store.

use std::future::Future;
use std::time::Duration;

use ::redis::{RedisResult, Value};
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::record::{self, Read};
use super::script::{self, Invocation, Step};
use super::{RedisStore, SHARDS, error, repeats};
use crate::clock::Moment;
use crate::error::{Effect, Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::protocol::{Fence, OnCrash};
use crate::retention::{Left, MAX_RETENTION, Retention};
use crate::store::{Held, Request, Reservation, Reserved, Store, Stored};

/// How long the fence of a record that was released or forgotten is remembered.
const FENCE_KEPT: Duration = Duration::from_secs(120);

/// Fewer replicas than are waited for have a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooFew {
    acknowledged: usize,
    wanted: usize,
}

impl From<TooFew> for Error {
    fn from(few: TooFew) -> Self {
        Self::new(ErrorKind::StoreUnavailable).detail(format!(
            "{} replicas acknowledged within the time, {} are waited for",
            few.acknowledged, few.wanted
        ))
    }
}

/// What the server shows of a record.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) value: Vec<u8>,
    /// When its key goes; `None`: never.
    pub(super) goes_at: Option<Moment>,
    pub(super) now: Moment,
}

impl RedisStore {
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.inner.limit
    }

    fn changed_shard(&self, id: RecordId) -> &Notify {
        // The id is a digest: any of its bytes spreads evenly.
        &self.inner.changed[usize::from(id.as_bytes()[15]) % SHARDS]
    }

    /// How long the key of a reservation stays.
    fn kept_for(&self, lease: u64) -> String {
        let abandoned_for = millis(self.inner.abandoned_for);
        lease.saturating_add(abandoned_for).max(1).to_string()
    }

    /// Runs a step on whose result the caller relies: with replicas, if there are any to wait for.
    pub(super) async fn secured(
        &self,
        invocation: &Invocation<'_>,
        deadline: Instant,
    ) -> RedisResult<(Value, Result<(), TooFew>)> {
        let link = &self.inner.link;
        let Some(replicas) = self.inner.replicas else {
            return Ok((invocation.run(link, deadline).await?, Ok(())));
        };
        let waiting = Duration::from_millis(replicas.millis);
        // A wait that no clock can count leaves the limit alone.
        let deadline = deadline.checked_add(waiting).unwrap_or(deadline);
        let (answer, acknowledged) = invocation.run_replicated(link, replicas, deadline).await?;
        let wanted = replicas.count;
        let enough = if acknowledged < wanted {
            Err(TooFew {
                acknowledged,
                wanted,
            })
        } else {
            Ok(())
        };
        Ok((answer, enough))
    }

    /// Runs a step that changes a reservation and must find it held; with replicas, if there are any to
    /// wait for and the caller relies on it.
    async fn step(
        &self,
        step: &'static Step,
        reservation: &Reservation,
        arguments: [&[u8]; 2],
        relied_on: bool,
    ) -> Result<Held, Error> {
        let key = record::key(&self.inner.prefix, reservation.id);
        let fence = reservation.fence.get().to_be_bytes();
        let [first, second] = arguments;
        let invocation = Invocation {
            step,
            key: &key,
            arguments: &[&fence, reservation.owner.as_bytes(), first, second],
        };
        if !relied_on {
            let answer = invocation.run(&self.inner.link, self.deadline()).await;
            return held(&answer.map_err(error::after)?);
        }
        let secured = self.secured(&invocation, self.deadline()).await;
        let (answer, enough) = secured.map_err(error::after)?;
        let held = held(&answer)?;
        if held == Held::Yes {
            enough.map_err(|few| Error::from(few).effect_is(Effect::Unknown))?;
        }
        Ok(held)
    }

    /// Reserves, or tells why not: by a plain read where the operation's calls are replays nearly
    /// always.
    async fn reserve_by(
        &self,
        request: &Request<'_>,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Reserved, Error> {
        let lane = self.inner.repeats.lane(request.scope);
        if repeats::prevail(lane)
            && let Some(reserved) = self.replay(request, key, deadline).await?
        {
            repeats::count(lane, true);
            return Ok(reserved);
        }
        let reserved = self.claim(request, key, deadline).await?;
        match &reserved {
            Reserved::Granted(_) => repeats::count(lane, false),
            // Who waits asks often; that says nothing about the calls to come.
            Reserved::InProgress { .. } => {}
            _ => repeats::count(lane, true),
        }
        Ok(reserved)
    }

    /// Answers from the record if it is kept.
    async fn replay(
        &self,
        request: &Request<'_>,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Option<Reserved>, Error> {
        let mut get = ::redis::Cmd::with_capacity(2, key.len() + 3);
        get.arg("GET").arg(key);
        let answer = self.inner.link.send(key, get, deadline).await;
        match answer.map_err(error::before)? {
            Value::BulkString(value) if record::outcome_end(&value).is_some() => {
                match self.look(key, deadline).await? {
                    Some(looked) => kept(request, looked.value),
                    None => Ok(None),
                }
            }
            Value::BulkString(value) => kept(request, value),
            _ => Ok(None),
        }
    }

    /// The value as it counts now, by the server's clock.
    pub(super) async fn look(
        &self,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Option<Looked>, Error> {
        let invocation = Invocation {
            step: &script::LOOKUP,
            key,
            arguments: &[],
        };
        let answer = invocation.run(&self.inner.link, deadline).await;
        match answer.map_err(error::before)? {
            Value::Nil => Ok(None),
            Value::Array(list) => match <[Value; 3]>::try_from(list) {
                Ok(
                    [
                        Value::BulkString(value),
                        Value::Int(goes_at),
                        Value::Int(now),
                    ],
                ) => {
                    let moment = |millis: i64| u64::try_from(millis).ok().map(Moment::from_millis);
                    Ok(Some(Looked {
                        value,
                        goes_at: moment(goes_at),
                        now: moment(now).unwrap_or(Moment::from_millis(0)),
                    }))
                }
                _ => Err(error::strange("a list")),
            },
            _ => Err(error::strange("something unknown")),
        }
    }

    /// Reserves, or tells why not.
    async fn claim(
        &self,
        request: &Request<'_>,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Reserved, Error> {
        let lease = millis(request.lease);
        let (lease, kept_for) = (lease.to_string(), self.kept_for(lease));
        let tail = record::tail(request);
        let invocation = Invocation {
            step: &script::RESERVE,
            key,
            arguments: &[lease.as_bytes(), kept_for.as_bytes(), &tail],
        };
        let (answer, enough) = match self.secured(&invocation, deadline).await {
            Ok(answered) => answered,
            // A full server takes no reservation; what is kept it still answers.
            Err(full) if error::is_out_of_memory(&full) => {
                let replayed = self.replay(request, key, deadline).await?;
                return replayed.ok_or_else(|| error::before(full));
            }
            Err(failed) => return Err(error::before(failed)),
        };
        let reserved = reserved(request, answer)?;
        if let (Reserved::Granted(reservation), Err(few)) = (&reserved, enough) {
            // Nobody runs under it; should the release be lost, the lease ends.
            let _ = self.release(reservation).await;
            return Err(few.into());
        }
        Ok(reserved)
    }
}

/// What the reserving script answered.
fn reserved(request: &Request<'_>, answer: Value) -> Result<Reserved, Error> {
    match answer {
        Value::Int(fence) => {
            let fence = Fence::new(u64::try_from(fence).unwrap_or_default());
            Ok(Reserved::Granted(Reservation::new(request, fence)))
        }
        Value::BulkString(value) => {
            kept(request, value)?.ok_or_else(|| error::strange("a record that is not kept"))
        }
        Value::Array(held) => match &held[..] {
            [Value::BulkString(fingerprint), Value::Int(free_in)] => {
                reserved_by_another(request, fingerprint, *free_in)
            }
            _ => Err(error::strange("a list")),
        },
        _ => Err(error::strange("something unknown")),
    }
}

fn reserved_by_another(
    request: &Request<'_>,
    fingerprint: &[u8],
    free_in: i64,
) -> Result<Reserved, Error> {
    let fingerprint = <[u8; 17]>::try_from(fingerprint)
        .map_err(|_| error::strange("a fingerprint of another length"))?;
    if !Fingerprint::from_bytes(fingerprint).matches(request.fingerprint) {
        return Ok(Reserved::Mismatch);
    }
    Ok(match u64::try_from(free_in) {
        Ok(0) => Reserved::Abandoned,
        Ok(millis) => Reserved::InProgress {
            free_in: Some(Duration::from_millis(millis)),
        },
        Err(_) => Reserved::InProgress { free_in: None },
    })
}

/// What a record that is kept answers; `None`: it is none that is kept.
pub(super) fn kept(request: &Request<'_>, value: Vec<u8>) -> Result<Option<Reserved>, Error> {
    let (record, gone) = match record::read(value, request.id)? {
        Read::Free | Read::Reserved(_) => return Ok(None),
        Read::Completed(record) => (record, false),
        Read::Gone(record) => (record, true),
    };
    if !record.fingerprint().matches(request.fingerprint) {
        return Ok(Some(Reserved::Mismatch));
    }
    if gone {
        return Ok(Some(Reserved::OutcomeGone));
    }
    Ok(Some(Reserved::Completed {
        recorded_at: record.time(),
        left: Left::Unknown,
        outcome: record.outcome()?,
    }))
}

fn held(answer: &Value) -> Result<Held, Error> {
    match answer {
        Value::Int(0) => Ok(Held::No),
        Value::Int(_) => Ok(Held::Yes),
        _ => Err(error::strange("something unknown").effect_is(Effect::Unknown)),
    }
}

/// Whole milliseconds, rounded up, and no more than the server can count.
pub(super) fn millis(time: Duration) -> u64 {
    let longest = MAX_RETENTION.as_millis();
    let millis = time.as_nanos().div_ceil(1_000_000).min(longest);
    u64::try_from(millis).unwrap_or(u64::MAX)
}

impl Store for RedisStore {
    fn identity(&self) -> Option<usize> {
        Some(std::sync::Arc::as_ptr(&self.inner) as usize)
    }

    fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    /// # Cancel safety
    /// The reservation may have been made; it ends with its lease.
    async fn reserve(&self, request: &Request<'_>) -> Result<Reserved, Error> {
        let deadline = self.deadline();
        let key = record::key(&self.inner.prefix, request.id);
        let reserved = self.reserve_by(request, &key, deadline).await?;
        if request.to_copy
            && matches!(reserved, Reserved::Completed { .. })
            && let Some(to_copy) = self.replay_to_copy(request, &key, deadline).await
        {
            return Ok(to_copy);
        }
        Ok(reserved)
    }

    /// # Cancel safety
    /// The outcome may have been recorded.
    async fn complete(
        &self,
        reservation: &Reservation,
        outcome: Bytes,
        retention: Retention,
    ) -> Result<Held, Error> {
        let text = |millis: Option<u64>| millis.map_or_else(String::new, |ms| ms.to_string());
        let known = text(retention.known_millis());
        let keep = if retention.known_millis() == retention.millis() {
            String::new()
        } else {
            text(retention.millis())
        };
        let key = record::key(&self.inner.prefix, reservation.id);
        let fence = reservation.fence.get().to_be_bytes();
        let invocation = Invocation {
            step: &script::COMPLETE,
            key: &key,
            arguments: &[
                &fence,
                reservation.owner.as_bytes(),
                &outcome,
                known.as_bytes(),
                keep.as_bytes(),
            ],
        };
        let (answer, enough) = self
            .secured(&invocation, self.deadline())
            .await
            .map_err(error::after)?;
        let held = held(&answer)?;
        if held == Held::Yes {
            self.changed_shard(reservation.id).notify_waiters();
            enough.map_err(|few| Error::from(few).effect_is(Effect::Unknown))?;
        }
        Ok(held)
    }

    /// # Cancel safety
    /// The record may have been given back; if not, its lease ends.
    async fn release(&self, reservation: &Reservation) -> Result<Held, Error> {
        let kept = millis(FENCE_KEPT).to_string();
        let arguments = [kept.as_bytes(), &[]];
        let held = self
            .step(&script::RELEASE, reservation, arguments, false)
            .await?;
        if held == Held::Yes {
            self.changed_shard(reservation.id).notify_waiters();
        }
        Ok(held)
    }

    /// # Cancel safety
    /// The lease may have been extended.
    async fn renew(&self, reservation: &Reservation, lease: Duration) -> Result<Held, Error> {
        let lease = millis(lease);
        let hold = reservation.on_crash == OnCrash::Hold;
        let (lease, kept_for) = (
            lease.to_string(),
            match hold {
                true => String::new(),
                false => self.kept_for(lease),
            },
        );
        let arguments = [lease.as_bytes(), kept_for.as_bytes()];
        self.step(&script::RENEW, reservation, arguments, hold)
            .await
    }

    /// # Cancel safety
    /// Changes nothing.
    async fn lookup(&self, id: RecordId) -> Result<Option<Stored>, Error> {
        let key = record::key(&self.inner.prefix, id);
        match self.look(&key, self.deadline()).await? {
            Some(looked) => {
                let stored = record::stored(id, looked.value, looked.goes_at)?;
                Ok(stored.map(|stored| stored.read_at(looked.now)))
            }
            None => Ok(None),
        }
    }

    /// # Cancel safety
    /// The record may have been removed.
    async fn forget(&self, id: RecordId) -> Result<bool, Error> {
        let key = record::key(&self.inner.prefix, id);
        let kept = millis(FENCE_KEPT).to_string();
        let invocation = Invocation {
            step: &script::FORGET,
            key: &key,
            arguments: &[kept.as_bytes()],
        };
        let answer = invocation.run(&self.inner.link, self.deadline()).await;
        let forgotten = held(&answer.map_err(error::after)?)? == Held::Yes;
        if forgotten {
            self.changed_shard(id).notify_waiters();
        }
        Ok(forgotten)
    }

    /// The server removes what is over by itself.
    async fn purge(&self, _limit: usize) -> Result<usize, Error> {
        Ok(0)
    }

    /// Ends when a call over this store, or a clone of it, completed, released or forgot the record.
    /// Other processes are not heard.
    fn changed(&self, id: RecordId) -> impl Future<Output = ()> + Send {
        // Made here and not at the first poll: a change from now on is not missed.
        self.changed_shard(id).notified()
    }
}
