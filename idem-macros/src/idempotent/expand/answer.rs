//! What a call answers: the whole, or what is made of the part that was kept.

use proc_macro2::TokenStream;
use quote::quote_spanned;
use syn::Expr;
use syn::spanned::Spanned;

use super::contract::named;
use crate::hygiene::{allow_on_rebinding, ours, ours_at};
use crate::idempotent::plan::{Keep, Plan};

/// What is recorded instead of the answer, if something is.
pub(super) fn keep(plan: &Plan) -> Option<TokenStream> {
    let part = &plan.keep.as_ref()?.part;
    let whole = &plan.answer.whole;
    let ok = named(
        plan.answer.ok.as_ref(),
        whole,
        "Ok",
        &plan.krate.private_at(ours_at(whole.span())),
    );
    let span = ours_at(part.span());
    let at = plan.krate.private_at(span);
    let part = match part {
        Expr::Closure(_) => quote_spanned!(span=> #part),
        path => quote_spanned!(span=> |__idem_value| #path(__idem_value)),
    };
    Some(quote_spanned!(span=> let __idem_keep = #at::Keep::<#ok, _>::new(#part);))
}

/// Sets the answer itself aside; from here on the result is what is kept of it.
pub(super) fn part(keep: Option<&Keep>) -> Option<TokenStream> {
    keep.map(|_| {
        quote_spanned! {ours()=>
            let (__idem_result, __idem_value) = __idem_keep.part(__idem_result);
        }
    })
}

/// The answer of a first run, from what came of recording it.
pub(super) fn first(keep: Option<&Keep>, recorded: TokenStream) -> TokenStream {
    match keep {
        None => recorded,
        Some(_) => {
            quote_spanned!(ours()=> __idem_contract.first(__idem_value, #recorded))
        }
    }
}

/// The answer of a replay, from `__idem_answer`.
fn replayed(plan: &Plan) -> TokenStream {
    let Some(Keep { name, rebuild, .. }) = &plan.keep else {
        return quote_spanned!(ours()=> __idem_answer);
    };
    let allow = allow_on_rebinding();
    let span = ours_at(rebuild.span());
    let at = plan.krate.private_at(span);
    let rebuilt = quote_spanned! {span=> {
        let __idem_rebuilt = ::core::future::IntoFuture::into_future(#rebuild).await;
        #at::rebuilt(&__idem_keep, __idem_rebuilt)
    }};
    quote_spanned! {ours()=>
        match __idem_answer {
            ::core::result::Result::Ok(__idem_kept) => {
                #allow
                let #name = __idem_kept;
                #rebuilt
            }
            ::core::result::Result::Err(__idem_error) => ::core::result::Result::Err(__idem_error),
        }
    }
}

/// The answer of a call that did not run, from `__idem_answer`: where its outcome is gone, and there
/// is a backstop, what that knows. `asked` asks it.
pub(super) fn answered(
    plan: &Plan,
    asked: impl FnOnce(&TokenStream) -> TokenStream,
) -> TokenStream {
    let replayed = replayed(plan);
    let Some(expr) = &plan.backstop else {
        return replayed;
    };
    let span = ours_at(expr.span());
    let at = plan.krate.private_at(span);
    let known = quote_spanned! {span=>
        let __idem_said = ::core::future::IntoFuture::into_future(#expr).await;
        #at::Gone::unless_known(__idem_gone, __idem_said)
    };
    let asked = asked(&known);
    quote_spanned! {ours()=>
        match __idem_contract.unless_gone(__idem_answer) {
            ::core::result::Result::Ok(__idem_answer) => #replayed,
            ::core::result::Result::Err(__idem_gone) => { #asked }
        }
    }
}
