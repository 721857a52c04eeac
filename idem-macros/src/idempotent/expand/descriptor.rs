//! The operation, its key and its fingerprint.

use proc_macro2::{Ident, TokenStream};
use quote::quote_spanned;
use syn::Expr;
use syn::spanned::Spanned;

use crate::bindings::Binding;
use crate::hygiene::{ours, ours_at};
use crate::idempotent::args::{Codec, KeyText, Lease, Tombstone, Ttl};
use crate::idempotent::plan::{Identity, InProgress, Mode, Operation, Payload, Plan};
use crate::template::{Segment, separators};

pub(in crate::idempotent) fn operation(
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
    let lease = match &operation.lease {
        Some(Lease::Millis(millis)) => Some(quote_spanned!(ours()=> .lease_millis(#millis))),
        Some(Lease::AtRunTime(_)) | None => None,
    };
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
    let key_text = match operation.key_text {
        KeyText::Stored => None,
        KeyText::Hidden => Some(quote_spanned!(ours()=> .key_text_is(#private::KeyText::Hidden))),
        KeyText::Shown => Some(quote_spanned!(ours()=> .key_text_is(#private::KeyText::Shown))),
    };
    let retries = match mode {
        Mode::Own {
            retry: Some(times), ..
        } => Some(quote_spanned!(ours()=> .retries(#times))),
        _ => None,
    };
    quote_spanned! {ours()=>
        #private::Operation::new(#private::Scope::#scope)
            #ttl #tombstone #in_progress #lease #on_cancel #on_crash #on_lost_lease #max_outcome #oversize #codec #schema #key_text #retries
    }
}

/// Key and fingerprint, before the body can move an argument.
pub(super) fn call(plan: &Plan, private: &TokenStream) -> TokenStream {
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
        Ttl::AtRunTime(ttl) => at_run_time("retain_for", ttl, &prepared),
        _ => prepared,
    };
    let prepared = match &plan.operation.lease {
        Some(Lease::AtRunTime(lease)) => at_run_time("lease_for", lease, &prepared),
        _ => prepared,
    };
    quote_spanned! {ours()=>
        #key
        #payload
        #prepared
    }
}

/// `__idem_key`, from the arguments.
pub(in crate::idempotent) fn key(plan: &Plan, private: &TokenStream) -> TokenStream {
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

/// A setting that is known at run time only.
fn at_run_time(setter: &str, value: &Expr, prepared: &TokenStream) -> TokenStream {
    let span = ours_at(value.span());
    let setter = Ident::new(setter, span);
    let set = quote_spanned!(span=> __idem_call.#setter(#value));
    quote_spanned! {ours()=>
        match #prepared {
            ::core::result::Result::Ok(__idem_call) => #set,
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
