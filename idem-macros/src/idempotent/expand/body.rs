//! The user's statements, and what stands before them.

use proc_macro2::{Delimiter, Group, TokenStream};
use quote::quote_spanned;
use syn::Type;
use syn::spanned::Spanned;

use super::admission;
use crate::bindings::Binding;
use crate::hygiene::{allow_on_edge, allow_on_rebinding, ours, ours_at};
use crate::idempotent::plan::{Capture, Plan};

/// The body, driven to its end: statements and a value. `access` is what guards the call.
pub(super) fn driven(plan: &Plan, access: &TokenStream, private: &TokenStream) -> TokenStream {
    let rebound = rebound(&plan.capture);
    let body = body(plan, access);
    let backstop = plan.backstop.as_ref().map(|_| {
        quote_spanned! {ours()=>
            let __idem_backstop = #private::Backstop::new();
            let __idem_asked = &__idem_backstop;
        }
    });
    let unless_answered = plan
        .backstop
        .as_ref()
        .map(|_| quote_spanned!(ours()=> .unless_answered_by(&__idem_backstop)));
    let token = plan
        .token
        .as_ref()
        .map(|_| quote_spanned!(ours()=> let __idem_slot = &__idem_permit;));
    let unless_refused = plan
        .token
        .as_ref()
        .map(|_| quote_spanned!(ours()=> .unless_refused_by(&__idem_permit)));
    if backstop.is_none() && token.is_none() {
        return quote_spanned!(ours()=> #rebound __idem_driver.drive(#body).await);
    }
    quote_spanned! {ours()=>
        #backstop
        #token
        #rebound
        let __idem_driven = __idem_driver.drive(#body).await;
        __idem_driven #unless_answered #unless_refused
    }
}

/// Asks the backstop first; with what it knows the body does not run.
fn backstop(plan: &Plan) -> Option<TokenStream> {
    let expr = plan.backstop.as_ref()?;
    let span = ours_at(expr.span());
    let at = plan.krate.private_at(span);
    Some(quote_spanned! {span=>
        let __idem_said = ::core::future::IntoFuture::into_future(#expr).await;
        if let ::core::option::Option::Some(__idem_known) = #at::Backstop::answer(__idem_asked, __idem_said) {
            return __idem_known;
        }
    })
}

/// The arguments that are used again after the body, under their own names.
fn rebound(capture: &Capture) -> TokenStream {
    let allow = allow_on_rebinding();
    let statement = |binding: &Binding, value: TokenStream| {
        let Binding { ident, cfg, .. } = binding;
        let mutable = binding.is_mut().then(|| quote_spanned!(ours()=> mut));
        quote_spanned!(ours()=> #(#cfg)* #allow let #mutable #ident = #value;)
    };
    let reborrowed = capture.reborrowed.iter().map(|binding| {
        let ident = &binding.ident;
        statement(binding, quote_spanned!(ours()=> &mut *#ident))
    });
    let cloned = capture.cloned.iter().map(|binding| {
        let ident = &binding.ident;
        let span = ours_at(ident.span());
        // A `mut` of the user's is for the copy that the body sees; it counts as used here.
        let source = if binding.is_mut() {
            quote_spanned!(span=> &*&mut #ident)
        } else {
            quote_spanned!(span=> &#ident)
        };
        statement(
            binding,
            quote_spanned!(span=> ::core::clone::Clone::clone(#source)),
        )
    });
    quote_spanned!(ours()=> #(#reborrowed)* #(#cloned)*)
}

/// The user's statements as a future.
fn body(plan: &Plan, access: &TokenStream) -> TokenStream {
    let capture = plan.capture.by_move.then(|| quote_spanned!(ours()=> move));
    let edge = edge(&plan.answer.whole, &plan.capture);
    let statements = plan.function.statements();
    // Braces of our own, so that the user's items stay in front of the user's statements; where the
    // user's are, so that a body without a value is reported there.
    let mut block = Group::new(Delimiter::Brace, statements.clone());
    block.set_span(ours_at(plan.function.body_span()));
    let backstop = backstop(plan);
    let admission = admission::admission(plan, access);
    quote_spanned! {ours()=> async #capture { #edge #backstop #admission #block } }
}

/// Never executed. It tells inference the declared return type before the body's first `return`,
/// and makes the block own what it must own: a block that is not `move` would only borrow what the
/// body only reads, and `&T` is not `Send` for every `T` that is.
fn edge(whole: &Type, capture: &Capture) -> TokenStream {
    let allow = allow_on_edge();
    let span = ours_at(whole.span());
    let moved = (!capture.by_move).then(|| {
        let moved = capture.moved.iter().map(
            |Binding { ident, cfg, .. }| quote_spanned!(ours()=> #(#cfg)* let __idem_moved = #ident;),
        );
        quote_spanned!(ours()=> #(#moved)*)
    });
    quote_spanned! {span=>
        #allow
        if false {
            #moved
            let __idem_edge: #whole = loop {};
            return __idem_edge;
        }
    }
}
