//! What the attributes say, read and not yet judged.

use proc_macro2::{Ident, TokenStream};
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Attribute, Expr, ExprLit, Lit, LitInt, LitStr, Path, Token};

use crate::crate_path::CratePath;
use crate::errors::Errors;
use crate::slot::Slot;
use crate::suggest::{closest, did_you_mean};

/// `#[state_machine(..)]`.
#[derive(Default)]
pub(super) struct MachineArgs {
    pub(super) column: Slot<Column>,
    pub(super) krate: Slot<CratePath>,
}

/// How much text the status column takes.
#[derive(Clone, Copy)]
pub(super) enum Column {
    Characters(usize),
    Unlimited,
}

/// `#[state(..)]`.
#[derive(Default)]
pub(super) struct StateArgs {
    pub(super) initial: Slot<()>,
    pub(super) terminal: Slot<()>,
    pub(super) to: Slot<Vec<Ident>>,
    pub(super) rename: Slot<LitStr>,
}

impl MachineArgs {
    pub(super) fn read(attrs: &[Attribute], errors: &mut Errors) -> Self {
        let mut args = Self::default();
        for Item { name, rest } in items(attrs, "state_machine", errors) {
            if name == "column" {
                args.column.set(&name, column(&name, rest), errors);
            } else if name == "crate" {
                let path = rest.value(&name, "`crate` is written `crate = ::my_reexport::idem`");
                let path = path.and_then(|value| CratePath::from_expr(&value));
                args.krate.set(&name, path, errors);
            } else {
                args.column.excuse();
                let near = near(&name, &["column", "crate"]);
                errors.at(
                    name.span(),
                    format_args!(
                        "unknown attribute `{name}`{near}: a state machine takes `column = 16` and `crate = ::path`"
                    ),
                );
            }
        }
        args
    }
}

impl StateArgs {
    pub(super) fn read(attrs: &[Attribute], errors: &mut Errors) -> Self {
        let mut args = Self::default();
        for Item { name, rest } in items(attrs, "state", errors) {
            if name == "initial" {
                args.initial.set(&name, rest.nothing(&name), errors);
            } else if name == "terminal" {
                args.terminal.set(&name, rest.nothing(&name), errors);
            } else if name == "to" {
                args.to.set(&name, targets(&name, rest), errors);
            } else if name == "rename" {
                args.rename.set(&name, rename(&name, rest), errors);
            } else {
                args.initial.excuse();
                args.to.excuse();
                let near = near(&name, &["initial", "terminal", "to", "rename"]);
                errors.at(
                    name.span(),
                    format_args!(
                        "unknown attribute `{name}`{near}: a state takes `initial`, `terminal`, `to(..)` and `rename = \"..\"`"
                    ),
                );
            }
        }
        args
    }
}

fn near(name: &Ident, known: &[&'static str]) -> String {
    closest(&name.to_string(), known.iter().copied()).map_or(String::new(), did_you_mean)
}

/// `name`, `name = value` or `name(..)`.
struct Item {
    name: Ident,
    rest: Rest,
}

enum Rest {
    Nothing,
    Value(Expr),
    List(TokenStream),
}

impl Rest {
    fn nothing(self, name: &Ident) -> syn::Result<()> {
        match self {
            Self::Nothing => Ok(()),
            _ => Err(syn::Error::new(
                name.span(),
                format_args!("`{name}` stands alone: it takes no value"),
            )),
        }
    }

    fn value(self, name: &Ident, form: &str) -> syn::Result<Expr> {
        match self {
            Self::Value(value) => Ok(value),
            _ => Err(syn::Error::new(name.span(), form)),
        }
    }
}

impl syn::parse::Parse for Item {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = input.call(Ident::parse_any)?;
        let rest = if input.peek(syn::token::Paren) {
            let content;
            syn::parenthesized!(content in input);
            Rest::List(content.parse()?)
        } else if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            Rest::Value(input.parse()?)
        } else {
            Rest::Nothing
        };
        Ok(Self { name, rest })
    }
}

fn items(attrs: &[Attribute], of: &str, errors: &mut Errors) -> Vec<Item> {
    let mut items = Vec::new();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident(of)) {
        let parsed = attr.parse_args_with(Punctuated::<Item, Token![,]>::parse_terminated);
        items.extend(errors.keep(parsed).into_iter().flatten());
    }
    items
}

fn column(name: &Ident, rest: Rest) -> syn::Result<Column> {
    const FORM: &str = "`column` is the width of the status column: `column = 16` for VARCHAR(16), `column = text` for one without a limit";
    let value = rest.value(name, FORM)?;
    match &value {
        Expr::Lit(ExprLit {
            lit: Lit::Int(width),
            ..
        }) => positive(width).map(Column::Characters),
        Expr::Path(path) if path.path.is_ident("text") => Ok(Column::Unlimited),
        other => Err(syn::Error::new(other.span(), FORM)),
    }
}

fn positive(width: &LitInt) -> syn::Result<usize> {
    match width.base10_parse() {
        Ok(0) => Err(syn::Error::new(width.span(), "no name fits a column of 0")),
        parsed => parsed,
    }
}

fn targets(name: &Ident, rest: Rest) -> syn::Result<Vec<Ident>> {
    const FORM: &str = "the exits are written `to(Paid, Cancelled)`";
    let Rest::List(list) = rest else {
        return Err(syn::Error::new(name.span(), FORM));
    };
    let paths = Punctuated::<Path, Token![,]>::parse_terminated.parse2(list)?;
    if paths.is_empty() {
        return Err(syn::Error::new(
            name.span(),
            "`to()` names no state: a state without exits is `terminal`",
        ));
    }
    paths
        .into_iter()
        .map(|path| match path.get_ident() {
            Some(ident) => Ok(ident.clone()),
            None => Err(syn::Error::new_spanned(
                path,
                "name the variant alone, as in `to(Paid)`",
            )),
        })
        .collect()
}

fn rename(name: &Ident, rest: Rest) -> syn::Result<LitStr> {
    const FORM: &str = "`rename` is written `rename = \"paid\"`";
    match rest.value(name, FORM)? {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Ok(text),
        other => Err(syn::Error::new(other.span(), FORM)),
    }
}
