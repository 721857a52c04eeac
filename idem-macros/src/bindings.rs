//! The names that a signature binds.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use syn::{Attribute, FnArg, Pat, PatIdent, Receiver, ReceiverKind, Signature, Type};

use crate::template::plain;

/// A name that the body can use.
#[derive(Clone)]
pub(crate) struct Binding {
    /// With the span of its declaration.
    pub(crate) ident: Ident,
    pub(crate) mode: Mode,
    /// The type, where the syntax tells it.
    pub(crate) ty: Option<Type>,
    /// `#[cfg]` of the argument; everything generated for it must carry them.
    pub(crate) cfg: Vec<Attribute>,
    /// The receiver, whatever it is called here: `#[async_trait]` renames it.
    pub(crate) is_self: bool,
}

/// What a name holds, as far as the syntax tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `x: &X`
    Shared,
    /// `x: &mut X`
    Exclusive,
    /// `x: X`; whether it is declared `mut`.
    Owned { mutable: bool },
}

impl Binding {
    /// The name in messages and templates.
    pub(crate) fn name(&self) -> String {
        if self.is_self {
            "self".to_owned()
        } else {
            plain(&self.ident)
        }
    }

    pub(crate) fn is_mut(&self) -> bool {
        self.mode == Mode::Owned { mutable: true }
    }
}

/// All names of a signature, the receiver first.
pub(crate) fn of_signature(sig: &Signature) -> Vec<Binding> {
    let mut found = Vec::new();
    for input in &sig.inputs {
        match input {
            FnArg::Receiver(receiver) => found.push(of_receiver(receiver)),
            FnArg::Typed(arg) => found.extend(of_pattern(&arg.pat, Some(&arg.ty), &arg.attrs)),
        }
    }
    found
}

/// The names that one pattern binds.
pub(crate) fn of_pattern(pat: &Pat, ty: Option<&Type>, attrs: &[Attribute]) -> Vec<Binding> {
    let mut walk = Walk {
        found: Vec::new(),
        cfg: attrs
            .iter()
            .filter(|attr| attr.path().is_ident("cfg"))
            .cloned()
            .collect(),
    };
    walk.pattern(pat, ty, None);
    walk.found
}

fn of_receiver(receiver: &Receiver) -> Binding {
    let mode = match &receiver.kind {
        ReceiverKind::Reference(_, _, Some(_)) => Mode::Exclusive,
        ReceiverKind::Reference(_, _, None) => Mode::Shared,
        // `mut` on a smart pointer says nothing about what it points to.
        ReceiverKind::Typed(_, ty) => mode_of(Some(ty), false),
        _ => Mode::Owned {
            mutable: receiver.mutability.is_some(),
        },
    };
    Binding {
        ident: Ident::new("self", receiver.self_token.span),
        mode,
        ty: None,
        cfg: Vec::new(),
        is_self: true,
    }
}

fn mode_of(ty: Option<&Type>, mutable: bool) -> Mode {
    match ty.map(unparenthesised) {
        Some(Type::Reference(reference)) if reference.mutability.is_some() => Mode::Exclusive,
        Some(Type::Reference(_)) => Mode::Shared,
        _ => Mode::Owned { mutable },
    }
}

/// The type without parentheses and the invisible groups of `macro_rules`.
pub(crate) fn unparenthesised(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => unparenthesised(&group.elem),
        Type::Paren(paren) => unparenthesised(&paren.elem),
        ty => ty,
    }
}

struct Walk {
    found: Vec<Binding>,
    cfg: Vec<Attribute>,
}

