//! `companion`: a function beside the annotated one that takes by reference what the key is made of,
//! and asks for the record.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, FnArg, Pat, PatType, ReturnType, Type, parse_quote};

use super::args::RawArgs;
use super::expand::{key, named, operation, recording};
use super::function::Function;
use super::plan::{Companion, Identity, Plan};
use crate::bindings::{Binding, of_pattern, unparenthesised};
use crate::errors::Errors;
use crate::hygiene::{ours, ours_at};
use crate::slot::Given;
use crate::template::{Segment, plain};

/// What the companion takes, or why there can be none.
pub(super) fn plan(
    given: &Given<Ident>,
    args: &RawArgs,
    key: &[Segment],
    function: &Function,
    errors: &mut Errors,
) -> Option<Companion> {
    let name = &given.value;
    let before = errors.count();
    if plain(name) == plain(&function.sig.ident) {
        errors.at(
            name.span(),
            format_args!("`{name}` is the function itself: give its companion another name"),
        );
    }
    let receiver = function.bindings.iter().find(|binding| binding.is_self);
    if receiver.is_some_and(|receiver| receiver.ident != "self") {
        errors.at(
            given.name,
            "`companion` adds a function beside this one, and the implementation of a trait takes none: put `companion` on a method of the type and call that from here",
        );
    }
    let kept = match args.keep.value() {
        None => None,
        Some(Expr::Closure(closure)) if matches!(closure.output, ReturnType::Type(..)) => {
            match &closure.output {
                ReturnType::Type(_, ty) => Some((**ty).clone()),
                ReturnType::Default => None,
            }
        }
        Some(part) => {
            errors.on(
                part,
                "with `companion` the type of what is kept must be written down: make it a closure with its return type, as in `keep = |order: &Order| -> i64 { order.id }`",
            );
            None
        }
    };
    if errors.count() > before {
        return None;
    }
    let read = |binding: &Binding| {
        let name = binding.name();
        key.iter().any(|segment| match segment {
            Segment::Hole(hole) if binding.is_self => hole.root == "self",
            Segment::Hole(hole) => plain(&hole.root) == name,
            Segment::Literal(_) => false,
        })
    };
    // The type of an `impl Trait` argument is part of an identity that is derived.
    let named = |binding: &Binding| args.scope.given().is_none() && is_opaque(binding);
    let taken = |binding: &Binding| read(binding) || named(binding);
    let arguments = function.sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(argument) => {
            let bindings = of_pattern(&argument.pat, Some(&argument.ty), &argument.attrs);
            bindings.iter().any(taken).then(|| by_reference(argument))
        }
        FnArg::Receiver(_) => None,
    });
    Some(Companion {
        name: name.clone(),
        receiver: receiver.is_some_and(read),
        arguments: arguments.collect(),
        kept,
    })
}

fn is_opaque(binding: &Binding) -> bool {
    let ty = binding.ty.as_ref().map(unparenthesised);
    matches!(ty, Some(Type::ImplTrait(_)))
}

/// The argument as a shared reference, under the names that it has.
fn by_reference(argument: &PatType) -> PatType {
    let mut argument = argument.clone();
    argument.attrs.retain(|attr| attr.path().is_ident("cfg"));
    let mut plainly = Plainly { by_value: false };
    let ty = match unparenthesised(&argument.ty) {
        Type::Reference(reference) => {
            let mut reference = reference.clone();
            reference.mutability = None;
            Type::Reference(reference)
        }
        owned => {
            plainly.by_value = true;
            match owned {
                Type::ImplTrait(opaque) if opaque.bounds.len() > 1 => parse_quote!(&(#opaque)),
                owned => parse_quote!(&#owned),
            }
        }
    };
    *argument.ty = ty;
    plainly.visit_pat_mut(&mut argument.pat);
    argument
}

/// Takes `mut` off, and `ref` and `&` where the whole pattern now looks through a reference.
struct Plainly {
    by_value: bool,
}

impl VisitMut for Plainly {
    fn visit_pat_mut(&mut self, pat: &mut Pat) {
        if self.by_value
            && let Pat::Reference(reference) = pat
        {
            let inner = (*reference.pat).clone();
            *pat = inner;
            return self.visit_pat_mut(pat);
        }
        if let Pat::Ident(ident) = pat {
            ident.mutability = None;
            if self.by_value {
                ident.by_ref = None;
            }
        }
        // Of an argument that is a reference: it is a shared one here.
        if let Pat::Reference(reference) = pat {
            reference.mutability = None;
        }
        visit_mut::visit_pat_mut(self, pat);
    }
}

/// The companion, if one was asked for.
pub(super) fn expand(plan: &Plan) -> Option<TokenStream> {
    let companion = plan.companion.as_ref()?;
    let private = &plan.krate.private();
    let function = &plan.function;
    let (vis, cfg, generics) = (&function.vis, &function.cfg, &function.sig.generics);
    let (name, arguments) = (&companion.name, &companion.arguments);
    let of = plain(&function.sig.ident);
    let scope = match &plan.operation.scope {
        Some(name) => quote_spanned!(ours()=> fixed(#name)),
        None => quote_spanned!(ours()=> beside(#of)),
    };
    let operation = operation(&plan.operation, &plan.mode, &scope, private);
    let key = key(plan, private);
    let whole = &plan.answer.whole;
    let at = plan.krate.private_at(ours_at(whole.span()));
    let ok = match &companion.kept {
        Some(kept) => quote!(#kept),
        None => named(plan.answer.ok.as_ref(), whole, "Ok", &at),
    };
    let err = named(plan.answer.err.as_ref(), whole, "Err", &at);
    let recording = recording(plan, &err);
    let receiver = companion.receiver.then(|| quote!(&self,));
    let fixed = plan.operation.scope.is_some();
    let identity = plan
        .identity
        .iter()
        .filter(|_| !fixed)
        .map(|identity| match identity {
            Identity::Type(ty) => quote_spanned!(ours()=> ::core::any::type_name::<#ty>()),
            // A reference here, so not of the reference.
            Identity::Value(binding) => {
                let (cfg, ident) = (&binding.cfg, &binding.ident);
                quote_spanned!(ours()=> #(#cfg)* ::core::any::type_name_of_val(#ident))
            }
        });
    let (generic, bounds) = (&generics.params, &generics.where_clause);
    let generic = (!generic.is_empty()).then(|| quote!(<#generic>));
    let doc = format!(
        "The record of a call of `{of}`: asks how it stands, or forgets it, without running \
         anything. Takes what makes the key.\n\n# Errors\nThe arguments make no key: a part is \
         empty, or it is too long."
    );
    Some(quote_spanned! {ours()=>
        #[doc = #doc]
        #(#cfg)*
        #[allow(
            unused_variables,
            clippy::extra_unused_lifetimes,
            clippy::extra_unused_type_parameters,
            clippy::needless_lifetimes,
            clippy::ptr_arg,
            clippy::trivially_copy_pass_by_ref,
            clippy::unused_self
        )]
        #vis fn #name #generic (#receiver #(#arguments),*)
            -> ::core::result::Result<#private::CallRef<#ok, #err>, #private::Error>
        #bounds
        {
            #[allow(dead_code)]
            fn __idem_here() {}
            #[allow(dead_code)]
            static __IDEM_OPERATION: #private::Operation = #operation;
            #key
            #private::CallRef::new(
                &__IDEM_OPERATION,
                &__idem_here,
                &[#(#identity),*],
                __idem_key,
                #private::contract::<#ok, #err>() #recording,
            )
        }
    })
}
