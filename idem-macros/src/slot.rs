//! The place of one attribute argument.

use proc_macro2::{Ident, Span};

use crate::errors::Errors;

/// An argument that may be given once. It remembers where, so that refusals can point at it.
#[derive(Default)]
pub(crate) enum Slot<T> {
    #[default]
    Absent,
    /// Not given under its name, but by something that could not be read.
    Meant,
    /// Given with a value that has been refused already; it is not missing.
    Refused,
    Given(Given<T>),
}

/// A value and the name it was given under.
pub(crate) struct Given<T> {
    pub(crate) name: Span,
    pub(crate) value: T,
}

impl<T> Slot<T> {
    /// Takes the value in; blames `name` if there is one already.
    pub(crate) fn set(&mut self, name: &Ident, value: syn::Result<T>, errors: &mut Errors) {
        let value = errors.keep(value);
        if matches!(self, Self::Refused | Self::Given(_)) {
            errors.at(name.span(), format_args!("`{name}` is given twice"));
            return;
        }
        *self = match value {
            Some(value) => Self::Given(Given {
                name: name.span(),
                value,
            }),
            None => Self::Refused,
        };
    }

    /// Something was meant to be given here: it is not missing.
    pub(crate) fn excuse(&mut self) {
        if matches!(self, Self::Absent) {
            *self = Self::Meant;
        }
    }

    /// Whether nothing was given, nor meant to be.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    pub(crate) fn given(&self) -> Option<&Given<T>> {
        match self {
            Self::Given(given) => Some(given),
            Self::Absent | Self::Meant | Self::Refused => None,
        }
    }

    pub(crate) fn value(&self) -> Option<&T> {
        self.given().map(|given| &given.value)
    }

    /// As [`Slot::value`], of an argument that must be there.
    pub(crate) fn required(&self, missing: &str, errors: &mut Errors) -> Option<&T> {
        if matches!(self, Self::Absent) {
            errors.at(Span::call_site(), missing);
        }
        self.value()
    }
}
