//! What one writes without a framework.

use idem_benches::repeats;
use redis::{RedisResult, Value};

use super::attribute::{self, Order};
use super::steps::{id, outcome};
use super::{Both, RECORDED};

fn key(n: u64) -> String {
    format!("hand:{{{}}}", id(n))
}

/// Reads a record that the store has made: as many bytes as the store itself reads.
pub(crate) async fn get(both: &Both, n: u64) -> RedisResult<()> {
    let key = both.store.key_of(id(n % RECORDED));
    let value: Vec<u8> = redis::cmd("GET")
        .arg(key)
        .query_async(&mut both.raw.clone())
        .await?;
    assert!(value.len() > 200);
    Ok(())
}

/// Reads and decodes the record that the attribute answers from.
pub(crate) async fn get_decoded(both: &Both, n: u64) -> RedisResult<()> {
    let key = both.store.key_of(attribute::id(n % RECORDED));
    let value: Vec<u8> = redis::cmd("GET")
        .arg(key)
        .query_async(&mut both.raw.clone())
        .await?;
    let json = value
        .windows(6)
        .position(|at| at == br#"{"id":"#)
        .expect("JSON");
    let order: Order = serde_json::from_slice(&value[json..]).expect("an order");
    assert_eq!(order.id, n % RECORDED);
    Ok(())
}

async fn reserve(both: &Both, key: &str) -> RedisResult<Value> {
    let mut reserve = redis::cmd("SET");
    // The owner, a fingerprint and what people read, as the store writes them.
    reserve
        .arg(key)
        .arg(&[b'P'; 96][..])
        .arg("NX")
        .arg("GET")
        .arg("PX")
        .arg(30_000);
    reserve.query_async(&mut both.raw.clone()).await
}

pub(crate) async fn set_nx_get(both: &Both, n: u64) -> RedisResult<()> {
    let value = reserve(both, &both.store.key_of(id(n % RECORDED))).await?;
    assert_ne!(value, Value::Nil);
    Ok(())
}

pub(crate) async fn first_unchecked(both: &Both, n: u64) -> RedisResult<()> {
    let (key, mut raw) = (key(n | 1 << 62), both.raw.clone());
    let mut reserve = redis::cmd("SET");
    reserve
        .arg(&key)
        .arg(&[b'P'; 16][..])
        .arg("NX")
        .arg("PX")
        .arg(30_000);
    let () = reserve.query_async(&mut raw).await?;
    let mut complete = redis::cmd("SET");
    complete
        .arg(&key)
        .arg(outcome())
        .arg("PX")
        .arg(604_800_000_u64);
    complete.query_async(&mut raw).await
}

const COMPLETE: &str = "\
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1";

async fn complete(both: &Both, key: &str) -> RedisResult<()> {
    static SCRIPT: std::sync::LazyLock<redis::Script> =
        std::sync::LazyLock::new(|| redis::Script::new(COMPLETE));
    let mut invocation = SCRIPT.key(key);
    invocation
        .arg(&[b'P'; 96][..])
        .arg(outcome())
        .arg(604_800_000_u64);
    let held: i64 = invocation.invoke_async(&mut both.raw.clone()).await?;
    assert_eq!(held, 1);
    Ok(())
}

pub(crate) async fn first(both: &Both, n: u64) -> RedisResult<()> {
    let key = key(n | 1 << 62 | 1 << 60);
    reserve(both, &key).await?;
    complete(both, &key).await
}

pub(crate) async fn mixed<const PERCENT: u64>(both: &Both, n: u64) -> RedisResult<()> {
    match repeats::<PERCENT>(n, RECORDED) {
        Some(n) => set_nx_get(both, n).await,
        None => first(both, n).await,
    }
}
