//! From attributes to a machine that is sound.

use proc_macro2::{Ident, Span};
use syn::{Data, DataEnum, DeriveInput, Fields, Variant, Visibility};

use super::args::{Column, MachineArgs, StateArgs};
use super::names::{refusal, snake_case};
use crate::crate_path::CratePath;
use crate::errors::Errors;
use crate::suggest::{closest, did_you_mean};
use crate::template::plain;

/// One initial state, every state reachable, every exit known.
pub(super) struct Machine {
    pub(super) ident: Ident,
    pub(super) vis: Visibility,
    pub(super) krate: CratePath,
    pub(super) states: Vec<State>,
    initial: usize,
}

pub(super) struct State {
    pub(super) ident: Ident,
    pub(super) text: String,
    /// Indices of states; none: the state is terminal.
    pub(super) exits: Vec<usize>,
}

impl Machine {
    pub(super) fn name(&self) -> String {
        plain(&self.ident)
    }

    pub(super) fn initial(&self) -> &State {
        &self.states[self.initial]
    }

    /// The states that lead to one.
    pub(super) fn sources(&self, to: usize) -> impl Iterator<Item = &State> {
        self.states
            .iter()
            .filter(move |state| state.exits.contains(&to))
    }
}

impl State {
    pub(super) fn name(&self) -> String {
        plain(&self.ident)
    }
}

pub(super) fn machine(input: &DeriveInput, errors: &mut Errors) -> Option<Machine> {
    let args = MachineArgs::read(&input.attrs, errors);
    let data = shape(input, errors)?;
    let column = args.column.required(
        "`#[state_machine(column = 16)]` is missing: the width of the status column, so that no name is cut in it (`column = text` if it has no limit)",
        errors,
    );
    let drafts: Vec<Draft<'_>> = data
        .variants
        .iter()
        .map(|variant| Draft::new(variant, errors))
        .collect();
    check_texts(&drafts, column.copied(), errors);
    let initial = initial(input, &drafts, errors);
    let before = errors.count();
    let exits: Vec<Vec<usize>> = drafts
        .iter()
        .map(|draft| draft.exits(input, &drafts, errors))
        .collect();
    let initial = initial?;
    // A target that was refused would be reported again, as a state that is not reached.
    let read = |draft: &Draft<'_>| draft.args.to.given().is_some() || draft.args.to.is_absent();
    if errors.count() == before && drafts.iter().all(read) {
        check_reachable(&drafts, &exits, initial, errors);
    }
    let states = drafts.into_iter().zip(exits).map(|(draft, exits)| State {
        ident: draft.variant.ident.clone(),
        text: draft.text,
        exits,
    });
    Some(Machine {
        ident: input.ident.clone(),
        vis: input.vis.clone(),
        krate: args.krate.value().cloned().unwrap_or_default(),
        states: states.collect(),
        initial,
    })
}

fn shape<'a>(input: &'a DeriveInput, errors: &mut Errors) -> Option<&'a DataEnum> {
    const SHAPE: &str = "a state machine is an enum: its variants are the states";
    let data = match &input.data {
        Data::Enum(data) => data,
        Data::Struct(data) => {
            errors.on(data.struct_token, SHAPE);
            return None;
        }
        Data::Union(data) => {
            errors.on(data.union_token, SHAPE);
            return None;
        }
    };
    if !input.generics.params.is_empty() {
        errors.on(
            &input.generics,
            "a state is one of a few names: the enum takes no parameters",
        );
    }
    if data.variants.is_empty() {
        errors.on(
            &input.ident,
            "an enum without variants has no state to begin in",
        );
        return None;
    }
    Some(data)
}

/// A variant with its attributes.
struct Draft<'a> {
    variant: &'a Variant,
    args: StateArgs,
    text: String,
    /// Where the text comes from.
    said: Span,
}

impl<'a> Draft<'a> {
    fn new(variant: &'a Variant, errors: &mut Errors) -> Self {
        let args = StateArgs::read(&variant.attrs, errors);
        if !matches!(variant.fields, Fields::Unit) {
            errors.on(
                &variant.fields,
                format_args!(
                    "a state is one text in a column and carries no data: keep that of `{}` in columns of its own",
                    variant.ident
                ),
            );
        }
        let (text, said) = match args.rename.value() {
            Some(text) => (text.value(), text.span()),
            None => (snake_case(&plain(&variant.ident)), variant.ident.span()),
        };
        Self {
            variant,
            args,
            text,
            said,
        }
    }

    fn is(&self, name: &Ident) -> bool {
        self.variant.ident == *name
    }

