//! Errors of the client and of the server, as the caller has to see them.

use ::redis::RedisError;

use crate::error::{Effect, Error, ErrorKind};

/// An error in a step before the body: nothing ran.
pub(super) fn before(error: RedisError) -> Error {
    match error.code() {
        Some("ERR") if error.detail().is_some_and(too_old) => Error::new(ErrorKind::StoreRefused)
            .detail("the server is older than Redis 7.0")
            .caused_by(error),
        code => {
            let of_kind = Error::new(code.map_or(ErrorKind::StoreUnavailable, kind_of_code));
            match code.and_then(explained) {
                Some(detail) => of_kind.detail(detail),
                None => of_kind.detail(error.to_string()),
            }
            .caused_by(error)
        }
    }
}

/// An error in a step after the body: whether the step was carried out is unknown.
pub(super) fn after(error: RedisError) -> Error {
    before(error).effect_is(Effect::Unknown)
}

/// An answer that no script of ours gives.
pub(super) fn strange(what: &str) -> Error {
    Error::new(ErrorKind::StoreRefused).detail(format!("the server answered a script with {what}"))
}

pub(super) fn is_out_of_memory(error: &RedisError) -> bool {
    error.code() == Some("OOM")
}

/// `SET` with `NX` and `GET` together, and scripts with flags, came with 7.0.
fn too_old(detail: &str) -> bool {
    detail.contains("syntax error") || detail.contains("compiling script")
}

fn kind_of_code(code: &str) -> ErrorKind {
    match code {
        "OOM" => ErrorKind::StoreExhausted,
        // Nobody but a person changes these.
        "NOPERM" | "NOAUTH" | "WRONGPASS" | "WRONGTYPE" => ErrorKind::StoreRefused,
        // A failover, a restart or a replica that comes back does.
        _ => ErrorKind::StoreUnavailable,
    }
}

fn explained(code: &str) -> Option<&'static str> {
    Some(match code {
        "OOM" => "the server is full (`maxmemory`) and takes no new reservation",
        "READONLY" => "the server is a replica and takes no writes",
        "NOREPLICAS" => "the server has fewer replicas than `min-replicas-to-write`",
        "CLUSTERDOWN" => "the cluster is down, or the record's slot is served by nobody",
        "MISCONF" => "the server cannot persist and takes no writes",
        "NOPERM" => "the server does not permit a command that the store needs",
        "NOAUTH" | "WRONGPASS" => "the server wants other credentials",
        "WRONGTYPE" => "the record's key holds another type of value, which is not ours",
        "LOADING" => "the server is loading its data",
        _ => return None,
    })
}
