//! Every leased store, each fresh.

use std::sync::atomic::{AtomicU64, Ordering};

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::{RedisFront, RedisStore};
use idem_runtime::store::sql::LeasedSql;
use idem_runtime::store::tiered::{MemoryFront, Tiered};
use idem_test_support::{
    MariaDb, MariaDbDatabase, Postgres, Redis, Sqlite, SqliteFile, TestDatabase,
};
use sqlx::{MySql, Postgres as PostgresDb, Sqlite as SqliteDb};

fn namespace() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("ended-{}-{}-{count}", std::process::id(), since.as_nanos())
}

pub(crate) async fn memory() -> ((), MemoryStore) {
    ((), MemoryStore::new())
}

pub(crate) async fn redis() -> ((), RedisStore) {
    let builder = RedisStore::builder().namespace(namespace());
    ((), builder.connect(Redis::url().as_str()).await.unwrap())
}

pub(crate) async fn postgres() -> (TestDatabase, LeasedSql<PostgresDb>) {
    let database = Postgres::database().await;
    let store = LeasedSql::new(database.pool(8).await);
    store.migrate().await.unwrap();
    (database, store)
}

pub(crate) async fn mariadb() -> (MariaDbDatabase, LeasedSql<MySql>) {
    let database = MariaDb::database().await;
    let store = LeasedSql::new(database.pool(8).await);
    store.migrate().await.unwrap();
    (database, store)
}

pub(crate) async fn sqlite() -> (SqliteFile, LeasedSql<SqliteDb>) {
    let file = Sqlite::file().await;
    let store = LeasedSql::new(file.pool(4).await);
    store.migrate().await.unwrap();
    (file, store)
}

pub(crate) async fn memory_before_redis() -> ((), Tiered<MemoryFront, RedisStore>) {
    let ((), store) = redis().await;
    ((), Tiered::new(MemoryFront::new(1 << 20), store))
}

pub(crate) async fn redis_before_postgres()
-> (TestDatabase, Tiered<RedisFront, LeasedSql<PostgresDb>>) {
    let ((), front) = redis().await;
    let (database, store) = postgres().await;
    (database, Tiered::new(RedisFront::on(front), store))
}

/// A test for each store.
macro_rules! on_every_store {
    ($($test:ident,)*) => {$(
        mod $test {
            $crate::stores::on_every_store! { @ super::$test:
                memory redis postgres mariadb sqlite memory_before_redis redis_before_postgres
            }
        }
    )*};
    (@ $test:path: $($store:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $store() {
            let (_guard, store) = crate::stores::$store().await;
            $test(store).await;
        }
    )*};
}
pub(crate) use on_every_store;
