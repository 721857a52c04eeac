//! How the store expression is used, by its syntax. Whether the type keeps a store's promise is
//! decided by the traits of the runtime.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::Expr;
use syn::spanned::Spanned;

use crate::bindings::{Binding, Mode};
use crate::hygiene::ours_at;
use crate::template::plain;

/// The store expression, ready to be evaluated any number of times.
#[derive(Clone)]
pub(super) enum Access {
    /// A place that can be borrowed mutably: `tx` of `tx: &mut Tx` as `*tx`, `self.tx`.
    Exclusive(TokenStream),
    /// A place that can be borrowed.
    Shared(TokenStream),
    /// A call: whatever it gives.
    Given(TokenStream),
}

impl Access {
    pub(super) fn of(expr: &Expr, bindings: &[Binding]) -> Self {
        match expr {
            Expr::Group(group) => Self::of(&group.expr, bindings),
            Expr::Paren(paren) => Self::of(&paren.expr, bindings),
            Expr::Reference(reference) if reference.mutability.is_some() => {
                match Self::of(&reference.expr, bindings) {
                    Self::Shared(_) => Self::Exclusive(reference.expr.to_token_stream()),
                    access => access,
                }
            }
            Expr::Reference(reference) => Self::Shared(reference.expr.to_token_stream()),
            Expr::Path(_) | Expr::Field(_) | Expr::Index(_) | Expr::Unary(_) => {
                Self::of_place(expr, bindings)
            }
            _ => Self::Given(expr.to_token_stream()),
        }
    }

    fn of_place(expr: &Expr, bindings: &[Binding]) -> Self {
        let whole = matches!(expr, Expr::Path(_));
        let span = ours_at(expr.span());
        let root = root(expr).and_then(|name| {
            bindings
                .iter()
                .find(|binding| binding.name() == plain(name))
        });
        match root.map(|root| root.mode) {
            Some(Mode::Exclusive) if whole => Self::Exclusive(quote_spanned!(span=> *#expr)),
            Some(Mode::Exclusive | Mode::Owned { mutable: true }) => {
                Self::Exclusive(expr.to_token_stream())
            }
            Some(Mode::Shared) if whole => Self::Shared(quote_spanned!(span=> *#expr)),
            _ => Self::Shared(expr.to_token_stream()),
        }
    }

    /// The argument of `enter` and `leave`.
    pub(super) fn exclusive(&self, private: &TokenStream) -> TokenStream {
        // One span for all of it: of two errors about one thing at one span the first is shown.
        let span = ours_at(self.span());
        match self {
            Self::Exclusive(place) => quote_spanned!(span=> &mut #place),
            Self::Shared(place) => quote_spanned!(span=> &mut #private::share(&#place)),
            Self::Given(expr) => quote_spanned!(span=> &mut (#expr)),
        }
    }

    /// The argument of `open`.
    pub(super) fn shared(&self) -> TokenStream {
        let span = ours_at(self.span());
        match self {
            Self::Exclusive(place) | Self::Shared(place) => quote_spanned!(span=> &#place),
            Self::Given(expr) => quote_spanned!(span=> &(#expr)),
        }
    }

    /// Where the user wrote it.
    pub(super) fn span(&self) -> Span {
        match self {
            Self::Exclusive(tokens) | Self::Shared(tokens) | Self::Given(tokens) => tokens.span(),
        }
    }

    /// Applies `rewrite` to the user's tokens.
    pub(super) fn map(self, rewrite: impl Fn(TokenStream) -> TokenStream) -> Self {
        match self {
            Self::Exclusive(tokens) => Self::Exclusive(rewrite(tokens)),
            Self::Shared(tokens) => Self::Shared(rewrite(tokens)),
            Self::Given(tokens) => Self::Given(rewrite(tokens)),
        }
    }
}

/// `self` of `self.pools[0].write`.
fn root(expr: &Expr) -> Option<&syn::Ident> {
    match expr {
        Expr::Path(path) => path.path.get_ident(),
        Expr::Field(field) => root(&field.base),
        Expr::Index(index) => root(&index.expr),
        Expr::Paren(paren) => root(&paren.expr),
        Expr::Group(group) => root(&group.expr),
        Expr::Unary(unary) => root(&unary.expr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;
    use syn::{Expr, Signature, parse_quote};

    use super::Access;
    use crate::bindings::of_signature;

    fn access(expr: Expr) -> String {
        let sig: Signature = parse_quote! {
            fn f(&mut self, tx: &mut Tx, store: &Memory, pool: Pool, mut own: Tx, (a, b): (&mut Tx, &Memory))
        };
        let access = Access::of(&expr, &of_signature(&sig));
        access.exclusive(&quote!(p)).to_string()
    }

    #[test]
    fn the_syntax_decides_how_the_store_is_borrowed() {
        for (expr, expected) in [
            (parse_quote!(tx), "&mut * tx"),
            (parse_quote!(&mut *tx), "&mut * tx"),
            (parse_quote!(&mut tx), "&mut * tx"),
            (parse_quote!(store), "&mut p::share (&*store)"),
            (parse_quote!(pool), "&mut p::share (&pool)"),
            (parse_quote!(&pool), "&mut p::share (&pool)"),
            (parse_quote!(own), "&mut own"),
            (parse_quote!(a), "&mut * a"),
            (parse_quote!(b), "&mut p::share (&*b)"),
            (parse_quote!(self), "&mut * self"),
            (parse_quote!(self.tx), "&mut self.tx"),
            (parse_quote!(&self.store), "&mut p::share (&self.store)"),
            (parse_quote!(STORE), "&mut p::share (&STORE)"),
            (parse_quote!(crate::STORE), "&mut p::share (&crate::STORE)"),
            (parse_quote!(self.store()), "&mut (self.store())"),
            (parse_quote!(stores::of(&pool)), "&mut (stores::of (&pool))"),
        ] {
            let expr: Expr = expr;
            let squashed = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(squashed(&access(expr)), squashed(expected));
        }
    }
}
