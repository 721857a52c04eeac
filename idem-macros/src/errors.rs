//! Collects refusals, so that one compile reports all of them.

use std::fmt::Display;

use proc_macro2::Span;
use quote::ToTokens;

/// The refusals found so far. They must be taken out with [`Errors::into_result`]: a collector that
/// is dropped with refusals in it would let a wrong program through.
#[derive(Default)]
#[must_use]
pub(crate) struct Errors {
    combined: Option<syn::Error>,
    count: usize,
}

impl Errors {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Refuses what stands at `span`.
    pub(crate) fn at(&mut self, span: Span, message: impl Display) {
        self.add(syn::Error::new(span, message));
    }

    /// Refuses `tokens`, from the first to the last.
    pub(crate) fn on(&mut self, tokens: impl ToTokens, message: impl Display) {
        self.add(syn::Error::new_spanned(tokens, message));
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn add(&mut self, error: syn::Error) {
        self.count += 1;
        match &mut self.combined {
            Some(combined) => combined.combine(error),
            None => self.combined = Some(error),
        }
    }

    /// Takes the value out and keeps the refusal.
    pub(crate) fn keep<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    pub(crate) fn into_result(mut self) -> syn::Result<()> {
        self.combined.take().map_or(Ok(()), Err)
    }
}

impl Drop for Errors {
    fn drop(&mut self) {
        debug_assert!(
            self.combined.is_none() || std::thread::panicking(),
            "refusals were collected and not reported"
        );
    }
}
