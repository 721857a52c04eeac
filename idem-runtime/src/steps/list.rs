//! The list of a saga's steps, as it is stored with the saga: names, and what kind of step each was.

use super::error::DefinitionError;

/// A step, as it was declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// With its version.
    pub(super) name: String,
    /// Its effect is elsewhere, not in the transaction that records it.
    pub(super) outside: bool,
    /// It has a compensation.
    pub(super) undo: bool,
}

impl Entry {
    /// Whether a step that is declared so continues one that was declared like `stored`. Whether it has
    /// a compensation is looked at when there is something to compensate.
    pub(super) fn continues(&self, stored: &Self) -> bool {
        self.name == stored.name && self.outside == stored.outside
    }

    /// For people.
    pub(super) fn shown(&self) -> String {
        let kind = if self.outside { " (outside)" } else { "" };
        format!("{}{kind}", self.name)
    }

    fn text(&self) -> String {
        let kind = if self.outside { "outside" } else { "tx" };
        let undo = if self.undo { "+undo" } else { "" };
        format!("{}:{kind}{undo}", self.name)
    }

    fn read(text: &str) -> Self {
        let (name, kind) = text.split_once(':').unwrap_or((text, ""));
        Self {
            name: name.to_owned(),
            // A kind that is not known here may have had an effect anywhere.
            outside: !matches!(kind, "tx" | "tx+undo"),
            undo: !matches!(kind, "tx" | "outside"),
        }
    }
}

/// `charge@2` is the step `charge` in its second version.
pub(super) fn base(entry: &str) -> &str {
    entry.split_once('@').map_or(entry, |(base, _)| base)
}

/// The stored text. Names are checked, so that a space separates them.
pub(super) fn text<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> String {
    let entries: Vec<_> = entries.into_iter().map(Entry::text).collect();
    entries.join(" ")
}

pub(super) fn entries(text: &str) -> Vec<Entry> {
    let entries = text.split(' ').filter(|entry| !entry.is_empty());
    entries.map(Entry::read).collect()
}

fn plain(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    (1..=100).contains(&text.len()) && text.bytes().all(plain)
}

/// The name of a definition.
pub(super) fn check_name(name: &str) -> Result<(), DefinitionError> {
    if plain(name) {
        return Ok(());
    }
    Err(DefinitionError::new(format!(
        "{name:?} is not a name of a saga: use at most 100 ASCII letters, digits, `_`, `-`, `.`"
    )))
}

fn check_entry(entry: &str) -> Result<(), DefinitionError> {
    let version = entry.split_once('@').map(|(_, version)| version);
    if plain(base(entry)) && version.is_none_or(plain) {
        return Ok(());
    }
    Err(DefinitionError::new(format!(
        "{entry:?} is not a name of a step: use at most 100 ASCII letters, digits, `_`, `-`, `.`, \
         and perhaps `@` and a version"
    )))
}

/// What must hold of a list: names that differ, at least one.
pub(super) fn check(entries: &[&str]) -> Result<(), DefinitionError> {
    if entries.is_empty() {
        return Err(DefinitionError::new("a saga has at least one step"));
    }
    for (at, entry) in entries.iter().enumerate() {
        check_entry(entry)?;
        if entries[..at].iter().any(|other| base(other) == base(entry)) {
            let name = base(entry);
            return Err(DefinitionError::new(format!(
                "two steps have the name {name:?}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_no_part_of_the_name() {
        assert_eq!(base("charge@2"), "charge");
        assert_eq!(base("charge"), "charge");
        assert!(check(&["reserve", "charge@2"]).is_ok());
        assert!(check(&["charge", "charge@2"]).is_err());
    }

    #[test]
    fn what_would_not_read_back_is_refused() {
        for entry in [
            "",
            "two words",
            "charge@",
            "@2",
            "a@b@c",
            "é",
            "a\n",
            "a:tx",
            "a+b",
        ] {
            assert!(check(&[entry]).is_err(), "{entry:?}");
        }
        assert!(check(&[]).is_err());
    }

    #[test]
    fn what_is_stored_reads_back() {
        let all = [(false, false), (false, true), (true, false), (true, true)];
        let list: Vec<_> = (0..)
            .zip(all)
            .map(|(at, (outside, undo))| Entry {
                name: format!("step{at}@{at}"),
                outside,
                undo,
            })
            .collect();
        let stored = text(&list);
        assert_eq!(
            stored,
            "step0@0:tx step1@1:tx+undo step2@2:outside step3@3:outside+undo"
        );
        assert_eq!(entries(&stored), list);
        let unknown = entries("later:elsewhere");
        assert!(unknown[0].outside && unknown[0].undo);
    }
}
