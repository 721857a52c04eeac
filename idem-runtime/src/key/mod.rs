//! The idempotency key: the business identity of one call.
//!
//! A key is made of literal segments and typed parts. Two different lists of parts never give the
//! same key: inside a part every character that separates parts in the template is escaped as
//! `%XX`, and so are `%` and control characters. The record is found by a [`RecordId`], a digest of
//! namespace, operation and key, so that collation, length and character set of a database column
//! can make no two keys equal.

mod builder;
mod part;
mod record_id;
mod scope;
mod unique_scope;

pub use builder::{KeyBuilder, KeyWriter, MAX_KEY_BYTES};
pub use part::KeyPart;
pub use record_id::RecordId;
pub use scope::{MAX_SCOPE_CHARS, Scope};
pub(crate) use unique_scope::UniqueScope;

/// A finished key: its canonical text.
///
/// The `Debug` form shows the text; the framework itself shows it in errors only where the operation
/// says so (`key_text = "shown"`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    text: String,
}

impl Key {
    /// The canonical text, with escapes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// A key from text that is canonical already, as [`Key::as_str`] gave it or as it stands in a
    /// store's key column.
    #[must_use]
    pub fn from_canonical(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}
