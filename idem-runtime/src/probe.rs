//! What generated code asks about a type that it cannot see.
//!
//! Each probe is a method call on a reference to a probe; the receiver with more references is tried
//! first, so a bound that holds wins and one that does not falls through to "nothing". This works
//! inside generic functions as well: there only the declared bounds count. The traits have to be in
//! scope, several of them without being used, so generated code imports them `as _` under
//! `#[allow(unused_imports)]`.

use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;

use crate::Error;
use crate::fingerprint::{FingerprintBuilder, FingerprintPart};
use crate::key::KeyPart;

/// An argument that goes into the fingerprint if it can: `(&&Probe(&argument)).feed(&mut builder)`.
#[derive(Debug)]
pub struct Probe<'a, T: ?Sized>(pub &'a T);

// Without a bound on `T`, which a derive would ask for.
impl<T: ?Sized> Clone for Probe<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Probe<'_, T> {}

/// [`Probe::feed`](ProbeSerialize::feed) for what serialises or is a key part.
pub trait ProbeSerialize {
    /// Appends the argument to the payload.
    fn feed(&self, builder: &mut FingerprintBuilder);
}

impl<T: Serialize + KeyPart + ?Sized> ProbeSerialize for &Probe<'_, T> {
    fn feed(&self, builder: &mut FingerprintBuilder) {
        builder.key_part(self.0);
    }
}

// Reached by one more reference than `&Probe`, which is to say after it.
impl<T: Serialize + ?Sized> ProbeSerialize for &&Probe<'_, T> {
    fn feed(&self, builder: &mut FingerprintBuilder) {
        builder.part(self.0);
    }
}

// Reached by one reference less, after both. An amount whose type was built without serde must not
// be left out of the payload without a word.
impl<T: KeyPart + ?Sized> ProbeSerialize for Probe<'_, T> {
    fn feed(&self, builder: &mut FingerprintBuilder) {
        builder.key_part(self.0);
    }
}

/// A chosen part: `(&&PartProbe(part)).way().feed(&mut builder, part)`.
///
/// Two steps, so that a part that is neither a key part nor serialisable is refused with the text
/// of [`FingerprintPart`] and not as a missing method.
#[derive(Debug)]
pub struct PartProbe<'a, T: ?Sized>(pub &'a T);

/// How a part goes in.
#[derive(Clone, Copy, Debug)]
pub struct ByKeyText;

/// How a part goes in.
#[derive(Clone, Copy, Debug)]
pub struct BySerialize;

/// [`PartProbe::way`](ProbeKeyPart::way) for key parts.
pub trait ProbeKeyPart {
    /// By its key text.
    fn way(&self) -> ByKeyText;
}

impl<T: KeyPart + ?Sized> ProbeKeyPart for &PartProbe<'_, T> {
    fn way(&self) -> ByKeyText {
        ByKeyText
    }
}

/// [`PartProbe::way`](ProbeAnyPart::way) for everything else.
pub trait ProbeAnyPart {
    /// As it serialises.
    fn way(&self) -> BySerialize;
}

impl<T: ?Sized> ProbeAnyPart for PartProbe<'_, T> {
    fn way(&self) -> BySerialize {
        BySerialize
    }
}

impl ByKeyText {
    /// Appends the part.
    pub fn feed<T: KeyPart + ?Sized>(self, builder: &mut FingerprintBuilder, part: &T) {
        builder.key_part(part);
    }
}

impl BySerialize {
    /// Appends the part.
    pub fn feed<T: FingerprintPart + ?Sized>(self, builder: &mut FingerprintBuilder, part: &T) {
        builder.part(part);
    }
}

/// Appends a chosen part as it serialises.
pub fn fingerprint_part<T: FingerprintPart + ?Sized>(builder: &mut FingerprintBuilder, part: &T) {
    builder.part(part);
}

/// The equality of an outcome type, if it has one: `(&&EqProbe::<T>::new()).equality()`.
pub struct EqProbe<T: ?Sized>(PhantomData<fn(&T)>);

/// The causes of an error type: `(&&ErrProbe::<E>::new()).sources()`.
pub struct ErrProbe<E: ?Sized>(PhantomData<fn(&E)>);

macro_rules! typed {
    ($($probe:ident)*) => {$(
        impl<T: ?Sized> $probe<T> {
            /// Asks about `T`.
            #[must_use]
            pub const fn new() -> Self {
                Self(PhantomData)
            }
        }

        impl<T: ?Sized> Default for $probe<T> {
            fn default() -> Self {
                Self::new()
            }
        }

        impl<T: ?Sized> fmt::Debug for $probe<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($probe))
            }
        }
    )*};
}

typed! { EqProbe ErrProbe }

/// Whether two values are equal.
pub type Equality<T> = fn(&T, &T) -> bool;

/// Where the walk over an error's causes begins.
pub type Sources<E> = fn(&E) -> &(dyn StdError + 'static);

/// [`EqProbe::equality`](ProbeEq::equality) for what is `PartialEq`.
pub trait ProbeEq {
    /// The type.
    type Of: ?Sized;

    /// Its equality.
    fn equality(&self) -> Option<Equality<Self::Of>>;
}

impl<T: PartialEq + ?Sized> ProbeEq for &EqProbe<T> {
    type Of = T;

    fn equality(&self) -> Option<Equality<T>> {
        Some(<T as PartialEq>::eq)
    }
}

/// [`ErrProbe::sources`](ProbeError::sources) for what is `Error`.
///
/// The walk begins at the error's first cause, and at the error itself only if it is this crate's or
/// `sqlx`'s: `&(dyn Error + 'static)` of a type of unknown lifetime cannot be had, and a bound of
/// `'static` would not fall through to "nothing" but fail. An error without cause gives a
/// [`NoCause`].
pub trait ProbeError {
    /// The type.
    type Of: ?Sized;

    /// Its causes.
    fn sources(&self) -> Option<Sources<Self::Of>>;
}

/// Stands for the cause of an error that has none.
#[derive(Debug)]
pub struct NoCause;

impl fmt::Display for NoCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no cause")
    }
}

impl StdError for NoCause {}

impl ProbeError for &ErrProbe<Error> {
    type Of = Error;

    fn sources(&self) -> Option<Sources<Error>> {
        Some(|error| error)
    }
}

#[cfg(feature = "_sqlx")]
impl ProbeError for &ErrProbe<sqlx::Error> {
    type Of = sqlx::Error;

    fn sources(&self) -> Option<Sources<sqlx::Error>> {
        Some(|error| error)
    }
}

impl<E: StdError + ?Sized> ProbeError for &&ErrProbe<E> {
    type Of = E;

    fn sources(&self) -> Option<Sources<E>> {
        Some(|error| error.source().unwrap_or(&NoCause))
    }
}

/// What holds for every type: nothing is known.
pub trait ProbeNothing {
    /// The type.
    type Of: ?Sized;

    /// The argument is no part of the payload. By value, and so reached last of all.
    fn feed(self, _: &mut FingerprintBuilder)
    where
        Self: Sized,
    {
    }

    /// No equality.
    fn equality(&self) -> Option<Equality<Self::Of>> {
        None
    }

    /// No causes.
    fn sources(&self) -> Option<Sources<Self::Of>> {
        None
    }
}

impl<T: ?Sized> ProbeNothing for Probe<'_, T> {
    type Of = T;
}

impl<T: ?Sized> ProbeNothing for EqProbe<T> {
    type Of = T;
}

impl<T: ?Sized> ProbeNothing for ErrProbe<T> {
    type Of = T;
}
