//! Lines of a file as bytes, each within a bound: no line, however long, takes the memory.

use std::io::{self, BufRead};

/// No provider sends a notice of this size.
pub(crate) const MAX_LINE: usize = 1 << 20;

/// One line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Whole(Vec<u8>),
    TooLong { bytes: u64 },
}

impl Line {
    /// The first line of a file may begin with a mark that says that it is UTF-8.
    pub(crate) fn without_mark(self) -> Self {
        match self {
            Self::Whole(mut bytes) if bytes.starts_with(MARK) => {
                bytes.drain(..MARK.len());
                Self::Whole(bytes)
            }
            line => line,
        }
    }
}

/// The byte order mark in UTF-8.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// The next line; the last one may lack its end.
pub(crate) fn next_line(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut kept = Vec::new();
    let mut bytes = 0_u64;
    let mut ended = false;
    while !ended {
        let chunk = match input.fill_buf() {
            Ok([]) if bytes == 0 => return Ok(None),
            Ok([]) => break,
            Ok(chunk) => chunk,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = chunk.iter().position(|&byte| byte == b'\n');
        let text = &chunk[..end.unwrap_or(chunk.len())];
        ended = end.is_some();
        kept.extend_from_slice(&text[..text.len().min(MAX_LINE - kept.len())]);
        let used = text.len() + usize::from(ended);
        bytes += used as u64;
        input.consume(used);
    }
    bytes -= u64::from(ended);
    Ok(Some(if bytes > MAX_LINE as u64 {
        Line::TooLong { bytes }
    } else {
        Line::Whole(kept)
    }))
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Cursor};

    use super::{Line, MAX_LINE, next_line};

    fn lines(text: &[u8], buffer: usize) -> Vec<Line> {
        let mut input = BufReader::with_capacity(buffer, Cursor::new(text));
        std::iter::from_fn(|| next_line(&mut input).unwrap()).collect()
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.into())
    }

    #[test]
    fn every_line_is_given_whatever_its_end() {
        for buffer in [1, 2, 3, 64] {
            let all = lines(b"one\n\ntwo\r\nlast", buffer);
            let expected = [whole("one"), whole(""), whole("two\r"), whole("last")];
            assert_eq!(all, expected, "{buffer}");
        }
        assert_eq!(lines(b"", 8), []);
        assert_eq!(lines(b"\n", 8), [whole("")]);
        assert_eq!(lines(b"one\n", 8), [whole("one")]);
        assert_eq!(lines(b"\xff\xfe\n", 8), [Line::Whole(vec![0xff, 0xfe])]);
    }

    #[test]
    fn a_mark_of_utf_8_is_no_text() {
        assert_eq!(whole("\u{feff}one").without_mark(), whole("one"));
        assert_eq!(whole("\u{feff}").without_mark(), whole(""));
        assert_eq!(whole("one\u{feff}").without_mark(), whole("one\u{feff}"));
        let long = Line::TooLong { bytes: 5 };
        assert_eq!(long.without_mark(), Line::TooLong { bytes: 5 });
    }

    #[test]
    fn a_line_beyond_the_bound_is_counted_and_passed_over() {
        let mut text = vec![b'x'; MAX_LINE];
        text.extend_from_slice(b"\n");
        text.extend(std::iter::repeat_n(b'y', 3 * MAX_LINE));
        text.extend_from_slice(b"\nafter");
        let all = lines(&text, 4096);
        assert_eq!(all[0], Line::Whole(vec![b'x'; MAX_LINE]));
        let bytes = 3 * MAX_LINE as u64;
        assert_eq!(all[1..], [Line::TooLong { bytes }, whole("after")]);
    }
}
