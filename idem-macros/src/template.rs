//! The key template: literal segments and holes.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Expr, Ident, Lit, LitStr, Member};

use crate::errors::Errors;
use crate::hygiene::ours_at;
use crate::literal::{Locator, Place};

/// What stands between the parts of the token form.
const JOIN: &str = ":";

/// One segment of a template.
pub(crate) enum Segment {
    Literal(String),
    Hole(Hole),
}

/// A place that an argument fills: a name, and fields or methods of it.
pub(crate) struct Hole {
    /// The argument, or `self`.
    pub(crate) root: Ident,
    /// The whole expression.
    pub(crate) value: TokenStream,
    /// Whether it is the root alone.
    pub(crate) bare: bool,
    /// What messages point at.
    pub(crate) span: Span,
    /// Where it stands in its literal.
    pub(crate) place: Option<Place>,
}

impl Hole {
    /// The place as a message shows it; nothing in the token form, where the span is exact.
    pub(crate) fn at(&self) -> String {
        shown(self.place)
    }

    /// Reads `req.order_no`, `self.tenant`, `pair.0`, `req.id()`.
    pub(crate) fn from_expr(expr: &Expr) -> syn::Result<Self> {
        let (root, bare) = root_of(expr)?;
        Ok(Self {
            root,
            value: expr.to_token_stream(),
            bare,
            span: expr.span(),
            place: None,
        })
    }
}

fn shown(place: Option<Place>) -> String {
    place.map(|place| place.to_string()).unwrap_or_default()
}

fn root_of(expr: &Expr) -> syn::Result<(Ident, bool)> {
    match expr {
        Expr::Group(group) => root_of(&group.expr),
        Expr::Path(path) if path.qself.is_none() => match path.path.get_ident() {
            Some(ident) => Ok((ident.clone(), true)),
            None => refuse(
                expr,
                "is a path: only the function's arguments, their fields and methods can be named here",
            ),
        },
        Expr::Field(field) => {
            if let Member::Named(name) = &field.member
                && name == "await"
            {
                return refuse(expr, AWAITS);
            }
            Ok((root_of(&field.base)?.0, false))
        }
        Expr::MethodCall(call) if call.args.is_empty() && call.turbofish.is_none() => {
            Ok((root_of(&call.receiver)?.0, false))
        }
        Expr::MethodCall(call) => refuse(
            call,
            "calls a method with arguments: write a method without arguments and call that",
        ),
        Expr::Await(_) => refuse(expr, AWAITS),
        Expr::Infer(_) => refuse(expr, "is not a name: give the argument one and use it here"),
        Expr::Lit(lit) if matches!(lit.lit, Lit::Int(_)) => refuse(
            expr,
            "is a position: name the argument instead, as in `{order_no}`",
        ),
        Expr::Call(_) | Expr::Macro(_) => refuse(
            expr,
            "is a call: only arguments, their fields and their methods without arguments can be named here",
        ),
        Expr::Reference(_) => refuse(expr, "borrows: leave the `&` out, a key part is only read"),
        Expr::Index(_) => refuse(
            expr,
            "indexes: write a method that returns the element and call that",
        ),
        Expr::Try(_) => refuse(expr, "can fail: take the value out before the call"),
        _ => refuse(
            expr,
            "is an expression: only arguments, their fields and their methods can be named here, write a method for the rest",
        ),
    }
}

const AWAITS: &str = "awaits: a key is known before anything runs; take the value before the call";

fn refuse<T>(tokens: impl ToTokens, what: &str) -> syn::Result<T> {
    let shown = compact(&tokens.to_token_stream());
    Err(syn::Error::new_spanned(
        tokens,
        format_args!("`{shown}` {what}"),
    ))
}

/// Tokens as they are usually written.
pub(crate) fn compact(tokens: &TokenStream) -> String {
    let mut text = tokens.to_string();
    for (spaced, tight) in [
        (" . ", "."),
        (" :: ", "::"),
        ("& ", "&"),
        (" ?", "?"),
        (" [", "["),
        (" (", "("),
        ("! (", "!("),
    ] {
        text = text.replace(spaced, tight);
    }
    text
}

/// `key(req.merchant, req.order_no)`: parts joined by a colon. A string literal among them is a
/// literal segment.
pub(crate) fn from_parts<'a>(
    parts: impl IntoIterator<Item = &'a Expr>,
    errors: &mut Errors,
) -> Vec<Segment> {
    let mut segments = Vec::new();
    for part in parts {
        if !segments.is_empty() {
            segments.push(Segment::Literal(JOIN.to_owned()));
        }
        match part {
            Expr::Lit(lit) if matches!(lit.lit, Lit::Str(_)) => {
                if let Lit::Str(text) = &lit.lit {
                    segments.push(Segment::Literal(text.value()));
                }
            }
            _ => segments.extend(errors.keep(Hole::from_expr(part)).map(Segment::Hole)),
        }
    }
    joined(segments)
}

