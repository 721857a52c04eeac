//! What a pool can be, and which calls belong together.

use std::{sync::Arc, time::Duration};

use idem::{Effect, ErrorKind, Retry, idempotent, observe, store::sql::Records};
use idem_test_support::Body;

use super::{
    calls::{effects, pay, write},
    db::{self, Db, Fresh, Pool},
};
use crate::support::{Failure, order};

#[tokio::test]
async fn two_databases_do_not_answer_for_each_other() {
    let databases = [Fresh::new().await, Fresh::new().await];
    let body = Body::held();
    let mut calls = Vec::new();
    let mut pools = Vec::new();
    for database in &databases {
        let pool = database.pool(2).await;
        pools.push(pool.clone());
        let body = body.clone();
        calls.push(tokio::spawn(
            async move { pay(&pool, order(1), &body).await },
        ));
    }
    // Both are in their bodies at the same time.
    body.started(2).await;
    body.release();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    for pool in &pools {
        assert_eq!(effects(pool, 1).await, 1);
    }
}

#[idempotent(
    key = "{no}", ttl = "1h", store = records.pool(pool), tx = tx, fingerprint = none
)]
async fn kept_in(records: &Records, pool: &Pool, no: u64, body: &Body) -> Result<usize, Failure> {
    write(tx, &order(no)).await?;
    Ok(body.run().await)
}

async fn both_run_once(pool: &Pool, kept: [Records; 2]) {
    let body = Body::held();
    let calls = kept.clone().map(|records| {
        let (pool, body) = (pool.clone(), body.clone());
        tokio::spawn(async move { kept_in(&records, &pool, 1, &body).await })
    });
    // SQLite has one writer: there the second runs after the first.
    body.started(1).await;
    body.release();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap().unwrap());
    }
    answers.sort_unstable();
    assert_eq!(answers, [1, 2]);
    for records in &kept {
        let (answer, seen) = observe(kept_in(records, pool, 1, &body)).await;
        answer.unwrap();
        assert!(seen.replayed());
    }
    assert_eq!(body.runs(), 2);
    assert_eq!(effects(pool, 1).await, 2);
}

#[tokio::test]
async fn two_namespaces_do_not_answer_for_each_other() {
    let database = Fresh::new().await;
    let pool = database.pool(3).await;
    let kept = ["one", "two"].map(|name| Records::default().namespace(name));
    both_run_once(&pool, kept).await;
}

#[tokio::test]
async fn two_tables_do_not_answer_for_each_other() {
    let database = Fresh::new().await;
    let pool = database.pool(3).await;
    let other = Records::in_table("other_record").unwrap();
    db::migrate(&other.pool(&pool)).await;
    both_run_once(&pool, [Records::default(), other]).await;
}

#[tokio::test]
async fn a_call_may_make_the_same_call_in_another_database() {
    #[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx, fingerprint = none)]
    async fn mirrored(
        pool: &Pool,
        mirror: Option<&Pool>,
        no: u64,
        body: &Body,
    ) -> Result<usize, Failure> {
        write(tx, &order(no)).await?;
        if let Some(mirror) = mirror {
            Box::pin(mirrored(mirror, None, no, body)).await?;
        }
        Ok(body.run().await)
    }
    let (one, two) = (Fresh::new().await, Fresh::new().await);
    let (one, two) = (one.pool(1).await, two.pool(1).await);
    let body = Body::new();
    assert_eq!(mirrored(&one, Some(&two), 1, &body).await.unwrap(), 2);
    assert_eq!((effects(&one, 1).await, effects(&two, 1).await), (1, 1));
}

struct Service {
    pool: Pool,
    shared: Arc<Pool>,
}

impl Service {
    #[idempotent(key = "{no}", ttl = "1h", store = "self.pool", tx = "tx")]
    async fn by_field(&self, no: u64, body: &Body) -> Result<usize, Failure> {
        write(tx, &order(no)).await?;
        Ok(body.run().await)
    }

    #[idempotent(key = "{no}", ttl = "1h", store = self.shared, tx = tx)]
    async fn by_shared_field(&self, no: u64, body: &Body) -> Result<usize, Failure> {
        write(tx, &order(no)).await?;
        Ok(body.run().await)
    }

    #[idempotent(key = "{no}", ttl = "1h", store = self.pool(), tx = tx)]
    async fn by_method(self: Arc<Self>, no: u64, body: &Body) -> Result<usize, Failure> {
        write(tx, &order(no)).await?;
        Ok(body.run().await)
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }
}

#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx)]
async fn by_value(pool: Pool, no: u64, body: Body) -> Result<usize, Failure> {
    write(tx, &order(no)).await?;
    Ok(body.run().await)
}

#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx)]
async fn by_arc(pool: Arc<Pool>, no: u64, body: Body) -> Result<usize, Failure> {
    write(tx, &order(no)).await?;
    Ok(body.run().await)
}

#[tokio::test]
async fn a5_every_form_of_a_pool_works() {
    let database = Fresh::new().await;
    let pool = database.pool(2).await;
    let service = Arc::new(Service {
        pool: pool.clone(),
        shared: Arc::new(pool.clone()),
    });
    for (run, repeat) in [(1, false), (1, true)] {
        let bodies = [(); 5].map(|()| Body::new());
        let answers = [
            observe(service.by_field(1, &bodies[0])).await,
            observe(service.by_shared_field(1, &bodies[1])).await,
            observe(Arc::clone(&service).by_method(1, &bodies[2])).await,
            observe(by_value(pool.clone(), 1, bodies[3].clone())).await,
            observe(by_arc(Arc::new(pool.clone()), 1, bodies[4].clone())).await,
        ];
        for (answer, seen) in answers {
            assert_eq!(answer.unwrap(), run);
            assert_eq!(seen.replayed(), repeat);
        }
    }
    assert_eq!(effects(&pool, 1).await, 5);
}

#[tokio::test]
async fn b2_a_pool_without_a_free_connection_is_an_error_without_effect() {
    let database = Fresh::new().await;
    let made = database.pool(1).await;
    let options = sqlx::pool::PoolOptions::<Db>::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_millis(200));
    let pool = options.connect_lazy_with((*made.connect_options()).clone());
    let taken = pool.acquire().await.unwrap();
    let body = Body::new();
    let error = pay(&pool, order(1), &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert_eq!(error.effect(), Effect::None);
    assert!(matches!(error.idem().retry(), Retry::Later(_)));
    assert_eq!(body.runs(), 0);
    drop(taken);
    assert_eq!(pay(&pool, order(1), &body).await.unwrap().run, 1);
}

#[tokio::test]
async fn b2_a_missing_table_is_told_as_such() {
    let database = Fresh::new().await;
    let pool = database.pool(1).await;
    let missing = Records::in_table("nowhere").unwrap();
    let body = Body::new();
    let error = kept_in(&missing, &pool, 1, &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert_eq!(error.effect(), Effect::None);
    assert_eq!(body.runs(), 0);
}
