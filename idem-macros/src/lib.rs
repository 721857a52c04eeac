//! The attribute and derives of `idem-rs`, re-exported there. Generated code names only the hidden
//! module `__private` of that crate.

mod async_like;
mod bindings;
mod crate_path;
mod duration;
mod errors;
mod hygiene;
mod idempotent;
mod key_part;
mod literal;
mod size;
mod slot;
mod state_machine;
mod suggest;
mod template;

use proc_macro::TokenStream;

#[doc = include_str!("../docs/idempotent.md")]
#[proc_macro_attribute]
pub fn idempotent(args: TokenStream, item: TokenStream) -> TokenStream {
    idempotent::idempotent(args.into(), item.into()).into()
}

#[doc = include_str!("../docs/key_part.md")]
#[proc_macro_derive(KeyPart, attributes(key_part))]
pub fn derive_key_part(input: TokenStream) -> TokenStream {
    key_part::derive(input.into()).into()
}

#[doc = include_str!("../docs/state_machine.md")]
#[proc_macro_derive(StateMachine, attributes(state_machine, state))]
pub fn derive_state_machine(input: TokenStream) -> TokenStream {
    state_machine::derive(input.into()).into()
}
