//! The value of a record's key, and the key's name. Both outlive a build: golden-tested, and marked
//! with a version.
//!
//! ```text
//! 0        1      2      10          18          26     42           59      75
//! version  state  fence  created at  time        owner  fingerprint  record  texts  outcome
//! ```
//!
//! The record's id ties the value to its key: what was copied or restored under another key is refused.
//! A completed record whose key is known for longer than its outcome is kept has the end of the outcome,
//! 8 bytes, between id and texts, and a state of its own. A reserved one that is held until somebody
//! decides has a key without an end.
//!
//! Numbers are big-endian, moments in milliseconds. `time` is the end of the lease (zero: none) of a
//! reserved record and the moment of recording of a completed one. A free record is cut after the
//! fence. The texts are the operation's name (length in 2 bytes) and the key's text (length in 4,
//! all ones if it is hidden).

use std::ops::Range;

use bytes::{Buf, Bytes};

use crate::clock::Moment;
use crate::error::{Effect, Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::protocol::{Fence, Owner, Record, State};
use crate::store::{Request, Stored};

const VERSION: u8 = 1;
const HEAD: usize = 75;
const HEAD_WITH_END: usize = HEAD + 8;
const HIDDEN: u32 = u32::MAX;

/// The name of a record's key: a function of prefix, namespace and id, and of no other text.
pub(super) fn key(prefix: &str, id: RecordId) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut key = Vec::with_capacity(prefix.len() + 34);
    key.extend_from_slice(prefix.as_bytes());
    key.push(b'{');
    for byte in id.as_bytes() {
        key.push(DIGITS[usize::from(byte >> 4)]);
        key.push(DIGITS[usize::from(byte & 15)]);
    }
    key.push(b'}');
    key
}

/// What a request adds to the head that the server writes.
pub(super) fn tail(request: &Request<'_>) -> Vec<u8> {
    let scope = cut(request.scope, usize::from(u16::MAX));
    let mut tail = Vec::with_capacity(55 + scope.len() + request.key_text.map_or(0, str::len));
    tail.extend_from_slice(request.owner.as_bytes());
    tail.extend_from_slice(request.fingerprint.as_bytes());
    tail.extend_from_slice(request.id.as_bytes());
    tail.extend_from_slice(&u16::try_from(scope.len()).unwrap_or_default().to_be_bytes());
    tail.extend_from_slice(scope.as_bytes());
    match request.key_text {
        Some(text) => {
            let text = cut(text, 1 << 20);
            tail.extend_from_slice(&u32::try_from(text.len()).unwrap_or_default().to_be_bytes());
            tail.extend_from_slice(text.as_bytes());
        }
        None => tail.extend_from_slice(&HIDDEN.to_be_bytes()),
    }
    tail
}

