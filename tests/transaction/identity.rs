//! Which calls share a record, over renames and over builds.

use idem::{ErrorKind, Retry, idempotent};

use crate::fixture::{Backend, Failure, Lite, Pg, Probe, Receipt, Tx, World, kind};

mod before {
    use super::{Backend, Failure, Probe, Receipt, Tx, idempotent};

    #[idempotent(
        key = "pay:{id}",
        ttl = "1h",
        store = "tx",
        scope = "billing.pay",
        shared_scope
    )]
    pub(super) async fn pay<B: Backend>(
        tx: &mut Tx<'_, B>,
        id: u64,
        probe: &Probe,
    ) -> Result<Receipt, Failure> {
        probe.enter().await;
        Ok(Receipt::of("pay"))
    }

    #[idempotent(key = "{id}", ttl = "1h", store = "tx")]
    pub(super) async fn unnamed<B: Backend>(
        tx: &mut Tx<'_, B>,
        id: u64,
    ) -> Result<Receipt, Failure> {
        Ok(Receipt::of("before"))
    }
}

mod after {
    use super::{Backend, Failure, Probe, Receipt, Tx, idempotent};

    /// Moved, renamed, its arguments too.
    #[idempotent(
        key = "pay:{order}",
        ttl = "7d",
        store = "within",
        scope = "billing.pay",
        shared_scope,
        reject
    )]
    pub(super) async fn pay_order<B: Backend>(
        within: &mut Tx<'_, B>,
        order: u32,
        probe: &Probe,
    ) -> Result<Receipt, Failure> {
        probe.enter().await;
        Ok(Receipt::of("pay"))
    }

    #[idempotent(key = "{id}", ttl = "1h", store = "tx")]
    pub(super) async fn unnamed<B: Backend>(
        tx: &mut Tx<'_, B>,
        id: u64,
    ) -> Result<Receipt, Failure> {
        Ok(Receipt::of("after"))
    }
}

/// A fixed scope is the whole identity.
async fn key_05_a_renamed_function_keeps_its_records<B: Backend>() {
    let world = World::<B>::new(1).await;
    let probe = Probe::new();
    let mut tx = world.begin().await;
    let first = before::pay::<B>(&mut tx, 7, &probe).await.unwrap();
    assert_eq!(
        after::pay_order::<B>(&mut tx, 7, &probe).await.unwrap(),
        first
    );
    assert_eq!(probe.runs(), 1);
    // Without one, the path is part of it.
    let first = before::unnamed::<B>(&mut tx, 7).await.unwrap();
    assert_ne!(after::unnamed::<B>(&mut tx, 7).await.unwrap(), first);
    assert_eq!(before::unnamed::<B>(&mut tx, 7).await.unwrap(), first);
    tx.commit().await.unwrap();
    assert_eq!(world.records().await, (3, 0));
}

#[idempotent(key = "{id}", ttl = "1h", store = "tx")]
async fn pay<B: Backend>(tx: &mut Tx<'_, B>, id: u64) -> Result<Receipt, Failure> {
    Ok(Receipt::of("pay"))
}

#[idempotent(key = "{id}", ttl = "1h", store = "tx")]
async fn refund<B: Backend>(tx: &mut Tx<'_, B>, id: u64) -> Result<u64, Failure> {
    Ok(id)
}

async fn ip_12_two_functions_with_one_key_text<B: Backend>() {
    let world = World::<B>::new(1).await;
    let mut tx = world.begin().await;
    let paid = pay::<B>(&mut tx, 7).await.unwrap();
    assert_eq!(refund::<B>(&mut tx, 7).await.unwrap(), 7);
    assert_eq!(pay::<B>(&mut tx, 7).await.unwrap(), paid);
    tx.commit().await.unwrap();
    assert_eq!(world.records().await, (2, 0));
}

struct One;
struct Two;

macro_rules! methods {
    ($($service:ident)*) => {$(
        impl $service {
            #[idempotent(key = "{id}", ttl = "1h", store = "tx")]
            async fn run<B: Backend>(&self, tx: &mut Tx<'_, B>, id: u64) -> Result<String, Failure> {
                Ok(stringify!($service).to_owned())
            }
        }
    )*};
}
methods! { One Two }

