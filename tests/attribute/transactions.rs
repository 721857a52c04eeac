//! The caller's transaction and the framework's own, on embedded SQLite.

use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Sqlite, SqlitePool, Transaction};

use crate::support::{Request, Runs, idempotent};

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
}

async fn pool() -> SqlitePool {
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect("sqlite::memory:")
        .await
        .unwrap();
    idem::store::sqlite::migrate(&pool).await.unwrap();
    sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY, order_no TEXT, cents INTEGER)")
        .execute(&pool)
        .await
        .unwrap();
    pool
}

async fn orders(pool: &SqlitePool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM orders")
        .fetch_one(pool)
        .await
        .unwrap()
}

const INSERT: &str = "INSERT INTO orders (order_no, cents) VALUES (?, ?) RETURNING id";

#[idempotent(key = "order:{req.merchant}:{req.order_no}", ttl = "7d", store = "tx")]
async fn create(tx: &mut Transaction<'_, Sqlite>, req: Request) -> Result<i64, Failure> {
    let id = sqlx::query_scalar(INSERT)
        .bind(req.order_no)
        .bind(req.cents)
        .fetch_one(&mut **tx)
        .await?;
    Ok(id)
}

#[tokio::test]
async fn the_callers_transaction() {
    let pool = pool().await;
    for _ in 0..2 {
        let mut tx = pool.begin().await.unwrap();
        let id = create(&mut tx, Request::new("m", "1", 5)).await.unwrap();
        assert_eq!(id, 1);
        tx.commit().await.unwrap();
    }
    assert_eq!(orders(&pool).await, 1);
}

#[tokio::test]
async fn a_rollback_takes_the_record_along() {
    let pool = pool().await;
    let mut tx = pool.begin().await.unwrap();
    create(&mut tx, Request::new("m", "1", 5)).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let (answer, seen) = idem::observe(create(&mut tx, Request::new("m", "1", 5))).await;
    assert!(!seen.replayed());
    answer.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(orders(&pool).await, 1);
}

/// A repository function that takes the transaction on, generic and not.
async fn insert(tx: &mut Transaction<'_, Sqlite>, req: &Request) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(INSERT)
        .bind(&req.order_no)
        .bind(req.cents)
        .fetch_one(&mut **tx)
        .await
}

async fn passed_on<T>(tx: T, req: &Request) -> Result<i64, sqlx::Error>
where
    T: std::ops::DerefMut<Target = sqlx::SqliteConnection>,
{
    let mut tx = tx;
    sqlx::query_scalar(INSERT)
        .bind(&req.order_no)
        .bind(req.cents)
        .fetch_one(&mut *tx)
        .await
}

#[idempotent(key(req.order_no), ttl = "7d", store = tx)]
async fn in_all_ways(tx: &mut Transaction<'_, Sqlite>, req: &Request) -> Result<i64, Failure> {
    insert(tx, req).await?;
    insert(&mut *tx, req).await?;
    sqlx::query("SELECT 1").execute(tx.as_mut()).await?;
    Ok(passed_on(&mut **tx, req).await?)
}

#[idempotent(key(req.order_no), ttl = "7d", store = &mut *tx)]
async fn moved_away<'t, 'c>(
    tx: &'t mut Transaction<'c, Sqlite>,
    req: &Request,
) -> Result<i64, Failure> {
    let moved = tx;
    Ok(insert(moved, req).await?)
}

#[tokio::test]
async fn the_body_uses_the_transaction_as_it_likes() {
    let pool = pool().await;
    let req = Request::new("m", "1", 5);
    for _ in 0..2 {
        let mut tx = pool.begin().await.unwrap();
        assert_eq!(in_all_ways(&mut tx, &req).await.unwrap(), 3);
        assert_eq!(moved_away(&mut tx, &req).await.unwrap(), 4);
        tx.commit().await.unwrap();
    }
    assert_eq!(orders(&pool).await, 4);
}

struct Unit<'c> {
    tx: Transaction<'c, Sqlite>,
    count: usize,
}

impl Unit<'_> {
    #[idempotent(key(req.order_no), ttl = "7d", store = self.tx)]
    async fn create(
        &mut self,
        req: Request,
        f: Box<dyn Fn() -> i64 + Send>,
    ) -> Result<i64, Failure> {
        self.count += 1;
        Ok(insert(&mut self.tx, &req).await? + f())
    }
}

#[idempotent(key(req.order_no), ttl = "7d", store = unit.tx)]
async fn in_a_unit(unit: &mut Unit<'_>, req: Request) -> Result<i64, Failure> {
    unit.count += 1;
    Ok(insert(&mut unit.tx, &req).await?)
}

#[idempotent(key(req.order_no), ttl = "7d", store = tx)]
async fn by_value(mut tx: Transaction<'static, Sqlite>, req: Request) -> Result<i64, Failure> {
    Ok(insert(&mut tx, &req).await?)
}