fn cut(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

/// What a value says.
#[derive(Debug)]
pub(super) enum Read {
    /// Only the fence is remembered.
    Free,
    /// A record; its time is in [`Value::time`].
    Reserved(Value),
    /// The outcome is kept.
    Completed(Value),
    /// The key is known, the outcome is gone.
    Gone(Value),
}

/// A value with a full head.
#[derive(Debug)]
pub(super) struct Value {
    bytes: Bytes,
    head: usize,
}

/// The end of the value's outcome where it comes before its key's; whether that is past only the
/// server's clock can tell.
pub(super) fn outcome_end(value: &[u8]) -> Option<Moment> {
    let end = value.get(HEAD..HEAD_WITH_END)?.try_into().ok()?;
    (value[1] == b'K').then(|| Moment::from_millis(u64::from_be_bytes(end)))
}

/// Where the operation's name and the key's text stand, and where the outcome begins.
#[derive(Debug)]
struct Spans {
    scope: Range<usize>,
    key_text: Option<Range<usize>>,
    outcome: usize,
}

/// Reads the value of a record's key.
///
/// # Errors
/// [`ErrorKind::OutcomeUndecodable`]: it is none of ours, or cut off, or another record's.
pub(super) fn read(value: Vec<u8>, id: RecordId) -> Result<Read, Error> {
    let value = Bytes::from(value);
    let is_ours = value.len() < HEAD || value[HEAD - 16..HEAD] == *id.as_bytes();
    if !is_ours && value.first() == Some(&VERSION) && value[1] != b'F' {
        return Err(unreadable("the key holds the value of another record"));
    }
    match (value.first(), value.get(1), value.len()) {
        (Some(&VERSION), Some(b'F'), 10..) => Ok(Read::Free),
        (Some(&VERSION), Some(b'K'), HEAD_WITH_END..) => Ok(Read::Completed(Value {
            bytes: value,
            head: HEAD_WITH_END,
        })),
        (Some(&VERSION), Some(state @ (b'R' | b'C' | b'T')), HEAD..) => {
            let state = *state;
            let value = Value {
                bytes: value,
                head: HEAD,
            };
            Ok(match state {
                b'R' => Read::Reserved(value),
                b'C' => Read::Completed(value),
                _ => Read::Gone(value),
            })
        }
        // Cut off, but it was completed.
        (Some(&VERSION), Some(b'C' | b'K'), _) => Err(unreadable(STRANGE).effect_is(Effect::Done)),
        _ => Err(unreadable(STRANGE)),
    }
}

const STRANGE: &str = "the key holds a value that is cut off, or that this version did not write";

/// Of what cannot be read nobody knows whether its effect happened.
fn unreadable(what: &str) -> Error {
    Error::new(ErrorKind::OutcomeUndecodable)
        .detail(what)
        .effect_is(Effect::Unknown)
}

impl Value {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes[at..at + N]);
        array
    }

    fn number(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::from_bytes(self.array(42))
    }

    /// The end of the lease, or the moment of recording.
    pub(super) fn time(&self) -> Moment {
        Moment::from_millis(self.number(18))
    }

    fn spans(&self) -> Result<Spans, Error> {
        let (length, start) = self.length(self.head, 2)?;
        let scope = start..start + length;
        let (length, start) = self.length(scope.end, 4)?;
        if u32::try_from(length) == Ok(HIDDEN) {
            return Ok(Spans {
                scope,
                key_text: None,
                outcome: start,
            });
        }
        Ok(Spans {
            scope,
            key_text: Some(start..start + length),
            outcome: start + length,
        })
    }

    /// A length of `width` bytes, and where that which it measures begins.
    fn length(&self, at: usize, width: usize) -> Result<(usize, usize), Error> {
        let digits = self
            .bytes
            .get(at..at + width)
            .ok_or_else(|| unreadable(STRANGE))?;
        let length = digits.iter().fold(0, |n, byte| n << 8 | usize::from(*byte));
        Ok((length, at + width))
    }

    fn text(&self, span: Range<usize>) -> Result<String, Error> {
        let bytes = self.bytes.get(span).ok_or_else(|| unreadable(STRANGE))?;
        String::from_utf8(bytes.to_vec()).map_err(|_| unreadable(STRANGE))
    }

    /// The envelope of a completed record, without copying it.
    pub(super) fn outcome(self) -> Result<Bytes, Error> {
        let start = self.spans()?.outcome;
        let mut bytes = self.bytes;
        if start > bytes.len() {
            return Err(unreadable(STRANGE));
        }
        bytes.advance(start);
        Ok(bytes)
    }

    fn stored(&self, state: State) -> Result<Stored, Error> {
        let spans = self.spans()?;
        let record = Record {
            fingerprint: self.fingerprint(),
            fence: Fence::new(self.number(2)),
            state,
        };
        Ok(Stored::new(
            record,
            self.text(spans.scope)?,
            spans.key_text.map(|span| self.text(span)).transpose()?,
            Moment::from_millis(self.number(10)),
        ))
    }
}

/// The record that a value shows, of a key that goes at `goes_at`.
pub(super) fn stored(
    id: RecordId,
    value: Vec<u8>,
    goes_at: Option<Moment>,
) -> Result<Option<Stored>, Error> {
    match read(value, id)? {
        Read::Free => Ok(None),
        Read::Reserved(value) => {
            let until = value.time();
            let state = State::Reserved {
                owner: Owner::from_bytes(value.array(26)),
                lease_until: (until.as_millis() != 0).then_some(until),
                held: goes_at.is_none(),
            };
            value.stored(state).map(Some)
        }
        Read::Completed(value) => {
            let whole = Value {
                bytes: value.bytes.clone(),
                head: value.head,
            };
            let state = State::Completed {
                recorded_at: value.time(),
                outcome: whole.outcome()?,
                keep_until: outcome_end(&value.bytes).or(goes_at),
                known_until: goes_at,
            };
            value.stored(state).map(Some)
        }
        Read::Gone(value) => value.stored(State::Tombstone { until: goes_at }).map(Some),
    }
}
