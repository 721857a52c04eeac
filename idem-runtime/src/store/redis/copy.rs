use std::time::Duration;

use ::redis::{Cmd, Value};
use tokio::time::Instant;

use super::steps::kept;
use super::{RedisStore, record};
use crate::retention::Left;
use crate::store::{Request, Reserved};

impl RedisStore {
    /// The record together with how long its outcome is still kept. That is asked for first: it may
    /// be less than what is left to the record that is read then, never more.
    pub(super) async fn replay_to_copy(
        &self,
        request: &Request<'_>,
        key: &[u8],
        deadline: Instant,
    ) -> Option<Reserved> {
        let [mut ttl, mut get] = [4, 3].map(|name| Cmd::with_capacity(2, key.len() + name));
        ttl.arg("PTTL").arg(key);
        get.arg("GET").arg(key);
        let pair = self.inner.link.send_pair(key, ttl, get, deadline).await;
        let (Value::Int(millis), Value::BulkString(value)) = pair.ok()? else {
            return None;
        };
        if record::outcome_end(&value).is_some() {
            // The key's own time is that of the tombstone.
            let looked = self.look(key, deadline).await.ok()??;
            let left = record::outcome_end(&looked.value)
                .map_or(Left::Unknown, |end| Left::For(looked.now.until(end)));
            let reserved = kept(request, looked.value).ok()??;
            return Some(with_left(reserved, left));
        }
        let reserved = kept(request, value).ok()??;
        Some(with_left(
            reserved,
            match u64::try_from(millis) {
                Ok(millis) => Left::For(Duration::from_millis(millis)),
                Err(_) if millis == -1 => Left::Forever,
                Err(_) => Left::Unknown,
            },
        ))
    }
}

fn with_left(mut reserved: Reserved, time: Left) -> Reserved {
    if let Reserved::Completed { left, .. } = &mut reserved {
        *left = time;
    }
    reserved
}
