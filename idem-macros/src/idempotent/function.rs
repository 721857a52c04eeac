//! Stage 1b: the item's tokens. The signature is parsed, the body stays tokens, so that a body that
//! is still being typed goes through.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Ident, Signature, Token, Visibility};

use crate::async_like::{self, Boxed};
use crate::bindings::{self, Binding};
use crate::errors::Errors;

/// The annotated function.
pub(super) struct Function {
    /// Everything before the body, as it was written.
    head: TokenStream,
    /// `#[cfg]` of the item: what is generated beside it must carry them.
    pub(super) cfg: Vec<Attribute>,
    pub(super) vis: Visibility,
    pub(super) sig: Signature,
    body: Body,
    /// The names that the body can use.
    pub(super) bindings: Vec<Binding>,
}

/// Where the user's statements stand.
pub(super) struct Body {
    braces: Group,
    /// What stays in front: inner attributes, and for a boxed future its leading statements.
    before: TokenStream,
    boxed: Option<Boxed>,
    pub(super) statements: TokenStream,
}

impl Function {
    /// Reads the item; refuses what is no function with a body.
    pub(super) fn parse(item: TokenStream, errors: &mut Errors) -> Option<Self> {
        let mut head: Vec<TokenTree> = item.into_iter().collect();
        let braces = head.pop().and_then(|last| match block(&last) {
            Some(braces) => Some(braces),
            None => {
                head.push(last);
                None
            }
        });
        let head: TokenStream = head.into_iter().collect();
        let (attributes, vis, sig) = errors.keep(signature.parse2(head.clone()))?;
        if let Some(token) = &sig.constness {
            errors.on(
                token,
                "a `const fn` runs in the compiler: it has no effect that could happen twice",
            );
            return None;
        }
        let Some(braces) = braces else {
            errors.on(
                &sig.ident,
                "a method without a body has nothing to make idempotent: put `#[idempotent]` on the implementations",
            );
            return None;
        };
        let bindings = bindings::of_signature(&sig);
        let (before, statements) = split_inner_attributes(braces.stream());
        let plain = Self {
            head,
            cfg: attributes
                .into_iter()
                .filter(|attribute| attribute.path().is_ident("cfg"))
                .collect(),
            vis,
            sig,
            body: Body {
                braces,
                before,
                boxed: None,
                statements,
            },
            bindings,
        };
        if plain.sig.asyncness.is_some() {
            Some(plain)
        } else {
            plain.look_into_the_box(errors)
        }
    }

    /// `#[async_trait]` and hand-written functions return a future instead of being `async`.
    fn look_into_the_box(mut self, errors: &mut Errors) -> Option<Self> {
        let found = async_like::find(&self.sig, self.body.statements.clone(), &self.bindings);
        let found = errors.keep(found)?;
        self.body.before.extend(found.before);
        self.body.statements = found.statements;
        self.body.boxed = Some(found.boxed);
        self.bindings = found.bindings;
        Some(self)
    }

    /// What the future resolves to.
    pub(super) fn output(&self) -> Option<&syn::Type> {
        if let Some(boxed) = &self.body.boxed {
            return Some(&boxed.output);
        }
        match &self.sig.output {
            syn::ReturnType::Type(_, ty) => Some(ty),
            syn::ReturnType::Default => None,
        }
    }

