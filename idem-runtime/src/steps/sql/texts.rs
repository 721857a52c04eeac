//! The statements, in the words of each database.

use sqlx::SqlStr;

use crate::steps::filter::SagaFilter;
use crate::store::sql::schema::statement;

/// The statements of one database, for one table.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Texts {
    pub(super) begin: SqlStr,
    pub(super) begin_cancelled: SqlStr,
    pub(super) read: SqlStr,
    pub(super) lock: SqlStr,
    pub(super) steps: SqlStr,
    pub(super) claim: SqlStr,
    /// As `renew`, and only in the transaction that a step began in.
    pub(in crate::steps) hold: SqlStr,
    pub(in crate::steps) renew: SqlStr,
    pub(super) change: SqlStr,
    pub(super) end: SqlStr,
    pub(super) put_off: SqlStr,
    pub(super) insert_step: SqlStr,
    pub(super) update_step: SqlStr,
    pub(super) due: SqlStr,
    pub(super) unstick: SqlStr,
    pub(super) recount: SqlStr,
    pub(super) purge: SqlStr,
    /// `list` and `count` up to their conditions; the conditions that need the database's words.
    list: String,
    count: String,
    older: String,
    places: Places,
    table: String,
}

/// What differs in the texts. Places are `$1` … in the order in which they stand, each once, so that
/// a database that only knows `?` binds the same.
pub(super) struct Words {
    /// The database's time at this moment.
    pub(super) now: &'static str,
    /// That many milliseconds from now; `{}` is the place.
    pub(super) after: &'static str,
    /// Milliseconds left until `due_at`, rounded up.
    pub(super) left: &'static str,
    /// Milliseconds since `created_at`.
    pub(super) age: &'static str,
    /// The fencing number of a new saga, and of one that is claimed.
    pub(super) first_fence: &'static str,
    pub(super) next_fence: &'static str,
    /// The fencing number of a row.
    pub(super) fence: &'static str,
    /// An insert that does nothing where there is a row.
    pub(super) or_nothing: &'static str,
    /// A lock that is not waited for.
    pub(super) lock: &'static str,
    /// Whether the transaction of a step is still the one that it began in.
    pub(super) alive: &'static str,
    pub(super) purge: &'static str,
    pub(super) places: Places,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Places {
    #[cfg_attr(not(any(feature = "postgres", feature = "sqlite")), allow(dead_code))]
    Numbered,
    #[cfg_attr(not(feature = "mysql"), allow(dead_code))]
    Marked,
}

const ROW: &str = "SELECT name, key_text, fingerprint, input, steps, state, cancelled, rest, owner, \
     {fence}, failed_step, error, {left}, cause, cause_step, cause_error FROM {table} WHERE id = $1";

/// Held by this owner under this number, and not ended.
const HELD: &str = "AND owner = {place} AND {fence} = {place} AND due_at IS NOT NULL";

impl Words {
    pub(super) fn texts(&self, table: &str) -> Texts {
        let sql = |template: &str| self.fill(template, table);
        let renew = format!(
            "UPDATE {{table}} SET due_at = {} WHERE id = $2 {}",
            self.later(1),
            held(3)
        );
        Texts {
            begin: sql(&format!(
                "INSERT INTO {{table}} (id, name, key_text, fingerprint, input, steps, state, \
                 cancelled, owner, fence, due_at, created_at) VALUES ($1, $2, $3, $4, $5, \
                 $6, 'running', false, $7, {{first_fence}}, {}, {{now}}) {{or_nothing}}",
                self.later(8)
            )),
            begin_cancelled: sql(
                "INSERT INTO {table} (id, name, key_text, fingerprint, steps, state, cancelled, \
                 owner, fence, created_at, ended_at) VALUES ($1, $2, $3, $4, $5, \
                 'compensated', true, $6, {first_fence}, {now}, {now}) {or_nothing}",
            ),
            read: sql(ROW),
            lock: sql(&format!("{ROW} {}", self.lock)),
            steps: sql(
                "SELECT number, name, state, unknown_effect, left_alone, attempts, \
                 undo_attempts, result, error, forgiven, undo_forgiven FROM {steps} WHERE saga = $1 ORDER BY number",
            ),
            claim: sql(&format!(
                "UPDATE {{table}} SET owner = $1, fence = {{next_fence}}, state = $2, \
                 cancelled = $3, rest = NULL, cause = NULL, cause_step = NULL, \
                 cause_error = NULL, due_at = {} WHERE id = $5",
                self.later(4)
            )),
            hold: sql(&format!("{renew} {{alive}}")),
            renew: sql(&renew),
            change: sql(&format!(
                "UPDATE {{table}} SET state = $1, rest = $2, \
                 failed_step = coalesce($3, failed_step), error = coalesce($4, error), \
                 due_at = {}, cause = $6, cause_step = $7, cause_error = $8 WHERE id = $9 {}",
                self.later(5),
                held(10)
            )),
            end: sql(&format!(
                "UPDATE {{table}} SET state = $1, due_at = NULL, ended_at = {{now}} \
                 WHERE id = $2 {}",
                held(3)
            )),
            put_off: sql(&format!(
                "UPDATE {{table}} SET due_at = {}, cause = $2, cause_step = NULL, \
                 cause_error = $3 WHERE id = $4 AND due_at IS NOT NULL",
                self.later(1)
            )),
            insert_step: sql(
                "INSERT INTO {steps} (name, state, unknown_effect, left_alone, attempts, \
                 undo_attempts, result, error, saga, number, changed_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, {now})",
            ),
            update_step: sql(
                "UPDATE {steps} SET name = $1, state = $2, unknown_effect = $3, left_alone = $4, \
                 attempts = $5, undo_attempts = $6, result = $7, error = $8, changed_at = {now} \
                 WHERE saga = $9 AND number = $10",
            ),
            due: sql(
                "SELECT id, key_text FROM {table} WHERE name = $1 AND due_at <= {now} \
                 ORDER BY due_at LIMIT $2",
            ),
            unstick: sql(
                "UPDATE {table} SET rest = 'waiting', due_at = {now} WHERE id = $1 AND rest = 'stuck'",
            ),
            recount: sql(
                "UPDATE {steps} SET forgiven = attempts, undo_forgiven = undo_attempts \
                 WHERE saga = $1 \
                 AND state IN ('pending', 'started', 'compensating', 'compensation failed')",
            ),
            purge: sql(self.purge),
            list: self.replaced(
                "SELECT id, name, key_text, state, rest, cause, cause_step, cause_error, {age}, \
                 {left} FROM {table} WHERE id > ?",
            ),
            count: self.replaced("SELECT COUNT(*) FROM {table} WHERE 0 = 0"),
            older: format!(" AND created_at <= {}", self.after.replace("{}", "?")),
            places: self.places,
            table: table.to_owned(),
        }
    }

