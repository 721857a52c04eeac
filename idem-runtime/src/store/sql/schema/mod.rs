//! The schema of every table that the framework keeps in a database: its steps, how they are run, and
//! the check that it keeps its promise. One mechanism; each table brings a [`Shape`] per database.
//!
//! A step's text is complete: it makes the table of versions where there is none and notes its own
//! number, so it does not matter whether `migrate` runs it or a migration tool. It may run again.

mod check;
mod fill;
mod findings;
mod migrate;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(all(
    test,
    feature = "postgres",
    feature = "mysql",
    feature = "sqlite",
    feature = "testing"
))]
mod tests;

use std::future::Future;

use sqlx::{Database, Pool};

pub(crate) use check::check;
pub(crate) use fill::{fill, statement};
pub(crate) use findings::Findings;
pub(crate) use migrate::migrate;

use crate::error::Error;

/// One step of the schema: a complete text that may run more than once. Print it into your own
/// migration tool, or let `migrate` run it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Migration {
    /// Its number; steps run in this order.
    pub version: i32,
    /// The version of the oldest build that can work with the schema after this step.
    pub serves_from: i32,
    /// What it is for.
    pub name: &'static str,
    /// Its statements, separated by `;`, with the note that it was run.
    pub sql: String,
}

/// A step as it is written down.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) version: i32,
    pub(crate) serves_from: i32,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// A table after the last step. Names are templates, see [`fill`].
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// Names and types.
    pub(crate) columns: &'static [(&'static str, &'static str)],
    /// The primary key, exactly.
    pub(crate) key: &'static str,
    /// What the application's role must be allowed to do, separated by commas.
    #[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code))]
    pub(crate) rights: &'static str,
}

/// The tables that belong together, in one database. The first one is the main one.
#[derive(Debug)]
#[doc(hidden)]
pub struct Shape {
    pub(crate) steps: &'static [Step],
    pub(crate) tables: &'static [Table],
    pub(crate) promises: &'static [Promise],
}

/// What must hold beside columns and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// A deferred foreign key on `incomplete` refuses to commit an unfinished row.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    NothingUnfinished,
    /// Foreign keys are enforced.
    #[cfg(feature = "sqlite")]
    ForeignKeys,
    /// Fencing numbers come from a sequence.
    #[cfg(feature = "postgres")]
    Sequence,
    /// Fencing numbers come from a counter that a removed row raises.
    #[cfg(feature = "sqlite")]
    Floor,
    /// Fencing numbers come from this `AUTO_INCREMENT` column.
    #[cfg(feature = "mysql")]
    Numbered(&'static str),
    /// Fencing numbers are drawn under so many slots.
    #[cfg(feature = "mysql")]
    Slots(u8),
    /// A lock wait that ends leaves the transaction alive.
    #[cfg(feature = "mysql")]
    WaitsEndAlone,
    /// A statement outside a transaction commits itself.
    #[cfg(feature = "mysql")]
    StatementsCommit,
}

/// A [`Shape`] under a table's name.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Schema<'a> {
    shape: &'static Shape,
    table: &'a str,
}

impl<'a> Schema<'a> {
    /// The name has been checked by whoever holds it.
    pub(crate) fn new(shape: &'static Shape, table: &'a str) -> Self {
        Self { shape, table }
    }

    pub(crate) fn migrations<D: SchemaDialect>(self) -> Vec<Migration> {
        let migration = |step: &Step| Migration {
            version: step.version,
            serves_from: step.serves_from,
            name: step.name,
            sql: self.text::<D>(step),
        };
        self.shape.steps.iter().map(migration).collect()
    }

    /// A step with what makes it complete.
    fn text<D: SchemaDialect>(self, step: &Step) -> String {
        let (versions, note) = (D::VERSIONS, D::NOTE);
        let text = format!("{versions};\n{}{note};\n", step.sql)
            .replace("{version}", &step.version.to_string())
            .replace("{serves_from}", &step.serves_from.to_string());
        fill(&text, self.table)
    }

    fn fill(self, template: &str) -> String {
        fill(template, self.table)
    }

    fn versions(self) -> String {
        self.fill("{versions}")
    }

    fn tables(self) -> impl Iterator<Item = (String, &'static Table)> {
        let tables = self.shape.tables.iter();
        tables.map(move |table| (fill(table.name, self.table), table))
    }

    fn promises(self, promise: Promise) -> bool {
        self.shape.promises.contains(&promise)
    }
}

/// What a schema is found to be.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct Found {
    /// The highest version that is noted, and the oldest build that it serves. `None`: there is no
    /// table of versions, or it cannot be read.
    version: Option<(i32, i32)>,
    has_versions: bool,
    /// The role may not look at any of it.
    closed: bool,
    /// What is not there, of the tables and what belongs to them.
    missing: Vec<String>,
}

/// What of the schema differs between databases.
#[doc(hidden)]
pub trait SchemaDialect: Database {
    /// Makes the table of versions.
    const VERSIONS: &'static str;

    /// Notes a step, once.
    const NOTE: &'static str;

    /// What a migration that failed has left.
    const FAILED: &'static str;

    /// One migrating process: a transaction, or what keeps the others out.
    type Session: Send;

    fn enter(
        pool: &Pool<Self>,
        table: &str,
    ) -> impl Future<Output = Result<Self::Session, Error>> + Send;

    fn connection(session: &mut Self::Session) -> &mut Self::Connection;

    fn leave(
        session: Self::Session,
        keep: bool,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Runs statements of ours.
    fn run_schema(
        conn: &mut Self::Connection,
        sql: String,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// What is there, and what of it has another form.
    fn look(
        conn: &mut Self::Connection,
        schema: Schema<'_>,
        findings: &mut Findings,
    ) -> impl Future<Output = Result<Found, sqlx::Error>> + Send;

    /// What else keeps the schema from being used as it is meant: rights, settings, triggers.
    fn survey(
        conn: &mut Self::Connection,
        schema: Schema<'_>,
        findings: &mut Findings,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}
