//! What a function with `token` has more than others.

use proc_macro2::TokenStream;
use quote::quote_spanned;
use syn::spanned::Spanned;

use crate::hygiene::{ours, ours_at};
use crate::idempotent::plan::{OneTime, Plan};

/// Where the call keeps its token.
pub(super) fn permit(plan: &Plan, private: &TokenStream) -> Option<TokenStream> {
    let slot = quote_spanned!(ours()=> let __idem_permit = #private::PermitSlot::new(););
    plan.token.as_ref().map(|_| slot)
}

/// Takes the token for this call; without it the body does not run.
pub(super) fn admission(plan: &Plan, access: &TokenStream) -> Option<TokenStream> {
    let OneTime {
        tokens,
        token,
        subject,
        operation,
    } = plan.token.as_ref()?;
    let span = ours_at(tokens.span());
    let tokens = tokens.shared();
    let at = plan.krate.private_at(span);
    let text = |expr: &TokenStream| {
        let span = ours_at(expr.span());
        quote_spanned!(span=> ::core::convert::AsRef::<str>::as_ref(&#expr))
    };
    let (token, subject, operation) = (text(token), text(subject), text(operation));
    Some(quote_spanned! {span=>
        if let ::core::result::Result::Err(__idem_refused) = #at::PermitSlot::admit(
            __idem_slot,
            #access,
            #tokens,
            #at::Wanted {
                token: #token,
                subject: #subject,
                operation: #operation,
            },
        ).await {
            return ::core::result::Result::Err(#at::PermitSlot::refuse(__idem_slot, __idem_refused));
        }
    })
}
