use std::time::Duration;

use ::redis::{Cmd, Value};
use tokio::time::Instant;

use super::RedisStore;
use super::steps::kept;
use crate::retention::Left;
use crate::store::{Request, Reserved};

impl RedisStore {
    /// The record together with how long it is still kept. That is asked for first: it may be less
    /// than what is left to the record that is read then, never more.
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
        let mut reserved = kept(request, value).ok()??;
        if let Reserved::Completed { left, .. } = &mut reserved {
            *left = match u64::try_from(millis) {
                Ok(millis) => Left::For(Duration::from_millis(millis)),
                Err(_) if millis == -1 => Left::Forever,
                Err(_) => Left::Unknown,
            };
        }
        Some(reserved)
    }
}
