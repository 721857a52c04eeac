//! The canonical form of a serialisable value: one byte string for one value, whatever order its
//! maps iterate in and whatever build wrote it.
//!
//! Two uses: the [fingerprint](crate::fingerprint) hashes it, and an [outcome](crate::outcome) is
//! recorded only when it has the same form before and after a trip through its codec.
//!
//! # What is alike
//! * Integers of any width with one value: `5_u8`, `5_i64`, `5_u128`.
//! * The fields of a struct in any order, and the entries of a map in any order, at every level. A
//!   struct and a map with the same names and values are alike: `#[serde(flatten)]` turns one into
//!   the other.
//! * The elements of a hash set, or of a binary heap, in any order. They are recognised by the name
//!   of the iterated type, so that an iterator adapter around one (`set.iter().map(..)` in a
//!   hand-written `Serialize`) keeps its order.
//! * A newtype struct and its field; tuples, arrays, tuple structs and sequences; `()` and a unit
//!   struct. The names of types are no part of the form, so they can be changed.
//!
//! # What is not
//! * `None`, `Some(None)`, `()`, `""`, `0`, `false`, `[]` and `{}` are all different, and `Some(x)`
//!   differs from `x`.
//! * A field that holds `None` differs from an absent one (`skip_serializing_if`). A field that is
//!   skipped is absent.
//! * `'a'` and `"a"`; bytes and a sequence of numbers; `1` and `1.0`.
//! * Floats are compared by their bits: `0.0` and `-0.0` differ, and so do an `f32` and an `f64`.
//!
//! # The bytes
//! A tag byte, then the content. Lengths are LEB128; sequences and maps end with a tag of their own,
//! so that a wrong length hint changes nothing. No form is the beginning of another one. The form of
//! a map entry, a set element or a whole value that takes more than 4096 bytes is replaced by its
//! SHA-256: memory stays bounded by the number of entries in the open maps, not by what they hold.
//!
//! The form never changes within one version of the fingerprint; golden tests hold it.

mod compound;
mod serializer;
mod trace;
mod writer;

use std::fmt;

use serde::Serialize;

pub(crate) use trace::{Doubt, Trace};
pub(crate) use writer::{Writer, with_writer};

/// How deep values may nest: containers, `Some`, newtypes and enum variants each count one.
///
/// Above it there is an error instead of a stack overflow. `serde_json` reads at most 127 containers
/// inside each other.
pub const MAX_DEPTH: usize = 256;

/// The tags of the form.
pub(crate) mod tag {
    pub(crate) const END: u8 = 0x00;
    pub(crate) const NONE: u8 = 0x01;
    pub(crate) const SOME: u8 = 0x02;
    pub(crate) const UNIT: u8 = 0x03;
    pub(crate) const FALSE: u8 = 0x04;
    pub(crate) const TRUE: u8 = 0x05;
    pub(crate) const F32: u8 = 0x06;
    pub(crate) const F64: u8 = 0x07;
    pub(crate) const CHAR: u8 = 0x08;
    pub(crate) const STR: u8 = 0x09;
    pub(crate) const BYTES: u8 = 0x0a;
    pub(crate) const SEQ: u8 = 0x0b;
    pub(crate) const SET: u8 = 0x0c;
    pub(crate) const MAP: u8 = 0x0d;
    pub(crate) const VARIANT: u8 = 0x0e;
    pub(crate) const UNIT_VARIANT: u8 = 0x0f;
    pub(crate) const DIGEST: u8 = 0x10;
    /// The canonical text of a key part.
    pub(crate) const KEY_TEXT: u8 = 0x11;
    /// Plus the number of bytes of the magnitude, 0 to 16.
    pub(crate) const UNSIGNED: u8 = 0x20;
    /// Likewise; the magnitude is that of `-1 - n`.
    pub(crate) const NEGATIVE: u8 = 0x40;
}

/// Why a value has no canonical form.
#[derive(Debug)]
#[non_exhaustive]
pub enum CanonicalError {
    /// It nests deeper than [`MAX_DEPTH`].
    TooDeep,
    /// Its `Serialize` implementation reported an error.
    Custom(String),
}

impl fmt::Display for CanonicalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep => write!(f, "it nests deeper than {MAX_DEPTH} levels"),
            Self::Custom(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for CanonicalError {}

impl serde::ser::Error for CanonicalError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::Custom(text.to_string())
    }
}

/// The canonical form of `value`; beyond 4096 bytes the form is a digest.
///
/// # Errors
/// The value nests too deep, or its `Serialize` implementation fails.
///
/// # Examples
/// ```
/// use idem_runtime::canonical::form;
/// use std::collections::HashMap;
///
/// # fn main() -> Result<(), idem_runtime::canonical::CanonicalError> {
/// assert_eq!(form(&5_u8)?, form(&5_i64)?);
/// assert_ne!(form(&None::<u8>)?, form(&())?);
/// assert_eq!(
///     form(&HashMap::from([("b", 2), ("a", 1)]))?,
///     form(&HashMap::from([("a", 1), ("b", 2)]))?,
/// );
/// # Ok(())
/// # }
/// ```
pub fn form<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    with_writer(|writer| {
        writer.value(value)?;
        Ok(writer.bytes().to_vec())
    })
}
