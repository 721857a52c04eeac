//! The value of `token`.

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, ExprAssign, Token};

use super::args::{Argument, OneTime, Value};
use super::values;
use crate::suggest::{closest, did_you_mean};

const NAMES: [&str; 2] = ["subject", "operation"];

/// `token(tokens, &req.token, subject = user, operation = "account.delete")`
pub(super) fn parse(arg: &Argument) -> syn::Result<OneTime> {
    let parts = match &arg.value {
        Value::List(group) => values::list(group.stream())?,
        Value::Text(text) => text
            .parse_with(Punctuated::<Expr, Token![,]>::parse_terminated)
            .or_else(|_| arg.wrong_kind())?
            .into_iter()
            .collect(),
        _ => return arg.wrong_kind(),
    };
    let (mut in_order, mut subject, mut operation) = (Vec::new(), None, None);
    for part in parts {
        let Expr::Assign(ExprAssign { left, right, .. }) = part else {
            in_order.push(part);
            continue;
        };
        let slot = match name(&left).as_deref() {
            Some("subject") => &mut subject,
            Some("operation") => &mut operation,
            other => return unknown(&left, other),
        };
        if slot.replace(*right).is_some() {
            return Err(syn::Error::new_spanned(left, "it is given twice"));
        }
    }
    if let Some(more) = in_order.get(2) {
        return Err(syn::Error::new(
            more.span(),
            "`token` takes the tokens and the token, and by name `subject` and `operation`",
        ));
    }
    let (token, tokens) = (in_order.pop(), in_order.pop());
    let (Some(tokens), Some(token)) = (tokens, token) else {
        return arg.wrong_kind();
    };
    let Some(subject) = subject else {
        return arg.refuse("whose token is it? `subject = user` is missing");
    };
    let Some(operation) = operation else {
        return arg.refuse("what is the token for? `operation = \"account.delete\"` is missing");
    };
    Ok(OneTime {
        tokens,
        token,
        subject,
        operation,
    })
}

fn name(left: &Expr) -> Option<String> {
    match left {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    }
}

fn unknown<T>(left: &Expr, name: Option<&str>) -> syn::Result<T> {
    let meant = name.and_then(|name| closest(name, NAMES));
    let meant = meant.map_or_else(String::new, did_you_mean);
    Err(syn::Error::new_spanned(
        left,
        format_args!("unknown part of `token`{meant}: by name there are `subject` and `operation`"),
    ))
}
