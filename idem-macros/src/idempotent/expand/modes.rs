//! Who guards the call: the store that the caller names, or a transaction of the framework's own.

use proc_macro2::{Ident, TokenStream};
use quote::quote_spanned;

use super::admission;
use super::answer::{answered, first, part};
use super::body::driven;
use crate::hygiene::{allow_on_rebinding, allow_on_return, ours, ours_at};
use crate::idempotent::access::Access;
use crate::idempotent::plan::Plan;

/// The caller's transaction, or a leased store.
pub(super) fn callers(plan: &Plan, access: &Access, private: &TokenStream) -> TokenStream {
    let allow = allow_on_return();
    let span = ours_at(access.span());
    let at = plan.krate.private_at(span);
    let access = access.exclusive(&at);
    let driven = driven(plan, &access, private);
    let enter = quote_spanned!(span=> #at::enter(#access, __idem_call, &__idem_contract).await);
    let driver = quote_spanned!(span=> #at::Run::driver(&__idem_run));
    let part = part(plan.keep.as_ref());
    let permit = admission::permit(plan, private);
    let leave = match &plan.token {
        None => quote_spanned! {span=>
            #at::leave(#access, __idem_run, __idem_result, &__idem_contract).await
        },
        Some(_) => quote_spanned! {span=>
            #at::leave_with_token(#access, __idem_run, __idem_result, __idem_permit, &__idem_contract).await
        },
    };
    let leave = first(plan.keep.as_ref(), leave);
    let answered = answered(plan, TokenStream::clone);
    quote_spanned! {ours()=>
        let __idem_entered = #enter;
        #allow
        return match __idem_entered {
            #private::Entered::Answer(__idem_answer) => #answered,
            #private::Entered::Run(__idem_run) => {
                let __idem_driver = #driver;
                #permit
                let __idem_result = { #driven };
                #part
                #leave
            }
        };
    }
}

/// A transaction of the framework's own.
pub(super) fn own(
    plan: &Plan,
    pool: &Access,
    name: &Ident,
    retry: Option<u32>,
    private: &TokenStream,
) -> TokenStream {
    let allow = allow_on_return();
    let span = ours_at(pool.span());
    let at = plan.krate.private_at(span);
    let pool = pool.shared();
    let open = quote_spanned!(span=> #at::open(#pool, __idem_call, &__idem_contract).await);
    let permit = admission::permit(plan, private);
    let access = quote_spanned!(ours_at(name.span())=> &mut *#name);
    let driven = driven(plan, &access, private);
    let part = part(plan.keep.as_ref());
    let result = quote_spanned! {ours()=>
        let __idem_driver = #private::Run::driver(&__idem_run);
        #permit
        let __idem_result = {
            let #name = __idem_run.transaction();
            #driven
        };
        #part
    };
    let answered = answered(plan, |known| {
        let allow = allow_on_rebinding();
        let aside = quote_spanned!(span=> #at::aside(#pool, &__idem_contract).await);
        quote_spanned! {ours()=>
            match #aside {
                ::core::result::Result::Ok(mut __idem_tx) => {
                    let __idem_known = {
                        #allow
                        let #name = &mut __idem_tx;
                        #known
                    };
                    // It has only looked; failing to say so changes nothing.
                    let _ = __idem_tx.rollback().await;
                    __idem_known
                }
                ::core::result::Result::Err(__idem_error) => {
                    ::core::result::Result::Err(__idem_error)
                }
            }
        }
    });
    let run = match retry {
        None => {
            let close = quote_spanned! {ours()=>
                #private::close(__idem_run, __idem_result, &__idem_contract).await
            };
            let close = first(plan.keep.as_ref(), close);
            quote_spanned!(ours()=> { #result #close })
        }
        Some(_) => {
            let first = first(plan.keep.as_ref(), quote_spanned!(ours()=> __idem_answer));
            quote_spanned! {ours()=> loop {
                #result
                match #private::close_or_again(__idem_run, __idem_result, &__idem_contract).await {
                    #private::Closed::Answer(__idem_answer) => break #first,
                    #private::Closed::Replay(__idem_answer) => break #answered,
                    #private::Closed::Again(__idem_again) => __idem_run = __idem_again,
                }
            }}
        }
    };
    quote_spanned! {ours()=>
        let __idem_entered = #open;
        #allow
        return match __idem_entered {
            #private::Entered::Answer(__idem_answer) => #answered,
            #private::Entered::Run(mut __idem_run) => #run
        };
    }
}
