//! What the caller's values may hold, and what a server may do to them.

use idem::{ErrorKind, KeyPart, idempotent};
use serde::{Deserialize, Serialize};

use crate::fixture::{Backend, Failure, Lite, Pg, Probe, Receipt, Tx, World, effect, kind, pay};

#[derive(Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
enum Echo {
    #[error("{0}")]
    Final(String),
    #[error("framework: {0}")]
    Idem(String),
}

impl From<idem::Error> for Echo {
    fn from(error: idem::Error) -> Self {
        Self::Idem(format!("{:?}", error.kind()))
    }
}

#[idempotent(key = "e:{text}", ttl = "1h", store = "tx", record_err = all)]
async fn echo<B: Backend>(
    tx: &mut Tx<'_, B>,
    text: &str,
    fails: bool,
    probe: &Probe,
) -> Result<String, Echo> {
    probe.enter().await;
    B::execute(tx, effect("echo")).await.unwrap();
    if fails {
        Err(Echo::Final(text.to_owned()))
    } else {
        Ok(text.to_owned())
    }
}

async fn echoes<B: Backend>(world: &World<B>, text: &str, fails: bool) {
    let probe = Probe::new();
    for _ in 0..2 {
        let mut tx = world.begin().await;
        let answer = echo::<B>(&mut tx, text, fails, &probe).await;
        tx.commit().await.unwrap();
        let same = if fails {
            Err(Echo::Final(text.to_owned()))
        } else {
            Ok(text.to_owned())
        };
        assert_eq!(answer, same);
    }
    assert_eq!(probe.runs(), 1, "{text:?}");
}

/// NUL and its neighbours as key, as result, as the text of a recorded error.
async fn pg_04_nul_in_key_result_and_error<B: Backend>() {
    let world = World::<B>::new(2).await;
    for (n, text) in [
        "a\u{0}b",
        "\u{0}c",
        "\u{1}\u{7f}\u{85}d",
        "a%00b",
        "a\\u0000b",
        "\u{10ffff}",
    ]
    .into_iter()
    .enumerate()
    {
        echoes(&world, text, n % 2 == 0).await;
        echoes(&world, &format!("{text}-other"), n % 2 == 1).await;
    }
    // Each its own record: none of them is read as another.
    assert_eq!(world.records().await, (12, 0));
}

/// The length of a key decides, never how well it compresses; the limit is the same everywhere.
async fn pg_06_long_keys<B: Backend>() {
    let world = World::<B>::new(2).await;
    let random = |bytes: usize| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            char::from_digit((state >> 60) as u32, 16).unwrap()
        };
        (0..bytes).map(|_| next()).collect::<String>()
    };
    let limit = idem::key::MAX_KEY_BYTES;
    let mut recorded = 0;
    for bytes in [1000, 1025, 3000, 5000, limit - 2, limit - 1, limit + 1000] {
        for text in [random(bytes), "a".repeat(bytes)] {
            if bytes + "e:".len() <= limit {
                echoes(&world, &text, false).await;
                recorded += 1;
                continue;
            }
            let probe = Probe::new();
            let mut tx = world.begin().await;
            let answer = echo::<B>(&mut tx, &text, false, &probe).await;
            assert_eq!(answer, Err(Echo::Idem("KeyTooLong".to_owned())));
            assert_eq!(probe.runs(), 0);
            // Nothing was sent: the transaction goes on.
            tx.commit().await.unwrap();
        }
    }
    assert_eq!(world.records().await, (recorded, 0));
    // Keys that differ only behind what is kept for people to read are different keys.
    let long = "k".repeat(2000);
    echoes(&world, &format!("{long}-1"), false).await;
    echoes(&world, &format!("{long}-2"), false).await;
    assert_eq!(world.records().await, (recorded + 2, 0));
}

/// A tenant that may be absent, said in the key by a part of its own.
#[derive(Debug, Clone, KeyPart)]
enum Tenant {
    Nobody,
    Named(String),
}

#[idempotent(key = "{tenant}/{id}", ttl = "1h", store = "tx")]
async fn for_tenant<B: Backend>(
    tx: &mut Tx<'_, B>,
    tenant: Tenant,
    id: u64,
    probe: &Probe,
) -> Result<Receipt, Failure> {
    probe.enter().await;
    Ok(Receipt::of("tenant"))
}

