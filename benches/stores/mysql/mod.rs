//! The attribute against the same protocol written by hand with sqlx and against the bare business
//! transaction, on MySQL or MariaDB.

mod attribute;
mod by_hand;

use std::fs;

use idem_benches::{Variant, compare};
use sqlx::MySqlPool;
use sqlx::mysql::MySqlPoolOptions;

use crate::Measured;

/// Where calls with a number below this are repeats of recorded ones.
const RECORDED: u64 = 1000;

pub(crate) async fn compare_all(url: &str, how: &Measured) {
    let pool = connect(url).await;
    prepare(&pool).await;
    for (title, variants) in sections(&pool) {
        if how.wants(title) {
            for clients in &how.callers {
                compare(title, &variants, *clients, how.plan, &how.servers).await;
            }
        }
    }
}

/// Every client has a connection: what is compared is the work, not the wait for the pool.
async fn connect(url: &str) -> MySqlPool {
    MySqlPoolOptions::new()
        .max_connections(40)
        .connect(url)
        .await
        .expect("MySQL")
}

/// The server's process.
pub(crate) async fn process(url: &str) -> u32 {
    let pool = connect(url).await;
    let file: String = sqlx::query_scalar("SELECT @@pid_file")
        .fetch_one(&pool)
        .await
        .expect("the server's variables");
    let pid = fs::read_to_string(file).expect("a server on this machine");
    pid.trim().parse().expect("a process")
}

fn sections(pool: &MySqlPool) -> Vec<(&'static str, Vec<Variant>)> {
    macro_rules! variants {
        ($($name:literal => $call:expr),* $(,)?) => {
            vec![$({
                let pool = pool.clone();
                Variant::new($name, move |n| {
                    let pool = pool.clone();
                    async move { $call(&pool, n).await.expect($name) }
                })
            }),*]
        };
    }
    vec![
        (
            "MySQL: first run, caller's transaction",
            variants! {
                "by hand" => by_hand::first,
                "attribute" => attribute::first,
                "bare business transaction" => by_hand::bare,
            },
        ),
        (
            "MySQL: replay, caller's transaction",
            variants! {
                "by hand" => by_hand::replay,
                "attribute" => attribute::replay,
            },
        ),
        (
            "MySQL: first run, framework's transaction",
            variants! {
                "by hand" => by_hand::first,
                "attribute, tx = name" => attribute::owned_first,
            },
        ),
        (
            "MySQL: replay, framework's transaction",
            variants! {
                "raw SELECT on the pool" => by_hand::select,
                "attribute, tx = name" => attribute::owned_replay,
            },
        ),
        (
            "MySQL: 95 % duplicates, framework's transaction",
            variants! {
                "raw SELECT, else by hand" => by_hand::mixed::<95>,
                "attribute, tx = name" => attribute::mixed::<95>,
            },
        ),
    ]
}

async fn prepare(pool: &MySqlPool) {
    let drop = "DROP TABLE IF EXISTS bench_order, bench_account, idem_record, idem_record_schema";
    sqlx::query(drop).execute(pool).await.expect("clean tables");
    for table in [
        "CREATE TABLE bench_order (id bigint PRIMARY KEY, merchant varchar(64) NOT NULL, \
         cents bigint NOT NULL) ENGINE = InnoDB",
        "CREATE TABLE bench_account (id int PRIMARY KEY, balance bigint NOT NULL) ENGINE = InnoDB",
        "INSERT INTO bench_account SELECT seq, 0 FROM seq_0_to_9999",
    ] {
        sqlx::query(table).execute(pool).await.expect("tables");
    }
    idem::store::mysql::migrate(pool)
        .await
        .expect("the record table");
    for n in 0..RECORDED {
        attribute::recorded(pool, n).await.expect("a record");
    }
}
