//! `#[idempotent]`: parse → validate → expand.

mod access;
mod answer;
mod args;
mod companion;
mod expand;
mod function;
mod keys;
mod one_time;
mod plan;
mod validate;
mod values;

use proc_macro2::TokenStream;

use self::args::RawArgs;
use self::function::Function;
use crate::errors::Errors;

/// The attribute. Whatever is wrong, the item stays: editors go on working on it, and its own errors
/// are reported in the same compile.
pub(crate) fn idempotent(args: TokenStream, item: TokenStream) -> TokenStream {
    try_expand(args, item.clone()).unwrap_or_else(|error| {
        let mut out = item;
        out.extend(error.into_compile_error());
        out
    })
}

fn try_expand(args: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let mut errors = Errors::new();
    let args = RawArgs::parse(args, &mut errors);
    let plan = Function::parse(item, &mut errors)
        .and_then(|function| validate::validate(args, function, &mut errors));
    errors.into_result()?;
    // Every refusal is an error, so there is a plan here.
    Ok(plan.as_ref().map(expand::expand).unwrap_or_default())
}

#[cfg(test)]
mod tests;
