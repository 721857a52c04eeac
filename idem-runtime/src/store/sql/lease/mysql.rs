use bytes::Bytes;
use sqlx::mysql::{MySql, MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, MySqlConnection, Row as _, SqlStr};

use super::dialect::{
    Claim, Columns, LeaseDialect, LeaseRow, LeaseStatements, Micros, NewLease, fence_column,
};
use crate::clock::Moment;
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::protocol::{Fence, OnCrash, Owner};
use crate::store::sql::Times;
use crate::store::sql::mysql::{DUPLICATE, number};
use crate::store::sql::schema::{Promise, Shape, Step, Table, statement};
use crate::store::{Reservation, Stored};

/// Microseconds since 1970, by the server's clock when the statement began, in no time zone. One that
/// waited for a lock grants a shorter lease by that, and never takes for over what is not.
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

const ROW: &str = "fingerprint, owner, fence, outcome, lease_until, created_at, completed_at, \
                   expires_at, known_until, {now}, held";

/// The end of the lease of a reserved row; of a completed one the retention's, or the tombstone's
/// after it.
const ENDS: &str = "CASE WHEN completed_at IS NULL THEN lease_until \
                    WHEN expires_at < known_until THEN known_until ELSE expires_at END";

/// How many records can draw a number at the same time.
const SLOTS: u8 = 64;

static LEASE: Shape = Shape {
    steps: &[Step {
        version: 1,
        serves_from: 1,
        name: "lease",
        sql: include_str!("../migrations/mysql/0001_lease.sql"),
    }],
    tables: &[
        Table {
            name: "{table}",
            columns: &[
                ("id", "binary(16)"),
                ("scope", "text"),
                ("key_text", "varchar(1024)"),
                ("fingerprint", "varbinary(64)"),
                ("owner", "binary(16)"),
                ("fence", "bigint"),
                ("lease_until", "bigint"),
                ("outcome", "longblob"),
                ("created_at", "bigint"),
                ("completed_at", "bigint"),
                ("expires_at", "bigint"),
                ("known_until", "bigint"),
                ("held", "tinyint"),
            ],
            key: "id",
            rights: "SELECT,INSERT,UPDATE,DELETE",
        },
        Table {
            name: "{fences}",
            columns: &[("slot", "tinyint unsigned")],
            key: "slot",
            rights: "SELECT,UPDATE",
        },
    ],
    promises: &[
        Promise::Numbered("fence"),
        Promise::Slots(SLOTS),
        Promise::StatementsCommit,
    ],
};

