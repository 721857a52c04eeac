//! The function's return type: a `Result` whose value can be recorded.

use syn::visit::{self, Visit};
use syn::{GenericArgument, Lifetime, PathArguments, Type, TypeImplTrait, TypeReference};

use super::plan::Answer;
use crate::bindings::unparenthesised;
use crate::errors::Errors;

/// Names that are certainly no alias of a `Result`.
const NO_RESULTS: [&str; 27] = [
    "Option", "Vec", "String", "Box", "Arc", "Rc", "HashMap", "BTreeMap", "HashSet", "BTreeSet",
    "Self", "bool", "char", "str", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32",
    "i64", "i128", "f32", "f64",
];

/// Takes the return type apart as far as its syntax allows. An alias stays whole: its parts are then
/// named through a trait.
pub(super) fn of(ty: &Type, errors: &mut Errors) -> Option<Answer> {
    let whole = unparenthesised(ty).clone();
    let mut bad = Bad {
        errors,
        found: false,
        owned: false,
    };
    bad.visit_type(&whole);
    if bad.found {
        return None;
    }
    let Some((ok, err)) = parts(&whole) else {
        errors.on(
            &whole,
            "an idempotent function returns a `Result`: it must be able to say that a call is in progress or known with another payload",
        );
        return None;
    };
    if let Some(ok) = &ok {
        let mut bad = Bad {
            errors,
            found: false,
            owned: true,
        };
        bad.visit_type(ok);
        if bad.found {
            return None;
        }
    }
    Some(Answer { whole, ok, err })
}

/// `T` and `E` of `Result<T, E>`, `T` of `Result<T>`, nothing of an alias. `None`: not a `Result`.
fn parts(ty: &Type) -> Option<(Option<Type>, Option<Type>)> {
    let path = match ty {
        Type::Path(path) => &path.path,
        Type::Macro(_) => return Some((None, None)),
        _ => return None,
    };
    let last = path.segments.last()?;
    if NO_RESULTS.iter().any(|name| last.ident == name) {
        return None;
    }
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return Some((None, None));
    };
    let mut types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    });
    if last.ident == "Result" {
        Some((types.next(), types.next()))
    } else {
        Some((None, None))
    }
}

/// Finds what no replay could give.
struct Bad<'a> {
    errors: &'a mut Errors,
    found: bool,
    /// Whether the type must own its data.
    owned: bool,
}

impl Bad<'_> {
    fn refuse(&mut self, tokens: impl quote::ToTokens, message: &str) {
        self.errors.on(tokens, message);
        self.found = true;
    }
}

const BORROWS: &str = "the result of an idempotent function must own its data: a replay answers from the stored outcome, where nothing can be borrowed from";

impl<'ast> Visit<'ast> for Bad<'_> {
    fn visit_type_impl_trait(&mut self, ty: &'ast TypeImplTrait) {
        if !self.owned {
            self.refuse(
                ty,
                "`impl Trait` cannot be the outcome of an idempotent function: name the type, a replay has to decode it",
            );
        }
    }

    fn visit_type_reference(&mut self, ty: &'ast TypeReference) {
        if self.owned {
            self.refuse(ty, BORROWS);
        } else {
            visit::visit_type_reference(self, ty);
        }
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        if self.owned && lifetime.ident != "static" {
            self.refuse(lifetime, BORROWS);
        }
    }
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;
    use syn::{Type, parse_quote};

    use super::of;
    use crate::errors::Errors;

    fn read(ty: Type) -> Result<(Option<String>, Option<String>), String> {
        let mut errors = Errors::new();
        let answer = of(&ty, &mut errors);
        errors.into_result().map_err(|error| error.to_string())?;
        let shown = |ty: Option<Type>| ty.map(|ty| ty.to_token_stream().to_string());
        answer
            .map(|answer| (shown(answer.ok), shown(answer.err)))
            .ok_or_else(|| "no answer and no refusal".to_owned())
    }

    #[test]
    fn results_and_aliases() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            read(parse_quote!(Result<u8, E>)),
            Ok((text("u8"), text("E")))
        );
        assert_eq!(
            read(parse_quote!(::std::result::Result<(), E<'a>>)),
            Ok((text("()"), text("E < 'a >")))
        );
        assert_eq!(
            read(parse_quote!(anyhow::Result<u8>)),
            Ok((text("u8"), None))
        );
        assert_eq!(read(parse_quote!(Answer)), Ok((None, None)));
        assert_eq!(
            read(parse_quote!(Result<Cow<'static, str>, E>)).map(|(_, err)| err),
            Ok(text("E"))
        );
    }

    #[test]
    fn refusals() {
        for (ty, part) in [
            (parse_quote!(u64), "returns a `Result`"),
            (parse_quote!(()), "returns a `Result`"),
            (parse_quote!(Option<u8>), "returns a `Result`"),
            (parse_quote!(!), "returns a `Result`"),
            (parse_quote!(impl Sized), "name the type"),
            (parse_quote!(Result<impl Sized, E>), "name the type"),
            (parse_quote!(Result<&'a str, E>), "must own its data"),
            (
                parse_quote!(Result<Option<Ref<'a>>, E>),
                "must own its data",
            ),
        ] {
            let ty: Type = ty;
            let message = read(ty).expect_err(part);
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
