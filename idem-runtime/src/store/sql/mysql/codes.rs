//! What the error number of a failed statement means.

use super::super::cause::Meaning;
use super::{DUPLICATE, LOCK_NOWAIT, LOCK_WAIT};
use crate::error::ErrorKind as K;

pub(super) fn meaning(code: &str) -> Meaning {
    let number = code.parse().unwrap_or_default();
    let (kind, words) = transaction(number)
        .or_else(|| refused(number))
        .or_else(|| elsewhere(number))
        .unwrap_or((K::StoreRefused, "the server refused the statement"));
    let meaning = Meaning::new(kind, words);
    match number {
        1290 | 1836 => meaning.lasting(),
        _ => meaning,
    }
}

type Told = Option<(K, &'static str)>;

fn transaction(number: u16) -> Told {
    Some(match number {
        // The server has ended the transaction.
        1213 => (K::RetryTransaction, "deadlock"),
        1020 => (
            K::RetryTransaction,
            "the row was changed since the snapshot",
        ),
        1180 => (K::RetryTransaction, "the commit failed"),
        1614 | 3101 => (
            K::RetryTransaction,
            "the server rolled the transaction back",
        ),
        // It has ended the statement.
        LOCK_WAIT => (K::RetryTransaction, "the wait for a lock timed out"),
        LOCK_NOWAIT => (K::RetryTransaction, "a lock was not available"),
        1317 => (K::RetryTransaction, "the statement was interrupted"),
        1969 | 3024 => (K::RetryTransaction, "the statement timed out"),
        1412 | 1615 => (K::RetryTransaction, "a table was altered meanwhile"),
        // NULL for a moment: there was no transaction.
        1048 => (
            K::TransactionEnded,
            "there is no transaction any more: a deadlock, a COMMIT, or a statement that commits",
        ),
        1792 => (K::StoreRefused, "the transaction is read-only"),
        _ => return None,
    })
}

fn refused(number: u16) -> Told {
    Some(match number {
        1049 => (K::Schema, "no such database"),
        1054 => (K::Schema, "no such column"),
        1146 => (K::Schema, "no such table"),
        1176 => (K::Schema, "no such index"),
        1364 | 1366 | 1406 => (K::Schema, "a column has another type, or no default"),
        1044 | 1142 | 1143 | 1227 | 1370 => (K::StoreRefused, "permission denied"),
        1045 | 1698 => (K::StoreRefused, "authorization refused"),
        // Also what a replica says after a failover: a later call meets the new primary.
        1290 | 1836 => (
            K::StoreUnavailable,
            "the server is read-only: a replica, or a former primary",
        ),
        1036 => (K::StoreRefused, "the table is read-only"),
        DUPLICATE => (K::StoreRefused, "unique constraint violated"),
        1216 | 1217 | 1451 | 1452 => (K::StoreRefused, "foreign key violated"),
        3819 | 4025 => (K::StoreRefused, "check constraint violated"),
        1153 | 1162 | 1301 => (
            K::StoreRefused,
            "larger than the server takes in one packet (max_allowed_packet)",
        ),
        1243 => (
            K::StoreRefused,
            "a prepared statement is not the session's own: behind a pooler, connect with \
             statement_cache_capacity(0)",
        ),
        1644 => (K::StoreRefused, "a trigger or a procedure raised an error"),
        1034 | 1035 | 1194 | 1195 | 1712 => (K::StoreRefused, "the table or its index is damaged"),
        _ => return None,
    })
}

fn elsewhere(number: u16) -> Told {
    Some(match number {
        1021 => (K::StoreExhausted, "the disk is full"),
        1114 => (K::StoreExhausted, "the table is full"),
        1206 => (K::StoreExhausted, "out of room for locks"),
        1037 | 1038 | 1041 => (K::StoreExhausted, "out of memory"),
        1040 | 1203 => (K::StoreExhausted, "too many connections"),
        1135 | 1226 | 1461 | 1637 => (K::StoreExhausted, "a limit of the server was reached"),
        1053 | 1077..=1080 => (K::StoreUnavailable, "the server is going down"),
        1042 | 1043 | 1047 | 1152 | 1158..=1161 | 1184 | 1927 | 2000..=2999 => {
            (K::StoreUnavailable, "connection lost")
        }
        1129 => (K::StoreUnavailable, "the server blocks this host"),
        1004..=1019 | 1023..=1028 | 1030 => (K::StoreUnavailable, "a system error of the server"),
        _ => return None,
    })
}

pub(super) fn refuses_commit(code: &str) -> bool {
    // Deadlock (a cluster answers with it too), changed record, lock wait, rolled back by a group.
    matches!(code.parse(), Ok(1213 | 1020 | LOCK_WAIT | 3101))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn my_03_kinds_are_told_by_number() {
        for (kind, numbers) in [
            (
                K::RetryTransaction,
                "1213 1020 1205 3572 1317 1969 3024 1615",
            ),
            (K::TransactionEnded, "1048"),
            (K::Schema, "1146 1054 1049"),
            (
                K::StoreRefused,
                "1142 1143 1044 1045 1792 1036 1062 1153 1301 1243 1644 4025 9999",
            ),
            (K::StoreExhausted, "1114 1021 1040 1206 1226"),
            (K::StoreUnavailable, "1290 1836 1053 1927 2013 1030"),
        ] {
            for number in numbers.split(' ') {
                assert_eq!(meaning(number).kind, kind, "{number}");
            }
        }
    }
}
