//! One transition in a database.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use sqlx::{Encode, Type};

use super::database::{Connection, argument};
use super::state::{has_passed, parse_state};
use super::texts::{Names, Texts};
use super::{Progress, RequireError, State, Transitioned};
use crate::error::{Effect, Error, ErrorKind};
use crate::store::sql::guarded::{Bound, Counter, exists, failed};
use crate::store::sql::{Guarded, check_columns, checked_user_table};

/// The transitions of the rows of one table. Built once and cheap to clone.
///
/// Each transition is one statement that names the states it is allowed from, so the database
/// decides: of any number of calls at once, one is [`Transitioned::Applied`].
///
/// ```
/// # use idem_runtime as idem;
/// use idem::machine::Transition;
/// # #[derive(idem_macros::StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
/// # #[state_machine(column = 16, crate = ::idem_runtime)]
/// # enum Status {
/// #     #[state(initial, to(Paid))] Pending,
/// #     #[state(terminal)] Paid,
/// # }
///
/// # fn main() -> Result<(), idem::Error> {
/// let orders = Transition::in_table("shop_order")
///     .id_column("id")
///     .status_column("status")
///     .bump_version("version")
///     .stamp_once(Status::Paid, "paid_at")
///     .build()?;
/// # let _ = orders; Ok(())
/// # }
/// ```
pub struct Transition<S>(Arc<Inner<S>>);

struct Inner<S> {
    names: Names<S>,
    texts: [OnceLock<Texts>; 3],
    counters: [Counter; 3],
}

/// Names the table and its columns; see [`Transition`].
#[derive(Clone)]
#[must_use = "nothing is checked before `build`"]
pub struct TransitionBuilder<S> {
    table: String,
    id: String,
    status: String,
    version: Option<String>,
    stamps: Vec<(S, String)>,
}

/// How often a row may leave an allowed state and come back between update and read.
const ROUNDS: usize = 16;

impl<S: State> Transition<S> {
    /// The transitions of a table, `name` or `schema.name`, as it is written in the catalogue: names
    /// are quoted, so a table may be called `order`.
    pub fn in_table(table: &str) -> TransitionBuilder<S> {
        TransitionBuilder {
            table: table.to_owned(),
            id: "id".to_owned(),
            status: "status".to_owned(),
            version: None,
            stamps: Vec::new(),
        }
    }

