//! Names and values outlive a build: what one has written another one finds and reads.

use idem_runtime::clock::Moment;
use idem_runtime::key::RecordId;
use idem_runtime::protocol::{Owner, State};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{Reserved, Store};
use idem_runtime::{Error, ErrorKind};
use idem_test_support::{Redis, RedisServer};
use redis::AsyncCommands;

use crate::support::{self, outcome_of, payload, raw, request};

const ID: [u8; 16] = *b"\x00\x01\x02\x03\xfc\xfd\xfe\xff0123abcd";

async fn named(prefix: &str, namespace: &str) -> Result<String, Error> {
    let builder = RedisStore::builder().prefix(prefix).namespace(namespace);
    let store = builder.connect(Redis::url().as_str()).await?;
    Ok(store.key_of(RecordId::from_bytes(ID)))
}

/// LK-06, RD-12: the name of a key is a function of prefix, namespace and id.
#[tokio::test]
async fn the_names_of_keys_never_change() {
    let hex = "00010203fcfdfeff3031323361626364";
    for (prefix, namespace, name) in [
        ("idem", "", format!("idem:{{{hex}}}")),
        ("idem", "shop", format!("idem:shop:{{{hex}}}")),
        ("team:a", "shop-1.eu", format!("team:a:shop-1.eu:{{{hex}}}")),
    ] {
        for _ in 0..2 {
            assert_eq!(named(prefix, namespace).await.unwrap(), name);
        }
    }
    let id = RecordId::new("shop", "order.create", &[], "order:m-1:7");
    let store = RedisStore::builder().namespace("shop");
    let store = store.connect(Redis::url().as_str()).await.unwrap();
    let name = store.clone().key_of(id);
    assert_eq!(name, format!("idem:shop:{{{id}}}"));
    assert_eq!(name, store.key_of(id));
}

/// RD-08: text that would move keys to another slot does not get into a name.
#[tokio::test]
async fn a_name_takes_no_braces() {
    for (prefix, namespace) in [
        ("idem", "{a}"),
        ("idem", "a}{b"),
        ("{x}", ""),
        ("", ""),
        ("a b", ""),
    ] {
        let refused = named(prefix, namespace).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Schema, "{prefix} {namespace}");
    }
    let too_long = "n".repeat(65);
    assert!(named("idem", &too_long).await.is_err());
}

fn head(id: RecordId, state: u8, time: u64) -> Vec<u8> {
    let mut value = vec![1, state];
    value.extend(7_000_000_u64.to_be_bytes());
    value.extend(1_600_000_000_000_u64.to_be_bytes());
    value.extend(time.to_be_bytes());
    value.extend([0xaa; 16]);
    value.extend(payload(1).as_bytes());
    value.extend(id.as_bytes());
    value.extend(b"\x00\x03pay\x00\x00\x00\x05key:7");
    value
}

/// A record of an earlier build is read as it was written.
#[tokio::test]
async fn the_format_of_a_value_never_changes() {
    let store = support::store().await;
    let mut server = raw(&Redis::url()).await;
    let (done, held) = (support::id(&store, "done"), support::id(&store, "held"));
    let mut value = head(done, b'C', 1_600_000_000_500);
    value.extend(b"the outcome");
    let _: () = server
        .pset_ex(store.key_of(done), value, 60_000)
        .await
        .unwrap();
    let value = head(held, b'R', 9_000_000_000_000);
    let _: () = server
        .pset_ex(store.key_of(held), value, 60_000)
        .await
        .unwrap();

    assert_eq!(
        outcome_of(&store.reserve(&request(done)).await.unwrap()),
        b"the outcome"
    );
    let shown = store.lookup(done).await.unwrap().unwrap();
    assert_eq!(
        (shown.scope.as_str(), shown.key_text.as_deref()),
        ("pay", Some("key:7"))
    );
    assert_eq!(shown.created_at, Moment::from_millis(1_600_000_000_000));
    assert_eq!(shown.record.fence.get(), 7_000_000);
    let State::Completed {
        outcome,
        recorded_at,
        keep_until,
        known_until,
    } = shown.record.state
    else {
        panic!("{shown:?}");
    };
    assert_eq!(
        (&outcome[..], recorded_at.as_millis()),
        (&b"the outcome"[..], 1_600_000_000_500)
    );
    assert!(keep_until.is_some());
    assert_eq!(known_until, keep_until);

    let answer = store.reserve(&request(held)).await.unwrap();
    assert!(
        matches!(answer, Reserved::InProgress { free_in: Some(_) }),
        "{answer:?}"
    );
    let state = store.lookup(held).await.unwrap().unwrap().record.state;
    let lease_until = Some(Moment::from_millis(9_000_000_000_000));
    assert_eq!(
        state,
        State::Reserved {
            owner: Owner::from_bytes([0xaa; 16]),
            lease_until,
            held: false,
        }
    );
}

