//! The path that generated code finds the runtime under.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{Expr, Path};

use crate::hygiene::ours;

/// `::idem`, or what `crate = ::path` says.
#[derive(Clone, Default)]
pub(crate) struct CratePath(Option<Path>);

impl CratePath {
    /// Accepts absolute paths only: a relative one would be looked up in every module that uses the
    /// attribute.
    pub(crate) fn new(path: Path) -> syn::Result<Self> {
        let absolute = path.leading_colon.is_some()
            || path.segments.first().is_some_and(|first| {
                // `$crate` arrives as an identifier of that name.
                first.ident == "crate" || first.ident == "$crate"
            });
        if absolute {
            Ok(Self(Some(path)))
        } else {
            let shown = path.to_token_stream().to_string().replace(' ', "");
            Err(syn::Error::new_spanned(
                path,
                format_args!(
                    "the crate path must be absolute: write `crate = ::{shown}` or `crate = crate::{shown}`"
                ),
            ))
        }
    }

    pub(crate) fn from_expr(expr: &Expr) -> syn::Result<Self> {
        match expr {
            Expr::Path(path) if path.qself.is_none() => Self::new(path.path.clone()),
            other => Err(syn::Error::new_spanned(
                other,
                "`crate` takes an absolute path: `crate = ::my_reexport::idem`",
            )),
        }
    }

    /// The module whose names generated code uses.
    pub(crate) fn private(&self) -> TokenStream {
        self.private_at(ours())
    }

    /// The same, for a call whose type errors are to be shown at `span`.
    pub(crate) fn private_at(&self, span: Span) -> TokenStream {
        match &self.0 {
            // With its own spans: `$crate` means nothing without them.
            Some(path) => quote_spanned!(span=> #path::__private),
            None => quote_spanned!(span=> ::idem::__private),
        }
    }
}
