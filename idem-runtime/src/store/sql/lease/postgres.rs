use bytes::Bytes;
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{PgConnection, Row as _, SqlStr};
use uuid::Uuid;

use super::dialect::{
    Claim, Columns, LeaseDialect, LeaseRow, LeaseStatements, Micros, NewLease, fence, fence_column,
};
use crate::clock::Moment;
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::protocol::{Fence, OnCrash, Owner};
use crate::store::sql::Times;
use crate::store::sql::postgres::micros;
use crate::store::sql::schema::{Promise, Shape, Step, Table, statement};
use crate::store::{Reservation, Stored};

const ROW: &str = "fingerprint, owner, fence, outcome, lease_until, created_at, completed_at, \
                   expires_at, known_until, clock_timestamp(), held";

/// The end of the lease of a reserved row; of a completed one the retention's, or the tombstone's
/// after it.
const ENDS: &str = "CASE WHEN completed_at IS NULL THEN lease_until \
                    WHEN expires_at < known_until THEN known_until ELSE expires_at END";

impl LeaseDialect for Postgres {
    fn lease_statements(table: &str) -> LeaseStatements {
        let sql = |template: &str| {
            statement(
                &template.replace("{row}", ROW).replace("{ends}", ENDS),
                table,
            )
        };
        LeaseStatements {
            // One round trip whether the row is there or not, and no write if it is. The lock,
            // which is not waited for and ends with the statement, makes the number and the row one
            // step: without it a row that was made and removed meanwhile could have had a higher
            // number.
            claim: sql(
                "WITH found AS (SELECT {row} FROM {table} WHERE id = $1), made AS (\
                 INSERT INTO {table} (id, scope, key_text, fingerprint, owner, fence, lease_until) \
                 SELECT $1, $2, $3, $4, $5, nextval('{fences}'), \
                 clock_timestamp() + $6 * interval '1 millisecond' \
                 WHERE NOT EXISTS (SELECT FROM found) AND pg_try_advisory_xact_lock($7) \
                 ON CONFLICT (id) DO NOTHING RETURNING fence) \
                 SELECT NULL::bigint AS made, found.* FROM found UNION ALL \
                 SELECT fence, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM made",
            ),
            read: None,
            take_over: sql(
                "UPDATE {table} SET scope = $2, key_text = $3, fingerprint = $4, owner = $5, \
                 fence = greatest(fence + 1, nextval('{fences}')), \
                 lease_until = clock_timestamp() + $6 * interval '1 millisecond', outcome = NULL, \
                 created_at = clock_timestamp(), completed_at = NULL, expires_at = NULL, \
                 known_until = NULL, held = false \
                 WHERE id = $1 AND owner = $7 AND fence = $8 AND {ends} <= clock_timestamp() \
                 RETURNING fence",
            ),
            complete: sql("UPDATE {table} SET outcome = $4, lease_until = NULL, \
                 completed_at = clock_timestamp(), \
                 expires_at = clock_timestamp() + $5 * interval '1 millisecond', \
                 known_until = clock_timestamp() + $6 * interval '1 millisecond' \
                 WHERE id = $1 AND owner = $2 AND fence = $3 AND completed_at IS NULL"),
            release: sql("DELETE FROM {table} \
                 WHERE id = $1 AND owner = $2 AND fence = $3 AND completed_at IS NULL"),
            renew: sql("UPDATE {table} \
                 SET lease_until = clock_timestamp() + $4 * interval '1 millisecond', \
                 held = held OR $5 \
                 WHERE id = $1 AND owner = $2 AND fence = $3 AND completed_at IS NULL \
                 AND (held OR NOT $5 OR lease_until > clock_timestamp())"),
            lookup: sql("SELECT {row}, scope, key_text FROM {table} WHERE id = $1"),
            forget: sql(
                "DELETE FROM {table} WHERE id = $1 AND CASE WHEN completed_at IS NULL \
                 THEN lease_until <= clock_timestamp() \
                 ELSE coalesce({ends} > clock_timestamp(), true) END",
            ),
            // An array is made once; a subquery could be evaluated again, and remove more.
            purge: sql(
                "DELETE FROM {table} WHERE id = ANY (ARRAY(SELECT id FROM {table} \
                 WHERE expires_at <= clock_timestamp() AND completed_at IS NOT NULL \
                 AND {ends} <= clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED))",
            ),
            bury: sql(
                "UPDATE {table} SET outcome = NULL, expires_at = known_until \
                 WHERE id = ANY (ARRAY(SELECT id FROM {table} \
                 WHERE expires_at <= clock_timestamp() AND completed_at IS NOT NULL \
                 AND known_until > clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED))",
            ),
            purge_abandoned: sql(
                "DELETE FROM {table} WHERE id = ANY (ARRAY(SELECT id FROM {table} \
                 WHERE completed_at IS NULL AND NOT held \
                 AND lease_until <= clock_timestamp() - $1 * interval '1 millisecond' \
                 LIMIT $2 FOR UPDATE SKIP LOCKED))",
            ),
        }
    }