/// An outcome that ends before its key: its end stands before the texts.
#[tokio::test]
async fn a_tombstone_is_what_is_left_of_an_outcome_with_an_end() {
    let store = support::store().await;
    let mut server = raw(&Redis::url()).await;
    for (end, hidden) in [(9_000_000_000_000_u64, false), (1, false), (1, true)] {
        let id = support::id(&store, format!("{end}{hidden}"));
        let mut texts = head(id, b'K', 1_600_000_000_500);
        let mut value: Vec<u8> = texts.drain(..75).collect();
        value.extend(end.to_be_bytes());
        let texts = match hidden {
            true => [&texts[..5], b"\xff\xff\xff\xff"].concat(),
            false => texts,
        };
        value.extend(&texts);
        value.extend(b"the outcome");
        let key = store.key_of(id);
        let _: () = server.pset_ex(&key, value, 60_000).await.unwrap();

        let answer = store.reserve(&request(id)).await.unwrap();
        let shown = store.lookup(id).await.unwrap().unwrap();
        assert_eq!(shown.scope, "pay");
        assert_eq!(shown.key_text.as_deref(), (!hidden).then_some("key:7"));
        if end > 1 {
            assert_eq!(outcome_of(&answer), b"the outcome");
            let State::Completed { keep_until, .. } = shown.record.state else {
                panic!("{shown:?}");
            };
            assert_eq!(keep_until, Some(Moment::from_millis(end)));
            continue;
        }
        assert_eq!(answer, Reserved::OutcomeGone);
        assert!(matches!(
            shown.record.state,
            State::Tombstone { until: Some(_) }
        ));
        let left: Vec<u8> = server.get(&key).await.unwrap();
        let mut expected = head(id, b'T', 1_600_000_000_500);
        expected.truncate(75);
        expected.extend(texts);
        assert_eq!(left, expected);
    }
}

/// A new record has that format too.
#[tokio::test]
async fn a_new_value_has_that_format() {
    let store = support::store().await;
    let mut server = raw(&Redis::url()).await;
    let mut request = request(support::id(&store, 1));
    request.scope = "pay";
    request.key_text = Some("key:7");
    let held = support::take(&store, &request).await;
    let value: Vec<u8> = server.get(store.key_of(held.id)).await.unwrap();
    assert_eq!(value[..2], *b"\x01R");
    assert_eq!(value[2..10], held.fence.get().to_be_bytes());
    assert_eq!(value[26..42], *held.owner.as_bytes());
    assert_eq!(value[42..], head(held.id, b'R', 0)[42..]);
    support::complete(&store, &held, b"done").await;
    let value: Vec<u8> = server.get(store.key_of(held.id)).await.unwrap();
    assert!(
        value.starts_with(b"\x01C") && value.ends_with(b"key:7done"),
        "{value:?}"
    );
    assert!(store.forget(held.id).await.unwrap());
    let value: Vec<u8> = server.get(store.key_of(held.id)).await.unwrap();
    assert_eq!(
        value,
        [b"\x01F", &held.fence.get().to_be_bytes()[..]].concat()
    );
}

/// A newer build's record, a foreign or a torn one is an error of that call, and stays as it is.
#[tokio::test]
async fn what_cannot_be_read_is_refused_and_kept() {
    let server = RedisServer::start(&[]);
    let store = support::store_on(&server.url()).await;
    let mut raw = raw(&server.url()).await;
    // The second stands under another record's key.
    let [torn, foreign] = [5, 5].map(|n| head(support::id(&store, n), b'C', 1));
    for (n, value) in [
        b"\x02C?".to_vec(),
        b"17".to_vec(),
        b"\x01".to_vec(),
        torn[..70].to_vec(),
        b"\x01X".to_vec(),
        torn[..80].to_vec(),
        foreign,
    ]
    .into_iter()
    .enumerate()
    {
        let id = support::id(&store, n);
        let _: () = raw.set(store.key_of(id), &value).await.unwrap();
        let refused = store.reserve(&request(id)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutcomeUndecodable, "{value:?}");
        assert!(store.lookup(id).await.is_err());
        let kept: Vec<u8> = raw.get(store.key_of(id)).await.unwrap();
        assert_eq!(kept, value);
    }
}