    fn exits(&self, input: &DeriveInput, all: &[Draft<'_>], errors: &mut Errors) -> Vec<usize> {
        let ident = &self.variant.ident;
        let terminal = self.args.terminal.given();
        let Some(to) = self.args.to.given() else {
            if terminal.is_none() && self.args.to.is_absent() && self.args.terminal.is_absent() {
                errors.on(
                    ident,
                    format_args!(
                        "`{ident}` has no exits: name them with `#[state(to(..))]`, or mark it `#[state(terminal)]`"
                    ),
                );
            }
            return Vec::new();
        };
        if let Some(terminal) = terminal {
            errors.at(
                terminal.name,
                format_args!("`{ident}` is terminal and has exits: remove the one or the other"),
            );
        }
        let mut exits = Vec::new();
        for target in &to.value {
            if let Some(exit) = self.exit(target, input, all, errors) {
                if exits.contains(&exit) {
                    errors.on(target, format_args!("`{target}` is named twice"));
                } else {
                    exits.push(exit);
                }
            }
        }
        exits
    }

    fn exit(
        &self,
        target: &Ident,
        input: &DeriveInput,
        all: &[Draft<'_>],
        errors: &mut Errors,
    ) -> Option<usize> {
        if self.is(target) {
            errors.on(
                target,
                format_args!(
                    "`{target}` to `{target}` is no transition: a repeat is answered `AlreadyThere` without being declared, leave it out"
                ),
            );
            return None;
        }
        let found = all.iter().position(|draft| draft.is(target));
        if found.is_none() {
            let names: Vec<String> = all
                .iter()
                .map(|draft| draft.variant.ident.to_string())
                .collect();
            let near = closest(&target.to_string(), names.iter().map(String::as_str));
            let near = near.map_or(String::new(), did_you_mean);
            let machine = &input.ident;
            errors.on(
                target,
                format_args!("`{target}` is no state of `{machine}`{near}"),
            );
        }
        found
    }
}

fn check_texts(drafts: &[Draft<'_>], column: Option<Column>, errors: &mut Errors) {
    for (at, draft) in drafts.iter().enumerate() {
        let text = &draft.text;
        if let Some(refusal) = refusal(text) {
            errors.at(draft.said, refusal);
            continue;
        }
        let length = text.chars().count();
        if let Some(Column::Characters(width)) = column
            && length > width
        {
            errors.at(
                draft.said,
                format_args!("`{text}` has {length} characters and the column {width}"),
            );
        }
        let same = |other: &&Draft<'_>| other.text.eq_ignore_ascii_case(text);
        if let Some(other) = drafts[..at].iter().find(same) {
            let ident = &other.variant.ident;
            if other.text == *text {
                errors.at(
                    draft.said,
                    format_args!("`{text}` is the text of `{ident}` already"),
                );
            } else {
                errors.at(
                    draft.said,
                    format_args!(
                        "`{text}` differs only in case from the text of `{ident}`: to many columns that is the same text"
                    ),
                );
            }
        }
    }
}

fn initial(input: &DeriveInput, drafts: &[Draft<'_>], errors: &mut Errors) -> Option<usize> {
    let mut found: Option<usize> = None;
    for (at, draft) in drafts.iter().enumerate() {
        let Some(given) = draft.args.initial.given() else {
            continue;
        };
        match found {
            None => found = Some(at),
            Some(first) => {
                let first = &drafts[first].variant.ident;
                errors.at(
                    given.name,
                    format_args!("`{first}` is initial already: new rows begin in one state"),
                );
            }
        }
    }
    let refused = drafts.iter().any(|draft| !draft.args.initial.is_absent());
    if found.is_none() && !refused {
        errors.on(
            &input.ident,
            "no state is initial: mark the one that new rows begin in with `#[state(initial, ..)]`",
        );
    }
    found
}

fn check_reachable(
    drafts: &[Draft<'_>],
    exits: &[Vec<usize>],
    initial: usize,
    errors: &mut Errors,
) {
    let mut reached = vec![false; drafts.len()];
    let mut next = vec![initial];
    while let Some(at) = next.pop() {
        if !std::mem::replace(&mut reached[at], true) {
            next.extend(&exits[at]);
        }
    }
    let first = &drafts[initial].variant.ident;
    for (draft, _) in drafts
        .iter()
        .zip(&reached)
        .filter(|(_, reached)| !**reached)
    {
        let ident = &draft.variant.ident;
        errors.at(
            ident.span(),
            format_args!(
                "no transition leads from `{first}`, the initial state, to `{ident}`: name it in a `to(..)`, or remove it"
            ),
        );
    }
}
