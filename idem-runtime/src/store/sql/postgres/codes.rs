//! What the SQLSTATE of a failed statement means.

use super::super::cause::Meaning;
use crate::error::ErrorKind as K;

pub(super) fn meaning(code: &str) -> Meaning {
    by_code(code)
        .or_else(|| by_class(code.get(..2).unwrap_or_default()))
        .unwrap_or(Meaning::new(
            K::StoreRefused,
            "the server refused the statement",
        ))
}

fn by_code(code: &str) -> Option<Meaning> {
    let (kind, words) = match code {
        "40001" => (K::RetryTransaction, "serialization failure"),
        "40P01" => (K::RetryTransaction, "deadlock"),
        "55P03" => (K::RetryTransaction, "a lock was not available in time"),
        "57014" => (
            K::RetryTransaction,
            "the statement was cancelled or timed out",
        ),
        "25P03" => (K::RetryTransaction, "the transaction was idle for too long"),
        "25P04" => (K::RetryTransaction, "the transaction ran for too long"),
        "25P02" => (
            K::TransactionEnded,
            "a statement of this transaction failed before and its error was not passed on",
        ),
        "25P01" => (K::TransactionEnded, "there is no transaction"),
        // Also what a standby says after a failover: a later call meets the new primary.
        "25006" => {
            let words = "read-only: a standby, a former primary, or a read-only transaction";
            return Some(Meaning::new(K::StoreUnavailable, words).lasting());
        }
        "42P01" => (K::Schema, "no such table"),
        "42703" => (K::Schema, "no such column"),
        "42804" => (K::Schema, "a column has another type"),
        "3F000" => (K::Schema, "no such schema"),
        "3D000" => (K::StoreRefused, "no such database"),
        "42501" => (
            K::StoreRefused,
            "permission denied, or refused by a row-level policy",
        ),
        "22P05" => (
            K::StoreRefused,
            "a character does not exist in the database's encoding",
        ),
        "23503" => (K::StoreRefused, "foreign key violated"),
        "23505" => (K::StoreRefused, "unique constraint violated"),
        "23514" => (K::StoreRefused, "check constraint violated"),
        "26000" | "42P05" => (
            K::StoreRefused,
            "a prepared statement is not the session's own: behind a pooler in transaction mode, or \
             after DEALLOCATE, connect with statement_cache_capacity(0)",
        ),
        "0A000" => (
            K::StoreRefused,
            "not supported by this server, or the table was altered under a prepared statement",
        ),
        "53100" => (K::StoreExhausted, "the disk is full"),
        "53200" => (
            K::StoreExhausted,
            "out of memory, or of room for locks: fewer calls in one transaction, or a higher \
             max_locks_per_transaction",
        ),
        "53300" => (K::StoreExhausted, "too many connections"),
        "53400" => (K::StoreExhausted, "a configured limit was exceeded"),
        "57P01" => (K::StoreUnavailable, "the server ended the session"),
        "57P02" => (K::StoreUnavailable, "the server crashed"),
        "57P03" => (K::StoreUnavailable, "the server takes no connections now"),
        "57P05" => (K::StoreUnavailable, "the session was idle for too long"),
        "P0001" => (K::StoreRefused, "a trigger or a function raised an error"),
        "XX001" | "XX002" => (K::StoreRefused, "the table or its index is damaged"),
        _ => return None,
    };
    Some(Meaning::new(kind, words))
}

fn by_class(class: &str) -> Option<Meaning> {
    let (kind, words) = match class {
        "08" => (K::StoreUnavailable, "connection lost"),
        "22" => (K::StoreRefused, "a value is not valid for its column"),
        "23" => (K::StoreRefused, "constraint violated"),
        "28" => (K::StoreRefused, "authorization refused"),
        "40" => (K::RetryTransaction, "the transaction was rolled back"),
        "42" => (K::StoreRefused, "the statement is not valid here"),
        "53" => (K::StoreExhausted, "out of resources"),
        "54" => (K::StoreRefused, "a limit of the server was exceeded"),
        "57" => (K::StoreUnavailable, "an operator intervened"),
        "58" => (K::StoreUnavailable, "a system error of the server"),
        "XX" => (K::StoreUnavailable, "an internal error of the server"),
        _ => return None,
    };
    Some(Meaning::new(kind, words))
}

/// Codes of a lost connection, of a failing system and of a server that goes down say nothing about
/// the commit, and may come from a pooler.
pub(super) fn refuses_commit(code: &str) -> bool {
    // connection, insufficient resources, operator (but for a cancelled query), system, internal
    let unsure = ["08", "53", "57", "58", "XX"];
    code == "57014" || !unsure.iter().any(|class| code.starts_with(class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pg_03_kinds_are_told_by_code() {
        for (kind, codes) in [
            (K::RetryTransaction, "40001 40P01 40000 55P03 57014 25P03"),
            (K::TransactionEnded, "25P01 25P02"),
            (K::Schema, "42P01 42703 42804 3F000"),
            (
                K::StoreRefused,
                "42501 22P05 22001 23505 23503 23514 42601 54000 26000 28P01 P0001",
            ),
            (K::StoreRefused, "XX001 0A000 F0000 99999 9"),
            (K::StoreExhausted, "53100 53200 53300 53400 53000"),
            (K::StoreUnavailable, "08006 57P01 57P03 58030 XX000 25006"),
        ] {
            for code in codes.split(' ') {
                assert_eq!(meaning(code).kind, kind, "{code}");
            }
        }
    }

    #[test]
    fn only_an_error_of_the_commit_itself_refuses_it() {
        for code in ["23505", "40001", "P0001", "57014"] {
            assert!(refuses_commit(code), "{code}");
        }
        for code in ["08006", "08P01", "57P01", "58030", "53100", "XX000"] {
            assert!(!refuses_commit(code), "{code}");
        }
    }
}
