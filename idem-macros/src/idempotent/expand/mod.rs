//! Stage 3: tokens. A descriptor, one call of the runtime, the body. No decision is taken here that
//! is not in the plan.

mod admission;
mod answer;
mod body;
mod contract;
mod descriptor;
mod modes;

pub(super) use contract::{named, recording};
pub(super) use descriptor::{key, operation};

use proc_macro2::TokenStream;
use quote::quote_spanned;

use super::companion;
use super::plan::{Mode, Plan};
use crate::hygiene::ours;

pub(super) fn expand(plan: &Plan) -> TokenStream {
    let mut out = function(plan);
    out.extend(companion::expand(plan));
    out
}

fn function(plan: &Plan) -> TokenStream {
    let private = &plan.krate.private();
    let scope = match &plan.operation.scope {
        Some(name) => quote_spanned!(ours()=> fixed(#name)),
        None => quote_spanned!(ours()=> derived()),
    };
    let operation = descriptor::operation(&plan.operation, &plan.mode, &scope, private);
    let unique = (!plan.operation.shared_scope).then(|| quote_spanned!(ours()=> .unique_scope()));
    let call = descriptor::call(plan, private);
    let keep = answer::keep(plan);
    let contract = contract::contract(plan, private);
    let run = match &plan.mode {
        Mode::Callers(access) => modes::callers(plan, access, private),
        Mode::Own { pool, name, retry } => modes::own(plan, pool, name, *retry, private),
    };
    let block = quote_spanned! {ours()=>
        #[allow(dead_code)]
        fn __idem_here() {}
        #[allow(dead_code)]
        static __IDEM_OPERATION: #private::Operation = #operation #unique;
        #keep
        let __idem_contract = #contract;
        let __idem_call = match { #call } {
            ::core::result::Result::Ok(__idem_call) => __idem_call,
            ::core::result::Result::Err(__idem_error) => {
                return __idem_contract.refuse(__idem_error);
            }
        };
        #run
    };
    plan.function.with_block(&block)
}
