use bytes::Bytes;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteRow};
use sqlx::{Row as _, SqlStr, SqliteConnection};

use super::dialect::{
    Claim, Columns, LeaseDialect, LeaseRow, LeaseStatements, Micros, NewLease, fence, fence_column,
};
use crate::clock::Moment;
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::protocol::{Fence, OnCrash, Owner};
use crate::store::sql::Times;
use crate::store::sql::schema::{Promise, Shape, Step, Table, statement};
use crate::store::sql::sqlite::NOW;
use crate::store::{Reservation, Stored};

const ROW: &str = "fingerprint, owner, fence, outcome, lease_until, created_at, completed_at, \
                   expires_at, known_until, {now}, held";

/// The end of the lease of a reserved row; of a completed one the retention's, or the tombstone's
/// after it.
const ENDS: &str = "CASE WHEN completed_at IS NULL THEN lease_until \
                    WHEN expires_at < known_until THEN known_until ELSE expires_at END";

static LEASE: Shape = Shape {
    steps: &[Step {
        version: 1,
        serves_from: 1,
        name: "lease",
        sql: include_str!("../migrations/sqlite/0001_lease.sql"),
    }],
    tables: &[
        Table {
            name: "{table}",
            columns: &[
                ("id", "BLOB"),
                ("scope", "TEXT"),
                ("key_text", "TEXT"),
                ("fingerprint", "BLOB"),
                ("owner", "BLOB"),
                ("fence", "INTEGER"),
                ("lease_until", "INTEGER"),
                ("outcome", "BLOB"),
                ("created_at", "INTEGER"),
                ("completed_at", "INTEGER"),
                ("expires_at", "INTEGER"),
                ("known_until", "INTEGER"),
                ("held", "INTEGER"),
            ],
            key: "id",
            rights: "SELECT,INSERT,UPDATE,DELETE",
        },
        Table {
            name: "{fences}",
            columns: &[("id", "INTEGER"), ("floor", "INTEGER")],
            key: "id",
            rights: "SELECT,UPDATE",
        },
    ],
    promises: &[Promise::Floor],
};

impl LeaseDialect for Sqlite {
    fn lease_statements(table: &str) -> LeaseStatements {
        let sql = |template: &str| {
            let filled = template.replace("{row}", ROW).replace("{ends}", ENDS);
            statement(&filled.replace("{now}", NOW), table)
        };
        LeaseStatements {
            // Reading takes no lock; writing takes the only one there is, even to find a conflict.
            read: Some(sql("SELECT {row} FROM {table} WHERE id = ?1")),
            claim: sql("INSERT INTO {table} \
                 (id, scope, key_text, fingerprint, owner, fence, lease_until, created_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5, (SELECT floor + 1 FROM {fences}), {now} + ?6, {now}) \
                 ON CONFLICT DO NOTHING RETURNING fence"),
            take_over: sql(
                "UPDATE {table} SET scope = ?2, key_text = ?3, fingerprint = ?4, owner = ?5, \
                 fence = max(fence, (SELECT floor FROM {fences})) + 1, lease_until = {now} + ?6, \
                 outcome = NULL, created_at = {now}, completed_at = NULL, expires_at = NULL, \
                 known_until = NULL, held = 0 \
                 WHERE id = ?1 AND owner = ?7 AND fence = ?8 AND {ends} <= {now} RETURNING fence",
            ),
            complete: sql("UPDATE {table} SET outcome = ?4, lease_until = NULL, \
                 completed_at = {now}, expires_at = {now} + ?5, known_until = {now} + ?6 \
                 WHERE id = ?1 AND owner = ?2 AND fence = ?3 AND completed_at IS NULL"),
            release: sql("DELETE FROM {table} \
                 WHERE id = ?1 AND owner = ?2 AND fence = ?3 AND completed_at IS NULL"),
            renew: sql(
                "UPDATE {table} SET lease_until = {now} + ?4, held = held OR ?5 \
                 WHERE id = ?1 AND owner = ?2 AND fence = ?3 AND completed_at IS NULL \
                 AND (held OR NOT ?5 OR lease_until > {now})",
            ),
            lookup: sql("SELECT {row}, scope, key_text FROM {table} WHERE id = ?1"),
            forget: sql(
                "DELETE FROM {table} WHERE id = ?1 AND CASE WHEN completed_at IS NULL \
                 THEN lease_until <= {now} ELSE coalesce({ends} > {now}, 1) END",
            ),
            purge: sql("DELETE FROM {table} WHERE id IN (SELECT id FROM {table} \
                 WHERE expires_at <= {now} AND completed_at IS NOT NULL \
                 AND {ends} <= {now} LIMIT ?1)"),
            bury: sql(
                "UPDATE {table} SET outcome = NULL, expires_at = known_until \
                 WHERE id IN (SELECT id FROM {table} WHERE expires_at <= {now} \
                 AND completed_at IS NOT NULL AND known_until > {now} LIMIT ?1)",
            ),
            purge_abandoned: sql("DELETE FROM {table} WHERE id IN (SELECT id FROM {table} \
                 WHERE completed_at IS NULL AND NOT held AND lease_until <= {now} - ?1 LIMIT ?2)"),
        }
    }

