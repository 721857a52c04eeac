//! What the result code of a failed statement means.

use super::super::cause::Meaning;
use crate::error::ErrorKind as K;

/// `FOREIGN KEY constraint failed`. The one foreign key of the framework's is deferred: it fails
/// where a statement commits by itself.
const FOREIGN_KEY: u32 = 787;

/// By the extended code where it tells more, else by the primary one, its low byte.
pub(super) fn meaning(code: &str) -> Meaning {
    let code: u32 = code.parse().unwrap_or_default();
    let (kind, words) = match (code, code & 0xff) {
        (FOREIGN_KEY, _) => (
            K::TransactionEnded,
            "there is no transaction any more: a COMMIT or a ROLLBACK was sent as SQL",
        ),
        (1811, _) => (K::StoreRefused, "a trigger raised an error"),
        (_, 5 | 6) => (K::RetryTransaction, "the database is busy"),
        (_, 4) => (K::RetryTransaction, "the transaction was rolled back"),
        (_, 9) => (K::RetryTransaction, "the statement was interrupted"),
        (_, 17) => (K::RetryTransaction, "a table was altered meanwhile"),
        (_, 1) => (K::Schema, "no such table, column or transaction"),
        (_, 20 | 25) => (K::Schema, "a column has another type"),
        (_, 3) => (K::StoreRefused, "permission denied"),
        (_, 8) => (K::StoreRefused, "the database is read-only"),
        (_, 11) => (K::StoreRefused, "the database file is damaged"),
        (_, 14) => (K::StoreRefused, "the database file cannot be opened"),
        (_, 18) => (K::StoreRefused, "larger than a row may be"),
        (_, 19) => (K::StoreRefused, "constraint violated"),
        (_, 22) => (K::StoreRefused, "not supported by this system"),
        (_, 23) => (K::StoreRefused, "authorization refused"),
        (_, 26) => (K::StoreRefused, "the file is not a database"),
        (_, 7) => (K::StoreExhausted, "out of memory"),
        (_, 13) => (K::StoreExhausted, "the database or its disk is full"),
        (_, 10) => (K::StoreUnavailable, "reading or writing the file failed"),
        (_, 15) => (K::StoreUnavailable, "the file could not be locked"),
        _ => (K::StoreUnavailable, "the database failed"),
    };
    Meaning::new(kind, words)
}

pub(super) fn refuses_commit(code: &str) -> bool {
    // busy, locked, constraint; a disk that is full or fails says nothing.
    matches!(code.parse::<u32>().map(|code| code & 0xff), Ok(5 | 6 | 19))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sl_01_busy_in_all_its_forms_means_a_new_transaction() {
        for code in ["5", "6", "261", "517", "773", "262"] {
            assert_eq!(meaning(code).kind, K::RetryTransaction, "{code}");
        }
    }

    #[test]
    fn what_is_not_busy_is_told_apart() {
        for (kind, codes) in [
            (K::TransactionEnded, "787"),
            (K::StoreRefused, "8 264 520 11 14 18 19 1555 2067 23 26"),
            (K::StoreExhausted, "7 13"),
            (K::StoreUnavailable, "10 266 15"),
            (K::Schema, "1 20"),
        ] {
            for code in codes.split(' ') {
                assert_eq!(meaning(code).kind, kind, "{code}");
            }
        }
    }
}