    /// The moment so many milliseconds from now, at the n-th place.
    fn later(&self, place: usize) -> String {
        self.after.replace("{}", &format!("${place}"))
    }

    fn fill(&self, template: &str, table: &str) -> SqlStr {
        let mut sql = self.replaced(template);
        if self.places == Places::Marked {
            for number in (1..=12).rev() {
                sql = sql.replace(&format!("${number}"), "?");
            }
        }
        statement(&sql, table)
    }

    fn replaced(&self, template: &str) -> String {
        template
            .replace("{next_fence}", self.next_fence)
            .replace("{first_fence}", self.first_fence)
            .replace("{or_nothing}", self.or_nothing)
            .replace("{alive}", self.alive)
            .replace("{left}", self.left)
            .replace("{age}", self.age)
            .replace("{fence}", self.fence)
            .replace("{now}", self.now)
    }
}

fn held(place: usize) -> String {
    HELD.replacen("{place}", &format!("${place}"), 1).replacen(
        "{place}",
        &format!("${}", place + 1),
        1,
    )
}

impl Texts {
    /// Not kept: each filter makes a text of its own, and people seldom ask.
    pub(super) fn list(&self, filter: &SagaFilter) -> SqlStr {
        let sql = format!(
            "{}{} ORDER BY id LIMIT ?",
            self.list,
            self.conditions(filter)
        );
        self.placed(&sql)
    }

    pub(super) fn count(&self, filter: &SagaFilter) -> SqlStr {
        let sql = format!("{}{}", self.count, self.conditions(filter));
        self.placed(&sql)
    }

    /// The words of the filter's enums are our own.
    fn conditions(&self, filter: &SagaFilter) -> String {
        let mut sql = String::new();
        for (column, text) in filter.words() {
            sql.push_str(&format!(" AND {column} = '{text}'"));
        }
        if filter.wanted_name().is_some() {
            sql.push_str(" AND name = ?");
        }
        if filter.least_age().is_some() {
            sql.push_str(&self.older);
        }
        sql
    }

    fn placed(&self, sql: &str) -> SqlStr {
        if self.places == Places::Marked {
            return statement(sql, &self.table);
        }
        let mut parts = sql.split('?');
        let mut numbered = parts.next().unwrap_or_default().to_owned();
        for (at, part) in parts.enumerate() {
            numbered.push_str(&format!("${}{part}", at + 1));
        }
        statement(&numbered, &self.table)
    }
}