    /// Brings the row to a state, if the state that it is in may go there.
    ///
    /// ```sql
    /// UPDATE … SET status = 'paid' … WHERE id = ? AND status IN ('pending')
    /// ```
    ///
    /// Where that finds no row, a second statement reads what there is; it is the rare path. A call
    /// on the same row waits for the other's transaction, at the level `READ COMMITTED` to see what
    /// it left, above to fail with [`ErrorKind::RetryTransaction`]. In Postgres at `REPEATABLE READ`
    /// and above the answers other than [`Transitioned::Applied`] are those of the snapshot.
    ///
    /// A state that the row has certainly been in before is [`Transitioned::Passed`], any other that
    /// it cannot go to [`Transitioned::Refused`].
    ///
    /// The id is anything that sqlx can bind and the column takes.
    ///
    /// # Errors
    /// Those of the database, by kind ([`ErrorKind::RetryTransaction`] for a serialization failure,
    /// a deadlock, a lock wait), with sqlx's as the source;
    /// [`ErrorKind::TableMismatch`] if the table or a column is missing or of another type than the
    /// value for it;
    /// [`ErrorKind::UnknownState`] if the row holds a text that is no state, with
    /// [`UnknownState`](super::UnknownState) as the source;
    /// [`ErrorKind::StateNotChanged`] if the id names more than one row, or the database refuses to
    /// change one that is in an allowed state. Roll back.
    ///
    /// # Cancel safety
    /// The row may or may not be changed: roll the transaction back.
    pub async fn apply<'q, C, I>(
        &self,
        conn: &mut C,
        id: I,
        to: S,
    ) -> Result<Transitioned<S>, Error>
    where
        C: Connection + ?Sized,
        I: Encode<'q, C::Db> + Type<C::Db> + Send + Sync,
    {
        let texts = self.texts::<C::Db>();
        let (version, table) = (self.version::<C::Db>(), &*self.0.names.table);
        if let Some((counter, version)) = version {
            let look = counter.before::<C::Db>(conn.connection(), table, version);
            look.await?;
        }
        for _ in 0..ROUNDS {
            let changed = self.update(conn, texts, argument(&id)?, to).await?;
            if let Some((counter, version)) = version {
                let look = counter.after::<C::Db>(conn.connection(), table, version);
                look.await?;
            }
            if changed {
                let from = match to.sources() {
                    [only] => Some(*only),
                    _ => None,
                };
                return Ok(Transitioned::Applied { from });
            }
            match self.read(conn, texts, argument(&id)?).await? {
                None => return Ok(Transitioned::NotFound),
                Some(current) if current == to => return Ok(Transitioned::AlreadyThere),
                Some(current) if to.sources().contains(&current) => {
                    // It has come to an allowed state since the update looked.
                }
                Some(current) if has_passed(current, to) => {
                    return Ok(Transitioned::Passed { current });
                }
                Some(current) => return Ok(Transitioned::Refused { current }),
            }
        }
        Err(Error::new(ErrorKind::StateNotChanged).detail(
            "the row is in an allowed state and the update does not find it: a trigger, a row policy, or a row that never rests",
        ))
    }

    /// As [`apply`](Self::apply), for a service function: a repeat is a success, everything else
    /// that is not the transition is an error.
    ///
    /// # Errors
    /// [`RequireError::Refused`], [`RequireError::NotFound`], and those of [`apply`](Self::apply).
    ///
    /// # Cancel safety
    /// As [`apply`](Self::apply).
    pub async fn require<'q, C, I>(
        &self,
        conn: &mut C,
        id: I,
        wanted: S,
    ) -> Result<Progress, RequireError<S>>
    where
        C: Connection + ?Sized,
        I: Encode<'q, C::Db> + Type<C::Db> + Send + Sync,
    {
        match self.apply(conn, id, wanted).await? {
            Transitioned::Applied { .. } => Ok(Progress::Now),
            Transitioned::AlreadyThere | Transitioned::Passed { .. } => Ok(Progress::Before),
            Transitioned::Refused { current } => Err(RequireError::Refused { current, wanted }),
            Transitioned::NotFound => Err(RequireError::NotFound { wanted }),
        }
    }

    /// Looks the table up: that its columns are there, and that the version is an integer and never
    /// NULL. For the start of a service.
    ///
    /// # Errors
    /// [`ErrorKind::TableMismatch`] with what is wrong, or the database's error.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn check<C: Connection + ?Sized>(&self, conn: &mut C) -> Result<(), Error> {
        let names = &self.0.names;
        let stamps = names.stamps.iter().map(|(_, column)| column);
        for column in [&names.id, &names.status].into_iter().chain(stamps) {
            exists::<C::Db>(conn.connection(), &names.table, column).await?;
        }
        let Some((counter, version)) = self.version::<C::Db>() else {
            return Ok(());
        };
        let check = counter.check::<C::Db>(conn.connection(), &names.table, version, false);
        check.await
    }

    fn texts<D: Guarded>(&self) -> &Texts {
        self.0.texts[D::INDEX].get_or_init(|| Texts::of::<S, D>(&self.0.names))
    }

    /// The statement that brings a row to a state, to be looked at; `None` if nothing leads there.
    #[must_use]
    pub fn statement<D: Guarded>(&self, to: S) -> Option<&str> {
        Some(self.texts::<D>().update_to(to)?.as_str())
    }

    /// The statement that reads the state of a row, to be looked at.
    #[must_use]
    pub fn reading_statement<D: Guarded>(&self) -> &str {
        self.texts::<D>().read.as_str()
    }
}

impl<S: State> Transition<S> {
    /// The version's column, and where its type is looked up.
    fn version<D: Guarded>(&self) -> Option<(&Counter, &str)> {
        let version = self.0.names.version.as_deref()?;
        Some((&self.0.counters[D::INDEX], version))
    }

