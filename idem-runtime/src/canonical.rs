//! The canonical form of a serialisable value.
