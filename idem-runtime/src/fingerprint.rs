//! The fingerprint: the digest of the payload that a key stands for.
//!
//! A repeated call with the same key and another payload is a new intent under an old name; the
//! fingerprint is how it is noticed. It is taken over the [canonical form](crate::canonical) of the
//! payload, so it does not depend on the order of map entries or fields, on the width of integers
//! or on the build. An absent field is not a field that is null.
//!
//! A part that is a [`KeyPart`] counts by its key text, so that key and fingerprint agree on what
//! is equal (`10.0` and `10.00` as a `Decimal`); every other part, and everything inside one, counts
//! as it serialises. Giving a payload type `#[derive(KeyPart)]` later therefore changes its
//! fingerprint.

use std::fmt;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::canonical::{CanonicalError, Writer, with_writer};
use crate::error::{Error, ErrorKind};
use crate::key::{KeyBuilder, KeyPart};

/// Version of the digest below; a change of algorithm takes another one.
const VERSION: u8 = 1;

/// Stands for "not checked".
const NONE: u8 = 0;

/// The digest of a payload: a version byte and the first 16 bytes of SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 17]);

impl Fingerprint {
    /// What an operation records that checks no payload.
    pub const NONE: Self = Self([NONE; 17]);

    /// The bytes, as they stand in a store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 17] {
        &self.0
    }

    /// From bytes that a store holds.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 17]) -> Self {
        Self(bytes)
    }

    /// Whether a call with the payload `now` may be answered from a record with the payload `self`.
    ///
    /// A payload that was not checked then, or is not checked now, is accepted, so that a
    /// deployment can switch the check on and off; and so is a fingerprint of another version, which
    /// says nothing about this payload. The key is the identity in any case.
    ///
    /// # Examples
    /// ```
    /// use idem_runtime::fingerprint::{Fingerprint, FingerprintBuilder};
    ///
    /// # fn main() -> Result<(), idem_runtime::Error> {
    /// let of = |amount: u32| {
    ///     let mut builder = FingerprintBuilder::new();
    ///     builder.part(&amount);
    ///     builder.finish()
    /// };
    /// assert!(of(5)?.matches(of(5)?));
    /// assert!(!of(5)?.matches(of(6)?));
    /// assert!(Fingerprint::NONE.matches(of(6)?));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn matches(self, now: Self) -> bool {
        self.0[0] != VERSION || now.0[0] != VERSION || self == now
    }

    /// Whether no payload was checked.
    #[must_use]
    pub fn is_none(self) -> bool {
        self.0[0] == NONE
    }
}

/// A part of the payload.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of the fingerprint",
    label = "neither `serde::Serialize` nor a key part",
    note = "derive `serde::Serialize` for it, or choose a field or method of it that has a serialisable value",
    note = "`fingerprint = none` switches the payload check off"
)]
pub trait FingerprintPart {
    #[doc(hidden)]
    fn write_part(&self, out: &mut FingerprintBuilder);
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + ?Sized> FingerprintPart for T {
    fn write_part(&self, out: &mut FingerprintBuilder) {
        out.write(|writer| writer.value(self));
    }
}

/// Collects the payload.
///
/// Memory stays small whatever the size of what is serialised; see
/// [`canonical`](crate::canonical).
pub struct FingerprintBuilder {
    hash: Option<Sha256>,
    parts: usize,
    failed: Option<(usize, CanonicalError)>,
}

impl FingerprintBuilder {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let mut hash = Sha256::new();
        hash.update([VERSION]);
        Self {
            hash: Some(hash),
            parts: 0,
            failed: None,
        }
    }

    /// No payload is checked: parts are not looked at, and the result is [`Fingerprint::NONE`].
    #[must_use]
    pub fn none() -> Self {
        Self {
            hash: None,
            parts: 0,
            failed: None,
        }
    }

    /// Appends a part as it serialises. A failure is remembered and reported by
    /// [`FingerprintBuilder::finish`].
    pub fn part<P: FingerprintPart + ?Sized>(&mut self, part: &P) {
        part.write_part(self);
    }

    /// Appends a part by its key text.
    pub fn key_part<P: KeyPart + ?Sized>(&mut self, part: &P) {
        self.write(|writer| {
            let mut text = KeyBuilder::new("");
            text.part(part);
            writer.key_text(text.text());
            Ok(())
        });
    }

    fn write(&mut self, form: impl FnOnce(&mut Writer) -> Result<(), CanonicalError>) {
        self.parts += 1;
        let (Some(hash), None) = (&mut self.hash, &self.failed) else {
            return;
        };
        self.failed = with_writer(|writer| {
            form(writer)?;
            // No form is the beginning of another one, so parts cannot run into each other.
            hash.update(writer.bytes());
            Ok(())
        })
        .err()
        .map(|error| (self.parts, error));
    }

    /// The digest.
    ///
    /// # Errors
    /// [`ErrorKind::FingerprintFailed`]: a part whose serialisation fails or nests too deep. Nothing
    /// has run.
    pub fn finish(self) -> Result<Fingerprint, Error> {
        if let Some((number, error)) = self.failed {
            return Err(Error::new(ErrorKind::FingerprintFailed)
                .detail(format!(
                    "part {number} of the payload does not serialise: {error}"
                ))
                .caused_by(error));
        }
        let Some(hash) = self.hash else {
            return Ok(Fingerprint::NONE);
        };
        let mut bytes = [VERSION; 17];
        bytes[1..].copy_from_slice(&hash.finalize()[..16]);
        Ok(Fingerprint(bytes))
    }
}

impl Default for FingerprintBuilder {
    fn default() -> Self {
        Self::new()
    }
}

// The state of a hash over someone's data does not belong in a log.
impl fmt::Debug for FingerprintBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FingerprintBuilder")
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}
