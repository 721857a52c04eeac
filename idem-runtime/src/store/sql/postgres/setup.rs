//! The schema of records: created, updated, checked.

use sqlx::postgres::Postgres;

use crate::error::Error;
use crate::store::sql::handle::{OwnPool, Records};
use crate::store::sql::schema::{self, Migration, Promise, Schema, Shape, Step, Table};

/// The schema's steps, for the table `idem_record` or another one.
#[must_use]
pub fn migrations(records: &Records) -> Vec<Migration> {
    schema_of(records).migrations::<Postgres>()
}

/// Creates or updates the table `idem_record`. Safe to run in many processes at once. Where
/// the schema is up to date, whoever made it, nothing is written.
///
/// # Errors
/// The database cannot be used, a table of that name is there that is not ours, or the schema is of
/// a newer build that this one cannot work with.
///
/// # Cancel safety
/// All of it is done or nothing.
pub async fn migrate(pool: &impl OwnPool<Db = Postgres>) -> Result<(), Error> {
    schema::migrate(pool.pool(), schema_of(pool.records())).await
}

/// Reports, all at once and each with its remedy, whatever would break the promise or refuse every
/// call: a schema that is missing, older than this build, or newer and not made for it; columns, types, or a
/// primary key other than `id` alone (a key with a partition column would let one call run twice); an
/// unfinished call that could be committed; an `UNLOGGED` or temporary table, row level security,
/// triggers and rules that may drop or change rows; rights that the role lacks; a standby, read-only
/// transactions, an encoding other than UTF-8.
///
/// It reads the catalogues and is cheap enough to run whenever a service starts.
///
/// # Errors
/// [`ErrorKind::Schema`](crate::ErrorKind::Schema) with what is wrong; or the database cannot be
/// used.
///
/// # Cancel safety
/// Changes nothing.
pub async fn check(pool: &impl OwnPool<Db = Postgres>) -> Result<(), Error> {
    schema::check(pool.pool(), schema_of(pool.records())).await
}

fn schema_of(records: &Records) -> Schema<'_> {
    Schema::new(&RECORD, records.table())
}

pub(in crate::store::sql) static RECORD: Shape = Shape {
    steps: &[Step {
        version: 1,
        serves_from: 1,
        name: "record",
        sql: include_str!("../migrations/postgres/0001_record.sql"),
    }],
    tables: &[
        Table {
            name: "{table}",
            columns: &[
                ("id", "uuid"),
                ("scope", "text"),
                ("key_text", "text"),
                ("fingerprint", "bytea"),
                ("owner", "uuid"),
                ("incomplete", "smallint"),
                ("outcome", "bytea"),
                ("created_at", "timestamp with time zone"),
                ("completed_at", "timestamp with time zone"),
                ("expires_at", "timestamp with time zone"),
                ("known_until", "timestamp with time zone"),
            ],
            key: "id",
            rights: "SELECT,INSERT,UPDATE,DELETE",
        },
        Table {
            name: "{never}",
            columns: &[("id", "smallint")],
            key: "id",
            rights: "",
        },
    ],
    promises: &[Promise::NothingUnfinished],
};
