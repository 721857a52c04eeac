//! The names that generated code uses. Nothing here is public API; `idem-macros` and this crate are
//! released in lock step.

pub use crate::probe::{
    EqProbe, ErrProbe, PartProbe, Probe, ProbeAnyPart, ProbeEq, ProbeError, ProbeKeyPart,
    ProbeNothing, ProbeSerialize, fingerprint_part,
};
