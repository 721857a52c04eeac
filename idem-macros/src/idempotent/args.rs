//! Stage 1a: the attribute's tokens, argument by argument.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, Ident, Lit, LitStr, Token, parse::Parse};

use super::{one_time, values};
use crate::crate_path::CratePath;
use crate::errors::Errors;
use crate::slot::Slot;
use crate::suggest::{closest, did_you_mean, one_of};

/// Every argument and how it is written, for messages.
pub(super) const ARGUMENTS: [(&str, &str); 28] = [
    (
        "key",
        "`key = \"order:{req.order_no}\"` or `key(req.order_no)`",
    ),
    (
        "store",
        "`store = tx`, an expression over the arguments, `self` or a path",
    ),
    (
        "ttl",
        "`ttl = \"7d\"`, `ttl = \"never\"`, or an expression of type `Duration`",
    ),
    (
        "tombstone",
        "`tombstone = \"30d\"` or `tombstone = \"forever\"`",
    ),
    (
        "tx",
        "`tx = tx`, the name under which the body sees the framework's transaction",
    ),
    ("scope", "`scope = \"order.create\"`"),
    ("shared_scope", "`shared_scope` alone, beside `scope`"),
    (
        "fingerprint",
        "`fingerprint(req.amount)` or `fingerprint = none`",
    ),
    ("wait", "`wait = \"5s\"`"),
    ("reject", "`reject` alone"),
    (
        "lease",
        "`lease = \"30s\"`, or an expression of type `Duration`",
    ),
    (
        "on_cancel",
        "`on_cancel = \"hold\"` or `on_cancel = \"release\"`",
    ),
    (
        "on_crash",
        "`on_crash = \"rerun\"` or `on_crash = \"hold\"`",
    ),
    (
        "on_lost_lease",
        "`on_lost_lease = \"cancel\"` or `on_lost_lease = \"continue\"`",
    ),
    (
        "record_err",
        "`record_err = OrderError::is_final` or `record_err = all`",
    ),
    (
        "backstop",
        "`backstop = find_order(tx, &req.order_no)`, a future of `Result<Option<T>, E>`",
    ),
    (
        "token",
        "`token(tokens, &req.token, subject = user, operation = \"account.delete\")`",
    ),
    (
        "keep",
        "`keep = |order: &Order| order.id`, a closure or the path of a function",
    ),
    (
        "rebuild",
        "`rebuild = load_order(tx, kept)`, a future of `Result<T, E>`",
    ),
    ("max_outcome", "`max_outcome = \"64KiB\"`, in B, KiB or MiB"),
    (
        "oversize",
        "`oversize = \"refuse\"` or `oversize = \"tombstone\"`",
    ),
    ("codec", "`codec = \"json\"` or `codec = \"msgpack\"`"),
    ("schema", "`schema = 2`, a `u32`"),
    (
        "key_text",
        "`key_text = \"stored\"`, `\"hidden\"` or `\"shown\"`",
    ),
    ("retry", "`retry = 3`, from 1 to 100"),
    ("singleton", "`singleton` alone"),
    (
        "companion",
        "`companion = create_order_call`, the name of the function that asks for the record",
    ),
    ("crate", "`crate = ::path`"),
];

/// Names that other frameworks use, and ours.
const ALIASES: [(&str, &str); 17] = [
    ("expire", "ttl"),
    ("expires", "ttl"),
    ("expiry", "ttl"),
    ("retention", "ttl"),
    ("name", "scope"),
    ("operation", "scope"),
    ("prefix", "scope"),
    ("pool", "store"),
    ("db", "store"),
    ("backend", "store"),
    ("timeout", "wait"),
    ("transaction", "tx"),
    ("retries", "retry"),
    ("payload", "fingerprint"),
    ("version", "schema"),
    ("cache_err", "record_err"),
    ("status", "companion"),
];

