//! The two sides of a function's return type.

/// A `Result`, under whatever name: generated code finds the sides of an alias through it.
#[diagnostic::on_unimplemented(
    message = "an idempotent function returns a `Result`, and `{Self}` is none",
    label = "not a `Result`",
    note = "it must be able to say that a call is in progress or known with another payload"
)]
pub trait Answer {
    /// What is recorded.
    type Ok;
    /// What is given back to the caller.
    type Err;
}

impl<T, E> Answer for Result<T, E> {
    type Ok = T;
    type Err = E;
}