    fn lease_shape() -> &'static Shape {
        &LEASE
    }

    async fn claim(
        conn: &mut PgConnection,
        statements: &LeaseStatements,
        new: NewLease<'_>,
    ) -> Result<Claim, sqlx::Error> {
        let claim = reservation(&statements.claim, new).bind(new.id.lock_number());
        let Some(row) = claim.fetch_optional(conn).await? else {
            return Ok(Claim::Contended);
        };
        match row.try_get::<Option<i64>, _>(0)? {
            Some(number) => Ok(Claim::Granted(fence(number))),
            None => Ok(Claim::Found(from_row(&row, 1)?)),
        }
    }

    async fn take_lease_over(
        conn: &mut PgConnection,
        statements: &LeaseStatements,
        new: NewLease<'_>,
        (owner, seen): (Owner, Fence),
    ) -> Result<Option<Fence>, sqlx::Error> {
        let taken = reservation(&statements.take_over, new)
            .bind(uuid(owner.as_bytes()))
            .bind(fence_column(seen))
            .fetch_optional(conn)
            .await?;
        taken.map(|row| row.try_get(0).map(fence)).transpose()
    }

    async fn complete_lease(
        conn: &mut PgConnection,
        statements: &LeaseStatements,
        reservation: &Reservation,
        outcome: &[u8],
        times: Times,
    ) -> Result<u64, sqlx::Error> {
        let complete = held(&statements.complete, reservation);
        let complete = complete.bind(outcome).bind(times.keep).bind(times.known);
        complete
            .execute(conn)
            .await
            .map(|done| done.rows_affected())
    }

    async fn release_lease(
        conn: &mut PgConnection,
        statements: &LeaseStatements,
        reservation: &Reservation,
    ) -> Result<u64, sqlx::Error> {
        let done = held(&statements.release, reservation).execute(conn).await;
        done.map(|done| done.rows_affected())
    }

    async fn renew_lease(
        conn: &mut PgConnection,
        statements: &LeaseStatements,
        reservation: &Reservation,
        lease_millis: i64,
    ) -> Result<u64, sqlx::Error> {
        let renew = held(&statements.renew, reservation)
            .bind(lease_millis)
            .bind(reservation.on_crash == OnCrash::Hold);
        renew.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn lookup_lease(
        conn: &mut PgConnection,
        statements: &LeaseStatements,
        id: RecordId,
    ) -> Result<Option<(Stored, Moment)>, sqlx::Error> {
        let lookup = sqlx::query(statements.lookup.clone()).bind(uuid(id.as_bytes()));
        let Some(row) = lookup.fetch_optional(conn).await? else {
            return Ok(None);
        };
        let found = from_row(&row, 0)?;
        let (scope, key_text) = (row.try_get(11)?, row.try_get(12)?);
        let stored = Stored::new(found.record, scope, key_text, found.created_at);
        Ok(Some((stored, found.now)))
    }

    async fn forget_lease(
        conn: &mut PgConnection,
        statements: &LeaseStatements,
        id: RecordId,
    ) -> Result<u64, sqlx::Error> {
        let forget = sqlx::query(statements.forget.clone()).bind(uuid(id.as_bytes()));
        forget.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn purge_leases(
        conn: &mut PgConnection,
        statements: &LeaseStatements,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        let purge = sqlx::query(statements.purge.clone()).bind(limit);
        purge.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn bury_leases(
        conn: &mut PgConnection,
        statements: &LeaseStatements,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        let bury = sqlx::query(statements.bury.clone()).bind(limit);
        bury.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn purge_abandoned_leases(
        conn: &mut PgConnection,
        statements: &LeaseStatements,
        over_for_millis: i64,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        let purge = sqlx::query(statements.purge_abandoned.clone());
        let done = purge.bind(over_for_millis).bind(limit).execute(conn).await;
        done.map(|done| done.rows_affected())
    }
}

type Bound<'q> = Query<'q, Postgres, PgArguments>;

fn reservation<'q>(sql: &SqlStr, new: NewLease<'q>) -> Bound<'q> {
    sqlx::query(sql.clone())
        .bind(uuid(new.id.as_bytes()))
        .bind(new.scope)
        .bind(new.key_text)
        .bind(new.fingerprint.as_bytes().to_vec())
        .bind(uuid(new.owner.as_bytes()))
        .bind(new.lease_millis)
}

fn held<'q>(sql: &SqlStr, reservation: &Reservation) -> Bound<'q> {
    sqlx::query(sql.clone())
        .bind(uuid(reservation.id.as_bytes()))
        .bind(uuid(reservation.owner.as_bytes()))
        .bind(fence_column(reservation.fence))
}

fn uuid(bytes: &[u8; 16]) -> Uuid {
    Uuid::from_bytes(*bytes)
}

/// Reads what [`ROW`] names, from column `at` on.
fn from_row(row: &PgRow, at: usize) -> Result<LeaseRow, sqlx::Error> {
    let fingerprint: &[u8] = row.try_get(at)?;
    let owner: Uuid = row.try_get(at + 1)?;
    let outcome: Option<&[u8]> = row.try_get(at + 3)?;
    let columns = Columns {
        fingerprint: Fingerprint::from_bytes(fingerprint.try_into().map_err(undecodable)?),
        owner: Owner::from_bytes(*owner.as_bytes()),
        fence: row.try_get(at + 2)?,
        outcome: outcome.map(Bytes::copy_from_slice),
        lease_until: time(row, at + 4)?,
        created_at: time(row, at + 5)?.unwrap_or(Micros(0)),
        completed_at: time(row, at + 6)?,
        expires_at: time(row, at + 7)?,
        known_until: time(row, at + 8)?,
        now: time(row, at + 9)?.unwrap_or(Micros(0)),
        held: row.try_get(at + 10)?,
    };
    Ok(columns.into())
}

fn undecodable(error: std::array::TryFromSliceError) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}

fn time(row: &PgRow, column: usize) -> Result<Option<Micros>, sqlx::Error> {
    Ok(micros(row, column)?.map(Micros))
}

static LEASE: Shape = Shape {
    steps: &[Step {
        version: 1,
        serves_from: 1,
        name: "lease",
        sql: include_str!("../migrations/postgres/0001_lease.sql"),
    }],
    tables: &[Table {
        name: "{table}",
        columns: &[
            ("id", "uuid"),
            ("scope", "text"),
            ("key_text", "text"),
            ("fingerprint", "bytea"),
            ("owner", "uuid"),
            ("fence", "bigint"),
            ("lease_until", "timestamp with time zone"),
            ("outcome", "bytea"),
            ("created_at", "timestamp with time zone"),
            ("completed_at", "timestamp with time zone"),
            ("expires_at", "timestamp with time zone"),
            ("known_until", "timestamp with time zone"),
            ("held", "boolean"),
        ],
        key: "id",
        rights: "SELECT,INSERT,UPDATE,DELETE",
    }],
    promises: &[Promise::Sequence],
};