trait Runs {
    async fn named(&self, tx: &mut Tx<'_, Lite>, id: u64) -> Result<String, Failure>;
}

impl Runs for One {
    #[idempotent(key = "{id}", ttl = "1h", store = "tx")]
    async fn named(&self, tx: &mut Tx<'_, Lite>, id: u64) -> Result<String, Failure> {
        Ok("trait One".to_owned())
    }
}

impl Runs for Two {
    #[idempotent(key = "{id}", ttl = "1h", store = "tx")]
    async fn named(&self, tx: &mut Tx<'_, Lite>, id: u64) -> Result<String, Failure> {
        Ok("trait Two".to_owned())
    }
}

#[idempotent(key = "{id}", ttl = "1h", store = "tx", fingerprint(id))]
async fn generic<T: std::fmt::Display>(
    tx: &mut Tx<'_, Lite>,
    id: u64,
    shown: T,
) -> Result<String, Failure> {
    Ok(shown.to_string())
}

/// Each its own records, on every repeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_04_methods_and_generics_of_one_name() {
    let world = World::<Lite>::new(1).await;
    let mut tx = world.begin().await;
    for _ in 0..2 {
        let tx = &mut tx;
        assert_eq!(One.run::<Lite>(tx, 7).await.unwrap(), "One");
        assert_eq!(Two.run::<Lite>(tx, 7).await.unwrap(), "Two");
        assert_eq!(One.named(tx, 7).await.unwrap(), "trait One");
        assert_eq!(Two.named(tx, 7).await.unwrap(), "trait Two");
        assert_eq!(generic(tx, 7, 1_u8).await.unwrap(), "1");
        assert_eq!(generic(tx, 7, "text").await.unwrap(), "text");
    }
    tx.commit().await.unwrap();
    assert_eq!(world.records().await, (6, 0));
}

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize, thiserror::Error)]
enum Declined {
    #[error("declined: {reason}")]
    Final { reason: String },
    #[error("framework: {0}")]
    Idem(String),
}

impl From<idem::Error> for Declined {
    fn from(error: idem::Error) -> Self {
        Self::Idem(format!("{:?} {:?}", error.kind(), error.retry()))
    }
}

#[idempotent(key = "pay:{id}", ttl = "1h", store = "tx", scope = "golden.pay", record_err = all)]
async fn golden<B: Backend>(
    tx: &mut Tx<'_, B>,
    id: u64,
    cents: u64,
    probe: &Probe,
) -> Result<Vec<u32>, Declined> {
    probe.enter().await;
    Ok(vec![cents as u32])
}

/// SHA-256 over 1, namespace, operation, no types, `pay:7`, cut: written down once, never changed.
const ID: &str = "b5276cd69339716baf01c17c0cb830a0";
const FINGERPRINT: &str = "014a131fcd75eb7d94da653a922b76ddf3";

/// A row as an older build has left it.
async fn older_row<B: Backend>(world: &World<B>, outcome: &str) {
    world.execute("DELETE FROM idem_record").await;
    let sql = if B::NAME == Pg::NAME {
        format!(
            "INSERT INTO idem_record (id, scope, key_text, fingerprint, owner, outcome, completed_at) \
             VALUES ('{ID}', 'golden.pay', 'pay:7', '\\x{FINGERPRINT}', gen_random_uuid(), \
             '\\x{outcome}', now())"
        )
    } else {
        format!(
            "INSERT INTO idem_record (id, scope, key_text, fingerprint, owner, outcome, created_at) \
             VALUES (x'{ID}', 'golden.pay', 'pay:7', x'{FINGERPRINT}', zeroblob(16), x'{outcome}', 0)"
        )
    };
    world.execute(sql).await;
}

fn hex(header: &str, payload: &[u8]) -> String {
    let bytes: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{header}{bytes}")
}

