//! Functions that are not `async` and return a future: what `#[async_trait]` makes of a method, and
//! `Box::pin(async move { .. })` by hand.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Block, Expr, ExprAsync, FnArg, GenericArgument, Local, Pat, PathArguments, ReturnType,
    Signature, Stmt, Type, TypeParamBound, punctuated::Punctuated,
};

use crate::bindings::{self, Binding};

/// The future that such a function returns.
pub(crate) struct Boxed {
    /// `Result<T, E>` of `Pin<Box<dyn Future<Output = Result<T, E>> + ..>>`.
    pub(crate) output: Type,
    /// `Box::pin`, unless the async block is returned as it is.
    wrapper: Option<TokenStream>,
    attrs: TokenStream,
    capture: TokenStream,
    /// What stays in front of the user's statements inside the async block.
    prelude: TokenStream,
}

impl Boxed {
    /// The future with `block` in place of the user's statements.
    pub(crate) fn around(&self, block: &TokenStream) -> TokenStream {
        let Self {
            wrapper,
            attrs,
            capture,
            prelude,
            ..
        } = self;
        let future = quote!(#attrs async #capture { #prelude #block });
        match wrapper {
            Some(wrapper) => quote!(#wrapper(#future)),
            None => future,
        }
    }
}

/// What was found in a function that is not `async`.
pub(crate) struct Found {
    pub(crate) boxed: Boxed,
    /// The statements in front of the future.
    pub(crate) before: TokenStream,
    pub(crate) statements: TokenStream,
    pub(crate) bindings: Vec<Binding>,
}

/// Looks for the future in the body.
///
/// # Errors
/// Not `async`, and no future that is recognised.
pub(crate) fn find(sig: &Signature, body: TokenStream, bindings: &[Binding]) -> syn::Result<Found> {
    let Some(output) = future_output(&sig.output) else {
        let message = "`#[idempotent]` needs an `async fn`; where another attribute makes it something else, `#[idempotent]` goes above that one";
        return Err(syn::Error::new(sig.ident.span(), message));
    };
    let unrecognised = || {
        syn::Error::new_spanned(
            &sig.output,
            "this function returns a future that is not an `async` block in `Box::pin(..)`, so the work inside cannot be seen: make it an `async fn`, or move the work into one and put `#[idempotent]` there",
        )
    };
    let mut statements =
        syn::parse::Parser::parse2(Block::parse_within, body).map_err(|_| unrecognised())?;
    let Some(Stmt::Expr(last, None)) = statements.pop() else {
        return Err(unrecognised());
    };
    let (wrapper, future) = async_block(last).ok_or_else(unrecognised)?;
    let attrs = &future.attrs;
    let mut boxed = Boxed {
        output,
        wrapper,
        attrs: quote!(#(#attrs)*),
        capture: future.capture.to_token_stream(),
        prelude: TokenStream::new(),
    };
    let before = quote!(#(#statements)*);
    Ok(match of_async_trait(&future.block, sig, bindings) {
        Some((prelude, statements, bindings)) => {
            boxed.prelude = prelude;
            Found {
                boxed,
                before,
                statements,
                bindings,
            }
        }
        None => {
            let statements = &future.block.stmts;
            Found {
                boxed,
                before,
                statements: quote!(#(#statements)*),
                bindings: bindings.to_vec(),
            }
        }
    })
}

/// `R` of `Pin<Box<dyn Future<Output = R> + ..>>` and of `impl Future<Output = R> + ..`.
fn future_output(output: &ReturnType) -> Option<Type> {
    let ReturnType::Type(_, ty) = output else {
        return None;
    };
    match &**ty {
        Type::ImplTrait(ty) => output_of_bounds(&ty.bounds),
        ty => match argument_of(argument_of(ty, "Pin")?, "Box")? {
            Type::TraitObject(object) => output_of_bounds(&object.bounds),
            _ => None,
        },
    }
}

/// `T` of `Name<T>`.
fn argument_of<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    let last = path
        .path
        .segments
        .last()
        .filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

fn output_of_bounds<P>(bounds: &Punctuated<TypeParamBound, P>) -> Option<Type> {
    let future = bounds.iter().find_map(|bound| match bound {
        TypeParamBound::Trait(bound) => bound
            .path
            .segments
            .last()
            .filter(|last| last.ident == "Future"),
        _ => None,
    })?;
    let PathArguments::AngleBracketed(arguments) = &future.arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(assoc) if assoc.ident == "Output" => Some(assoc.ty.clone()),
        _ => None,
    })
}

/// The async block of `Box::pin(async move { .. })` or of `async move { .. }`.
fn async_block(expr: Expr) -> Option<(Option<TokenStream>, ExprAsync)> {
    match expr {
        Expr::Async(block) => Some((None, block)),
        Expr::Call(call) if call.args.len() == 1 => {
            let Expr::Path(func) = &*call.func else {
                return None;
            };
            let mut names = func
                .path
                .segments
                .iter()
                .rev()
                .map(|segment| &segment.ident);
            if names.next()? != "pin" || names.next()? != "Box" {
                return None;
            }
            match call.args.into_iter().next()? {
                Expr::Async(block) => Some((Some(func.to_token_stream()), block)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Input, as `#[async_trait]` writes it:
///
/// ```text
/// if let Some(__ret) = None::<R> { return __ret; }
/// let __self = self;
/// let id = id;
/// let Path(name) = { let __arg2 = __arg2; __arg2 };
/// let __ret: R = { user's statements };
/// __ret
/// ```
///
/// Output: everything up to the bindings, the user's statements, and the names as they are bound
/// there.
fn of_async_trait(
    block: &Block,
    sig: &Signature,
    bindings: &[Binding],
) -> Option<(TokenStream, TokenStream, Vec<Binding>)> {
    let [prelude @ .., Stmt::Local(ret), Stmt::Expr(last, None)] = &*block.stmts else {
        return None;
    };
    let name = bound_name(&ret.pat)?;
    let returned = matches!(last, Expr::Path(path) if path.path.is_ident(name));
    let Expr::Block(user) = &*ret.init.as_ref()?.expr else {
        return None;
    };
    if !returned || name != "__ret" || !matches!(prelude.first(), Some(Stmt::Expr(Expr::If(_), _)))
    {
        return None;
    }
    let mut bindings = bindings.to_vec();
    for statement in prelude.iter().skip(1) {
        let Stmt::Local(local) = statement else {
            return None;
        };
        rebind(local, sig, &mut bindings)?;
    }
    let statements = &user.block.stmts;
    Some((quote!(#(#prelude)*), quote!(#(#statements)*), bindings))
}

fn bound_name(pat: &Pat) -> Option<&syn::Ident> {
    match pat {
        Pat::Ident(ident) => Some(&ident.ident),
        Pat::Type(typed) => bound_name(&typed.pat),
        _ => None,
    }
}

/// Applies `let __self = self;` and its like to the names of the signature.
fn rebind(local: &Local, sig: &Signature, bindings: &mut Vec<Binding>) -> Option<()> {
    let from = match &*local.init.as_ref()?.expr {
        Expr::Path(path) => path.path.get_ident()?,
        Expr::Block(block) => match block.block.stmts.last()? {
            Stmt::Expr(Expr::Path(path), None) => path.path.get_ident()?,
            _ => return None,
        },
        _ => return None,
    };
    if from == "self" {
        let receiver = bindings.iter_mut().find(|binding| binding.is_self)?;
        receiver.ident = bound_name(&local.pat)?.clone();
        return Some(());
    }
    let ty = sig.inputs.iter().find_map(|input| match input {
        FnArg::Typed(arg) if bound_name(&arg.pat) == Some(from) => Some(&*arg.ty),
        _ => None,
    })?;
    bindings.retain(|binding| binding.ident != *from);
    if from.to_string().starts_with("__arg") && bound_name(&local.pat) == Some(from) {
        // The user wrote `_`.
        return Some(());
    }
    bindings.extend(bindings::of_pattern(&local.pat, Some(ty), &local.attrs));
    Some(())
}
