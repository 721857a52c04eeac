//! What is wrong with a schema: everything at once, each with its remedy.

use crate::error::{Error, ErrorKind};

/// What was found wrong.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct Findings(Vec<String>);

impl Findings {
    pub(super) fn add(&mut self, what: impl AsRef<str>, remedy: impl AsRef<str>) {
        let finding = format!("{} ({})", what.as_ref(), remedy.as_ref());
        // Two tables of one schema can lack the same thing of the server.
        if !self.0.contains(&finding) {
            self.0.push(finding);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `before` stands before what was found.
    pub(super) fn into_result(self, before: &str) -> Result<(), Error> {
        let detail = match self.0.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            many => {
                let numbered = many.iter().zip(1..).map(|(one, n)| format!("{n}. {one}"));
                let all = numbered.collect::<Vec<_>>().join("; ");
                format!("{} problems: {all}", many.len())
            }
        };
        Err(Error::new(ErrorKind::Schema).detail(format!("{before}{detail}")))
    }

    /// Compares a table's columns with what they must be.
    pub(super) fn columns<'f>(
        &mut self,
        table: &str,
        wanted: &[(&str, &str)],
        found: impl Fn(&str) -> Option<&'f str>,
    ) {
        for (name, kind) in wanted {
            match found(name) {
                Some(found) if found.eq_ignore_ascii_case(kind) => {}
                Some(found) => self.add(
                    format!("{table}.{name} is {found}, it must be {kind}"),
                    "change its type, or name another table",
                ),
                None => self.add(
                    format!("{table} has no column {name}"),
                    "run `migrate`; if the table is not this framework's, name another one",
                ),
            }
        }
    }

    pub(super) fn key(&mut self, table: &str, wanted: &str) {
        self.add(
            format!("the primary key of {table} must be exactly ({wanted})"),
            "with another one, one call could have two rows: make it the key",
        );
    }

    pub(super) fn trigger(&mut self, table: &str, trigger: &str) {
        self.add(
            format!(
                "the trigger {trigger} on {table} may drop or change rows before they are written"
            ),
            "drop it, or let it act after the statement",
        );
    }

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) fn rights(&mut self, role: &str, rights: &str, on: &str) {
        self.add(
            format!("{role} lacks {rights} on {on}"),
            format!("GRANT {rights} ON {on} TO {role}"),
        );
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(super) fn unfinished(&mut self, table: &str) {
        self.add(
            format!(
                "{table} lacks the deferred foreign key on `incomplete`, or it is not enforced: an \
                 unfinished call could be committed"
            ),
            "restore and enable it, as `migrations` has it; on SQLite set PRAGMA foreign_keys = ON",
        );
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(super) fn not_empty(&mut self, never: &str) {
        self.add(
            format!("{never} must stay empty: an unfinished call could be committed"),
            "delete its rows, and restore its CHECK constraint",
        );
    }
}
