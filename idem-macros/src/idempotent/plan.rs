//! What is to be generated. A plan is valid by construction: there is no refused state that it could
//! express, so expansion cannot fail.

use proc_macro2::{Ident, TokenStream};
use syn::{Expr, PatType, Type};

use super::access::Access;
use super::args::{Codec, KeyText, Lease, RecordErr, Tombstone, Ttl};
use super::function::Function;
use crate::bindings::Binding;
use crate::crate_path::CratePath;
use crate::template::{Hole, Segment};

pub(super) struct Plan {
    pub(super) krate: CratePath,
    pub(super) function: Function,
    pub(super) operation: Operation,
    pub(super) key: Vec<Segment>,
    pub(super) payload: Payload,
    /// Type arguments that belong to the identity of a derived scope.
    pub(super) identity: Vec<Identity>,
    pub(super) answer: Answer,
    pub(super) record_err: Option<RecordErr>,
    /// What is recorded instead of the answer.
    pub(super) keep: Option<Keep>,
    /// What is asked before the body.
    pub(super) backstop: Option<TokenStream>,
    /// What is used up by the call, after the backstop was asked.
    pub(super) token: Option<OneTime>,
    pub(super) mode: Mode,
    pub(super) capture: Capture,
    pub(super) companion: Option<Companion>,
}

/// A function beside this one that asks for the record of a call.
pub(super) struct Companion {
    pub(super) name: Ident,
    /// Whether the key reads the receiver.
    pub(super) receiver: bool,
    pub(super) arguments: Vec<PatType>,
    /// What is recorded, where that is not the whole answer.
    pub(super) kept: Option<Type>,
}

/// Everything that does not depend on the call.
pub(super) struct Operation {
    pub(super) scope: Option<String>,
    /// Other functions have this scope as well.
    pub(super) shared_scope: bool,
    pub(super) ttl: Ttl,
    pub(super) tombstone: Option<Tombstone>,
    pub(super) in_progress: Option<InProgress>,
    pub(super) lease: Option<Lease>,
    pub(super) on_cancel_release: bool,
    pub(super) on_crash_hold: bool,
    pub(super) on_lost_lease_continue: bool,
    pub(super) max_outcome: Option<u64>,
    pub(super) oversize_tombstone: bool,
    pub(super) codec: Option<Codec>,
    pub(super) schema: Option<u32>,
    pub(super) key_text: KeyText,
}

#[derive(Clone, Copy)]
pub(super) enum InProgress {
    Wait(u64),
    Reject,
}

/// What must be equal when the key is.
pub(super) enum Payload {
    Nothing,
    Chosen(Vec<Hole>),
    /// Those of these that are `Serialize`.
    Arguments(Vec<Binding>),
}

pub(super) enum Identity {
    /// `type_name::<T>()`
    Type(TokenStream),
    /// `type_name_of_val(&x)`, for `x: impl Trait`.
    Value(Box<Binding>),
}

/// The function's `Result`.
pub(super) struct Answer {
    pub(super) whole: Type,
    /// `T`, where the syntax tells it.
    pub(super) ok: Option<Type>,
    /// `E`, where the syntax tells it.
    pub(super) err: Option<Type>,
}

/// A part of the answer from which the rest can be made again.
pub(super) struct Keep {
    /// From the answer to what is kept.
    pub(super) part: Expr,
    /// The name that what is kept has in `rebuild`, as it is written there.
    pub(super) name: Ident,
    pub(super) rebuild: TokenStream,
}

/// The one-time token of a call.
pub(super) struct OneTime {
    pub(super) tokens: Access,
    pub(super) token: TokenStream,
    pub(super) subject: TokenStream,
    pub(super) operation: TokenStream,
}

/// Whose transaction or store it is.
pub(super) enum Mode {
    /// The caller's transaction, or a leased store.
    Callers(Access),
    /// A transaction of the framework's own.
    Own {
        pool: Access,
        name: Ident,
        retry: Option<u32>,
    },
}

/// How the body's block gets at the arguments.
pub(super) struct Capture {
    /// `async move`; otherwise what is named in `moved` goes in by value and the rest as it is used.
    pub(super) by_move: bool,
    /// `let tx = &mut *tx;` in front of the block: the caller's `&mut` is needed again afterwards.
    pub(super) reborrowed: Vec<Binding>,
    /// `let req = req.clone();` in front of the block.
    pub(super) cloned: Vec<Binding>,
    pub(super) moved: Vec<Binding>,
}