    fn lease_shape() -> &'static Shape {
        &LEASE
    }

    async fn claim(
        conn: &mut SqliteConnection,
        statements: &LeaseStatements,
        new: NewLease<'_>,
    ) -> Result<Claim, sqlx::Error> {
        if let Some(read) = &statements.read {
            let read = sqlx::query(read.clone()).bind(new.id.as_bytes().to_vec());
            if let Some(row) = read.fetch_optional(&mut *conn).await? {
                return Ok(Claim::Found(from_row(&row)?));
            }
        }
        let claim = reservation(&statements.claim, new);
        match claim.fetch_optional(conn).await? {
            Some(row) => Ok(Claim::Granted(fence(row.try_get(0)?))),
            None => Ok(Claim::Contended),
        }
    }

    async fn take_lease_over(
        conn: &mut SqliteConnection,
        statements: &LeaseStatements,
        new: NewLease<'_>,
        (owner, seen): (Owner, Fence),
    ) -> Result<Option<Fence>, sqlx::Error> {
        let taken = reservation(&statements.take_over, new)
            .bind(owner.as_bytes().to_vec())
            .bind(fence_column(seen))
            .fetch_optional(conn)
            .await?;
        taken.map(|row| row.try_get(0).map(fence)).transpose()
    }

    async fn complete_lease(
        conn: &mut SqliteConnection,
        statements: &LeaseStatements,
        reservation: &Reservation,
        outcome: &[u8],
        times: Times,
    ) -> Result<u64, sqlx::Error> {
        let complete = held(&statements.complete, reservation).bind(outcome.to_vec());
        let complete = complete.bind(times.keep).bind(times.known);
        complete
            .execute(conn)
            .await
            .map(|done| done.rows_affected())
    }

    async fn release_lease(
        conn: &mut SqliteConnection,
        statements: &LeaseStatements,
        reservation: &Reservation,
    ) -> Result<u64, sqlx::Error> {
        let done = held(&statements.release, reservation).execute(conn).await;
        done.map(|done| done.rows_affected())
    }

    async fn renew_lease(
        conn: &mut SqliteConnection,
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
        conn: &mut SqliteConnection,
        statements: &LeaseStatements,
        id: RecordId,
    ) -> Result<Option<(Stored, Moment)>, sqlx::Error> {
        let lookup = sqlx::query(statements.lookup.clone()).bind(id.as_bytes().to_vec());
        let Some(row) = lookup.fetch_optional(conn).await? else {
            return Ok(None);
        };
        let found = from_row(&row)?;
        let (scope, key_text) = (row.try_get(11)?, row.try_get(12)?);
        let stored = Stored::new(found.record, scope, key_text, found.created_at);
        Ok(Some((stored, found.now)))
    }

    async fn forget_lease(
        conn: &mut SqliteConnection,
        statements: &LeaseStatements,
        id: RecordId,
    ) -> Result<u64, sqlx::Error> {
        let forget = sqlx::query(statements.forget.clone()).bind(id.as_bytes().to_vec());
        forget.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn purge_leases(
        conn: &mut SqliteConnection,
        statements: &LeaseStatements,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        let purge = sqlx::query(statements.purge.clone()).bind(limit);
        purge.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn bury_leases(
        conn: &mut SqliteConnection,
        statements: &LeaseStatements,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        let bury = sqlx::query(statements.bury.clone()).bind(limit);
        bury.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn purge_abandoned_leases(
        conn: &mut SqliteConnection,
        statements: &LeaseStatements,
        over_for_millis: i64,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        let purge = sqlx::query(statements.purge_abandoned.clone());
        let done = purge.bind(over_for_millis).bind(limit).execute(conn).await;
        done.map(|done| done.rows_affected())
    }
}

type Bound<'q> = Query<'q, Sqlite, SqliteArguments>;

fn reservation<'q>(sql: &SqlStr, new: NewLease<'_>) -> Bound<'q> {
    sqlx::query(sql.clone())
        .bind(new.id.as_bytes().to_vec())
        .bind(new.scope.to_owned())
        .bind(new.key_text.map(str::to_owned))
        .bind(new.fingerprint.as_bytes().to_vec())
        .bind(new.owner.as_bytes().to_vec())
        .bind(new.lease_millis)
}

fn held<'q>(sql: &SqlStr, reservation: &Reservation) -> Bound<'q> {
    sqlx::query(sql.clone())
        .bind(reservation.id.as_bytes().to_vec())
        .bind(reservation.owner.as_bytes().to_vec())
        .bind(fence_column(reservation.fence))
}

/// Reads what [`ROW`] names.
fn from_row(row: &SqliteRow) -> Result<LeaseRow, sqlx::Error> {
    fn sized<const N: usize>(bytes: &[u8]) -> Result<[u8; N], sqlx::Error> {
        bytes
            .try_into()
            .map_err(|e| sqlx::Error::Decode(Box::new(e)))
    }
    let time = |column: usize| -> Result<Option<Micros>, sqlx::Error> {
        let millis: Option<i64> = row.try_get(column)?;
        Ok(millis.map(|millis| Micros(millis.saturating_mul(1000))))
    };
    let columns = Columns {
        fingerprint: Fingerprint::from_bytes(sized(row.try_get(0)?)?),
        owner: Owner::from_bytes(sized(row.try_get(1)?)?),
        fence: row.try_get(2)?,
        outcome: row.try_get::<Option<Vec<u8>>, _>(3)?.map(Bytes::from),
        lease_until: time(4)?,
        created_at: time(5)?.unwrap_or(Micros(0)),
        completed_at: time(6)?,
        expires_at: time(7)?,
        known_until: time(8)?,
        now: time(9)?.unwrap_or(Micros(0)),
        held: row.try_get(10)?,
    };
    Ok(columns.into())
}
