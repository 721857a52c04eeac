//! The fingerprint: the digest of the payload that a key stands for.

use sha2::{Digest, Sha256};

use crate::error::Error;

/// The digest of a payload; its first byte is the version of the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 17]);

impl Fingerprint {
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

    /// Whether a call with fingerprint `now` may be answered from a record with this one.
    #[must_use]
    pub fn matches(self, now: Self) -> bool {
        self == now
    }
}

/// Collects the payload.
#[derive(Debug)]
pub struct FingerprintBuilder {
    hash: Option<Sha256>,
}

impl FingerprintBuilder {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            hash: Some(Sha256::new()),
        }
    }

    /// No payload is checked.
    #[must_use]
    pub fn none() -> Self {
        Self { hash: None }
    }

    /// The digest.
    ///
    /// # Errors
    /// A payload that cannot be serialised.
    pub fn finish(self) -> Result<Fingerprint, Error> {
        let mut bytes = [1; 17];
        if let Some(hash) = self.hash {
            bytes[1..].copy_from_slice(&hash.finalize()[..16]);
        }
        Ok(Fingerprint(bytes))
    }
}
