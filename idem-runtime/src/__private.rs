//! The names that generated code uses. Nothing here is public API; `idem-macros` and this crate are
//! released in lock step.