impl Walk {
    /// `through`: what names hold inside a pattern that looks through a reference.
    fn pattern(&mut self, pat: &Pat, ty: Option<&Type>, through: Option<Mode>) {
        let ty = ty.map(unparenthesised);
        if let Pat::Ident(ident) = pat {
            return self.ident(ident, ty, through);
        }
        let (ty, through) = match (pat, ty) {
            (Pat::Reference(_) | Pat::Paren(_) | Pat::Type(_) | Pat::Or(_), _) => (ty, through),
            (_, Some(Type::Reference(reference))) => {
                (Some(&*reference.elem), Some(mode_of(ty, false)))
            }
            _ => (ty, through),
        };
        match pat {
            Pat::Paren(paren) => self.pattern(&paren.pat, ty, through),
            Pat::Type(typed) => self.pattern(&typed.pat, Some(&typed.ty), through),
            Pat::Reference(reference) => {
                let inner = match ty {
                    Some(Type::Reference(ty)) => Some(&*ty.elem),
                    _ => None,
                };
                self.pattern(&reference.pat, inner, None);
            }
            Pat::Tuple(tuple) => {
                let types = match ty {
                    Some(Type::Tuple(ty)) if ty.elems.len() == tuple.elems.len() => Some(&ty.elems),
                    _ => None,
                };
                for (i, pat) in tuple.elems.iter().enumerate() {
                    self.pattern(pat, types.and_then(|types| types.get(i)), through);
                }
            }
            Pat::Slice(slice) => {
                let elem = match ty {
                    Some(Type::Array(array)) => Some(&*array.elem),
                    Some(Type::Slice(slice)) => Some(&*slice.elem),
                    _ => None,
                };
                for pat in &slice.elems {
                    self.pattern(pat, elem, through);
                }
            }
            Pat::TupleStruct(pat) => {
                for pat in &pat.elems {
                    self.pattern(pat, None, through);
                }
            }
            Pat::Struct(pat) => {
                for field in &pat.fields {
                    self.pattern(&field.pat, None, through);
                }
            }
            // Every case binds the same names.
            Pat::Or(or) => {
                if let Some(first) = or.cases.first() {
                    self.pattern(first, ty, through);
                }
            }
            _ => {}
        }
    }

    fn ident(&mut self, pat: &PatIdent, ty: Option<&Type>, through: Option<Mode>) {
        let mutable = pat.mutability.is_some();
        let by_ref = pat.by_ref.is_some();
        let mode = match (by_ref, through) {
            (true, _) if mutable => Mode::Exclusive,
            (true, _) => Mode::Shared,
            (false, Some(mode)) => mode,
            (false, None) => mode_of(ty, mutable),
        };
        self.found.push(Binding {
            ident: pat.ident.clone(),
            mode,
            ty: ty.cloned(),
            cfg: self.cfg.clone(),
            is_self: false,
        });
        if let Some((_, inner)) = &pat.subpat {
            self.pattern(inner, ty, through);
        }
    }
}

/// The bindings that `tokens` mention.
pub(crate) fn mentioned<'a>(tokens: &TokenStream, bindings: &'a [Binding]) -> Vec<&'a Binding> {
    let mut names = Vec::new();
    collect_names(tokens.clone(), &mut names);
    bindings
        .iter()
        .filter(|binding| names.contains(&binding.name()))
        .collect()
}

/// Identifiers that can be variables: no fields, methods or path segments.
fn collect_names(tokens: TokenStream, names: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |at: Option<usize>, c: char| {
        let token = at.and_then(|at| tokens.get(at));
        matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == c)
    };
    for (i, token) in tokens.iter().enumerate() {
        let after_dot = is(i.checked_sub(1), '.') && !is(i.checked_sub(2), '.');
        let in_path = (is(i.checked_sub(1), ':') && is(i.checked_sub(2), ':'))
            || (is(Some(i + 1), ':') && is(Some(i + 2), ':'));
        match token {
            TokenTree::Ident(ident) if !after_dot && !in_path => names.push(plain(ident)),
            TokenTree::Group(group) => collect_names(group.stream(), names),
            _ => {}
        }
    }
}

/// `self` under the name it has in the body: `#[async_trait]` renames it.
pub(crate) fn rename_self(tokens: TokenStream, bindings: &[Binding]) -> TokenStream {
    let renamed = bindings
        .iter()
        .find(|binding| binding.is_self && binding.ident != "self");
    match renamed {
        Some(binding) => rename(tokens, &binding.ident),
        None => tokens,
    }
}

fn rename(tokens: TokenStream, to: &Ident) -> TokenStream {
    let renamed = |token| match token {
        TokenTree::Ident(ident) if ident == "self" => TokenTree::Ident(Ident::new(
            &to.to_string(),
            to.span().located_at(ident.span()),
        )),
        TokenTree::Group(group) => {
            let mut inner = Group::new(group.delimiter(), rename(group.stream(), to));
            inner.set_span(group.span());
            TokenTree::Group(inner)
        }
        other => other,
    };
    tokens.into_iter().map(renamed).collect()
}
