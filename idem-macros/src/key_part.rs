//! `#[derive(KeyPart)]`.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DataEnum, DeriveInput, Expr, Field, Fields, Ident, LitStr, Member, Token,
    Type, Variant,
};

use crate::crate_path::CratePath;
use crate::errors::Errors;
use crate::hygiene::{ours, ours_at};
use crate::slot::Slot;
use crate::template::plain;

pub(crate) fn derive(input: TokenStream) -> TokenStream {
    try_derive(input).unwrap_or_else(syn::Error::into_compile_error)
}

fn try_derive(input: TokenStream) -> syn::Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let mut errors = Errors::new();
    let shape = shape(&input, &mut errors);
    let krate = type_attributes(&input.attrs, &mut errors);
    errors.into_result()?;
    Ok(shape
        .map(|shape| expand(&input, &shape, &krate))
        .unwrap_or_default())
}

/// A type that can be a key part.
enum Shape {
    /// Its only field is the key part.
    Wrapper(Member, Box<Type>),
    Enum(Vec<Case>),
}

struct Case {
    cfg: Vec<Attribute>,
    ident: Ident,
    text: String,
    field: Option<(Member, Type)>,
}

fn shape(input: &DeriveInput, errors: &mut Errors) -> Option<Shape> {
    match &input.data {
        Data::Struct(data) => match only_field(&data.fields) {
            Ok(Some((member, ty))) => Some(Shape::Wrapper(member, Box::new(ty))),
            Ok(None) => {
                errors.on(
                    &input.ident,
                    "a struct without fields identifies nothing: a key part is a newtype or an enum",
                );
                None
            }
            Err(second) => {
                errors.on(
                    second,
                    "a struct with more than one field has no one text: name its fields in the key, or implement `KeyPart` by hand",
                );
                None
            }
        },
        Data::Enum(data) => cases(input, data, errors).map(Shape::Enum),
        Data::Union(data) => {
            errors.on(
                data.union_token,
                "a union does not know which of its fields it holds: it cannot be a key part",
            );
            None
        }
    }
}

/// The field, nothing if there is none, or the second one.
fn only_field(fields: &Fields) -> Result<Option<(Member, Type)>, &Field> {
    let mut all = fields.iter().zip(fields.members());
    let first = all.next().map(|(field, member)| (member, field.ty.clone()));
    match all.next() {
        Some((second, _)) => Err(second),
        None => Ok(first),
    }
}

fn cases(input: &DeriveInput, data: &DataEnum, errors: &mut Errors) -> Option<Vec<Case>> {
    if data.variants.is_empty() {
        errors.on(
            &input.ident,
            "an enum without variants has no value that could be a key part",
        );
        return None;
    }
    let mut found: Vec<Case> = Vec::new();
    for variant in &data.variants {
        let Some(case) = case(variant, errors) else {
            continue;
        };
        if let Some(other) = found.iter().find(|other| other.text == case.text) {
            let (text, other) = (&case.text, &other.ident);
            errors.on(
                &variant.ident,
                format_args!(
                    "`{text}` is the text of `{other}` already: two variants would be one key"
                ),
            );
        }
        found.push(case);
    }
    Some(found)
}

fn case(variant: &Variant, errors: &mut Errors) -> Option<Case> {
    let rename = variant_attributes(&variant.attrs, errors);
    let field = match only_field(&variant.fields) {
        Ok(field) => field,
        Err(second) => {
            errors.on(
                second,
                "a variant with more than one field has no one text: put the fields into the key, or implement `KeyPart` by hand",
            );
            return None;
        }
    };
    Some(Case {
        cfg: variant
            .attrs
            .iter()
            .filter(|attr| attr.path().is_ident("cfg"))
            .cloned()
            .collect(),
        text: rename.unwrap_or_else(|| plain(&variant.ident)),
        ident: variant.ident.clone(),
        field,
    })
}

/// Calls `read` for each `name = value` of each `#[key_part(..)]`.
fn attributes(
    attrs: &[Attribute],
    errors: &mut Errors,
    mut read: impl FnMut(&Ident, Expr, &mut Errors),
) {
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("key_part")) {
        let parsed = attr.parse_args_with(|input: syn::parse::ParseStream<'_>| {
            Punctuated::<Named, Token![,]>::parse_terminated(input)
        });
        for Named { name, value } in errors.keep(parsed).into_iter().flatten() {
            read(&name, value, errors);
        }
    }
}

