//! Copies in Redis, for all processes.

use std::time::Duration;

use ::redis::{Cmd, Value};
use bytes::Bytes;
use tokio::time::Instant;

use super::{RedisStore, error, record};
use crate::clock::Moment;
use crate::error::Error;
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::store::tiered::{BARRIER, Front, is_late};
use crate::store::{Kept, Until};

/// How long a [`RedisFront`] answers from one copy unless it is told otherwise.
pub const DEFAULT_MAX_AGE: Duration = Duration::from_secs(3600);

/// How long one request of a [`RedisFront`] may take unless it is told otherwise.
pub const DEFAULT_FRONT_LIMIT: Duration = Duration::from_millis(20);

/// By how much a copy's end comes before its record's: a request may be under way for so long after
/// nobody waits for it any more.
const MARGIN: Duration = Duration::from_millis(100);

const VERSION: u8 = 1;
const KEPT: u8 = b'K';
const REMOVED: u8 = b'R';
const HEAD: usize = 43;

/// Copies in Redis, for all processes: one plain `GET` a replay, one `SET` with an end a copy.
///
/// Nothing is lost with it: it may be evicted, restarted and emptied at will. Give it a server of its
/// own with `maxmemory` and `allkeys-lru`; a server that keeps a [`RedisStore`]'s *records* must
/// evict nothing.
///
/// ```no_run
/// # fn example() -> Result<(), idem_runtime::Error> {
/// use idem_runtime::store::redis::{RedisFront, RedisStore};
/// use idem_runtime::store::tiered::{MemoryFront, Stack, Tier};
///
/// let redis = RedisFront::on(RedisStore::builder().connect_later("redis://127.0.0.1:6379")?);
/// let front = Tier::new(Stack::new(MemoryFront::new(64 << 20), redis));
/// # let _ = front; Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RedisFront {
    link: RedisStore,
    prefix: String,
    max_age: Duration,
    limit: Duration,
}

impl RedisFront {
    /// A front on a store's connection, under the store's prefix and namespace, its keys apart from
    /// the store's.
    #[must_use]
    pub fn on(store: RedisStore) -> Self {
        Self {
            // No prefix or namespace of a store has a slash.
            prefix: format!("{}front/", store.inner.prefix),
            link: store,
            max_age: DEFAULT_MAX_AGE,
            limit: DEFAULT_FRONT_LIMIT,
        }
    }

    /// For how long it answers from one copy, however long its record is kept.
    #[must_use]
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.max_age = max_age;
        self
    }

    /// How long one request may take; a connection that is silent for longer is made anew. The
    /// [`Limits`](crate::store::tiered::Limits) of the tier should be a little longer.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The name of a copy's key, for looking at it by hand.
    #[must_use]
    pub fn key_of(&self, id: RecordId) -> String {
        String::from_utf8(self.key(id)).unwrap_or_default()
    }

    fn key(&self, id: RecordId) -> Vec<u8> {
        record::key(&self.prefix, id)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }

    async fn send(&self, key: &[u8], command: Cmd) -> Result<Value, Error> {
        let link = &self.link.inner.link;
        let answer = link.send(key, command, self.deadline()).await;
        answer.map_err(error::before)
    }
}

impl Front for RedisFront {
    async fn get(&self, id: RecordId) -> Result<Option<Kept>, Error> {
        let key = self.key(id);
        let answer = self.send(&key, command(&[b"GET", &key])).await?;
        read(answer, id)
    }

    async fn get_to_copy(&self, id: RecordId) -> Result<Option<(Kept, Until)>, Error> {
        let key = self.key(id);
        let asked_at = std::time::Instant::now();
        // In this order: the end may then be that of a copy before the one that is read, never of
        // one after it.
        let (ttl, get) = (command(&[b"PTTL", &key]), command(&[b"GET", &key]));
        let link = &self.link.inner.link;
        let pair = link.send_pair(&key, ttl, get, self.deadline()).await;
        let (ttl, value) = pair.map_err(error::before)?;
        let Value::Int(millis) = ttl else {
            return Err(error::strange("no time to live"));
        };
        // A copy without an end is none of ours.
        let Ok(millis) = u64::try_from(millis) else {
            return Ok(None);
        };
        let until = Until::at(asked_at + Duration::from_millis(millis.saturating_sub(1)));
        Ok(read(value, id)?.map(|kept| (kept, until)))
    }

