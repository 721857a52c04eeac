//! One pool for several schemas: its sessions choose theirs for each request.

use std::time::Duration;

use idem_test_support::Body;
use sqlx::{AssertSqlSafe, Executor as _, postgres::PgPoolOptions};

use crate::{
    postgres::{
        calls::pay,
        db::{Fresh, Pool, migrate},
    },
    support::order,
};

tokio::task_local! {
    static TENANT: &'static str;
}

/// As of a service that sets the schema of its request.
async fn shared(database: &Fresh) -> Pool {
    PgPoolOptions::new()
        .max_connections(4)
        .before_acquire(|conn, _| Box::pin(choose(conn)))
        .after_connect(|conn, _| Box::pin(async move { choose(conn).await.map(|_| ()) }))
        .connect(&database.url())
        .await
        .unwrap()
}

async fn choose(conn: &mut sqlx::PgConnection) -> Result<bool, sqlx::Error> {
    let tenant = TENANT.try_with(|tenant| *tenant).unwrap_or("public");
    conn.execute(AssertSqlSafe(format!("SET search_path TO {tenant}")))
        .await?;
    Ok(true)
}

async fn effects(pool: &Pool, tenant: &'static str) -> i64 {
    let count = format!("SELECT count(*) FROM {tenant}.effect");
    sqlx::query_scalar(AssertSqlSafe(count))
        .fetch_one(pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_call_of_one_tenant_is_not_answered_with_the_outcome_of_another() {
    let database = Fresh::new().await;
    let pool = shared(&database).await;
    for tenant in ["ta", "tb"] {
        let tables =
            format!("CREATE SCHEMA {tenant}; CREATE TABLE {tenant}.effect (LIKE public.effect)");
        pool.execute(AssertSqlSafe(tables)).await.unwrap();
        TENANT.scope(tenant, migrate(&pool)).await;
    }
    let body = Body::held();
    let call = |tenant| {
        let (pool, body) = (pool.clone(), body.clone());
        tokio::spawn(TENANT.scope(tenant, async move { pay(&pool, order(1), &body).await }))
    };
    let of_a = call("ta");
    body.started(1).await;
    let of_b = call("tb");
    // It does not wait for the other tenant's call.
    let both = tokio::time::timeout(Duration::from_secs(30), body.started(2)).await;
    both.expect("both run");
    body.release();
    assert_eq!(of_a.await.unwrap().unwrap().run, 1);
    assert_eq!(of_b.await.unwrap().unwrap().run, 2);
    // And so do their repeats.
    assert_eq!(call("ta").await.unwrap().unwrap().run, 1);
    assert_eq!(call("tb").await.unwrap().unwrap().run, 2);
    assert_eq!(
        (effects(&pool, "ta").await, effects(&pool, "tb").await),
        (1, 1)
    );
}