/// The arguments as they are written; which of them go together is a question for validation.
#[derive(Default)]
pub(super) struct RawArgs {
    pub(super) key: Slot<Key>,
    pub(super) store: Slot<Expr>,
    pub(super) ttl: Slot<Ttl>,
    pub(super) tombstone: Slot<Tombstone>,
    pub(super) tx: Slot<Ident>,
    pub(super) scope: Slot<LitStr>,
    pub(super) shared_scope: Slot<()>,
    pub(super) fingerprint: Slot<Fingerprint>,
    pub(super) wait: Slot<u64>,
    pub(super) reject: Slot<()>,
    pub(super) lease: Slot<Lease>,
    pub(super) on_cancel: Slot<Policy>,
    pub(super) on_crash: Slot<Policy>,
    pub(super) on_lost_lease: Slot<Policy>,
    pub(super) record_err: Slot<RecordErr>,
    pub(super) backstop: Slot<Expr>,
    pub(super) token: Slot<OneTime>,
    pub(super) keep: Slot<Expr>,
    pub(super) rebuild: Slot<Expr>,
    pub(super) max_outcome: Slot<u64>,
    pub(super) oversize: Slot<Policy>,
    pub(super) codec: Slot<Codec>,
    pub(super) schema: Slot<u32>,
    pub(super) key_text: Slot<KeyText>,
    pub(super) retry: Slot<u32>,
    pub(super) singleton: Slot<()>,
    pub(super) companion: Slot<Ident>,
    pub(super) krate: Slot<CratePath>,
}

pub(super) enum Key {
    Template(LitStr),
    Parts(Span, Vec<Expr>),
}

#[derive(Clone)]
pub(super) enum Ttl {
    Millis(u64),
    Never,
    AtRunTime(Expr),
}

#[derive(Clone)]
pub(super) enum Lease {
    Millis(u64),
    AtRunTime(Expr),
}

/// How long the key is known after the ttl.
#[derive(Clone, Copy)]
pub(super) enum Tombstone {
    Millis(u64),
    Forever,
}

pub(super) enum Fingerprint {
    None,
    Parts(Vec<Expr>),
}

/// The one-time token that a call uses up.
pub(super) struct OneTime {
    /// Where tokens are kept.
    pub(super) tokens: Expr,
    pub(super) token: Expr,
    pub(super) subject: Expr,
    pub(super) operation: Expr,
}

#[derive(Clone)]
pub(super) enum RecordErr {
    All,
    If(Expr),
}

/// Of two words, one is what happens anyway.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    Default,
    Other,
}

