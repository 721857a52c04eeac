//! Shared pieces of the measurements.
