use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};

use super::tag;

/// Notes of one pass over a value, taken only after two forms turned out to differ, to say where.
#[derive(Default)]
pub(crate) struct Trace {
    path: String,
    /// How many open set elements there are: they have no position to name.
    hidden: usize,
    seen: Vec<(String, u64)>,
    doubts: Vec<(Doubt, String)>,
}

/// What codecs are known to fail at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// NaN or infinity.
    NotFinite,
    /// A 128-bit integer.
    Wide,
    /// A map key that is not a string, a number, a `bool` or a unit variant.
    Key,
}

impl Doubt {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::NotFinite => "is not a finite number",
            Self::Wide => "is a 128-bit integer",
            Self::Key => "is a map whose keys have no text",
        }
    }
}

/// Where the path was before a step.
pub(super) struct Mark {
    length: usize,
    hides: bool,
}

/// More values than this are not told apart.
const MAX_SEEN: usize = 100_000;

impl Trace {
    pub(super) fn field(&mut self, name: &str) -> Mark {
        let mark = self.mark(false);
        if self.hidden == 0 {
            if !self.path.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(name);
        }
        mark
    }

    pub(super) fn index(&mut self, index: usize) -> Mark {
        let mark = self.mark(false);
        if self.hidden == 0 {
            // Writing into a String does not fail.
            let _ = write!(self.path, "[{index}]");
        }
        mark
    }

    /// A map entry, by the form of its key.
    pub(super) fn key(&mut self, form: &[u8]) -> Mark {
        let has_text = form.first().is_some_and(|first| {
            matches!(
                *first,
                tag::STR | tag::CHAR | tag::TRUE | tag::FALSE | tag::UNIT_VARIANT
            ) || *first >= tag::UNSIGNED
        });
        if !has_text {
            self.doubt(Doubt::Key);
        }
        match field_name(form) {
            Some(name) => self.field(name),
            None => {
                let mark = self.mark(false);
                if self.hidden == 0 {
                    self.path.push_str("[..]");
                }
                mark
            }
        }
    }

    /// An element of a set.
    pub(super) fn hide(&mut self) -> Mark {
        self.hidden += 1;
        self.mark(true)
    }

    fn mark(&self, hides: bool) -> Mark {
        Mark {
            length: self.path.len(),
            hides,
        }
    }

    pub(super) fn leave(&mut self, mark: Mark, form: &[u8]) {
        if mark.hides {
            self.hidden -= 1;
        } else if self.hidden == 0 && self.seen.len() < MAX_SEEN {
            let mut hash = DefaultHasher::new();
            hash.write(form);
            self.seen.push((self.path.clone(), hash.finish()));
        }
        self.path.truncate(mark.length);
    }

    pub(super) fn doubt(&mut self, doubt: Doubt) {
        if self.doubts.len() < MAX_SEEN {
            self.doubts.push((doubt, self.path.clone()));
        }
    }

    /// The innermost place that `other` does not have, or has with another value.
    pub(crate) fn difference(&self, other: &Self) -> Option<&str> {
        let mut there: HashMap<&str, HashSet<u64>> = HashMap::new();
        for (path, hash) in &other.seen {
            there.entry(path).or_default().insert(*hash);
        }
        self.seen
            .iter()
            .find(|(path, hash)| {
                there
                    .get(path.as_str())
                    .is_none_or(|hashes| !hashes.contains(hash))
            })
            .map(|(path, _)| path.as_str())
    }

    /// The first place of the first of these kinds that the value has.
    pub(crate) fn first_doubt(&self, kinds: &[Doubt]) -> Option<(Doubt, &str)> {
        kinds.iter().find_map(|kind| {
            let (doubt, path) = self.doubts.iter().find(|(doubt, _)| doubt == kind)?;
            Some((*doubt, path.as_str()))
        })
    }
}

/// The text of a key that reads like a field's name: other keys may be somebody's data, which an
/// error message should not show.
fn field_name(form: &[u8]) -> Option<&str> {
    let (&tag::STR, rest) = form.split_first()? else {
        return None;
    };
    let (&length, name) = rest.split_first()?;
    let plain = usize::from(length) == name.len()
        && name.len() <= 40
        && !name.first()?.is_ascii_digit()
        && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    if plain {
        std::str::from_utf8(name).ok()
    } else {
        None
    }
}
