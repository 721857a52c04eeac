//! Stage 3: tokens. A descriptor, one call of the runtime, the body. No decision is taken here that
//! is not in the plan.

use proc_macro2::{Delimiter, Group, Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, Type};

use super::access::Access;
use super::admission;
use super::args::{Codec, RecordErr, Tombstone, Ttl};
use super::companion;
use super::plan::{Capture, Identity, InProgress, Keep, Mode, Operation, Payload, Plan};
use crate::bindings::Binding;
use crate::hygiene::{allow_on_edge, allow_on_rebinding, allow_on_return, ours, ours_at};
use crate::template::{Segment, separators};

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
    let operation = operation(&plan.operation, &plan.mode, &scope, private);
    let call = call(plan, private);
    let keep = keep(plan);
    let contract = contract(plan, private);
    let run = match &plan.mode {
        Mode::Callers(access) => callers(plan, access, private),
        Mode::Own { pool, name, retry } => own(plan, pool, name, *retry, private),
    };
    let block = quote_spanned! {ours()=>
        #[allow(dead_code)]
        fn __idem_here() {}
        #[allow(dead_code)]
        static __IDEM_OPERATION: #private::Operation = #operation;
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

pub(super) fn operation(
    operation: &Operation,
    mode: &Mode,
    scope: &TokenStream,
    private: &TokenStream,
) -> TokenStream {
    let ttl = match operation.ttl {
        Ttl::Millis(millis) => quote_spanned!(ours()=> .retention_millis(#millis)),
        Ttl::Never => quote_spanned!(ours()=> .retention_forever()),
        Ttl::AtRunTime(_) => quote_spanned!(ours()=> .retention_at_run_time()),
    };
    let tombstone = operation.tombstone.map(|tombstone| match tombstone {
        Tombstone::Millis(millis) => quote_spanned!(ours()=> .tombstone_millis(#millis)),
        Tombstone::Forever => quote_spanned!(ours()=> .tombstone_forever()),
    });
    let in_progress = operation.in_progress.map(|in_progress| match in_progress {
        InProgress::Wait(millis) => quote_spanned!(ours()=> .wait_millis(#millis)),
        InProgress::Reject => quote_spanned!(ours()=> .reject()),
    });
    let lease = operation
        .lease
        .map(|millis| quote_spanned!(ours()=> .lease_millis(#millis)));
    let on_cancel = operation
        .on_cancel_release
        .then(|| quote_spanned!(ours()=> .on_cancel_release()));
    let on_crash = operation
        .on_crash_hold
        .then(|| quote_spanned!(ours()=> .on_crash_hold()));
    let on_lost_lease = operation
        .on_lost_lease_continue
        .then(|| quote_spanned!(ours()=> .on_lost_lease_continue()));
    let max_outcome = operation
        .max_outcome
        .map(|bytes| quote_spanned!(ours()=> .max_outcome(#bytes)));
    let oversize = operation
        .oversize_tombstone
        .then(|| quote_spanned!(ours()=> .oversize_tombstone()));
    let codec = operation.codec.map(|codec| match codec {
        Codec::Json => quote_spanned!(ours()=> .codec(#private::CodecId::Json)),
        Codec::MessagePack => quote_spanned!(ours()=> .codec(#private::CodecId::MessagePack)),
    });
    let schema = operation
        .schema
        .map(|version| quote_spanned!(ours()=> .schema(#version)));
    let hide = operation
        .hide_key_text
        .then(|| quote_spanned!(ours()=> .hide_key_text()));
    let retries = match mode {
        Mode::Own {
            retry: Some(times), ..
        } => Some(quote_spanned!(ours()=> .retries(#times))),
        _ => None,
    };
    quote_spanned! {ours()=>
        #private::Operation::new(#private::Scope::#scope)
            #ttl #tombstone #in_progress #lease #on_cancel #on_crash #on_lost_lease #max_outcome #oversize #codec #schema #hide #retries
    }
}

/// Key and fingerprint, before the body can move an argument.
fn call(plan: &Plan, private: &TokenStream) -> TokenStream {
    let key = key(plan, private);
    let payload = payload(&plan.payload, private);
    let identity = plan.identity.iter().map(|identity| match identity {
        Identity::Type(ty) => quote_spanned!(ours()=> ::core::any::type_name::<#ty>()),
        Identity::Value(binding) => {
            let (cfg, ident) = (&binding.cfg, &binding.ident);
            quote_spanned!(ours()=> #(#cfg)* ::core::any::type_name_of_val(&#ident))
        }
    });
    let prepared = quote_spanned! {ours()=>
        #private::Call::prepare(&__IDEM_OPERATION, &__idem_here, &[#(#identity),*], __idem_key, __idem_fingerprint)
    };
    let prepared = match &plan.operation.ttl {
        Ttl::AtRunTime(ttl) => at_run_time(ttl, &prepared),
        _ => prepared,
    };
    quote_spanned! {ours()=>
        #key
        #payload
        #prepared
    }
}

/// `__idem_key`, from the arguments.
pub(super) fn key(plan: &Plan, private: &TokenStream) -> TokenStream {
    let separators = separators(&plan.key);
    let segments = plan.key.iter().map(|segment| match segment {
        Segment::Literal(text) => quote_spanned!(ours()=> __idem_key.literal(#text);),
        Segment::Hole(hole) => {
            let (span, value) = (ours_at(hole.span), &hole.value);
            let at = plan.krate.private_at(span);
            quote_spanned!(span=> #at::key_part(&mut __idem_key, &#value);)
        }
    });
    quote_spanned! {ours()=>
        let mut __idem_key = #private::KeyBuilder::new(#separators);
        #(#segments)*
    }
}

fn at_run_time(ttl: &Expr, prepared: &TokenStream) -> TokenStream {
    let span = ours_at(ttl.span());
    let retained = quote_spanned!(span=> __idem_call.retain_for(#ttl));
    quote_spanned! {ours()=>
        match #prepared {
            ::core::result::Result::Ok(__idem_call) => #retained,
            ::core::result::Result::Err(__idem_error) => ::core::result::Result::Err(__idem_error),
        }
    }
}

fn payload(payload: &Payload, private: &TokenStream) -> TokenStream {
    let new =
        quote_spanned!(ours()=> let mut __idem_fingerprint = #private::FingerprintBuilder::new(););
    match payload {
        Payload::Nothing => quote_spanned! {ours()=>
            let __idem_fingerprint = #private::FingerprintBuilder::none();
        },
        Payload::Chosen(holes) => {
            let parts = holes.iter().map(|hole| {
                let (span, value) = (ours_at(hole.span), &hole.value);
                quote_spanned! {span=>
                    match &#value {
                        __idem_part => (&&#private::PartProbe(__idem_part)).way().feed(&mut __idem_fingerprint, __idem_part),
                    }
                }
            });
            quote_spanned! {ours()=>
                #new
                {
                    #[allow(unused_imports)]
                    use #private::{ProbeAnyPart as _, ProbeKeyPart as _};
                    #(#parts)*
                }
            }
        }
        Payload::Arguments(arguments) if arguments.is_empty() => quote_spanned! {ours()=>
            let __idem_fingerprint = #private::FingerprintBuilder::new();
        },
        Payload::Arguments(arguments) => {
            let parts = arguments.iter().map(|Binding { ident, cfg, .. }| {
                quote_spanned! {ours()=>
                    #(#cfg)*
                    (&&#private::Probe(&#ident)).feed(&mut __idem_fingerprint);
                }
            });
            quote_spanned! {ours()=>
                #new
                {
                    #[allow(unused_imports)]
                    use #private::{ProbeNothing as _, ProbeSerialize as _};
                    #(#parts)*
                }
            }
        }
    }
}

/// What the types promise, on the user's own type tokens: that is where a missing `Serialize` or
/// `From<idem::Error>` is reported.
fn contract(plan: &Plan, private: &TokenStream) -> TokenStream {
    let whole = &plan.answer.whole;
    let span = ours_at(whole.span());
    let at = plan.krate.private_at(span);
    let ok = named(plan.answer.ok.as_ref(), whole, "Ok", &at);
    let err = named(plan.answer.err.as_ref(), whole, "Err", &at);
    let recording = recording(plan, &err);
    let (new, equality) = match &plan.keep {
        None => (
            quote_spanned!(span=> #at::contract::<#ok, #err>()),
            quote_spanned!(span=> #private::EqProbe::<#ok>::new()),
        ),
        Some(keep) => {
            let span = ours_at(keep.part.span());
            (
                quote_spanned!(span=> __idem_keep.contract::<#err>()),
                quote_spanned!(span=> __idem_keep.probe()),
            )
        }
    };
    quote_spanned! {span=>
        #new
            .equality({
                #[allow(unused_imports)]
                use #private::{ProbeEq as _, ProbeNothing as _};
                (&&#equality).equality()
            })
            .sources({
                #[allow(unused_imports)]
                use #private::{ProbeError as _, ProbeNothing as _};
                (&&#private::ErrProbe::<#err>::new()).sources()
            })
            #recording
    }
}

/// Which errors are recorded.
pub(super) fn recording(plan: &Plan, err: &TokenStream) -> Option<TokenStream> {
    plan.record_err.as_ref().map(|record_err| match record_err {
        RecordErr::All => {
            let span = ours_at(err.span());
            quote_spanned!(span=> .recording_all())
        }
        RecordErr::If(closure @ Expr::Closure(_)) => {
            let span = ours_at(closure.span());
            quote_spanned!(span=> .recording(#closure))
        }
        RecordErr::If(path) => {
            let span = ours_at(path.span());
            quote_spanned!(span=> .recording(|__idem_error| #path(__idem_error)))
        }
    })
}

/// What is recorded instead of the answer, if something is.
fn keep(plan: &Plan) -> Option<TokenStream> {
    let part = &plan.keep.as_ref()?.part;
    let whole = &plan.answer.whole;
    let ok = named(
        plan.answer.ok.as_ref(),
        whole,
        "Ok",
        &plan.krate.private_at(ours_at(whole.span())),
    );
    let span = ours_at(part.span());
    let at = plan.krate.private_at(span);
    let part = match part {
        Expr::Closure(_) => quote_spanned!(span=> #part),
        path => quote_spanned!(span=> |__idem_value| #path(__idem_value)),
    };
    Some(quote_spanned!(span=> let __idem_keep = #at::Keep::<#ok, _>::new(#part);))
}

/// Sets the answer itself aside; from here on the result is what is kept of it.
fn part(keep: Option<&Keep>) -> Option<TokenStream> {
    keep.map(|_| {
        quote_spanned! {ours()=>
            let (__idem_result, __idem_value) = __idem_keep.part(__idem_result);
        }
    })
}

/// The answer of a first run, from what came of recording it.
fn first(keep: Option<&Keep>, recorded: TokenStream) -> TokenStream {
    match keep {
        None => recorded,
        Some(_) => {
            quote_spanned!(ours()=> __idem_contract.first(__idem_value, #recorded))
        }
    }
}

/// The answer of a replay, from `__idem_answer`.
fn replayed(plan: &Plan) -> TokenStream {
    let Some(Keep { name, rebuild, .. }) = &plan.keep else {
        return quote_spanned!(ours()=> __idem_answer);
    };
    let allow = allow_on_rebinding();
    let span = ours_at(rebuild.span());
    let at = plan.krate.private_at(span);
    let rebuilt = quote_spanned! {span=> {
        let __idem_rebuilt = ::core::future::IntoFuture::into_future(#rebuild).await;
        #at::rebuilt(&__idem_keep, __idem_rebuilt)
    }};
    quote_spanned! {ours()=>
        match __idem_answer {
            ::core::result::Result::Ok(__idem_kept) => {
                #allow
                let #name = __idem_kept;
                #rebuilt
            }
            ::core::result::Result::Err(__idem_error) => ::core::result::Result::Err(__idem_error),
        }
    }
}

/// The answer of a call that did not run, from `__idem_answer`: where its outcome is gone, and there
/// is a backstop, what that knows. `asked` asks it.
fn answered(plan: &Plan, asked: impl FnOnce(&TokenStream) -> TokenStream) -> TokenStream {
    let replayed = replayed(plan);
    let Some(expr) = &plan.backstop else {
        return replayed;
    };
    let span = ours_at(expr.span());
    let at = plan.krate.private_at(span);
    let known = quote_spanned! {span=>
        let __idem_said = ::core::future::IntoFuture::into_future(#expr).await;
        #at::Gone::unless_known(__idem_gone, __idem_said)
    };
    let asked = asked(&known);
    quote_spanned! {ours()=>
        match __idem_contract.unless_gone(__idem_answer) {
            ::core::result::Result::Ok(__idem_answer) => #replayed,
            ::core::result::Result::Err(__idem_gone) => { #asked }
        }
    }
}

/// The user's type, or its name through the whole return type when an alias hides it.
pub(super) fn named(
    ty: Option<&Type>,
    whole: &Type,
    side: &str,
    private: &TokenStream,
) -> TokenStream {
    if let Some(ty) = ty {
        return quote!(#ty);
    }
    let span = ours_at(whole.span());
    let side = Ident::new(side, span);
    quote_spanned!(span=> <#whole as #private::Answer>::#side)
}

/// The caller's transaction, or a leased store.
fn callers(plan: &Plan, access: &Access, private: &TokenStream) -> TokenStream {
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
fn own(
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

/// The body, driven to its end: statements and a value. `access` is what guards the call.
fn driven(plan: &Plan, access: &TokenStream, private: &TokenStream) -> TokenStream {
    let rebound = rebound(&plan.capture);
    let body = body(plan, access);
    let backstop = plan.backstop.as_ref().map(|_| {
        quote_spanned! {ours()=>
            let __idem_backstop = #private::Backstop::new();
            let __idem_asked = &__idem_backstop;
        }
    });
    let unless_answered = plan
        .backstop
        .as_ref()
        .map(|_| quote_spanned!(ours()=> .unless_answered_by(&__idem_backstop)));
    let token = plan
        .token
        .as_ref()
        .map(|_| quote_spanned!(ours()=> let __idem_slot = &__idem_permit;));
    let unless_refused = plan
        .token
        .as_ref()
        .map(|_| quote_spanned!(ours()=> .unless_refused_by(&__idem_permit)));
    if backstop.is_none() && token.is_none() {
        return quote_spanned!(ours()=> #rebound __idem_driver.drive(#body).await);
    }
    quote_spanned! {ours()=>
        #backstop
        #token
        #rebound
        let __idem_driven = __idem_driver.drive(#body).await;
        __idem_driven #unless_answered #unless_refused
    }
}

/// Asks the backstop first; with what it knows the body does not run.
fn backstop(plan: &Plan) -> Option<TokenStream> {
    let expr = plan.backstop.as_ref()?;
    let span = ours_at(expr.span());
    let at = plan.krate.private_at(span);
    Some(quote_spanned! {span=>
        let __idem_said = ::core::future::IntoFuture::into_future(#expr).await;
        if let ::core::option::Option::Some(__idem_known) = #at::Backstop::answer(__idem_asked, __idem_said) {
            return __idem_known;
        }
    })
}

/// The arguments that are used again after the body, under their own names.
fn rebound(capture: &Capture) -> TokenStream {
    let allow = allow_on_rebinding();
    let statement = |binding: &Binding, value: TokenStream| {
        let Binding { ident, cfg, .. } = binding;
        let mutable = binding.is_mut().then(|| quote_spanned!(ours()=> mut));
        quote_spanned!(ours()=> #(#cfg)* #allow let #mutable #ident = #value;)
    };
    let reborrowed = capture.reborrowed.iter().map(|binding| {
        let ident = &binding.ident;
        statement(binding, quote_spanned!(ours()=> &mut *#ident))
    });
    let cloned = capture.cloned.iter().map(|binding| {
        let ident = &binding.ident;
        let span = ours_at(ident.span());
        // A `mut` of the user's is for the copy that the body sees; it counts as used here.
        let source = if binding.is_mut() {
            quote_spanned!(span=> &*&mut #ident)
        } else {
            quote_spanned!(span=> &#ident)
        };
        statement(
            binding,
            quote_spanned!(span=> ::core::clone::Clone::clone(#source)),
        )
    });
    quote_spanned!(ours()=> #(#reborrowed)* #(#cloned)*)
}

/// The user's statements as a future.
fn body(plan: &Plan, access: &TokenStream) -> TokenStream {
    let capture = plan.capture.by_move.then(|| quote_spanned!(ours()=> move));
    let edge = edge(&plan.answer.whole, &plan.capture);
    let statements = plan.function.statements();
    // Braces of our own, so that the user's items stay in front of the user's statements; where the
    // user's are, so that a body without a value is reported there.
    let mut block = Group::new(Delimiter::Brace, statements.clone());
    block.set_span(ours_at(plan.function.body_span()));
    let backstop = backstop(plan);
    let admission = admission::admission(plan, access);
    quote_spanned! {ours()=> async #capture { #edge #backstop #admission #block } }
}

/// Never executed. It tells inference the declared return type before the body's first `return`,
/// and makes the block own what it must own: a block that is not `move` would only borrow what the
/// body only reads, and `&T` is not `Send` for every `T` that is.
fn edge(whole: &Type, capture: &Capture) -> TokenStream {
    let allow = allow_on_edge();
    let span = ours_at(whole.span());
    let moved = (!capture.by_move).then(|| {
        let moved = capture.moved.iter().map(
            |Binding { ident, cfg, .. }| quote_spanned!(ours()=> #(#cfg)* let __idem_moved = #ident;),
        );
        quote_spanned!(ours()=> #(#moved)*)
    });
    quote_spanned! {span=>
        #allow
        if false {
            #moved
            let __idem_edge: #whole = loop {};
            return __idem_edge;
        }
    }
}
