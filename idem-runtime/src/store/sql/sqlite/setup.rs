//! The schema of records: created, updated, checked.

use sqlx::sqlite::Sqlite;

use crate::error::Error;
use crate::store::sql::handle::{OwnPool, Records};
use crate::store::sql::schema::{self, Migration, Promise, Schema, Shape, Step, Table};

/// The schema's steps, for the table `idem_record` or another one.
#[must_use]
pub fn migrations(records: &Records) -> Vec<Migration> {
    schema_of(records).migrations::<Sqlite>()
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
pub async fn migrate(pool: &impl OwnPool<Db = Sqlite>) -> Result<(), Error> {
    schema::migrate(pool.pool(), schema_of(pool.records())).await
}

/// Reports, all at once and each with its remedy, whatever would break the promise or refuse every
/// call: a schema that is missing, older than this build, or newer and not made for it; columns, types, or a
/// primary key other than `id` alone; an unfinished call that could be committed (`foreign_keys`);
/// triggers and temporary tables that may hide or change rows; a database that takes no writes;
/// `read_uncommitted`.
///
/// It reads the schema, takes the writer's lock for a moment, and is cheap enough to run whenever a service starts.
///
/// # Errors
/// [`ErrorKind::Schema`](crate::ErrorKind::Schema) with what is wrong; or the database cannot be
/// used.
///
/// # Cancel safety
/// Changes nothing.
pub async fn check(pool: &impl OwnPool<Db = Sqlite>) -> Result<(), Error> {
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
        sql: include_str!("../migrations/sqlite/0001_record.sql"),
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
                ("incomplete", "INTEGER"),
                ("outcome", "BLOB"),
                ("created_at", "INTEGER"),
                ("completed_at", "INTEGER"),
                ("expires_at", "INTEGER"),
                ("known_until", "INTEGER"),
            ],
            key: "id",
            rights: "SELECT,INSERT,UPDATE,DELETE",
        },
        Table {
            name: "{never}",
            columns: &[("id", "INTEGER")],
            key: "id",
            rights: "",
        },
    ],
    promises: &[Promise::NothingUnfinished],
};
