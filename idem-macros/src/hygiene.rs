//! Where generated names live.
//!
//! Every generated token is *mixed-site*: a local of ours never meets a name of the user's, in
//! either direction, and lints know that nobody wrote the code. Items have no hygiene and carry the
//! prefix `__idem_`.

use proc_macro2::{Span, TokenStream};
use quote::quote;

/// The span of generated code.
pub(crate) fn ours() -> Span {
    Span::mixed_site()
}

/// The span of generated code that type errors should show at the user's own tokens.
pub(crate) fn ours_at(user: Span) -> Span {
    Span::mixed_site().located_at(user)
}

/// For `let tx = &mut *tx;` and its like: a generated binding of the user's own name.
pub(crate) fn allow_on_rebinding() -> TokenStream {
    quote! {
        #[allow(
            unused_variables,
            unused_mut,
            clippy::borrow_deref_ref,
            clippy::shadow_reuse,
            clippy::shadow_same,
            clippy::shadow_unrelated
        )]
    }
}

/// For the last statement: one lint wants a `return` there, another wants none.
pub(crate) fn allow_on_return() -> TokenStream {
    quote!(#[allow(clippy::needless_return)])
}

/// For the return edge, which is never executed.
pub(crate) fn allow_on_edge() -> TokenStream {
    quote! {
        #[allow(
            unreachable_code,
            clippy::diverging_sub_expression,
            clippy::empty_loop,
            clippy::let_unit_value,
            clippy::let_underscore_untyped,
            clippy::let_with_type_underscore,
            clippy::needless_return,
            clippy::no_effect_underscore_binding,
            clippy::unreachable
        )]
    }
}
