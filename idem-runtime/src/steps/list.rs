//! The list of a saga's steps, as it is stored with the saga.

use crate::error::{Error, ErrorKind};

/// `charge@2` is the step `charge` in its second version.
pub(super) fn base(entry: &str) -> &str {
    entry.split_once('@').map_or(entry, |(base, _)| base)
}

/// The stored text. Names are checked, so that a space separates them.
pub(super) fn text<'a>(entries: impl IntoIterator<Item = &'a str>) -> String {
    entries.into_iter().collect::<Vec<_>>().join(" ")
}

pub(super) fn entries(text: &str) -> Vec<String> {
    text.split(' ')
        .filter(|entry| !entry.is_empty())
        .map(str::to_owned)
        .collect()
}

fn plain(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    (1..=100).contains(&text.len()) && text.bytes().all(plain)
}

/// The name of a definition.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    if plain(name) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Schema).detail(format!(
        "{name:?} is no name of a saga: at most 100 ASCII letters, digits, `_`, `-`, `.`"
    )))
}

fn check_entry(entry: &str) -> Result<(), Error> {
    let version = entry.split_once('@').map(|(_, version)| version);
    if plain(base(entry)) && version.is_none_or(plain) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Schema).detail(format!(
        "{entry:?} is no name of a step: at most 100 ASCII letters, digits, `_`, `-`, `.`, and \
         perhaps `@` and a version"
    )))
}

/// What must hold of a list: names that differ, at least one.
pub(super) fn check(entries: &[&str]) -> Result<(), Error> {
    let refuse = |detail: String| Err(Error::new(ErrorKind::Schema).detail(detail));
    if entries.is_empty() {
        return refuse("a saga has at least one step".to_owned());
    }
    for (at, entry) in entries.iter().enumerate() {
        check_entry(entry)?;
        if entries[..at].iter().any(|other| base(other) == base(entry)) {
            return refuse(format!("two steps have the name {:?}", base(entry)));
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
        for entry in ["", "two words", "charge@", "@2", "a@b@c", "é", "a\n"] {
            assert!(check(&[entry]).is_err(), "{entry:?}");
        }
        assert!(check(&[]).is_err());
        assert_eq!(
            entries(&text(["reserve", "charge@2"])),
            ["reserve", "charge@2"]
        );
    }
}
