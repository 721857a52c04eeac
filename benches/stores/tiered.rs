//! Many callers: a tiered replay against a plain SELECT, and without a front.

use idem::idempotent;
use idem::store::redis::{RedisFront, RedisStore};
use idem::store::tiered::{Front, MemoryFront, Stack, Tier};
use idem_benches::{Variant, compare};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction, Row as _};

use tokio::net::TcpListener;

use crate::redis::RECORDED;
use crate::{Measured, redis};

const TITLE: &str = "tiered: replay";

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
struct Order {
    id: u64,
    note: String,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
}

fn order(n: u64) -> Order {
    Order {
        id: n,
        note: "x".repeat(140),
    }
}

#[idempotent(
    key = "order:{n}",
    ttl = "7d",
    store = "pool",
    tx = "tx",
    scope = "bench.front"
)]
async fn without(pool: &PgPool, n: u64) -> Result<Order, Failure> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(order(n))
}

#[idempotent(
    key = "order:{n}",
    ttl = "7d",
    store = "front.pool(pool)",
    tx = "tx",
    scope = "bench.front"
)]
async fn behind<F: Front>(front: &Tier<F>, pool: &PgPool, n: u64) -> Result<Order, Failure> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(order(n))
}

#[idempotent(
    key = "order:{n}",
    ttl = "7d",
    store = "front.over(tx)",
    scope = "bench.front"
)]
async fn over<F: Front>(
    front: &Tier<F>,
    tx: &mut PgTransaction<'_>,
    n: u64,
) -> Result<Order, Failure> {
    Ok(order(n))
}

async fn select(pool: &PgPool, n: u64) -> Result<Order, Failure> {
    let row = sqlx::query("SELECT answer FROM bench_answer WHERE id = $1")
        .bind(i64::try_from(n).unwrap_or(0))
        .fetch_one(pool)
        .await?;
    let answer: &[u8] = row.try_get(0)?;
    serde_json::from_slice(answer).map_err(|error| sqlx::Error::Decode(error.into()).into())
}

fn spread(n: u64) -> u64 {
    (n ^ (n >> 32)) % RECORDED
}

pub(crate) async fn compare_all(pool: &PgPool, url: &str, how: &Measured) {
    if !how.wants(TITLE) {
        return;
    }
    prepare(pool).await;
    let both = redis::connect(url).await;
    redis::prepare(&both).await;
    let store = RedisStore::builder().namespace("bench").connect_later(url);
    let remote = RedisFront::on(store.expect("an address"));
    let memory = Tier::new(MemoryFront::new(64 << 20));
    let stack = Stack::new(MemoryFront::new(64 << 20), remote.clone());
    let base = pool.clone();
    let select = Variant::new("raw SELECT on the pool, decoded", move |n| {
        let pool = base.clone();
        async move { drop(select(&pool, spread(n)).await.expect("an answer")) }
    });
    let base = pool.clone();
    let no_front = Variant::new("attribute on the pool, no front", move |n| {
        let pool = base.clone();
        async move { drop(without(&pool, spread(n)).await.expect("an answer")) }
    });
    let leased = Variant::new("attribute on the Redis store, no database", move |n| {
        let both = both.clone();
        async move { redis::replay(&both, n).await.expect("an answer") }
    });
    let variants = [
        leased,
        variant("front in Redis", &Tier::new(remote), pool),
        variant("front in memory", &memory, pool),
        variant("memory before Redis", &Tier::new(stack), pool),
        select,
        no_front,
        variant(
            "front refuses connections",
            &dead(Dead::Refuses).await,
            pool,
        ),
        variant("front never answers", &dead(Dead::Silent).await, pool),
    ];
    in_a_transaction(&memory, pool).await;
    // First repeats fill the fronts; what is measured are the others.
    for variant in &variants {
        for n in 0..RECORDED {
            variant.call(n).await;
        }
    }
    for clients in &how.callers {
        compare(TITLE, &variants, *clients, how.plan, &how.servers).await;
    }
}

/// How a front is dead.
enum Dead {
    Refuses,
    Silent,
}

/// A front in a Redis that is none.
async fn dead(how: Dead) -> Tier<RedisFront> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    match how {
        Dead::Refuses => drop(listener),
        // The kernel takes connections, and what is sent on them, for nobody.
        Dead::Silent => {
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(listener);
            });
        }
    }
    let store = RedisStore::builder().connect_later(format!("redis://{address}"));
    Tier::new(RedisFront::on(store.expect("an address")))
}

fn variant<F: Front>(name: &'static str, front: &Tier<F>, pool: &PgPool) -> Variant {
    let (front, pool) = (front.clone(), pool.clone());
    Variant::new(name, move |n| {
        let (front, pool) = (front.clone(), pool.clone());
        async move { drop(behind(&front, &pool, spread(n)).await.expect("an answer")) }
    })
}

/// Not measured: that the attribute takes this form of a store too.
async fn in_a_transaction(front: &Tier<MemoryFront>, pool: &PgPool) {
    let mut tx = pool.begin().await.expect("a transaction");
    over(front, &mut tx, 1).await.expect("an answer");
    tx.commit().await.expect("a commit");
}

async fn prepare(pool: &PgPool) {
    for sql in [
        "DROP TABLE IF EXISTS bench_answer, idem_record, idem_record_never, idem_record_schema",
        "CREATE TABLE bench_answer (id bigint PRIMARY KEY, answer bytea NOT NULL)",
    ] {
        sqlx::query(sql).execute(pool).await.expect("tables");
    }
    idem::store::postgres::migrate(pool)
        .await
        .expect("the record table");
    for n in 0..RECORDED {
        let answer = serde_json::to_vec(&order(n)).expect("JSON");
        let insert = sqlx::query("INSERT INTO bench_answer (id, answer) VALUES ($1, $2)");
        let insert = insert.bind(i64::try_from(n).unwrap_or(0)).bind(answer);
        insert.execute(pool).await.expect("an answer");
        without(pool, n).await.expect("a record");
    }
}