#[derive(Clone, Copy)]
pub(super) enum Codec {
    Json,
    MessagePack,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyText {
    Hidden,
    Stored,
    Shown,
}

/// One argument.
pub(super) struct Argument {
    pub(super) name: Ident,
    pub(super) value: Value,
}

pub(super) enum Value {
    /// `reject`
    Flag,
    /// `key =`
    Missing,
    /// `scope = "order.create"`
    Text(LitStr),
    /// `store = tx`
    Expr(Expr),
    /// `key(req.merchant, req.order_no)`
    List(Group),
}

impl RawArgs {
    /// Reads as much as can be read; what cannot is refused and left out.
    pub(super) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let read = |input: ParseStream<'_>| {
            args.read(input, errors);
            Ok(())
        };
        if let Err(error) = read.parse2(tokens) {
            errors.add(error);
        }
        args
    }

    fn read(&mut self, input: ParseStream<'_>, errors: &mut Errors) {
        while !input.is_empty() {
            match input.parse::<Argument>() {
                Ok(argument) => self.take(&argument, errors),
                Err(error) => {
                    errors.add(error);
                    self.excuse_required();
                }
            }
            if !input.is_empty() && !input.peek(Token![,]) {
                errors.add(input.error("expected `,` before the next argument"));
            }
            // Absent only at the end.
            let _ = input.parse::<Option<Token![,]>>();
        }
    }

    fn take(&mut self, arg: &Argument, errors: &mut Errors) {
        let name = &arg.name;
        match name.to_string().as_str() {
            "key" => self.key.set(name, values::key(arg), errors),
            "store" => self.store.set(name, values::expression(arg), errors),
            "ttl" => self.ttl.set(name, values::ttl(arg), errors),
            "tombstone" => self.tombstone.set(name, values::tombstone(arg), errors),
            "tx" => self.tx.set(name, values::name(arg), errors),
            "scope" => self.scope.set(name, values::scope(arg), errors),
            "shared_scope" => self.shared_scope.set(name, values::flag(arg), errors),
            "fingerprint" => self.fingerprint.set(name, values::fingerprint(arg), errors),
            "wait" => self.wait.set(name, values::wait(arg), errors),
            "reject" => self.reject.set(name, values::flag(arg), errors),
            "lease" => self.lease.set(name, values::lease(arg), errors),
            "on_cancel" => self.on_cancel.set(name, values::on_cancel(arg), errors),
            "on_crash" => self.on_crash.set(name, values::on_crash(arg), errors),
            "on_lost_lease" => {
                self.on_lost_lease
                    .set(name, values::on_lost_lease(arg), errors);
            }
            "record_err" => self.record_err.set(name, values::record_err(arg), errors),
            "backstop" => self.backstop.set(name, values::expression(arg), errors),
            "token" => self.token.set(name, one_time::parse(arg), errors),
            "keep" => self.keep.set(name, values::function(arg), errors),
            "rebuild" => self.rebuild.set(name, values::expression(arg), errors),
            "max_outcome" => self.max_outcome.set(name, values::max_outcome(arg), errors),
            "oversize" => self.oversize.set(name, values::oversize(arg), errors),
            "codec" => self.codec.set(name, values::codec(arg), errors),
            "schema" => self.schema.set(name, values::schema(arg), errors),
            "key_text" => self.key_text.set(name, values::key_text(arg), errors),
            "retry" => self.retry.set(name, values::retry(arg), errors),
            "singleton" => self.singleton.set(name, values::flag(arg), errors),
            "companion" => self.companion.set(name, values::name(arg), errors),
            "crate" => self.krate.set(name, values::krate(arg), errors),
            unknown => self.unknown(unknown, name.span(), errors),
        }
    }

    fn unknown(&mut self, name: &str, span: Span, errors: &mut Errors) {
        let names = ARGUMENTS.map(|(name, _)| name);
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        let meant = alias
            .map(|&(_, ours)| ours)
            .or_else(|| closest(name, names));
        let suggestion = meant.map_or_else(String::new, did_you_mean);
        let all = one_of(names);
        errors.at(
            span,
            format_args!("unknown argument `{name}`{suggestion}: expected {all}"),
        );
        match meant {
            Some("key") => self.key.excuse(),
            Some("store") => self.store.excuse(),
            Some("ttl") => self.ttl.excuse(),
            _ => {}
        }
    }

    /// What could not be read may have been any of these.
    fn excuse_required(&mut self) {
        self.key.excuse();
        self.store.excuse();
        self.ttl.excuse();
    }
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = match input.call(Ident::parse_any) {
            Ok(name) => name,
            Err(_) => {
                let error = input.error(
                    "expected the name of an argument, as in `key = \"order:{req.order_no}\"`",
                );
                skip_to_comma(input);
                return Err(error);
            }
        };
        let value = Value::parse(&name, input).inspect_err(|_| skip_to_comma(input))?;
        Ok(Self { name, value })
    }
}

impl Value {
    fn parse(name: &Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        if input.is_empty() || input.peek(Token![,]) {
            return Ok(Self::Flag);
        }
        if input.parse::<Option<Token![=]>>()?.is_none() {
            return match input.parse::<TokenTree>()? {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
                    Ok(Self::List(group))
                }
                other => Err(syn::Error::new(
                    other.span(),
                    format_args!("expected `=`, `(` or `,` after `{name}`"),
                )),
            };
        }
        if input.is_empty() || input.peek(Token![,]) {
            return Ok(Self::Missing);
        }
        Ok(match ungrouped(input.parse()?) {
            Expr::Lit(lit) if lit.attrs.is_empty() => match lit.lit {
                Lit::Str(text) => Self::Text(text),
                _ => Self::Expr(Expr::Lit(lit)),
            },
            expr => Self::Expr(expr),
        })
    }
}

/// Takes off the invisible group around what came through a macro's `$x:expr`.
fn ungrouped(expr: Expr) -> Expr {
    match expr {
        Expr::Group(group) => ungrouped(*group.expr),
        expr => expr,
    }
}

fn skip_to_comma(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) {
        if input.parse::<TokenTree>().is_err() {
            return;
        }
    }
}