/// `"order:{req.merchant}:{req.order_no}"`. Every mistake in it is reported.
pub(crate) fn from_literal(literal: &LitStr, errors: &mut Errors) -> Vec<Segment> {
    let value = literal.value();
    let locator = Locator::new(literal);
    let mut segments = Vec::new();
    let mut text = String::new();
    let mut rest = value.as_str();
    while let Some(brace) = rest.find(['{', '}']) {
        let (before, from_brace) = rest.split_at(brace);
        text.push_str(before);
        let offset = value.len() - from_brace.len();
        let (opens, after) = (from_brace.starts_with('{'), &from_brace[1..]);
        if let Some(after) = after.strip_prefix(if opens { '{' } else { '}' }) {
            text.push(if opens { '{' } else { '}' });
            rest = after;
            continue;
        }
        if !opens {
            errors.at(
                literal.span(),
                format_args!(
                    "`}}` closes nothing: write `}}}}` for a brace in the key{}",
                    shown(locator.place(offset))
                ),
            );
            rest = after;
            continue;
        }
        segments.push(Segment::Literal(std::mem::take(&mut text)));
        let Some(end) = after
            .find(['{', '}'])
            .filter(|&end| after[end..].starts_with('}'))
        else {
            errors.at(
                literal.span(),
                format_args!(
                    "`{{` is not closed: write `{{{{` for a brace in the key{}",
                    shown(locator.place(offset))
                ),
            );
            rest = after;
            continue;
        };
        let hole = hole(literal, &after[..end], locator.place(offset + 1));
        segments.extend(errors.keep(hole).map(Segment::Hole));
        rest = &after[end + 1..];
    }
    text.push_str(rest);
    segments.push(Segment::Literal(text));
    joined(segments)
}

/// The hole whose text between the braces is `text`.
fn hole(literal: &LitStr, text: &str, place: Option<Place>) -> syn::Result<Hole> {
    let at = shown(place);
    let error = |message: String| Err(syn::Error::new(literal.span(), message));
    if text.trim().is_empty() {
        return error(format!(
            "a hole is empty: name the argument that fills it, as in `{{order_no}}`{at}"
        ));
    }
    if let Some((name, spec)) = text.replace("::", "  ").split_once(':') {
        return error(format!(
            "`{{{text}}}` has a format spec: a key part has one canonical text, write `{{{}}}` without `:{spec}`{at}",
            name.trim_end()
        ));
    }
    let Ok(expr) = LitStr::new(text, literal.span()).parse::<Expr>() else {
        return error(format!(
            "`{{{text}}}` is not a name: a hole takes an argument, its fields and methods, as in `{{req.order_no}}`{at}"
        ));
    };
    match Hole::from_expr(&expr) {
        Ok(hole) => Ok(Hole {
            // Only the name needs the user's hygiene. A suggestion for anything after it would
            // replace the whole literal; the compiler makes none for generated tokens.
            value: respanned(hole.value, ours_at(literal.span())),
            span: literal.span(),
            place,
            ..hole
        }),
        Err(refusal) => error(format!("{refusal}{at}")),
    }
}

/// The tokens after the first one, at `span`.
fn respanned(tokens: TokenStream, span: Span) -> TokenStream {
    let at = |(i, mut token): (usize, TokenTree)| {
        if i > 0 {
            token.set_span(span);
        }
        token
    };
    tokens.into_iter().enumerate().map(at).collect()
}

/// Leaves out empty literals and joins neighbours.
fn joined(segments: Vec<Segment>) -> Vec<Segment> {
    let mut out: Vec<Segment> = Vec::with_capacity(segments.len());
    for segment in segments {
        match (out.last_mut(), segment) {
            (_, Segment::Literal(text)) if text.is_empty() => {}
            (Some(Segment::Literal(before)), Segment::Literal(text)) => before.push_str(&text),
            (_, segment) => out.push(segment),
        }
    }
    out
}

/// Whether a literal between two holes keeps them apart: parts escape its characters, but never
/// letters and digits, and `%` is the escape itself.
pub(crate) fn separates(text: &str) -> bool {
    text.chars().any(|c| !c.is_alphanumeric() && c != '%')
}

/// The characters that parts must escape: those of the literals between two holes.
pub(crate) fn separators(segments: &[Segment]) -> String {
    let mut found = String::new();
    for window in segments.windows(3) {
        if let [Segment::Hole(_), Segment::Literal(text), Segment::Hole(_)] = window {
            for c in text.chars() {
                if !c.is_alphanumeric() && !found.contains(c) {
                    found.push(c);
                }
            }
        }
    }
    found
}

/// The name of an argument as the user says it, without `r#`.
pub(crate) fn plain(ident: &Ident) -> String {
    ident.unraw().to_string()
}

#[cfg(test)]
mod tests;
