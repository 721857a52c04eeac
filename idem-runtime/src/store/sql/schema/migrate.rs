//! Brings a schema up to date, once, however many processes do so at the same time.

use sqlx::Pool;

use super::{Findings, Found, Schema};
use crate::error::Error;
use crate::store::sql::dialect::{Dialect, classify};

/// Runs the steps that are missing. A schema that is up to date is only read: a role that may not
/// create tables can start after another one has migrated.
pub(crate) async fn migrate<D: Dialect>(pool: &Pool<D>, schema: Schema<'_>) -> Result<(), Error> {
    {
        let mut conn = pool.acquire().await.map_err(classify::<D>)?;
        if look::<D>(&mut conn, schema).await?.1.is_empty() {
            return Ok(());
        }
    }
    let mut session = D::enter(pool, schema.table).await?;
    match upgrade::<D>(D::connection(&mut session), schema).await {
        Ok(()) => D::leave(session, true).await.map_err(failed::<D>),
        Err(error) => {
            // The connection goes back clean even if this fails: the pool checks it.
            let _ = D::leave(session, false).await;
            Err(error)
        }
    }
}

async fn upgrade<D: Dialect>(conn: &mut D::Connection, schema: Schema<'_>) -> Result<(), Error> {
    let (found, findings) = look::<D>(conn, schema).await?;
    if findings.is_empty() {
        return Ok(());
    }
    let main = schema.fill("{table}");
    let mut at = found.version.map_or(0, |(at, _)| at);
    if at > 0 && found.missing.contains(&main) {
        tracing::warn!(
            table = schema.table,
            "a table is gone that its versions say was made: it is made again, empty"
        );
        let forget = schema.fill("DELETE FROM {versions}");
        D::run_schema(conn, forget).await.map_err(failed::<D>)?;
        at = 0;
    }
    // What belongs to the table is made by the first step, which leaves alone what is there.
    let again = !found.missing.is_empty();
    let steps = schema.migrations::<D>().into_iter().enumerate();
    for (n, step) in steps {
        if step.version > at || (n == 0 && again) {
            D::run_schema(conn, step.sql).await.map_err(failed::<D>)?;
        }
    }
    // A table that was there already is left alone: it may not be ours.
    let (_, findings) = look::<D>(conn, schema).await?;
    findings.into_result(&format!("{}: ", D::FAILED))
}

async fn look<D: Dialect>(
    conn: &mut D::Connection,
    schema: Schema<'_>,
) -> Result<(Found, Findings), Error> {
    let mut findings = Findings::default();
    let found = D::look(conn, schema, &mut findings).await;
    let found = found.map_err(classify::<D>)?;
    found.judge(schema, &mut findings);
    Ok((found, findings))
}

fn failed<D: Dialect>(error: sqlx::Error) -> Error {
    classify::<D>(error).detail(D::FAILED)
}