/// What older builds have written is answered from, whatever wrote it, and never run again.
async fn key_05_a_record_of_an_older_build_replays<B: Backend>() {
    let world = World::<B>::new(1).await;
    let probe = Probe::new();
    let idem = |text: &str| Err(Declined::Idem(text.to_owned()));
    let declined = Declined::Final {
        reason: "limit\u{0}".to_owned(),
    };
    for (outcome, expected) in [
        // Version 1, a value, JSON, schema version 0.
        (hex("01010100000000", b"[5, 6]"), Ok(vec![5, 6])),
        // The same in MessagePack.
        (hex("01010200000000", &[0x92, 0x05, 0x06]), Ok(vec![5, 6])),
        (
            hex("01020100000000", br#"{"Final":{"reason":"limit\u0000"}}"#),
            Err(declined),
        ),
        // A format from the future, a truncated one, one that is no longer this type.
        (
            hex("02010100000000", b"[5]"),
            idem("OutcomeUndecodable Never"),
        ),
        ("0101".to_owned(), idem("OutcomeUndecodable Never")),
        (
            hex("01010100000000", b"{}"),
            idem("OutcomeUndecodable Never"),
        ),
        (
            hex("01010900000000", b"[5]"),
            idem("OutcomeUndecodable Never"),
        ),
        // A tombstone, and the size of what was not kept.
        (hex("01030000000000", b""), idem("OutcomeGone Never")),
        (
            hex("01040000000000", &[0, 0, 0, 0, 0, 1, 0, 0]),
            idem("OutcomeGone Never"),
        ),
    ] {
        older_row(&world, &outcome).await;
        let mut tx = world.begin().await;
        assert_eq!(
            golden::<B>(&mut tx, 7, 100, &probe).await,
            expected,
            "{outcome}"
        );
        // The payload of then is compared with the payload of now.
        let other = golden::<B>(&mut tx, 7, 101, &probe).await;
        assert_eq!(other, idem("FingerprintMismatch Never"));
        tx.commit().await.unwrap();
    }
    assert_eq!(probe.runs(), 0);
}

/// What this build writes is what older ones have written.
async fn key_05_a_record_of_this_build_is_the_same<B: Backend>() {
    let world = World::<B>::new(1).await;
    let probe = Probe::new();
    let mut tx = world.begin().await;
    golden::<B>(&mut tx, 7, 100, &probe).await.unwrap();
    let written = if B::NAME == Pg::NAME {
        format!("id = '{ID}' AND fingerprint = '\\x{FINGERPRINT}' AND outcome = '\\x")
    } else {
        format!(
            "hex(id) = upper('{ID}') AND hex(fingerprint) = upper('{FINGERPRINT}') AND outcome = x'"
        )
    };
    let outcome = hex("01010100000000", b"[100]");
    let sql = format!("SELECT count(*) FROM idem_record WHERE {written}{outcome}'");
    assert_eq!(B::number(&mut tx, sql).await.unwrap(), 1);
    tx.rollback().await.unwrap();
}

/// A check of the payload that is switched off, or on, answers from the records of before.
async fn the_payload_check_can_be_switched<B: Backend>() {
    #[idempotent(key = "{id}", ttl = "1h", store = "tx", scope = "switch", shared_scope, fingerprint = none)]
    async fn off<B: Backend>(tx: &mut Tx<'_, B>, id: u64, cents: u64) -> Result<u64, Failure> {
        Ok(cents)
    }
    #[idempotent(key = "{id}", ttl = "1h", store = "tx", scope = "switch", shared_scope)]
    async fn on<B: Backend>(tx: &mut Tx<'_, B>, id: u64, cents: u64) -> Result<u64, Failure> {
        Ok(cents)
    }
    let world = World::<B>::new(1).await;
    let mut tx = world.begin().await;
    assert_eq!(on::<B>(&mut tx, 1, 100).await.unwrap(), 100);
    assert_eq!(off::<B>(&mut tx, 1, 5).await.unwrap(), 100);
    let error = on::<B>(&mut tx, 1, 5).await.unwrap_err().idem();
    assert_eq!(
        (error.kind(), error.retry()),
        (ErrorKind::FingerprintMismatch, Retry::Never)
    );
    assert_eq!(off::<B>(&mut tx, 2, 100).await.unwrap(), 100);
    assert_eq!(on::<B>(&mut tx, 2, 5).await.unwrap(), 100);
    assert_eq!(
        kind(on::<B>(&mut tx, 1, 6).await),
        ErrorKind::FingerprintMismatch
    );
    tx.rollback().await.unwrap();
}

on_both! {
    key_05_a_renamed_function_keeps_its_records,
    key_05_a_record_of_an_older_build_replays,
    key_05_a_record_of_this_build_is_the_same,
    ip_12_two_functions_with_one_key_text,
    the_payload_check_can_be_switched,
}