async fn pg_10_an_absent_tenant_is_one_tenant<B: Backend>() {
    let world = World::<B>::new(2).await;
    let named = |name: &str| Tenant::Named(name.to_owned());
    let texts = ["", "Nobody", "None", "null", "Named", "named"].map(named);
    let tenants: Vec<_> = [Tenant::Nobody].into_iter().chain(texts).collect();
    for (n, tenant) in tenants.iter().enumerate() {
        let probe = Probe::new();
        for _ in 0..2 {
            let mut tx = world.begin().await;
            for_tenant::<B>(&mut tx, tenant.clone(), 7, &probe)
                .await
                .unwrap();
            tx.commit().await.unwrap();
        }
        assert_eq!(probe.runs(), 1, "{tenant:?}");
        assert_eq!(world.records().await, (n as i64 + 1, 0), "{tenant:?}");
    }
}

#[idempotent(key = "{a}:{b}", ttl = "1h", store = "tx")]
async fn two_parts<B: Backend>(tx: &mut Tx<'_, B>, a: &str, b: &str) -> Result<String, Failure> {
    B::execute(tx, effect("parts")).await?;
    Ok(format!("{a}|{b}"))
}

/// No value of one part reads as the end of it, in the databases' own comparison.
async fn key_01_distinct_parts_have_distinct_records<B: Backend>() {
    let world = World::<B>::new(2).await;
    let pairs = [
        ("x:y", "z"),
        ("x", "y:z"),
        ("x%3Ay", "z"),
        ("x%", "3Ay:z"),
        ("{a}", "{b}"),
        ("a\n", "b"),
        ("a", "\nb"),
        ("A", "b"),
        ("a", "b"),
        ("á", "b"),
        ("a\u{301}", "b"),
        ("a ", "b"),
        (" a", "b"),
        ("ß", "b"),
        ("ss", "b"),
    ];
    for _ in 0..2 {
        for (a, b) in pairs {
            let mut tx = world.begin().await;
            let answer = two_parts::<B>(&mut tx, a, b).await.unwrap();
            assert_eq!(answer, format!("{a}|{b}"));
            tx.commit().await.unwrap();
        }
    }
    assert_eq!(world.records().await, (pairs.len() as i64, 0));
    assert_eq!(world.effects("parts").await, pairs.len() as i64);
    // An empty part identifies nothing; the transaction is as it was.
    let mut tx = world.begin().await;
    assert_eq!(
        kind(two_parts::<B>(&mut tx, "", "b").await),
        ErrorKind::EmptyKeyPart
    );
    two_parts::<B>(&mut tx, "still", "whole").await.unwrap();
    tx.commit().await.unwrap();
}

/// Errors are told apart by their code; this server speaks as it likes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_03_the_servers_language_does_not_matter() {
    let world = World::<Pg>::new(2).await;
    let kinds = [
        ("40001", ErrorKind::RetryTransaction),
        ("40P01", ErrorKind::RetryTransaction),
        ("55P03", ErrorKind::RetryTransaction),
        ("57014", ErrorKind::RetryTransaction),
        ("42P01", ErrorKind::Schema),
        ("42703", ErrorKind::Schema),
        ("53100", ErrorKind::StoreExhausted),
        ("42501", ErrorKind::StoreRefused),
        ("22P05", ErrorKind::StoreRefused),
        ("57P01", ErrorKind::StoreUnavailable),
    ];
    for (code, expected) in kinds {
        for text in [
            "не удалось сериализовать доступ",
            "Verklemmung entdeckt",
            "",
        ] {
            // The reservation itself fails, as it does in a conflict.
            world
                .execute(format!(
                    "CREATE OR REPLACE FUNCTION speak() RETURNS trigger LANGUAGE plpgsql AS $$ \
                     BEGIN RAISE EXCEPTION '%', '{text}' USING ERRCODE = '{code}'; END $$"
                ))
                .await;
            let on = "CREATE OR REPLACE TRIGGER speak BEFORE INSERT ON idem_record \
                      FOR EACH ROW EXECUTE FUNCTION speak()";
            world.execute(on).await;
            let probe = Probe::new();
            let answer = world.pay("one", &probe).await;
            assert_eq!((kind(answer), probe.runs()), (expected, 0), "{code} {text}");
        }
    }
}

