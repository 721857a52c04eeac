use std::fmt;

use sha2::{Digest, Sha256};

/// Version of the digest below; a change of algorithm takes another one.
const VERSION: u8 = 1;

/// What a record is found by: the first 16 bytes of SHA-256 over a version byte and the
/// length-prefixed namespace, operation and key.
///
/// The algorithm never changes between releases (golden-tested): a record written by one build is
/// found by every other, on every platform.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId([u8; 16]);

impl RecordId {
    /// The id of `key` of the operation `scope` within `namespace` (empty by default). `types` are
    /// the names of the type arguments that belong to the identity of a generic operation.
    #[must_use]
    pub fn new(namespace: &str, scope: &str, types: &[&str], key: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update([VERSION]);
        field(&mut hash, namespace.as_bytes());
        field(&mut hash, scope.as_bytes());
        hash.update((types.len() as u64).to_le_bytes());
        for name in types {
            field(&mut hash, name.as_bytes());
        }
        field(&mut hash, key.as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&hash.finalize()[..16]);
        Self(id)
    }

    /// The bytes, as they stand in a store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// From bytes that a store holds.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// A number for lock services that take one (Postgres advisory locks).
    #[must_use]
    pub fn lock_number(&self) -> i64 {
        let mut half = [0; 8];
        half.copy_from_slice(&self.0[..8]);
        i64::from_be_bytes(half)
    }
}

fn field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({self})")
    }
}