impl LeaseDialect for MySql {
    fn lease_statements(table: &str) -> LeaseStatements {
        let sql = |template: &str| {
            let filled = template.replace("{row}", ROW).replace("{ends}", ENDS);
            statement(&filled.replace("{now}", NOW), table)
        };
        LeaseStatements {
            // Reading takes no lock.
            read: Some(sql("SELECT {row} FROM {table} WHERE id = ?")),
            // The fence is the table's next number, drawn when the slot of the id is locked: without
            // the lock, which ends with the statement, a row that was made and removed meanwhile
            // could have had a higher number.
            claim: sql("INSERT INTO {table} \
                 (id, scope, key_text, fingerprint, owner, lease_until, created_at) \
                 SELECT ?, ?, ?, ?, ?, {now} + ? * 1000, {now} \
                 FROM {fences} WHERE slot = ? FOR UPDATE"),
            // The row goes and comes back in one step: only an insert draws a number.
            take_over: sql("REPLACE INTO {table} \
                 (id, scope, key_text, fingerprint, owner, lease_until, created_at) \
                 SELECT ?, ?, ?, ?, ?, {now} + ? * 1000, {now} \
                 FROM {fences} STRAIGHT_JOIN {table} AS seen WHERE slot = ? \
                 AND seen.id = ? AND seen.owner = ? AND seen.fence = ? AND {ends} <= {now} \
                 FOR UPDATE"),
            // By the index on the expiry it would lock the rows beside it.
            complete: sql("UPDATE {table} FORCE INDEX (PRIMARY) \
                 SET outcome = ?, lease_until = NULL, \
                 completed_at = {now}, expires_at = {now} + ? * 1000, \
                 known_until = {now} + ? * 1000 \
                 WHERE id = ? AND owner = ? AND fence = ? AND completed_at IS NULL"),
            release: sql("DELETE FROM {table} \
                 WHERE id = ? AND owner = ? AND fence = ? AND completed_at IS NULL"),
            // The answer tells the number that was set, also where it was that number before.
            renew: sql("UPDATE {table} FORCE INDEX (PRIMARY) \
                 SET lease_until = LAST_INSERT_ID({now} + ? * 1000), held = held OR ? \
                 WHERE id = ? AND owner = ? AND fence = ? AND completed_at IS NULL \
                 AND (held OR NOT ? OR lease_until > {now})"),
            lookup: sql("SELECT {row}, scope, key_text FROM {table} WHERE id = ?"),
            forget: sql(
                "DELETE FROM {table} WHERE id = ? AND CASE WHEN completed_at IS NULL \
                 THEN lease_until <= {now} ELSE coalesce({ends} > {now}, true) END",
            ),
            // As the record table's: both in one packet, and in the rows' order.
            purge: sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                 DELETE gone FROM (SELECT id FROM {table} FORCE INDEX (expires_at) \
                 WHERE expires_at <= {now} AND completed_at IS NOT NULL \
                 AND {ends} <= {now} LIMIT {limit} FOR UPDATE SKIP LOCKED) AS past \
                 STRAIGHT_JOIN {table} AS gone FORCE INDEX (PRIMARY) ON gone.id = past.id"),
            // A row that is found is changed: its outcome was not over until now.
            bury: sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                 UPDATE (SELECT id FROM {table} FORCE INDEX (expires_at) \
                 WHERE expires_at <= {now} AND completed_at IS NOT NULL \
                 AND known_until > {now} LIMIT {limit} FOR UPDATE SKIP LOCKED) AS past \
                 STRAIGHT_JOIN {table} AS kept FORCE INDEX (PRIMARY) ON kept.id = past.id \
                 SET kept.outcome = NULL, kept.expires_at = kept.known_until"),
            purge_abandoned: sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                 DELETE gone FROM (SELECT id FROM {table} \
                 WHERE completed_at IS NULL AND NOT held AND lease_until <= {now} - {over_for} * 1000 \
                 LIMIT {limit} FOR UPDATE SKIP LOCKED) AS past \
                 STRAIGHT_JOIN {table} AS gone FORCE INDEX (PRIMARY) ON gone.id = past.id"),
        }
    }

    fn lease_shape() -> &'static Shape {
        &LEASE
    }

    async fn claim(
        conn: &mut MySqlConnection,
        statements: &LeaseStatements,
        new: NewLease<'_>,
    ) -> Result<Claim, sqlx::Error> {
        if let Some(read) = &statements.read {
            let read = sqlx::query(read.clone()).bind(new.id.as_bytes().as_slice());
            if let Some(row) = read.fetch_optional(&mut *conn).await? {
                return Ok(Claim::Found(from_row(&row)?));
            }
        }
        match reservation(&statements.claim, &new).execute(conn).await {
            Ok(done) => Ok(drawn(done.last_insert_id()).map_or(Claim::Contended, Claim::Granted)),
            Err(error) if number(&error) == Some(DUPLICATE) => Ok(Claim::Contended),
            Err(error) => Err(error),
        }
    }

    async fn take_lease_over(
        conn: &mut MySqlConnection,
        statements: &LeaseStatements,
        new: NewLease<'_>,
        (owner, seen): (Owner, Fence),
    ) -> Result<Option<Fence>, sqlx::Error> {
        let taken = reservation(&statements.take_over, &new)
            .bind(new.id.as_bytes().as_slice())
            .bind(owner.as_bytes().as_slice())
            .bind(fence_column(seen));
        let done = taken.execute(conn).await?;
        Ok(drawn(done.last_insert_id()))
    }

    async fn complete_lease(
        conn: &mut MySqlConnection,
        statements: &LeaseStatements,
        reservation: &Reservation,
        outcome: &[u8],
        times: Times,
    ) -> Result<u64, sqlx::Error> {
        let complete = sqlx::query(statements.complete.clone()).bind(outcome);
        let complete = complete.bind(times.keep).bind(times.known);
        let complete = held(complete, reservation);
        // A row that is found is changed: it had no time of completion.
        let done = complete.execute(conn).await;
        done.map(|done| done.rows_affected())
    }

    async fn release_lease(
        conn: &mut MySqlConnection,
        statements: &LeaseStatements,
        reservation: &Reservation,
    ) -> Result<u64, sqlx::Error> {
        let release = held(sqlx::query(statements.release.clone()), reservation);
        let done = release.execute(conn).await;
        done.map(|done| done.rows_affected())
    }

    async fn renew_lease(
        conn: &mut MySqlConnection,
        statements: &LeaseStatements,
        reservation: &Reservation,
        lease_millis: i64,
    ) -> Result<u64, sqlx::Error> {
        let hold = reservation.on_crash == OnCrash::Hold;
        let renew = sqlx::query(statements.renew.clone());
        let renew = held(renew.bind(lease_millis).bind(hold), reservation);
        let done = renew.bind(hold).execute(conn).await;
        done.map(|done| u64::from(done.last_insert_id() != 0))
    }

    async fn lookup_lease(
        conn: &mut MySqlConnection,
        statements: &LeaseStatements,
        id: RecordId,
    ) -> Result<Option<(Stored, Moment)>, sqlx::Error> {
        let lookup = sqlx::query(statements.lookup.clone()).bind(id.as_bytes().as_slice());
        let Some(row) = lookup.fetch_optional(conn).await? else {
            return Ok(None);
        };
        let found = from_row(&row)?;
        let (scope, key_text) = (row.try_get(11)?, row.try_get(12)?);
        let stored = Stored::new(found.record, scope, key_text, found.created_at);
        Ok(Some((stored, found.now)))
    }

    async fn forget_lease(
        conn: &mut MySqlConnection,
        statements: &LeaseStatements,
        id: RecordId,
    ) -> Result<u64, sqlx::Error> {
        let forget = sqlx::query(statements.forget.clone()).bind(id.as_bytes().as_slice());
        forget.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn purge_leases(
        conn: &mut MySqlConnection,
        statements: &LeaseStatements,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        purge(conn, &statements.purge, 0, limit).await
    }

    async fn bury_leases(
        conn: &mut MySqlConnection,
        statements: &LeaseStatements,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        purge(conn, &statements.bury, 0, limit).await
    }

    async fn purge_abandoned_leases(
        conn: &mut MySqlConnection,
        statements: &LeaseStatements,
        over_for_millis: i64,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        purge(conn, &statements.purge_abandoned, over_for_millis, limit).await
    }
}

