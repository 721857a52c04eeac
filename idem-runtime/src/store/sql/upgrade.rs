use sqlx::{AssertSqlSafe, Executor, FromRow, IntoArguments, Transaction};

use super::dialect::{Dialect, classify};
use super::schema::{Migration, statement};
use crate::error::Error;

/// Runs the steps that were not run yet and commits; `versions` keeps other migrating processes out
/// and makes the table of versions.
pub(super) async fn upgrade<DB>(
    mut tx: Transaction<'_, DB>,
    versions: &str,
    table: &str,
    steps: Vec<Migration>,
) -> Result<(), Error>
where
    DB: Dialect,
    DB::Arguments: IntoArguments<DB>,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    (i32,): for<'r> FromRow<'r, DB::Row>,
{
    let run = async {
        sqlx::raw_sql(statement(versions, table))
            .execute(&mut *tx)
            .await?;
        let read = statement("SELECT coalesce(max(version), 0) FROM {versions}", table);
        let at: i32 = sqlx::query_scalar(read).fetch_one(&mut *tx).await?;
        for step in steps.into_iter().filter(|step| step.version > at) {
            sqlx::raw_sql(AssertSqlSafe(step.sql))
                .execute(&mut *tx)
                .await?;
            let note = format!(
                "INSERT INTO {{versions}} (version) VALUES ({})",
                step.version
            );
            sqlx::raw_sql(statement(&note, table))
                .execute(&mut *tx)
                .await?;
        }
        Ok(())
    };
    match run.await {
        Ok(()) => tx.commit().await.map_err(classify::<DB>),
        Err(e) => {
            // The connection goes back clean even if this fails: the pool checks it.
            let _ = tx.rollback().await;
            Err(classify::<DB>(e).detail("the schema could not be created; nothing was changed"))
        }
    }
}
