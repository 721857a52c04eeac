//! Stage 2: every refusal that concerns more than one token. Gives a [`Plan`] or refuses.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Expr, GenericParam, Safety, Signature, Type};

use super::access::Access;
use super::answer;
use super::args::{Fingerprint, Key, KeyText, Lease, Policy, RawArgs, Ttl};
use super::companion;
use super::function::Function;
use super::keys;
use super::plan::{Capture, Identity, InProgress, Keep, Mode, OneTime, Operation, Payload, Plan};
use crate::bindings::{Binding, Mode as Holds, mentioned, rename_self, unparenthesised};
use crate::errors::Errors;
use crate::template::{self, Hole, plain};

/// Checks the arguments against the function.
pub(super) fn validate(args: RawArgs, function: Function, errors: &mut Errors) -> Option<Plan> {
    signature(&function.sig, errors);
    let answer = match function.output() {
        Some(ty) => answer::of(ty, errors),
        None => {
            errors.on(
                &function.sig.ident,
                "an idempotent function returns a `Result`: this one returns nothing, write `-> Result<(), E>`",
            );
            None
        }
    };
    let operation = operation(&args, errors);
    let key = key(&args, &function, errors);
    let store = args.store.required(
        "the store is missing: write `store = tx` for the caller's transaction, or any store",
        errors,
    );
    let payload = payload(&args, store, &function, errors);
    let mode = mode(&args, store, &function, errors);
    let keep = keep(&args, &function, errors);
    let companion = match (&key, args.companion.given()) {
        (Some(key), Some(companion)) => companion::plan(companion, &args, key, &function, errors),
        _ => None,
    };
    let (mode, operation) = (mode?, operation?);
    Some(Plan {
        krate: args.krate.value().cloned().unwrap_or_default(),
        key: key?,
        payload: payload?,
        identity: identity(&function),
        answer: answer?,
        record_err: args.record_err.value().cloned(),
        keep,
        backstop: args.backstop.value().map(|expr| {
            let tokens = expr.to_token_stream();
            rename_self(tokens, &function.bindings)
        }),
        token: one_time(&args, &function),
        capture: capture(&mode, store?, &function),
        companion,
        operation,
        mode,
        function,
    })
}

fn signature(sig: &Signature, errors: &mut Errors) {
    if let Some(abi) = &sig.abi {
        errors.on(
            abi,
            "an `extern` function has no `Result` of Rust's: put `#[idempotent]` on an `async fn` and call that",
        );
    }
    if let Some(variadic) = &sig.variadic {
        errors.on(
            variadic,
            "variadic arguments cannot be fingerprinted: name the arguments",
        );
    }
    if let Safety::Safe(token) = &sig.safety {
        errors.on(token, "`safe` belongs to foreign functions");
    }
    if sig.ident == "main" {
        errors.on(
            &sig.ident,
            "`main` is called once and has no arguments to make a key of: put `#[idempotent]` on the function it calls",
        );
    }
}

fn operation(args: &RawArgs, errors: &mut Errors) -> Option<Operation> {
    let in_progress = match (args.wait.given(), args.reject.given()) {
        (Some(_), Some(reject)) => {
            errors.at(
                reject.name,
                "`wait` and `reject` exclude each other: a duplicate either waits or is refused at once",
            );
            None
        }
        (Some(wait), None) => Some(InProgress::Wait(wait.value)),
        (None, Some(_)) => Some(InProgress::Reject),
        (None, None) => None,
    };
    let ttl = args.ttl.required(
        "the ttl is missing: how long is the outcome kept, as in `ttl = \"7d\"` or `ttl = \"never\"`?",
        errors,
    );
    if let (Some(Ttl::Millis(ttl)), Some(lease)) = (ttl, args.lease.given())
        && let Lease::Millis(millis) = &lease.value
        && ttl < millis
    {
        errors.at(
            lease.name,
            "the lease is longer than the ttl: the outcome would be gone before the reservation",
        );
    }
    if let (Some(Ttl::Never), Some(tombstone)) = (ttl, args.tombstone.given()) {
        errors.at(
            tombstone.name,
            "the outcome is kept for ever (`ttl = \"never\"`): there is no time after it for a tombstone",
        );
    }
    if let Some(shared) = args.shared_scope.given()
        && args.scope.is_absent()
    {
        errors.at(
            shared.name,
            "`shared_scope` needs `scope`: which name do the functions share, as in `scope = \"order.create\"`?",
        );
    }
    only_with_a_lease(args, errors);
    Some(Operation {
        scope: args.scope.value().map(syn::LitStr::value),
        shared_scope: args.shared_scope.given().is_some(),
        ttl: ttl?.clone(),
        tombstone: args.tombstone.value().copied(),
        in_progress,
        lease: args.lease.value().cloned(),
        on_cancel_release: args.on_cancel.value() == Some(&Policy::Other),
        on_crash_hold: args.on_crash.value() == Some(&Policy::Other),
        on_lost_lease_continue: args.on_lost_lease.value() == Some(&Policy::Other),
        max_outcome: args.max_outcome.value().copied(),
        oversize_tombstone: args.oversize.value() == Some(&Policy::Other),
        codec: args.codec.value().copied(),
        schema: args.schema.value().copied(),
        key_text: args.key_text.value().copied().unwrap_or(KeyText::Stored),
    })
}

