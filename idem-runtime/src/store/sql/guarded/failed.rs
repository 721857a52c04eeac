//! An error of a statement on a table of the application's own.

use sqlx::error::ErrorKind as Violated;

use super::Guarded;
use crate::error::{Effect, Error, ErrorKind, Retry};
use crate::retry::Retryable as _;
use crate::store::sql::describe;

/// What a failed statement means. `table` is as the application named it.
pub(crate) fn failed<D: Guarded>(table: &str, error: sqlx::Error) -> Error {
    let effect = effect_of(&error);
    let (kind, detail) = match &error {
        sqlx::Error::Database(database) => {
            let code = D::code(&**database);
            let constraint = matches!(
                database.kind(),
                Violated::UniqueViolation
                    | Violated::ForeignKeyViolation
                    | Violated::NotNullViolation
                    | Violated::CheckViolation
            );
            let kind = code.as_deref().map(|code| D::meaning(code).kind);
            match (kind, code) {
                _ if constraint => (
                    ErrorKind::StateNotChanged,
                    format!("a constraint of `{table}`"),
                ),
                (Some(ErrorKind::Schema), _) => (
                    ErrorKind::TableMismatch,
                    format!("`{table}` or one of its columns is missing"),
                ),
                (_, Some(code)) if is_type_error(&code) => (
                    ErrorKind::TableMismatch,
                    format!(
                        "a column of `{table}` is of another type than the value for it ({code})"
                    ),
                ),
                (kind, _) => (kind.unwrap_or(ErrorKind::StoreUnavailable), String::new()),
            }
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => (
            ErrorKind::TableMismatch,
            format!("a column of `{table}` is of another type"),
        ),
        _ => (ErrorKind::StoreUnavailable, String::new()),
    };
    let mut out = Error::new(kind)
        .because(describe::<D>(&error).text)
        .effect_is(effect);
    if !detail.is_empty() {
        out = out.detail(detail);
    }
    out.caused_by(error)
}

/// Codes that say that a value is not of its column's type, or does not fit into it.
fn is_type_error(code: &str) -> bool {
    matches!(
        code,
        // Postgres: no such operator, type, text form, range, cast, length.
        "42883" | "42804" | "22P02" | "22003" | "42846" | "22001"
        // MySQL: range, truncated, too long, not a number.
        | "1264" | "1265" | "1292" | "1366" | "1406"
        // SQLite: mismatch.
        | "20"
    )
}

/// What an error of sqlx means for the effect of the statement that met it.
pub(crate) fn effect_of(error: &sqlx::Error) -> Effect {
    use sqlx::Error as E;
    match error {
        // The answer to a statement may be lost; what failed before it was sent, or was answered by
        // an error, has done nothing.
        E::Io(_) | E::Tls(_) | E::Protocol(_) | E::WorkerCrashed => Effect::Unknown,
        // The statement was made, its answer is not understood.
        E::ColumnDecode { .. } | E::Decode(_) | E::ColumnNotFound(_) => Effect::Unknown,
        _ => Effect::None,
    }
}

/// Whether and how to repeat what met an error of sqlx.
pub(crate) fn retry_of(error: &sqlx::Error) -> Retry {
    use sqlx::Error as E;
    match error {
        error if error.calls_for_retry() => Retry::NewTransaction,
        E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::WorkerCrashed => Retry::Later(None),
        _ => Retry::Never,
    }
}
