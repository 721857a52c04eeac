//! The value of each argument, in its string form and its token form.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, Ident, Lit, LitStr, Token, UnOp};

use super::args::{
    ARGUMENTS, Argument, Codec, Fingerprint, Key, KeyText, Lease, Policy, RecordErr, Tombstone,
    Ttl, Value,
};
use crate::crate_path::CratePath;
use crate::{duration, size};

/// At least this long, so that a renewal can arrive in time.
const MIN_LEASE_MILLIS: u64 = 100;
const MAX_RETRIES: u32 = 100;
/// As in the runtime.
const MAX_SCOPE_CHARS: usize = 200;

impl Argument {
    fn span(&self) -> Span {
        match &self.value {
            Value::Flag | Value::Missing => self.name.span(),
            Value::Text(text) => text.span(),
            Value::Expr(expr) => expr.span(),
            Value::List(group) => group.span(),
        }
    }

    pub(super) fn refuse<T>(&self, message: impl std::fmt::Display) -> syn::Result<T> {
        Err(match &self.value {
            Value::Expr(expr) => syn::Error::new_spanned(expr, message),
            _ => syn::Error::new(self.span(), message),
        })
    }

    pub(super) fn wrong_kind<T>(&self) -> syn::Result<T> {
        self.refuse(wrong_kind_text(&self.name))
    }

    /// A word in either form: `codec = json`, `codec = "json"`.
    fn word(&self) -> Option<String> {
        match &self.value {
            Value::Text(text) => Some(text.value()),
            Value::Expr(Expr::Path(path)) => path.path.get_ident().map(Ident::to_string),
            _ => None,
        }
    }

    /// A duration in either form: `wait = "5s"`, `wait = 5s`.
    fn duration(&self) -> Option<syn::Result<u64>> {
        self.measure(duration::parse)
    }

    /// A number with a unit, as text or as tokens.
    fn measure(&self, parse: fn(&str) -> Result<u64, String>) -> Option<syn::Result<u64>> {
        let text = match &self.value {
            Value::Text(text) => text.value(),
            Value::Expr(Expr::Lit(lit)) => match &lit.lit {
                Lit::Int(int) => int.to_string(),
                Lit::Float(float) => float.to_string(),
                _ => return None,
            },
            Value::Expr(Expr::Unary(unary)) if matches!(unary.op, UnOp::Neg(_)) => {
                unary.to_token_stream().to_string()
            }
            _ => return None,
        };
        Some(parse(&text).or_else(|message| self.refuse(message)))
    }

    /// One of two words; the first is what happens anyway.
    fn policy(&self, default: &str, other: &str) -> syn::Result<Policy> {
        match self.word() {
            Some(word) if word == default => Ok(Policy::Default),
            Some(word) if word == other => Ok(Policy::Other),
            Some(word) => self.refuse(format_args!(
                "unknown `{}` `{word}`: there are `{default}` and `{other}`",
                self.name
            )),
            None => self.wrong_kind(),
        }
    }

    fn number(&self) -> Option<syn::Result<u32>> {
        match &self.value {
            Value::Text(text) => Some(text.value().trim().parse().or_else(|_| self.wrong_kind())),
            Value::Expr(Expr::Lit(lit)) => match &lit.lit {
                Lit::Int(int) => Some(int.base10_parse().or_else(|_| self.wrong_kind())),
                _ => None,
            },
            _ => None,
        }
    }
}

fn wrong_kind_text(name: &Ident) -> String {
    let form = ARGUMENTS
        .iter()
        .find(|(known, _)| name == known)
        .map_or("with a value", |(_, form)| form);
    format!("`{name}` is written {form}")
}

pub(super) fn key(arg: &Argument) -> syn::Result<Key> {
    match &arg.value {
        Value::Text(text) if text.value().is_empty() => arg.refuse("the key is empty"),
        Value::Text(text) => Ok(Key::Template(text.clone())),
        Value::List(group) => match list(group.stream())? {
            parts if parts.is_empty() => arg.refuse("the key is empty"),
            parts => Ok(Key::Parts(group.span(), parts)),
        },
        _ => arg.wrong_kind(),
    }
}