struct Named {
    name: Ident,
    value: Expr,
}

impl syn::parse::Parse for Named {
    fn parse(input: syn::parse::ParseStream<'_>) -> syn::Result<Self> {
        let name = input.call(syn::ext::IdentExt::parse_any)?;
        input.parse::<Token![=]>()?;
        Ok(Self {
            name,
            value: input.parse()?,
        })
    }
}

fn type_attributes(attrs: &[Attribute], errors: &mut Errors) -> CratePath {
    let mut krate = Slot::Absent;
    attributes(attrs, errors, |name, value, errors| {
        if name == "crate" {
            krate.set(name, CratePath::from_expr(&value), errors);
        } else if name == "rename" {
            errors.at(
                name.span(),
                "`rename` goes on a variant: a struct has no text of its own",
            );
        } else {
            errors.at(
                name.span(),
                format_args!("unknown attribute `{name}`: a type takes `crate = ::path`"),
            );
        }
    });
    krate.value().cloned().unwrap_or_default()
}

fn variant_attributes(attrs: &[Attribute], errors: &mut Errors) -> Option<String> {
    let mut rename = Slot::Absent;
    attributes(attrs, errors, |name, value, errors| {
        if name == "rename" {
            rename.set(name, text(&value), errors);
        } else {
            errors.at(
                name.span(),
                format_args!("unknown attribute `{name}`: a variant takes `rename = \"..\"`"),
            );
        }
    });
    rename.value().cloned()
}

fn text(value: &Expr) -> syn::Result<String> {
    let error = |message| Err(syn::Error::new(value.span(), message));
    let literal: Result<LitStr, _> = syn::parse2(value.to_token_stream());
    let Ok(literal) = literal else {
        return error("`rename` is written `rename = \"paid\"`");
    };
    let text = literal.value();
    if text.is_empty() {
        return error("a variant with an empty text would be an empty key part");
    }
    if text.contains(['(', ')']) {
        return error("parentheses enclose the field of a variant: leave them out of the text");
    }
    Ok(text)
}

fn expand(input: &DeriveInput, shape: &Shape, krate: &CratePath) -> TokenStream {
    let private = krate.private();
    let ident = &input.ident;
    let mut generics = input.generics.clone();
    if generics.type_params().next().is_some() {
        let clause = generics.make_where_clause();
        for ty in field_types(shape) {
            clause
                .predicates
                .push(syn::parse_quote!(#ty: #private::KeyPart));
        }
    }
    let (impl_generics, type_generics, clause) = generics.split_for_impl();
    let body = match shape {
        Shape::Wrapper(member, ty) => {
            let write = write(&private, ty.span());
            quote_spanned!(ours()=> #write(&self.#member, __out))
        }
        Shape::Enum(cases) => {
            let arms = cases.iter().map(|case| arm(case, &private));
            quote_spanned!(ours()=> match self { #(#arms)* })
        }
    };
    quote_spanned! {ours()=>
        #[automatically_derived]
        impl #impl_generics #private::KeyPart for #ident #type_generics #clause {
            fn write_key(&self, __out: &mut #private::KeyWriter<'_>) {
                #body
            }
        }
    }
}

fn field_types(shape: &Shape) -> Vec<&Type> {
    match shape {
        Shape::Wrapper(_, ty) => vec![ty],
        Shape::Enum(cases) => cases
            .iter()
            .filter_map(|case| case.field.as_ref())
            .map(|(_, ty)| ty)
            .collect(),
    }
}

/// `KeyPart::write_key`, whose missing implementation is reported at the field's type.
fn write(private: &TokenStream, ty: Span) -> TokenStream {
    let span = ours_at(ty);
    quote_spanned!(span=> #private::KeyPart::write_key)
}

fn arm(case: &Case, private: &TokenStream) -> TokenStream {
    let Case {
        cfg,
        ident,
        text,
        field,
    } = case;
    match field {
        None => quote_spanned! {ours()=> #(#cfg)* Self::#ident { .. } => __out.write_str(#text), },
        Some((member, ty)) => {
            let write = write(private, ty.span());
            let open = format!("{text}(");
            quote_spanned! {ours()=>
                #(#cfg)*
                Self::#ident { #member: __field } => {
                    __out.write_str(#open);
                    #write(__field, __out);
                    __out.write_str(")");
                }
            }
        }
    }
}