/// Two statements in one packet cannot be prepared: the numbers go into the text.
async fn purge(
    conn: &mut MySqlConnection,
    sql: &SqlStr,
    over_for_millis: i64,
    limit: i64,
) -> Result<u64, sqlx::Error> {
    let sql = sql.as_str().replace("{limit}", &limit.to_string());
    let sql = sql.replace("{over_for}", &over_for_millis.to_string());
    let purge = sqlx::raw_sql(AssertSqlSafe(sql));
    purge.execute(conn).await.map(|done| done.rows_affected())
}

/// The number that an insert drew, from the answer to it; none if it inserted nothing.
fn drawn(id: u64) -> Option<Fence> {
    (id != 0).then(|| Fence::new(id))
}

type Bound<'q> = Query<'q, MySql, MySqlArguments>;

fn reservation<'q>(sql: &SqlStr, new: &'q NewLease<'_>) -> Bound<'q> {
    sqlx::query(sql.clone())
        .bind(new.id.as_bytes().as_slice())
        .bind(new.scope)
        .bind(new.key_text)
        .bind(new.fingerprint.as_bytes().as_slice())
        .bind(new.owner.as_bytes().as_slice())
        .bind(new.lease_millis)
        .bind(slot(new.id))
}

/// The id is a digest: any of its bytes spreads evenly.
fn slot(id: RecordId) -> u8 {
    id.as_bytes()[14] % SLOTS
}

fn held<'q>(query: Bound<'q>, reservation: &'q Reservation) -> Bound<'q> {
    query
        .bind(reservation.id.as_bytes().as_slice())
        .bind(reservation.owner.as_bytes().as_slice())
        .bind(fence_column(reservation.fence))
}

/// Reads what [`ROW`] names.
fn from_row(row: &MySqlRow) -> Result<LeaseRow, sqlx::Error> {
    fn sized<const N: usize>(bytes: &[u8]) -> Result<[u8; N], sqlx::Error> {
        bytes
            .try_into()
            .map_err(|e| sqlx::Error::Decode(Box::new(e)))
    }
    let time = |column: usize| -> Result<Option<Micros>, sqlx::Error> {
        Ok(row.try_get::<Option<i64>, _>(column)?.map(Micros))
    };
    let outcome: Option<&[u8]> = row.try_get(3)?;
    let columns = Columns {
        fingerprint: Fingerprint::from_bytes(sized(row.try_get(0)?)?),
        owner: Owner::from_bytes(sized(row.try_get(1)?)?),
        fence: row.try_get(2)?,
        outcome: outcome.map(Bytes::copy_from_slice),
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
