//! Builds the canonical text of a key from literal segments and escaped parts.

use std::fmt::{self, Write as _};

use super::{Key, KeyPart};
use crate::error::{Error, ErrorKind};

/// The longest key, in bytes of its canonical text. The same in every store, whatever the value
/// compresses to: a longer one is refused before the body runs.
pub const MAX_KEY_BYTES: usize = 64 * 1024;

/// Collects the segments of one key.
#[derive(Debug)]
pub struct KeyBuilder {
    text: String,
    separators: &'static str,
    parts: usize,
    blank_part: Option<usize>,
}

impl KeyBuilder {
    /// `separators`: the non-alphanumeric characters of the literals between two parts; they are
    /// escaped inside parts.
    #[must_use]
    pub fn new(separators: &'static str) -> Self {
        Self {
            text: String::with_capacity(64),
            separators,
            parts: 0,
            blank_part: None,
        }
    }

    /// Appends a literal segment of the template.
    pub fn literal(&mut self, segment: &str) {
        // Parts bring `%` only in front of two hexadecimal digits; doubled, one that separates parts
        // cannot be read as the beginning of an escape.
        for (i, piece) in segment.split('%').enumerate() {
            if i > 0 {
                self.text.push_str("%%");
            }
            self.text.push_str(piece);
        }
    }

    /// Appends a part, escaped. A blank one is remembered and refused by [`KeyBuilder::finish`].
    pub fn part<P: KeyPart + ?Sized>(&mut self, part: &P) {
        self.parts += 1;
        let mut writer = KeyWriter {
            text: &mut self.text,
            separators: self.separators,
            is_blank: true,
        };
        part.write_key(&mut writer);
        if writer.is_blank && self.blank_part.is_none() {
            self.blank_part = Some(self.parts);
        }
    }

    /// The text so far, whether or not it makes a key.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The key.
    ///
    /// # Errors
    /// [`ErrorKind::EmptyKeyPart`] and [`ErrorKind::KeyTooLong`]; nothing has run yet.
    pub fn finish(self) -> Result<Key, Error> {
        if let Some(n) = self.blank_part {
            return Err(Error::new(ErrorKind::EmptyKeyPart)
                .detail(format!("part {n} has no visible character")));
        }
        if self.text.len() > MAX_KEY_BYTES {
            return Err(Error::new(ErrorKind::KeyTooLong).detail(format!(
                "the key has {} bytes, at most {MAX_KEY_BYTES} are taken",
                self.text.len()
            )));
        }
        Ok(Key { text: self.text })
    }
}

/// Where a [`KeyPart`] writes itself; escapes what would make two keys meet.
#[derive(Debug)]
pub struct KeyWriter<'a> {
    text: &'a mut String,
    separators: &'static str,
    /// Nothing visible has been written yet.
    is_blank: bool,
}

impl KeyWriter<'_> {
    /// Appends text, escaped.
    pub fn write_str(&mut self, text: &str) {
        if text.bytes().all(|b| b.is_ascii_alphanumeric()) {
            self.is_blank &= text.is_empty();
            self.text.push_str(text);
            return;
        }
        for c in text.chars() {
            self.is_blank = self.is_blank && is_blank(c);
            if c.is_alphanumeric() || !(c == '%' || c.is_control() || self.separators.contains(c)) {
                self.text.push(c);
            } else {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    const HEX: &[u8; 16] = b"0123456789ABCDEF";
                    self.text.push('%');
                    self.text.push(char::from(HEX[usize::from(byte >> 4)]));
                    self.text.push(char::from(HEX[usize::from(byte & 15)]));
                }
            }
        }
    }

    /// Appends what `value` displays as, escaped. For parts whose `Display` is canonical.
    pub fn write_display(&mut self, value: impl fmt::Display) {
        struct Escaping<'a, 'b>(&'a mut KeyWriter<'b>);
        impl fmt::Write for Escaping<'_, '_> {
            fn write_str(&mut self, s: &str) -> fmt::Result {
                self.0.write_str(s);
                Ok(())
            }
        }
        // Writing into a String does not fail; a Display impl that reports an error of its own
        // leaves a shorter part, which is refused if it is empty.
        let _ = write!(Escaping(self), "{value}");
    }
}

/// Whether a character shows nothing: white space, control characters, and what Unicode calls
/// default-ignorable (zero-width, joining and directional characters, variation selectors, fillers).
///
/// A part that is made of such characters only is an identity that somebody lost on the way.
fn is_blank(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}