/// A transaction ends by itself with whoever holds it: there is nothing to hold or to take over.
fn only_with_a_lease(args: &RawArgs, errors: &mut Errors) {
    if args.tx.given().is_none() {
        return;
    }
    for (name, policy) in [
        ("on_cancel", &args.on_cancel),
        ("on_crash", &args.on_crash),
        ("on_lost_lease", &args.on_lost_lease),
    ] {
        if let Some(policy) = policy.given() {
            errors.at(
                policy.name,
                format_args!(
                    "`{name}` is for stores with a lease: with `tx` the database rolls back what did not end"
                ),
            );
        }
    }
}

/// The name of what is kept, in `rebuild`.
const KEPT: &str = "kept";

fn keep(args: &RawArgs, function: &Function, errors: &mut Errors) -> Option<Keep> {
    let (keep, rebuild) = match (args.keep.given(), args.rebuild.given()) {
        (Some(keep), Some(rebuild)) => (keep, rebuild),
        (Some(keep), None) => {
            if args.rebuild.is_absent() {
                errors.at(
                    keep.name,
                    "`keep` needs `rebuild`: how is the answer made again, as in `rebuild = load_order(tx, kept)`?",
                );
            }
            return None;
        }
        (None, Some(rebuild)) => {
            if args.keep.is_absent() {
                errors.at(
                    rebuild.name,
                    "`rebuild` needs `keep`: what is it made from, as in `keep = |order: &Order| order.id`?",
                );
            }
            return None;
        }
        (None, None) => return None,
    };
    if let Some(argument) = function
        .bindings
        .iter()
        .find(|binding| binding.name() == KEPT)
    {
        errors.at(
            argument.ident.span(),
            "with `keep` the name `kept` is taken by what is kept: rename the argument",
        );
        return None;
    }
    let tokens = rebuild.value.to_token_stream();
    let name = find(&tokens, KEPT).unwrap_or_else(|| Ident::new(KEPT, Span::call_site()));
    Some(Keep {
        part: keep.value.clone(),
        name,
        rebuild: rename_self(tokens, &function.bindings),
    })
}

/// The name as the user wrote it, wherever a macro may have put it together.
fn find(tokens: &TokenStream, name: &str) -> Option<Ident> {
    tokens.clone().into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) if ident == name => Some(ident),
        TokenTree::Group(group) => find(&group.stream(), name),
        _ => None,
    })
}

fn one_time(args: &RawArgs, function: &Function) -> Option<OneTime> {
    let given = args.token.value()?;
    let renamed = |expr: &Expr| rename_self(expr.to_token_stream(), &function.bindings);
    Some(OneTime {
        tokens: access(&given.tokens, function),
        token: renamed(&given.token),
        subject: renamed(&given.subject),
        operation: renamed(&given.operation),
    })
}

fn key(args: &RawArgs, function: &Function, errors: &mut Errors) -> Option<Vec<template::Segment>> {
    let key = args.key.required(
        "the key is missing: which arguments identify the call, as in `key = \"order:{req.order_no}\"`?",
        errors,
    )?;
    let before = errors.count();
    let (segments, span) = match key {
        Key::Template(literal) => (template::from_literal(literal, errors), literal.span()),
        Key::Parts(span, parts) => (template::from_parts(parts, errors), *span),
    };
    // What is left of a broken template would be refused for what is missing.
    if errors.count() > before {
        return None;
    }
    keys::check(&segments, span, args.singleton.given(), function, errors);
    Some(keys::renamed(segments, &function.bindings))
}