pub(super) fn expression(arg: &Argument) -> syn::Result<Expr> {
    match &arg.value {
        Value::Expr(Expr::Lit(_)) => arg.wrong_kind(),
        Value::Expr(expr) => Ok(expr.clone()),
        Value::Text(text) => text.parse().or_else(|_| arg.wrong_kind()),
        _ => arg.wrong_kind(),
    }
}

pub(super) fn ttl(arg: &Argument) -> syn::Result<Ttl> {
    if arg.word().as_deref() == Some("never") {
        return Ok(Ttl::Never);
    }
    match (arg.duration(), &arg.value) {
        (Some(millis), _) => millis.map(Ttl::Millis),
        (None, Value::Expr(Expr::Lit(_))) => arg.wrong_kind(),
        (None, Value::Expr(expr)) => Ok(Ttl::AtRunTime(expr.clone())),
        _ => arg.wrong_kind(),
    }
}

pub(super) fn tombstone(arg: &Argument) -> syn::Result<Tombstone> {
    if arg.word().as_deref() == Some("forever") {
        return Ok(Tombstone::Forever);
    }
    match arg.duration() {
        Some(millis) => millis.map(Tombstone::Millis),
        None => arg.wrong_kind(),
    }
}

/// A name that is to be bound.
pub(super) fn name(arg: &Argument) -> syn::Result<Ident> {
    let ident = match &arg.value {
        Value::Text(text) => text.parse::<Ident>().ok(),
        Value::Expr(Expr::Path(path)) => path.path.get_ident().cloned(),
        _ => None,
    };
    match ident {
        Some(ident) if ident != "self" => Ok(ident),
        _ => arg.wrong_kind(),
    }
}

pub(super) fn scope(arg: &Argument) -> syn::Result<LitStr> {
    let Value::Text(text) = &arg.value else {
        return arg.wrong_kind();
    };
    let name = text.value();
    if name.is_empty() {
        return arg
            .refuse("the scope is empty: leave the argument out for the function's own path");
    }
    if name.trim() != name {
        return arg.refuse("the scope begins or ends with white space");
    }
    if name.chars().any(char::is_control) {
        return arg.refuse("the scope contains a control character");
    }
    let chars = name.chars().count();
    if chars > MAX_SCOPE_CHARS {
        return arg.refuse(format_args!(
            "the scope has {chars} characters, at most {MAX_SCOPE_CHARS} are taken"
        ));
    }
    Ok(text.clone())
}

pub(super) fn fingerprint(arg: &Argument) -> syn::Result<Fingerprint> {
    if arg.word().as_deref() == Some("none") {
        return Ok(Fingerprint::None);
    }
    let parts = match &arg.value {
        Value::List(group) => list(group.stream())?,
        Value::Text(text) => text
            .parse_with(Punctuated::<Expr, Token![,]>::parse_terminated)
            .or_else(|_| arg.wrong_kind())?
            .into_iter()
            .collect(),
        Value::Expr(expr @ (Expr::Path(_) | Expr::Field(_) | Expr::MethodCall(_))) => {
            vec![expr.clone()]
        }
        _ => return arg.wrong_kind(),
    };
    if parts.is_empty() {
        return arg.refuse(
            "no part of the payload is chosen: write `fingerprint = none` if none is to be compared",
        );
    }
    Ok(Fingerprint::Parts(parts))
}

pub(super) fn wait(arg: &Argument) -> syn::Result<u64> {
    match arg.duration() {
        Some(Ok(millis)) => Ok(millis),
        Some(Err(_)) if is_zero(arg) => {
            arg.refuse("a wait of zero: write `reject` instead, which refuses a duplicate at once")
        }
        Some(Err(error)) => Err(error),
        None => arg.wrong_kind(),
    }
}

fn is_zero(arg: &Argument) -> bool {
    let text = match &arg.value {
        Value::Text(text) => text.value(),
        Value::Expr(expr) => expr.to_token_stream().to_string(),
        _ => return false,
    };
    let mut digits = text.chars().filter(char::is_ascii_digit).peekable();
    digits.peek().is_some() && digits.all(|digit| digit == '0')
}

