use proc_macro2::Span;
use syn::{Expr, LitStr, parse_quote};

use super::{Segment, compact, from_literal, from_parts, separates, separators};
use crate::errors::Errors;

fn read(text: &str) -> Result<String, Vec<String>> {
    let mut errors = Errors::new();
    let segments = from_literal(&LitStr::new(text, Span::call_site()), &mut errors);
    match errors.into_result() {
        Ok(()) => Ok(debug(&segments)),
        Err(error) => Err(error.into_iter().map(|e| e.to_string()).collect()),
    }
}

fn debug(segments: &[Segment]) -> String {
    let shown: Vec<String> = segments
        .iter()
        .map(|segment| match segment {
            Segment::Literal(text) => format!("'{text}'"),
            Segment::Hole(hole) => format!("{}<{}>", hole.root, compact(&hole.value)),
        })
        .collect();
    shown.join(" ")
}

#[test]
fn literals_holes_and_doubled_braces() {
    for (text, expected) in [
        ("order", "'order'"),
        ("order:{id}", "'order:' id<id>"),
        (
            "{req.merchant}:{req.order_no}",
            "req<req.merchant> ':' req<req.order_no>",
        ),
        ("{ id }", "id<id>"),
        ("{{{id}}}", "'{' id<id> '}'"),
        ("a{{b}}c", "'a{b}c'"),
        (
            "{self.tenant}/{pair.0.1}",
            "self<self.tenant> '/' pair<pair.0.1>",
        ),
        ("{req.id().inner}", "req<req.id().inner>"),
        ("{r#type}", "r#type<r#type>"),
    ] {
        assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn mistakes_in_a_template_have_their_own_messages() {
    for (text, part) in [
        ("{", "`{` is not closed"),
        ("a}b", "`}` closes nothing"),
        ("{a{b}", "`{` is not closed"),
        ("{}", "a hole is empty"),
        ("{ }", "a hole is empty"),
        ("{0}", "is a position"),
        ("{x:?}", "format spec"),
        ("{x:>5}", "format spec"),
        ("{a + b}", "is an expression"),
        ("{-a}", "is an expression"),
        ("{a.b(1)}", "calls a method with arguments"),
        ("{a.b::<u8>()}", "calls a method with arguments"),
        ("{f(a)}", "is a call"),
        ("{a::b}", "is a path"),
        ("{&a}", "borrows"),
        ("{a[0]}", "indexes"),
        ("{a?}", "can fail"),
        ("{a.await}", "awaits"),
        ("{_}", "is not a name"),
        ("{a b}", "is not a name"),
        ("{a.}", "is not a name"),
    ] {
        let messages = read(text).expect_err(text);
        assert!(messages[0].contains(part), "{text}: {messages:?}");
        assert_eq!(messages.len(), 1, "{text}: {messages:?}");
    }
}

#[test]
fn every_mistake_of_one_template_is_reported() {
    let messages = read("{}:{0}:}").expect_err("three mistakes");
    assert_eq!(messages.len(), 3, "{messages:?}");
}

#[test]
fn token_parts_are_joined_by_colons() {
    let parts: [Expr; 3] = [
        parse_quote!("order"),
        parse_quote!(req.a),
        parse_quote!(req.b()),
    ];
    let mut errors = Errors::new();
    let segments = from_parts(&parts, &mut errors);
    assert!(errors.into_result().is_ok());
    assert_eq!(debug(&segments), "'order:' req<req.a> ':' req<req.b()>");
    assert_eq!(separators(&segments), ":");
}

#[test]
fn separators_are_those_between_holes_only() {
    let mut errors = Errors::new();
    let literal = LitStr::new("a-b:{x}/-/{y}-x|{z};", Span::call_site());
    let segments = from_literal(&literal, &mut errors);
    assert!(errors.into_result().is_ok());
    assert_eq!(separators(&segments), "/-|");
}

#[test]
fn letters_digits_and_the_escape_separate_nothing() {
    for text in ["", "x", "12", "ä", "%", "x%2"] {
        assert!(!separates(text), "{text}");
    }
    for text in [":", "x/", "%:", " ", "->"] {
        assert!(separates(text), "{text}");
    }
}
