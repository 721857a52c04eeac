//! The attribute against the same protocol written by hand with sqlx and against the bare business
//! transaction, on MySQL or MariaDB.

#[path = "../../sql/mod.rs"]
mod sql;
mod statements;

use std::fs;

use idem_benches::compare;
use sqlx::MySqlPool;
use sqlx::mysql::MySqlPoolOptions;

use crate::Measured;

type Pool = MySqlPool;
type Tx<'c> = sqlx::MySqlTransaction<'c>;

pub(crate) async fn compare_all(url: &str, how: &Measured) {
    let pool = connect(url).await;
    sql::prepare(&pool).await;
    for (title, variants) in sql::sections(&pool) {
        let title = format!("MySQL: {title}");
        if how.wants(&title) {
            for clients in &how.callers {
                compare(&title, &variants, *clients, how.plan, &how.servers).await;
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