/// A server set to other messages, dates, time zone and string syntax than we are used to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_03_the_sessions_settings_do_not_matter() {
    let world = World::<Pg>::new(3).await;
    let probe = Probe::new();
    let first = world.pay("one", &probe).await.unwrap();
    let mut held = world.begin().await;
    pay::<Pg>(&mut held, "held", 100, &probe).await.unwrap();
    for setting in [
        "lc_messages = 'POSIX'",
        "DateStyle = 'German, DMY'",
        "TimeZone = 'Pacific/Kiritimati'",
        "IntervalStyle = 'iso_8601'",
        "bytea_output = 'escape'",
        "extra_float_digits = -15",
        "standard_conforming_strings = off",
        "search_path = pg_temp, public",
        "transform_null_equals = on",
        "enable_indexscan = off",
    ] {
        let mut tx = world.begin().await;
        Pg::execute(&mut tx, format!("SET LOCAL {setting}"))
            .await
            .unwrap();
        let (answer, seen) = idem::observe(pay::<Pg>(&mut tx, "one", 100, &probe)).await;
        assert_eq!(answer.unwrap(), first, "{setting}");
        let idem::Answered::Replay {
            recorded_at: Some(at),
        } = seen.answered().unwrap()
        else {
            panic!("{seen:?}");
        };
        let now = idem::clock::Moment::from(std::time::SystemTime::now());
        assert!(
            at.until(now).as_secs() < 600 && now.until(at).as_secs() < 600,
            "{setting}"
        );
        let busy = crate::fixture::pay_now::<Pg>(&mut tx, "held", 100, &probe).await;
        assert_eq!(kind(busy), ErrorKind::InProgress);
        tx.commit().await.unwrap();
    }
    assert_eq!(probe.runs(), 2);
}

/// Somebody else's advisory lock under our number costs a wait, never a wrong result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strangers_advisory_lock_only_delays() {
    let world = std::sync::Arc::new(World::<Pg>::new(3).await);
    let probe = Probe::new();
    let done = world.pay("done", &probe).await.unwrap();
    let mut stranger = world.backend.0.connect().await;
    for id in ["done", "new"] {
        let record = idem::key::RecordId::new("", "test.pay", &[], &format!("pay:{id}"));
        let lock = format!(
            "SELECT pg_advisory_lock({} # 'idem_record'::regclass::oid::int8)",
            record.lock_number()
        );
        Pg::execute(&mut stranger, lock).await.unwrap();
    }
    // A replay needs no lock.
    assert_eq!(world.pay("done", &probe).await.unwrap(), done);
    let mut tx = world.begin().await;
    let busy = crate::fixture::pay_now::<Pg>(&mut tx, "new", 100, &probe).await;
    assert_eq!(kind(busy), ErrorKind::InProgress);
    tx.commit().await.unwrap();
    let waiter = tokio::spawn({
        let world = std::sync::Arc::clone(&world);
        async move { world.pay("new", &Probe::new()).await }
    });
    let asking = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                  AND state LIKE 'idle in transaction%' AND query LIKE 'SELECT fingerprint%'";
    crate::fixture::until("the waiter", || async { world.number(asking).await == 1 }).await;
    Pg::execute(&mut stranger, "SELECT pg_advisory_unlock_all()")
        .await
        .unwrap();
    let new = waiter.await.unwrap().unwrap();
    assert_eq!(world.pay("new", &probe).await.unwrap(), new);
    assert_eq!((world.effects("new").await, probe.runs()), (1, 1));
}

/// SQLite answers `5` or `517`, whatever it says beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sl_01_a_deferred_transaction_that_has_read_is_refused_at_once() {
    let world = World::<Lite>::new(3).await;
    let probe = Probe::new();
    // Another one has written since: even waiting for it could not help.
    let mut reader = world.pool.begin().await.unwrap();
    Lite::number(&mut reader, "SELECT count(*) FROM effect")
        .await
        .unwrap();
    world.pay("other", &probe).await.unwrap();
    let began = std::time::Instant::now();
    let error = pay::<Lite>(&mut reader, "one", 100, &probe)
        .await
        .unwrap_err()
        .idem();
    assert_eq!(error.kind(), ErrorKind::RetryTransaction);
    assert_eq!(error.retry(), idem::Retry::NewTransaction);
    assert!(began.elapsed().as_secs() < 10, "the busy time-out is 30 s");
    reader.rollback().await.unwrap();
    // A writer is at it, and the reader cannot be promoted.
    let mut reader = world.pool.begin().await.unwrap();
    Lite::number(&mut reader, "SELECT count(*) FROM effect")
        .await
        .unwrap();
    let mut writer = world.begin().await;
    Lite::execute(&mut writer, effect("writer")).await.unwrap();
    let answer = pay::<Lite>(&mut reader, "one", 100, &probe).await;
    assert_eq!(kind(answer), ErrorKind::RetryTransaction);
    assert!(began.elapsed().as_secs() < 20, "the busy time-out is 30 s");
    reader.rollback().await.unwrap();
    writer.commit().await.unwrap();
    assert_eq!(probe.runs(), 1);
    // A deferred transaction that has not read is as good as any.
    let mut tx = world.pool.begin().await.unwrap();
    pay::<Lite>(&mut tx, "one", 100, &probe).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((world.effects("one").await, probe.runs()), (1, 2));
}

on_both! {
    pg_04_nul_in_key_result_and_error,
    pg_06_long_keys,
    pg_10_an_absent_tenant_is_one_tenant,
    key_01_distinct_parts_have_distinct_records,
}
