//! `#[derive(StateMachine)]`: parse, validate, expand. Every refusal is in the first two.

mod args;
mod diagram;
mod expand;
mod names;
mod validate;

use proc_macro2::TokenStream;
use syn::DeriveInput;

use crate::errors::Errors;

pub(crate) fn derive(input: TokenStream) -> TokenStream {
    try_derive(input).unwrap_or_else(syn::Error::into_compile_error)
}

fn try_derive(input: TokenStream) -> syn::Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let mut errors = Errors::new();
    let machine = validate::machine(&input, &mut errors);
    errors.into_result()?;
    Ok(machine
        .map(|machine| expand::expand(&machine))
        .unwrap_or_default())
}
