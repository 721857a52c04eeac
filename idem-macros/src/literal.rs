//! Places inside a string literal.
//!
//! On stable Rust a macro cannot point into a literal, so messages carry the line and the column.

use std::fmt;

use syn::LitStr;

/// Where in the user's file a byte of the literal's value stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// Shown at the end of a message.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " (line {}, column {})", self.line, self.column)
    }
}

/// Translates offsets in a literal's value to places in the file.
pub(crate) struct Locator {
    source: Option<String>,
    start: Place,
}

impl Locator {
    pub(crate) fn new(literal: &LitStr) -> Self {
        let span = literal.span();
        // Outside of a compiler (unit tests) there is no file to point into.
        let start = proc_macro::is_available().then(|| {
            let span = span.unwrap();
            Place {
                line: span.line(),
                column: span.column(),
            }
        });
        Self {
            source: start.and_then(|_| span.source_text()),
            start: start.unwrap_or(Place { line: 1, column: 1 }),
        }
    }

    pub(crate) fn place(&self, offset: usize) -> Option<Place> {
        let source = self.source.as_deref()?;
        Some(advance(
            self.start,
            source.get(..source_offset(source, offset)?)?,
        ))
    }
}

fn advance(start: Place, text: &str) -> Place {
    match text.rsplit_once('\n') {
        Some((before, last)) => Place {
            line: start.line + before.matches('\n').count() + 1,
            column: last.chars().count() + 1,
        },
        None => Place {
            line: start.line,
            column: start.column + text.chars().count(),
        },
    }
}

/// The offset in the literal as it is written of the byte `offset` of its value.
fn source_offset(source: &str, offset: usize) -> Option<usize> {
    if let Some(raw) = source.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        return Some(1 + hashes + 1 + offset);
    }
    let body = source.strip_prefix('"')?;
    let mut rest = body;
    let mut value = 0;
    while value < offset {
        let (written, meant) = unit(rest)?;
        value += meant;
        rest = rest.get(written..)?;
    }
    Some(source.len() - rest.len())
}

/// The lengths of the next unit of a cooked literal: as written, and of its value.
fn unit(text: &str) -> Option<(usize, usize)> {
    let mut chars = text.chars();
    let first = chars.next()?;
    if first != '\\' {
        // The lexer reads a carriage return and line feed as one line feed.
        return Some(match (first, chars.next()) {
            ('\r', Some('\n')) => (2, 1),
            _ => (first.len_utf8(), first.len_utf8()),
        });
    }
    match chars.next()? {
        'x' => Some((4, 1)),
        'u' => {
            let end = text.find('}')?;
            let digits = text.get(3..end)?.replace('_', "");
            let meant = char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?;
            Some((end + 1, meant.len_utf8()))
        }
        '\n' | '\r' => {
            let after = text.get(1..)?.trim_start_matches([' ', '\t', '\n', '\r']);
            Some((text.len() - after.len(), 0))
        }
        _ => Some((2, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, advance, source_offset};

    #[test]
    fn cooked_raw_and_escaped_literals() {
        assert_eq!(source_offset(r#""abc""#, 2), Some(3));
        assert_eq!(source_offset("r\"abc\"", 2), Some(4));
        assert_eq!(source_offset("r##\"abc\"##", 0), Some(4));
        assert_eq!(source_offset(r#""a\nb{x}""#, 3), Some(5));
        assert_eq!(source_offset(r#""\x41{x}""#, 1), Some(5));
        assert_eq!(source_offset(r#""\u{e4}{x}""#, 2), Some(7));
        assert_eq!(source_offset("\"a\\\n   {x}\"", 1), Some(2));
        assert_eq!(source_offset("\"ä{x}\"", 2), Some(3));
    }

    #[test]
    fn columns_count_characters_and_lines_restart_them() {
        let start = Place {
            line: 5,
            column: 18,
        };
        assert_eq!(
            advance(start, "\"ä"),
            Place {
                line: 5,
                column: 20
            }
        );
        assert_eq!(advance(start, "\"a\n  "), Place { line: 6, column: 3 });
    }
}