fn payload(
    args: &RawArgs,
    store: Option<&Expr>,
    function: &Function,
    errors: &mut Errors,
) -> Option<Payload> {
    match args.fingerprint.value() {
        Some(Fingerprint::None) => Some(Payload::Nothing),
        Some(Fingerprint::Parts(parts)) => {
            let holes: Vec<Hole> = parts
                .iter()
                .filter_map(|part| errors.keep(Hole::from_expr(part)))
                .collect();
            for hole in &holes {
                keys::check_name(hole, function, errors);
            }
            let renamed = |hole: Hole| Hole {
                value: rename_self(hole.value, &function.bindings),
                ..hole
            };
            Some(Payload::Chosen(holes.into_iter().map(renamed).collect()))
        }
        None => {
            let of_store = roots(store?, function);
            let fed = |binding: &&Binding| {
                !binding.is_self && !of_store.iter().any(|root| root.ident == binding.ident)
            };
            let arguments = function.bindings.iter().filter(fed).cloned().collect();
            Some(Payload::Arguments(arguments))
        }
    }
}

fn roots<'a>(store: &Expr, function: &'a Function) -> Vec<&'a Binding> {
    mentioned(&store.to_token_stream(), &function.bindings)
}

fn mode(
    args: &RawArgs,
    store: Option<&Expr>,
    function: &Function,
    errors: &mut Errors,
) -> Option<Mode> {
    let retry = args.retry.given();
    let Some(tx) = args.tx.given() else {
        if let Some(retry) = retry {
            errors.at(
                retry.name,
                "`retry` needs `tx`: only a transaction of the framework's own can be run again here, the caller's is the caller's",
            );
        }
        return Some(Mode::Callers(access(store?, function)));
    };
    let name = &tx.value;
    if function
        .bindings
        .iter()
        .any(|binding| binding.name() == plain(name))
    {
        errors.at(
            name.span(),
            format_args!(
                "`{name}` is an argument already: give the framework's transaction a name of its own, or leave `tx` out to use the caller's"
            ),
        );
    }
    Some(Mode::Own {
        pool: access(store?, function),
        name: name.clone(),
        retry: retry.map(|retry| retry.value),
    })
}

fn access(store: &Expr, function: &Function) -> Access {
    Access::of(store, &function.bindings).map(|tokens| rename_self(tokens, &function.bindings))
}

/// The type arguments: with a derived scope, `f::<A>` and `f::<B>` are two operations.
fn identity(function: &Function) -> Vec<Identity> {
    let sig = &function.sig;
    let of_param = |param: &GenericParam| match param {
        GenericParam::Type(param) => Some(Identity::Type(param.ident.to_token_stream())),
        _ => None,
    };
    let mut found: Vec<Identity> = sig.generics.params.iter().filter_map(of_param).collect();
    let opaque = |binding: &&Binding| {
        let ty = binding.ty.as_ref().map(unparenthesised);
        matches!(ty, Some(Type::ImplTrait(_)))
    };
    let opaque = function.bindings.iter().filter(opaque).cloned();
    found.extend(opaque.map(Box::new).map(Identity::Value));
    if sig.receiver().is_some() || mentions_self(quote!(#sig)) {
        found.push(Identity::Type(quote!(Self)));
    }
    found
}

fn mentions_self(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == "Self",
        TokenTree::Group(group) => mentions_self(group.stream()),
        _ => false,
    })
}

/// How the body's block gets at the arguments: the store is used again after it, so what the store
/// expression is made of must not move into it, while everything else must, or the future would
/// hold shared references and stop being `Send`.
fn capture(mode: &Mode, store: &Expr, function: &Function) -> Capture {
    let retried = matches!(mode, Mode::Own { retry: Some(_), .. });
    let kept: Vec<&Binding> = match mode {
        Mode::Callers(_) => roots(store, function),
        Mode::Own { .. } if retried => function.bindings.iter().collect(),
        Mode::Own { .. } => Vec::new(),
    };
    let is_kept = |binding: &Binding| kept.iter().any(|kept| kept.ident == binding.ident);
    // A receiver cannot be bound again under its name.
    let rebindable = |binding: &Binding| binding.ident != "self";

    let mut capture = Capture {
        by_move: true,
        reborrowed: Vec::new(),
        cloned: Vec::new(),
        moved: Vec::new(),
    };
    for binding in &function.bindings {
        let binding = binding.clone();
        match (is_kept(&binding), binding.mode) {
            (true, Holds::Exclusive) if rebindable(&binding) => {
                capture.reborrowed.push(binding.clone());
                capture.moved.push(binding);
            }
            (true, Holds::Owned { .. }) if retried && rebindable(&binding) => {
                capture.cloned.push(binding.clone());
                capture.moved.push(binding);
            }
            (true, Holds::Shared) | (false, _) => capture.moved.push(binding),
            // Used where it is: it cannot be had twice.
            (true, _) => capture.by_move = false,
        }
    }
    capture
}