    /// Whether the row was changed. A state never leads to itself, so a row that matched is a row
    /// that changed and it does not matter which of them the connection counts.
    async fn update<C: Connection + ?Sized>(
        &self,
        conn: &mut C,
        texts: &Texts,
        id: Bound<C::Db>,
        to: S,
    ) -> Result<bool, Error> {
        let Some(sql) = texts.update_to(to) else {
            return Ok(false);
        };
        let (sql, id) = id.of(sql);
        let changed = C::Db::execute(conn.connection(), &sql, id).await;
        match changed.map_err(|error| failed::<C::Db>(&self.0.names.table, error))? {
            0 => Ok(false),
            1 => Ok(true),
            rows => Err(Error::new(ErrorKind::StateNotChanged)
                .detail(format!("{rows} rows have that id, and all were changed"))
                .effect_is(Effect::Done)),
        }
    }

    async fn read<C: Connection + ?Sized>(
        &self,
        conn: &mut C,
        texts: &Texts,
        id: Bound<C::Db>,
    ) -> Result<Option<S>, Error> {
        let (sql, id) = id.of(&texts.read);
        let row = C::Db::read_text(conn.connection(), sql, id).await;
        let failed = |error| failed::<C::Db>(&self.0.names.table, error).effect_is(Effect::None);
        match row.map_err(failed)? {
            None => Ok(None),
            Some(None) => Err(Error::new(ErrorKind::UnknownState)
                .detail(format!("NULL is not a state of `{}`", S::NAME))),
            Some(Some(text)) => match parse_state(&text) {
                Ok(state) => Ok(Some(state)),
                Err(unknown) => Err(Error::new(ErrorKind::UnknownState)
                    .detail(unknown.to_string())
                    .caused_by(unknown)),
            },
        }
    }
}

impl<S: State> TransitionBuilder<S> {
    /// The column that a row is found by; `id` unless it is named. It must be unique.
    pub fn id_column(mut self, column: &str) -> Self {
        column.clone_into(&mut self.id);
        self
    }

    /// The column of the state; `status` unless it is named. Text, or an enumerated type of the
    /// database; it should be `NOT NULL`.
    pub fn status_column(mut self, column: &str) -> Self {
        column.clone_into(&mut self.status);
        self
    }

    /// A number that goes up by one with each transition, in the same statement. An integer: the
    /// column's type is looked up once, before the first transition.
    pub fn bump_version(mut self, column: &str) -> Self {
        self.version = Some(column.to_owned());
        self
    }

    /// A column that is given the database's time when `state` is reached, unless it has one. In
    /// Postgres a timestamp, in MySQL one or a `DATETIME` (whose precision should be 6), in SQLite
    /// text (`2026-07-31 08:30:00.123`, UTC).
    pub fn stamp_once(mut self, state: S, column: &str) -> Self {
        self.stamps.push((state, column.to_owned()));
        self
    }

    /// Checks the names.
    ///
    /// # Errors
    /// [`ErrorKind::TableMismatch`] if a name is not made of ASCII letters, digits and `_`, does not begin
    /// with a letter or `_`, or is longer than 63 characters; if one column has two of these parts.
    pub fn build(self) -> Result<Transition<S>, Error> {
        checked_user_table(&self.table)?;
        let mut columns: Vec<&str> = vec![&self.id, &self.status];
        columns.extend(self.version.as_deref());
        let stamps: HashSet<&str> = self.stamps.iter().map(|(_, column)| &**column).collect();
        columns.extend(stamps);
        check_columns(&columns)?;
        let names = Names {
            table: self.table,
            id: self.id,
            status: self.status,
            version: self.version,
            stamps: self.stamps,
        };
        Ok(Transition(Arc::new(Inner {
            names,
            texts: Default::default(),
            counters: Default::default(),
        })))
    }
}

impl<S> Clone for Transition<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: State> fmt::Debug for Transition<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transition")
            .field("machine", &S::NAME)
            .field("names", &self.0.names)
            .finish_non_exhaustive()
    }
}

impl<S: State> fmt::Debug for TransitionBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransitionBuilder")
            .field("machine", &S::NAME)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