#[idempotent(key(id), ttl = "7d", store = tx)]
async fn in_a_tuple((tx, id): (&mut Transaction<'_, Sqlite>, i64)) -> Result<i64, Failure> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(id)
}

#[tokio::test]
async fn mac_17_the_transaction_may_be_a_field_or_owned() {
    let pool = pool().await;
    let mut unit = Unit {
        tx: pool.begin().await.unwrap(),
        count: 0,
    };
    for _ in 0..2 {
        assert_eq!(
            unit.create(Request::new("m", "1", 5), Box::new(|| 1))
                .await
                .unwrap(),
            2
        );
        assert_eq!(
            in_a_unit(&mut unit, Request::new("m", "1", 5))
                .await
                .unwrap(),
            2
        );
    }
    assert_eq!(unit.count, 2);
    assert_eq!(in_a_tuple((&mut unit.tx, 3)).await.unwrap(), 3);
    unit.tx.commit().await.unwrap();
    let tx = pool.begin().await.unwrap();
    assert_eq!(by_value(tx, Request::new("m", "2", 5)).await.unwrap(), 3);
}

#[idempotent(key = "{id}", ttl = "7d", store = tx)]
async fn over_databases<D>(tx: &mut Transaction<'_, D>, id: i64) -> Result<i64, Failure>
where
    D: idem::store::sql::Dialect,
{
    Ok(id)
}

#[tokio::test]
async fn mac_17_the_database_may_be_generic() {
    let mut tx = pool().await.begin().await.unwrap();
    assert_eq!(over_databases(&mut tx, 1).await.unwrap(), 1);
}

fn spawned(pool: SqlitePool) -> tokio::task::JoinHandle<Result<i64, Failure>> {
    tokio::spawn(async move {
        let mut tx = pool.begin().await?;
        let id = create(&mut tx, Request::new("m", "1", 5)).await?;
        tx.commit().await?;
        Ok(id)
    })
}

#[tokio::test]
async fn mac_17_calls_in_a_transaction_may_be_spawned_and_boxed() {
    let pool = pool().await;
    assert_eq!(spawned(pool.clone()).await.unwrap().unwrap(), 1);
    let mut tx = pool.begin().await.unwrap();
    let boxed: std::pin::Pin<Box<dyn Future<Output = _> + Send + '_>> =
        Box::pin(create(&mut tx, Request::new("m", "1", 5)));
    assert_eq!(boxed.await.unwrap(), 1);
}

static OWN: Runs = Runs::new();

#[idempotent(key(req.order_no), ttl = "7d", store = pool, tx = tx)]
async fn own(pool: &SqlitePool, req: Request) -> Result<i64, Failure> {
    OWN.count();
    Ok(insert(tx, &req).await?)
}

#[tokio::test]
async fn the_frameworks_own_transaction() {
    let pool = pool().await;
    let req = || Request::new("m", "1", 5);
    assert_eq!(own(&pool, req()).await.unwrap(), 1);
    assert_eq!(
        tokio::spawn({
            let pool = pool.clone();
            async move { own(&pool, req()).await }
        })
        .await
        .unwrap()
        .unwrap(),
        1
    );
    assert_eq!((orders(&pool).await, OWN.so_far()), (1, 1));
}

#[derive(Clone)]
struct Service {
    pool: SqlitePool,
    fee: i64,
}

impl Service {
    #[idempotent(key(req.order_no), ttl = "7d", store = "self.pool", tx = "conn", retry = 3)]
    async fn create(&self, mut req: Request, fees: Vec<i64>) -> Result<i64, Failure> {
        req.cents += self.fee + fees.into_iter().sum::<i64>();
        insert(conn, &req).await?;
        Ok(req.cents)
    }

    #[idempotent(key(req.order_no), ttl = "7d", store = self.pool, tx = conn, retry = 3)]
    async fn counting(&mut self, req: &Request) -> Result<i64, Failure> {
        self.fee += 1;
        insert(conn, req).await?;
        Ok(self.fee)
    }

    #[idempotent(key(req.order_no), ttl = "7d", store = self.pool, tx = conn)]
    async fn consuming(self, req: Request) -> Result<i64, Failure> {
        let Self { fee, .. } = self;
        insert(conn, &req).await?;
        Ok(fee)
    }
}

#[tokio::test]
async fn the_frameworks_own_transaction_with_retries() {
    let mut service = Service {
        pool: pool().await,
        fee: 1,
    };
    let req = Request::new("m", "1", 5);
    for _ in 0..2 {
        assert_eq!(service.create(req.clone(), vec![1, 2]).await.unwrap(), 9);
        assert_eq!(service.counting(&req).await.unwrap(), 2);
        assert_eq!(service.clone().consuming(req.clone()).await.unwrap(), 2);
    }
    assert_eq!(orders(&service.pool).await, 3);
}

#[async_trait::async_trait]
trait Orders {
    async fn create(&self, tx: &mut Transaction<'_, Sqlite>, req: Request) -> Result<i64, Failure>;
    async fn own(&self, req: Request) -> Result<i64, Failure>;
}

#[async_trait::async_trait]
impl Orders for Service {
    #[idempotent(key(req.order_no), ttl = "7d", store = tx)]
    async fn create(&self, tx: &mut Transaction<'_, Sqlite>, req: Request) -> Result<i64, Failure> {
        Ok(insert(tx, &req).await? + self.fee)
    }

    #[idempotent(key(req.order_no), ttl = "7d", store = self.pool, tx = tx, retry = 2)]
    async fn own(&self, req: Request) -> Result<i64, Failure> {
        Ok(insert(tx, &req).await? + self.fee)
    }
}

#[tokio::test]
async fn mac_09_async_trait_with_a_transaction() {
    let service = Service {
        pool: pool().await,
        fee: 10,
    };
    let req = Request::new("m", "1", 5);
    for _ in 0..2 {
        let mut tx = service.pool.begin().await.unwrap();
        let id = Orders::create(&service, &mut tx, req.clone())
            .await
            .unwrap();
        assert_eq!(id, 11);
        tx.commit().await.unwrap();
        assert_eq!(Orders::own(&service, req.clone()).await.unwrap(), 12);
    }
    assert_eq!(orders(&service.pool).await, 2);
}