    async fn put(&self, id: RecordId, kept: &Kept, until: Until) -> Result<(), Error> {
        let now = std::time::Instant::now();
        let left = until.instant().map_or(self.max_age, |end| {
            let left = end.saturating_duration_since(now);
            left.saturating_sub(MARGIN).min(self.max_age)
        });
        let Ok(millis @ 1..) = u64::try_from(left.as_millis()) else {
            return Ok(());
        };
        if is_late(until) {
            return Ok(());
        }
        let (key, millis) = (self.key(id), millis.to_string());
        // What keeps copies out for a while is not written over, nor is a copy that is there.
        let put = command(&[
            b"SET",
            &key,
            &write(id, kept),
            b"PX",
            millis.as_bytes(),
            b"NX",
        ]);
        self.send(&key, put).await.map(|_| ())
    }

    async fn remove(&self, id: RecordId) -> Result<(), Error> {
        let (key, millis) = (self.key(id), BARRIER.as_millis().to_string());
        let remove = command(&[b"SET", &key, &[VERSION, REMOVED], b"PX", millis.as_bytes()]);
        self.send(&key, remove).await.map(|_| ())
    }
}

fn command(parts: &[&[u8]]) -> Cmd {
    let size = parts.iter().map(|part| part.len()).sum();
    let mut command = Cmd::with_capacity(parts.len(), size);
    for part in parts {
        command.arg(part);
    }
    command
}

/// Version, kind, record, payload's digest, moment of recording (zero if it is not known), envelope.
fn write(id: RecordId, kept: &Kept) -> Vec<u8> {
    let mut value = Vec::with_capacity(HEAD + kept.outcome.len());
    value.extend_from_slice(&[VERSION, KEPT]);
    value.extend_from_slice(id.as_bytes());
    value.extend_from_slice(kept.fingerprint.as_bytes());
    let recorded_at = kept.recorded_at.map_or(0, Moment::as_millis);
    value.extend_from_slice(&recorded_at.to_be_bytes());
    value.extend_from_slice(&kept.outcome);
    value
}

/// What another version wrote, or anybody else, or for another record, is as good as nothing.
fn read(answer: Value, id: RecordId) -> Result<Option<Kept>, Error> {
    let value = match answer {
        Value::BulkString(value) => value,
        Value::Nil => return Ok(None),
        _ => return Err(error::strange("no value")),
    };
    let Some(head) = value.first_chunk::<HEAD>() else {
        return Ok(None);
    };
    if head[..2] != [VERSION, KEPT] || head[2..18] != *id.as_bytes() {
        return Ok(None);
    }
    let (mut fingerprint, mut recorded_at) = ([0; 17], [0; 8]);
    fingerprint.copy_from_slice(&head[18..35]);
    recorded_at.copy_from_slice(&head[35..]);
    let recorded_at = Some(u64::from_be_bytes(recorded_at)).filter(|millis| *millis != 0);
    Ok(Some(Kept::new(
        Fingerprint::from_bytes(fingerprint),
        Bytes::from(value).slice(HEAD..),
        recorded_at.map(Moment::from_millis),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_reads_back_and_anything_else_is_none() {
        let fingerprint = Fingerprint::from_bytes([7; 17]);
        let [id, other] = [1, 2].map(|byte| RecordId::from_bytes([byte; 16]));
        for recorded_at in [None, Some(Moment::from_millis(5))] {
            for outcome in [b"".as_slice(), b"\0outcome"] {
                let kept = Kept::new(fingerprint, Bytes::from_static(outcome), recorded_at);
                let back = read(Value::BulkString(write(id, &kept)), id);
                assert_eq!(back.ok().flatten(), Some(kept.clone()));
                let another = read(Value::BulkString(write(other, &kept)), id);
                assert!(matches!(another, Ok(None)));
            }
        }
        for other in [&[][..], &[VERSION, REMOVED], &[9; 60], &[VERSION; 5]] {
            let none = read(Value::BulkString(other.to_vec()), id);
            assert!(matches!(none, Ok(None)), "{other:?}");
        }
    }
}
