//! The attribute and derive of `idem-rs`.

mod async_like;
mod bindings;
mod crate_path;
mod duration;
mod errors;
mod hygiene;
mod idempotent;
mod key_part;
mod literal;
mod slot;
mod suggest;
mod template;

use proc_macro::TokenStream;

/// Makes an `async fn` idempotent.
#[proc_macro_attribute]
pub fn idempotent(args: TokenStream, item: TokenStream) -> TokenStream {
    idempotent::idempotent(args.into(), item.into()).into()
}

/// Derives `KeyPart`.
#[proc_macro_derive(KeyPart, attributes(key_part))]
pub fn derive_key_part(input: TokenStream) -> TokenStream {
    key_part::derive(input.into()).into()
}
