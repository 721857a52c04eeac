//! The store's steps, without the engine.

use std::time::Duration;

use idem::fingerprint::Fingerprint;
use idem::key::RecordId;
use idem::retention::Retention;
use idem::store::redis::RedisStore;
use idem::store::{Held, Request, Reserved, Store};
use idem::{Error, ErrorKind};
use idem_benches::repeats;

use super::{Both, RECORDED};

const LEASE: Duration = Duration::from_secs(30);

pub(crate) fn id(n: u64) -> RecordId {
    let mut id = [7; 16];
    id[..8].copy_from_slice(&n.to_be_bytes());
    RecordId::from_bytes(id)
}

/// An outcome of the size of an order's.
pub(crate) fn outcome() -> Vec<u8> {
    vec![b'x'; 200]
}

fn request(n: u64, scope: &'static str) -> Request<'static> {
    let mut request = Request::new(id(n), Fingerprint::NONE, LEASE);
    request.scope = scope;
    request.key_text = Some("order:merchant-7:1234567");
    request
}

async fn run(store: &RedisStore, n: u64, scope: &'static str) -> Result<Option<usize>, Error> {
    match store.reserve(&request(n, scope)).await? {
        Reserved::Granted(held) => {
            let week = Retention::new(Duration::from_secs(604_800))?;
            match store.complete(&held, outcome().into(), week).await? {
                Held::Yes => Ok(None),
                Held::No => Err(Error::new(ErrorKind::LostOwnership)),
            }
        }
        Reserved::Completed { outcome, .. } => Ok(Some(outcome.len())),
        _ => Err(Error::new(ErrorKind::InProgress)),
    }
}

pub(crate) async fn recorded(store: &RedisStore, n: u64) -> Result<(), Error> {
    run(store, n, "bench.recorded").await.map(drop)
}

pub(crate) async fn first(both: &Both, n: u64) -> Result<(), Error> {
    let first = run(&both.store, n | 1 << 62, "bench.first").await?;
    assert_eq!(first, None);
    Ok(())
}

pub(crate) async fn replay(both: &Both, n: u64) -> Result<(), Error> {
    let replay = run(&both.store, n % RECORDED, "bench.replay").await?;
    assert_eq!(replay, Some(200));
    Ok(())
}

/// Some calls repeat a recorded one.
pub(crate) async fn mixed<const PERCENT: u64>(both: &Both, n: u64) -> Result<(), Error> {
    let scope = if PERCENT == 50 {
        "bench.50"
    } else {
        "bench.95"
    };
    match repeats::<PERCENT>(n, RECORDED) {
        Some(n) => assert_eq!(run(&both.store, n, scope).await?, Some(200)),
        None => assert_eq!(
            run(&both.store, n | 1 << 61 | PERCENT << 48, scope).await?,
            None
        ),
    }
    Ok(())
}
