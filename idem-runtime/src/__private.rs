//! The names that generated code uses. Nothing here is public API; `idem-macros` and this crate are
//! released in lock step.

#[doc(hidden)]
pub use crate::__impl_state_sqlx as impl_state_sqlx;
pub use crate::Error;
pub use crate::answer::Answer;
pub use crate::engine::{
    Backstop, Entered, Gone, Keep, PermitSlot, Run, Wanted, contract, enter, leave,
    leave_with_token, rebuilt, share,
};
#[cfg(feature = "_sqlx")]
pub use crate::engine::{Closed, aside, close, close_or_again, open};
pub use crate::fingerprint::FingerprintBuilder;
pub use crate::key::{KeyBuilder, KeyPart, KeyWriter, Scope};
pub use crate::machine::{State, UnknownState, parse_state};
pub use crate::operation::{Call, KeyText, Operation};
pub use crate::outcome::CodecId;
pub use crate::probe::{
    EqProbe, ErrProbe, PartProbe, Probe, ProbeAnyPart, ProbeEq, ProbeError, ProbeKeyPart,
    ProbeNothing, ProbeSerialize, fingerprint_part,
};
pub use crate::status::CallRef;
#[cfg(feature = "_sqlx")]
pub use sqlx;

/// One part of a key; a function of its own so that a type that is no key part is blamed where it
/// stands in the template.
pub fn key_part<P: KeyPart + ?Sized>(key: &mut KeyBuilder, part: &P) {
    key.part(part);
}