    /// The function with `block` in place of its statements.
    pub(super) fn with_block(&self, block: &TokenStream) -> TokenStream {
        let Body { before, boxed, .. } = &self.body;
        let inner = match boxed {
            None => quote!(#before #block),
            Some(boxed) => {
                let future = boxed.around(block);
                quote!(#before #future)
            }
        };
        let mut braces = Group::new(Delimiter::Brace, inner);
        braces.set_span(self.body.braces.span());
        let mut out = self.head.clone();
        braces.to_tokens(&mut out);
        out
    }

    pub(super) fn body_span(&self) -> Span {
        self.body.braces.span()
    }

    pub(super) fn statements(&self) -> &TokenStream {
        &self.body.statements
    }
}

/// The braces of a body; around one that came through a macro's `$body:block` is an invisible group.
fn block(token: &TokenTree) -> Option<Group> {
    let TokenTree::Group(group) = token else {
        return None;
    };
    match group.delimiter() {
        Delimiter::Brace => Some(group.clone()),
        Delimiter::None => {
            let mut inside = group.stream().into_iter();
            match (inside.next(), inside.next()) {
                (Some(token), None) => block(&token),
                _ => None,
            }
        }
        _ => None,
    }
}

fn signature(input: ParseStream<'_>) -> syn::Result<(Vec<Attribute>, Visibility, Signature)> {
    let attributes = input.call(Attribute::parse_outer)?;
    let vis = input.parse::<Visibility>()?;
    let start = input.fork();
    // `default fn` of specialisation.
    if input.peek(Ident) && (input.peek2(Token![fn]) || input.peek2(Token![async])) {
        input.parse::<Ident>()?;
    }
    if !is_function(input) {
        return Err(start.error(wrong_item(&start)));
    }
    let sig = input.parse::<Signature>()?;
    input.parse::<Option<Token![;]>>()?;
    if input.is_empty() {
        Ok((attributes, vis, sig))
    } else {
        Err(input.error("unexpected tokens after the signature"))
    }
}

fn is_function(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    let qualifiers = |input: ParseStream<'_>| -> syn::Result<()> {
        input.parse::<Option<Token![const]>>()?;
        input.parse::<Option<Token![async]>>()?;
        input.parse::<Option<Token![unsafe]>>()?;
        input.parse::<Option<syn::Abi>>()?;
        input.parse::<Token![fn]>()?;
        Ok(())
    };
    qualifiers(&ahead).is_ok()
}

fn wrong_item(input: ParseStream<'_>) -> String {
    const REMEDY: &str = "put it on an `async fn`";
    let is_impl =
        input.peek(Token![impl]) || input.peek(Token![unsafe]) && input.peek2(Token![impl]);
    if is_impl {
        return "`#[idempotent]` does not go on an impl block: put it on each method that is to be idempotent".to_owned();
    }
    let kind = if input.peek(Token![trait]) || input.peek2(Token![trait]) {
        "a trait: put it on the methods of the implementations"
    } else if input.peek(Token![struct]) {
        "a struct: put it on the `async fn` that does the work"
    } else if input.peek(Token![enum]) {
        "an enum: put it on the `async fn` that does the work"
    } else if input.peek(Token![mod]) {
        "a module: put it on each function that is to be idempotent"
    } else if input.peek(Token![const]) {
        "a constant: put it on an `async fn`"
    } else if input.peek(Token![static]) {
        "a static: put it on an `async fn`"
    } else if input.peek(Token![type]) {
        "a type alias: put it on an `async fn`"
    } else if input.peek(Token![|]) || input.peek(Token![move]) || input.peek(Token![async]) {
        "a closure: make it an `async fn`"
    } else if input.peek(Ident) && input.peek2(Token![!]) {
        "a macro call: put it on the `async fn` inside the macro"
    } else {
        return format!("`#[idempotent]` does not go here: {REMEDY}");
    };
    format!("`#[idempotent]` does not go on {kind}")
}

/// Inner attributes belong to the function, not to a block inside of it.
fn split_inner_attributes(body: TokenStream) -> (TokenStream, TokenStream) {
    let mut attributes = TokenStream::new();
    let mut rest: std::iter::Peekable<_> = body.into_iter().peekable();
    loop {
        let mut ahead = rest.clone();
        let starts = [ahead.next(), ahead.next(), ahead.next()];
        match &starts {
            [
                Some(TokenTree::Punct(pound)),
                Some(TokenTree::Punct(bang)),
                Some(TokenTree::Group(group)),
            ] if pound.as_char() == '#'
                && bang.as_char() == '!'
                && group.delimiter() == Delimiter::Bracket =>
            {
                attributes.extend(starts.into_iter().flatten());
                rest = ahead;
            }
            _ => return (attributes, rest.collect()),
        }
    }
}
