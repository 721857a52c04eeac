//! What makes a key wrong.

use proc_macro2::Span;
use syn::{PathArguments, Type};

use super::function::Function;
use crate::bindings::{Binding, rename_self, unparenthesised};
use crate::errors::Errors;
use crate::slot::Given;
use crate::suggest::{closest, did_you_mean, one_of};
use crate::template::{Hole, Segment, plain, separates};

/// Refuses a key that identifies nothing, or two calls as one.
pub(super) fn check(
    segments: &[Segment],
    span: Span,
    singleton: Option<&Given<()>>,
    function: &Function,
    errors: &mut Errors,
) {
    check_separators(segments, errors);
    let holes = || {
        segments.iter().filter_map(|segment| match segment {
            Segment::Hole(hole) => Some(hole),
            Segment::Literal(_) => None,
        })
    };
    for hole in holes() {
        if let Some(binding) = check_name(hole, function, errors) {
            check_type(hole, binding, errors);
        }
    }
    match (holes().next(), singleton) {
        (None, None) => errors.at(
            span,
            "the key uses no argument, so every call after the first would be a replay: name what identifies the call, or add `singleton` if there is to be one call for ever",
        ),
        (Some(_), Some(singleton)) => errors.at(
            singleton.name,
            "`singleton` says that the key uses no argument, and it does: leave `singleton` out",
        ),
        _ => {}
    }
}

/// Refuses parts that run into each other.
fn check_separators(segments: &[Segment], errors: &mut Errors) {
    for pair in segments.windows(3) {
        if let [
            Segment::Hole(_),
            Segment::Literal(text),
            Segment::Hole(next),
        ] = pair
            && !separates(text)
        {
            errors.at(
                next.span,
                format_args!(
                    "`{text}` does not keep this part apart from the one before it: put a separator between them, as in `{{a}}:{{b}}`{}",
                    next.at()
                ),
            );
        }
    }
    for pair in segments.windows(2) {
        if let [Segment::Hole(_), Segment::Hole(next)] = pair {
            errors.at(
                next.span,
                format_args!(
                    "nothing stands between this part and the one before it, so (\"ab\", \"c\") and (\"a\", \"bc\") would be one key: put a separator between them, as in `{{a}}:{{b}}`{}",
                    next.at()
                ),
            );
        }
    }
}

/// Refuses a name that the function does not have.
pub(super) fn check_name<'a>(
    hole: &Hole,
    function: &'a Function,
    errors: &mut Errors,
) -> Option<&'a Binding> {
    let name = plain(&hole.root);
    let bindings = &function.bindings;
    if let Some(binding) = bindings.iter().find(|binding| binding.name() == name) {
        return Some(binding);
    }
    let names: Vec<String> = bindings.iter().map(Binding::name).collect();
    let names = || names.iter().map(String::as_str);
    let at = hole.at();
    let message = if name == "self" {
        format!("this function has no receiver, so there is no `self`{at}")
    } else if bindings.is_empty() {
        format!("no argument is named `{name}`: the function has none that has a name{at}")
    } else {
        let suggestion = closest(&name, names()).map_or_else(String::new, did_you_mean);
        let all = one_of(names());
        format!("no argument is named `{name}`{suggestion}: expected {all}{at}")
    };
    errors.at(hole.span, message);
    None
}

/// Refuses types that are evidently no identity; for the others the runtime's traits decide.
fn check_type(hole: &Hole, binding: &Binding, errors: &mut Errors) {
    if !hole.bare {
        return;
    }
    let Some((shown, why)) = binding.ty.as_ref().and_then(no_identity) else {
        return;
    };
    let name = binding.name();
    errors.at(
        hole.span,
        format_args!("`{name}` is {shown}: {why}{}", hole.at()),
    );
}

fn no_identity(ty: &Type) -> Option<(&'static str, &'static str)> {
    const COLLECTION: (&str, &str) = (
        "a collection, which is no key part",
        "name the one field that identifies the call, or make an id of the elements in a method of yours",
    );
    const MOMENT: (&str, &str) = (
        "a time, which is no key part",
        "every retry has another one, so use the business identity, or a date for a business day",
    );
    match unparenthesised(ty) {
        Type::Reference(reference) => no_identity(&reference.elem),
        Type::Slice(_) => Some(COLLECTION),
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            match last.ident.to_string().as_str() {
                "f32" | "f64" if matches!(last.arguments, PathArguments::None) => Some((
                    "a float, which is no key part",
                    "equal amounts can print differently, so use minor units (`amount_cents: i64`) or `Decimal`",
                )),
                "Option" => Some((
                    "an `Option`, which is no key part",
                    "`None` has no text that no value has, so take the value out before the call, or write a method that decides what `None` means",
                )),
                "Vec" | "VecDeque" | "HashMap" | "HashSet" | "BTreeMap" | "BTreeSet" => {
                    Some(COLLECTION)
                }
                "SystemTime" | "Instant" | "Duration" | "DateTime" | "NaiveDateTime"
                | "NaiveTime" | "OffsetDateTime" | "PrimitiveDateTime" => Some(MOMENT),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The key with `self` under the name it has in the body.
pub(super) fn renamed(segments: Vec<Segment>, bindings: &[Binding]) -> Vec<Segment> {
    let renamed = |segment| match segment {
        Segment::Hole(hole) => Segment::Hole(Hole {
            value: rename_self(hole.value, bindings),
            ..hole
        }),
        literal => literal,
    };
    segments.into_iter().map(renamed).collect()
}