pub(super) fn lease(arg: &Argument) -> syn::Result<Lease> {
    match (arg.duration(), &arg.value) {
        (Some(Ok(millis)), _) if millis < MIN_LEASE_MILLIS => arg.refuse(format_args!(
            "a lease below {MIN_LEASE_MILLIS}ms cannot be renewed in time"
        )),
        (Some(millis), _) => millis.map(Lease::Millis),
        (None, Value::Expr(Expr::Lit(_))) => arg.wrong_kind(),
        (None, Value::Expr(expr)) => Ok(Lease::AtRunTime(expr.clone())),
        _ => arg.wrong_kind(),
    }
}

pub(super) fn on_cancel(arg: &Argument) -> syn::Result<Policy> {
    arg.policy("hold", "release")
}

pub(super) fn on_crash(arg: &Argument) -> syn::Result<Policy> {
    arg.policy("rerun", "hold")
}

pub(super) fn on_lost_lease(arg: &Argument) -> syn::Result<Policy> {
    arg.policy("cancel", "continue")
}

pub(super) fn record_err(arg: &Argument) -> syn::Result<RecordErr> {
    if arg.word().as_deref() == Some("all") {
        return Ok(RecordErr::All);
    }
    function(arg).map(RecordErr::If)
}

/// A closure, or the path of a function.
pub(super) fn function(arg: &Argument) -> syn::Result<Expr> {
    let expr = match &arg.value {
        Value::Text(text) => text.parse().or_else(|_| arg.wrong_kind())?,
        Value::Expr(expr) => expr.clone(),
        _ => return arg.wrong_kind(),
    };
    match expr {
        Expr::Path(_) | Expr::Closure(_) => Ok(expr),
        _ => arg.wrong_kind(),
    }
}

pub(super) fn max_outcome(arg: &Argument) -> syn::Result<u64> {
    arg.measure(size::parse).unwrap_or_else(|| arg.wrong_kind())
}

pub(super) fn oversize(arg: &Argument) -> syn::Result<Policy> {
    arg.policy("refuse", "tombstone")
}

pub(super) fn codec(arg: &Argument) -> syn::Result<Codec> {
    match arg.word().as_deref() {
        Some("json") => Ok(Codec::Json),
        Some("msgpack") => Ok(Codec::MessagePack),
        Some(other) => arg.refuse(format_args!(
            "unknown codec `{other}`: there are `json` and `msgpack`"
        )),
        None => arg.wrong_kind(),
    }
}

pub(super) fn schema(arg: &Argument) -> syn::Result<u32> {
    arg.number().unwrap_or_else(|| arg.wrong_kind())
}

pub(super) fn key_text(arg: &Argument) -> syn::Result<KeyText> {
    match arg.word().as_deref() {
        Some("stored") => Ok(KeyText::Stored),
        Some("hidden") => Ok(KeyText::Hidden),
        Some("shown") => Ok(KeyText::Shown),
        Some(other) => arg.refuse(format_args!(
            "unknown key text `{other}`: there are `stored`, `hidden` and `shown`"
        )),
        None => arg.wrong_kind(),
    }
}

pub(super) fn retry(arg: &Argument) -> syn::Result<u32> {
    match arg.number() {
        Some(Ok(0)) => arg.refuse("no retries at all is the default: leave the argument out"),
        Some(Ok(times)) if times > MAX_RETRIES => {
            arg.refuse(format_args!("at most {MAX_RETRIES} retries are made"))
        }
        Some(times) => times,
        None => arg.wrong_kind(),
    }
}

pub(super) fn flag(arg: &Argument) -> syn::Result<()> {
    match &arg.value {
        Value::Flag => Ok(()),
        Value::Expr(Expr::Lit(lit)) if matches!(&lit.lit, Lit::Bool(on) if on.value) => Ok(()),
        _ => arg.wrong_kind(),
    }
}

pub(super) fn krate(arg: &Argument) -> syn::Result<CratePath> {
    match &arg.value {
        Value::Text(text) => match text.parse::<Expr>() {
            Ok(expr) => CratePath::from_expr(&expr),
            Err(_) => arg.wrong_kind(),
        },
        Value::Expr(expr) => CratePath::from_expr(expr),
        _ => arg.wrong_kind(),
    }
}

pub(super) fn list(tokens: TokenStream) -> syn::Result<Vec<Expr>> {
    Punctuated::<Expr, Token![,]>::parse_terminated
        .parse2(tokens)
        .map(|parts| parts.into_iter().collect())
}
