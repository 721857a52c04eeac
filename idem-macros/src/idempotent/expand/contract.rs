//! What the types of an answer promise.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, Type};

use crate::hygiene::ours_at;
use crate::idempotent::args::RecordErr;
use crate::idempotent::plan::Plan;

/// What the types promise, on the user's own type tokens: that is where a missing `Serialize` or
/// `From<idem::Error>` is reported.
pub(super) fn contract(plan: &Plan, private: &TokenStream) -> TokenStream {
    let whole = &plan.answer.whole;
    let span = ours_at(whole.span());
    let at = plan.krate.private_at(span);
    let ok = named(plan.answer.ok.as_ref(), whole, "Ok", &at);
    let err = named(plan.answer.err.as_ref(), whole, "Err", &at);
    let recording = recording(plan, &err);
    let (new, equality) = match &plan.keep {
        None => (
            quote_spanned!(span=> #at::contract::<#ok, #err>()),
            quote_spanned!(span=> #private::EqProbe::<#ok>::new()),
        ),
        Some(keep) => {
            let span = ours_at(keep.part.span());
            (
                quote_spanned!(span=> __idem_keep.contract::<#err>()),
                quote_spanned!(span=> __idem_keep.probe()),
            )
        }
    };
    quote_spanned! {span=>
        #new
            .equality({
                #[allow(unused_imports)]
                use #private::{ProbeEq as _, ProbeNothing as _};
                (&&#equality).equality()
            })
            .sources({
                #[allow(unused_imports)]
                use #private::{ProbeError as _, ProbeNothing as _};
                (&&#private::ErrProbe::<#err>::new()).sources()
            })
            #recording
    }
}

/// Which errors are recorded.
pub(in crate::idempotent) fn recording(plan: &Plan, err: &TokenStream) -> Option<TokenStream> {
    plan.record_err.as_ref().map(|record_err| match record_err {
        RecordErr::All => {
            let span = ours_at(err.span());
            quote_spanned!(span=> .recording_all())
        }
        RecordErr::If(closure @ Expr::Closure(_)) => {
            let span = ours_at(closure.span());
            quote_spanned!(span=> .recording(#closure))
        }
        RecordErr::If(path) => {
            let span = ours_at(path.span());
            quote_spanned!(span=> .recording(|__idem_error| #path(__idem_error)))
        }
    })
}

/// The user's type, or its name through the whole return type when an alias hides it.
pub(in crate::idempotent) fn named(
    ty: Option<&Type>,
    whole: &Type,
    side: &str,
    private: &TokenStream,
) -> TokenStream {
    if let Some(ty) = ty {
        return quote!(#ty);
    }
    let span = ours_at(whole.span());
    let side = Ident::new(side, span);
    quote_spanned!(span=> <#whole as #private::Answer>::#side)
}
