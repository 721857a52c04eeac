//! The code of a machine. It cannot fail.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::diagram::{dot, mermaid};
use super::validate::Machine;
use crate::hygiene::{ours, ours_at};

pub(super) fn expand(machine: &Machine) -> TokenStream {
    let inherent = inherent(machine);
    let traits = traits(machine);
    quote!(#inherent #traits)
}

/// Everything that works without a trait in scope, and in constants.
fn inherent(machine: &Machine) -> TokenStream {
    let private = machine.krate.private();
    let (ident, vis) = (&machine.ident, &machine.vis);
    let idents: Vec<_> = machine.states.iter().map(|state| &state.ident).collect();
    let texts: Vec<_> = machine.states.iter().map(|state| &state.text).collect();
    let exits: Vec<_> = machine
        .states
        .iter()
        .map(|state| {
            let exits = state.exits.iter().map(|exit| idents[*exit]);
            quote_spanned!(ours()=> &[#(Self::#exits),*])
        })
        .collect();
    let sources: Vec<_> = (0..machine.states.len())
        .map(|to| {
            let sources = machine.sources(to).map(|state| &state.ident);
            quote_spanned!(ours()=> &[#(Self::#sources),*])
        })
        .collect();
    let steps: Vec<_> = machine
        .states
        .iter()
        .flat_map(|state| {
            let from = &state.ident;
            let idents = &idents;
            state.exits.iter().map(move |exit| {
                let to = idents[*exit];
                quote_spanned!(ours()=> (Self::#from, Self::#to) => true,)
            })
        })
        .collect();
    let terminal = machine.states.iter().filter(|state| state.exits.is_empty());
    let terminal: Vec<_> = terminal.map(|state| &state.ident).collect();
    let initial = &machine.initial().ident;
    let (mermaid, dot) = (mermaid(machine), dot(machine));
    quote_spanned! {ours()=>
        #[automatically_derived]
        #[allow(dead_code, unreachable_patterns, unreachable_pub, clippy::all, clippy::pedantic, clippy::nursery)]
        impl #ident {
            /// Every state, in the order of declaration.
            #vis const ALL: &'static [Self] = &[#(Self::#idents),*];

            /// The state that a new row begins in.
            #vis const INITIAL: Self = Self::#initial;

            /// The text of the state, as it stands in its column.
            #[must_use]
            #vis const fn as_str(self) -> &'static ::core::primitive::str {
                match self { #(Self::#idents => #texts,)* }
            }

            /// The state of a text.
            ///
            /// # Errors
            /// If it is the text of none; the error names it.
            #vis fn parse(
                __text: &::core::primitive::str,
            ) -> ::core::result::Result<Self, #private::UnknownState> {
                #private::parse_state(__text)
            }

            /// Whether the transition is declared. To the same state it never is.
            #[must_use]
            #vis const fn can_transition_to(self, __to: Self) -> ::core::primitive::bool {
                match (self, __to) { #(#steps)* _ => false }
            }

            /// Whether no transition leads out of the state.
            #[must_use]
            #vis const fn is_terminal(self) -> ::core::primitive::bool {
                match self { #(Self::#terminal => true,)* _ => false }
            }

            /// The states that this one may go to.
            #[must_use]
            #vis const fn exits(self) -> &'static [Self] {
                match self { #(Self::#idents => #exits,)* }
            }

            /// The states that may go to `to`.
            #[must_use]
            #vis const fn sources_of(__to: Self) -> &'static [Self] {
                match __to { #(Self::#idents => #sources,)* }
            }

            /// The machine as a Mermaid state diagram.
            #[must_use]
            #vis const fn mermaid() -> &'static ::core::primitive::str { #mermaid }

            /// The machine as a Graphviz graph.
            #[must_use]
            #vis const fn dot() -> &'static ::core::primitive::str { #dot }
        }
    }
}

fn traits(machine: &Machine) -> TokenStream {
    let private = machine.krate.private();
    let ident = &machine.ident;
    let name = machine.name();
    // What the trait asks of the type is missing where the type is declared.
    let here = ours_at(ident.span());
    let state = quote_spanned!(here=> #private::State for #ident);
    quote_spanned! {ours()=>
        #[automatically_derived]
        impl #state {
            const NAME: &'static ::core::primitive::str = #name;
            const ALL: &'static [Self] = <#ident>::ALL;
            const INITIAL: Self = <#ident>::INITIAL;

            fn as_str(self) -> &'static ::core::primitive::str {
                <#ident>::as_str(self)
            }

            fn exits(self) -> &'static [Self] {
                <#ident>::exits(self)
            }

            fn sources(self) -> &'static [Self] {
                <#ident>::sources_of(self)
            }
        }

        #[automatically_derived]
        impl ::core::str::FromStr for #ident {
            type Err = #private::UnknownState;

            fn from_str(
                __text: &::core::primitive::str,
            ) -> ::core::result::Result<Self, #private::UnknownState> {
                #private::parse_state(__text)
            }
        }

        #private::impl_state_sqlx! { #ident }
    }
}
