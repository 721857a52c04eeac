use std::cell::Cell;
use std::fmt::Write as _;
use std::ops::Range;

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{CanonicalError, MAX_DEPTH, Trace, tag};

/// What a part may take before it is replaced by its digest.
const PART_BYTES: usize = 4096;

/// What a writer that is kept for the next value may hold on to.
const KEPT_BYTES: usize = 64 * 1024;

thread_local! {
    /// Taken while in use, so that a `Serialize` implementation that comes back here gets another.
    static SPARE: Cell<Option<Box<Writer>>> = const { Cell::new(None) };
}

/// Runs `f` with an empty writer whose buffers are used again by the next call on this thread.
pub(crate) fn with_writer<R>(f: impl FnOnce(&mut Writer) -> R) -> R {
    let mut writer = SPARE
        .try_with(Cell::take)
        .ok()
        .flatten()
        .unwrap_or_default();
    writer.clear();
    let result = f(&mut writer);
    if writer.buf.capacity() + writer.sorted.capacity() <= KEPT_BYTES {
        // A thread that is just ending has no place to keep it, and no need to.
        let _ = SPARE.try_with(|spare| spare.set(Some(writer)));
    }
    result
}

/// Collects canonical forms, one after the other.
///
/// The entries of a map are sorted when its end is known, so they wait in the buffer. Each entry is
/// a *part*: the stretch of the buffer that can be replaced by its digest once it gets long.
#[derive(Default)]
pub(crate) struct Writer {
    buf: Vec<u8>,
    /// Where the innermost open part begins.
    base: usize,
    /// The beginning of the innermost open part, when that is too long for the buffer.
    spill: Option<Box<Sha256>>,
    /// Where the entries of the open maps and sets begin, outermost first.
    entries: Vec<usize>,
    depth: usize,
    order: Vec<Range<usize>>,
    sorted: Vec<u8>,
    /// Sequences count as sets.
    any_order: bool,
    trace: Option<Box<Trace>>,
}

/// The part around the one just opened.
pub(super) struct Outer {
    base: usize,
    spill: Option<Box<Sha256>>,
}

impl Writer {
    fn clear(&mut self) {
        self.buf.clear();
        self.base = 0;
        self.spill = None;
        self.entries.clear();
        self.depth = 0;
        self.any_order = false;
        self.trace = None;
    }

    /// Appends the form of one value. After an error only [`with_writer`] may use the writer again.
    pub(crate) fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        let outer = self.open();
        value.serialize(&mut *self)?;
        self.close(outer);
        Ok(())
    }

    /// Appends the canonical text of a key part.
    pub(crate) fn key_text(&mut self, text: &str) {
        let outer = self.open();
        self.prefixed(tag::KEY_TEXT, text.as_bytes());
        self.close(outer);
    }

    /// The forms so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf
    }

    /// From now on sequences are written like sets.
    pub(crate) fn ignore_order(&mut self) {
        self.any_order = true;
    }

    /// From now on the paths inside values are noted.
    pub(crate) fn start_trace(&mut self) {
        self.trace = Some(Box::default());
    }

    pub(crate) fn take_trace(&mut self) -> Trace {
        self.trace.take().map(|trace| *trace).unwrap_or_default()
    }

    pub(super) fn trace(&mut self) -> Option<&mut Trace> {
        self.trace.as_deref_mut()
    }

    pub(super) fn any_order(&self) -> bool {
        self.any_order
    }

    /// Where the next byte goes, while nothing but this stretch is written.
    pub(super) fn position(&self) -> usize {
        self.buf.len()
    }

    pub(super) fn since(&self, position: usize) -> &[u8] {
        self.buf.get(position..).unwrap_or_default()
    }

    /// One level deeper.
    pub(super) fn enter(&mut self) -> Result<(), CanonicalError> {
        if self.depth == MAX_DEPTH {
            return Err(CanonicalError::TooDeep);
        }
        self.depth += 1;
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        if bytes.len() > PART_BYTES && self.trace.is_none() {
            self.spill().update(bytes);
            return;
        }
        self.buf.extend_from_slice(bytes);
        // A trace needs the bytes of every place by themselves.
        if self.buf.len() - self.base > PART_BYTES && self.trace.is_none() {
            self.spill();
        }
    }

    /// Moves the open part's bytes into its hash.
    #[cold]
    fn spill(&mut self) -> &mut Sha256 {
        let hash = self.spill.get_or_insert_default();
        hash.update(&self.buf[self.base..]);
        self.buf.truncate(self.base);
        hash
    }

    pub(super) fn open(&mut self) -> Outer {
        let outer = Outer {
            base: self.base,
            spill: self.spill.take(),
        };
        self.base = self.buf.len();
        outer
    }

    pub(super) fn close(&mut self, outer: Outer) {
        if self.spill.is_some() {
            let digest = self.spill().finalize_reset();
            self.buf.push(tag::DIGEST);
            self.buf.extend_from_slice(&digest);
        }
        self.base = outer.base;
        self.spill = outer.spill;
    }

    /// Opens an entry of the innermost map or set.
    pub(super) fn open_entry(&mut self) -> Outer {
        self.entries.push(self.buf.len());
        self.open()
    }

    /// How many entries the maps and sets around here have.
    pub(super) fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// Sorts the entries from number `first` on, which are the end of the buffer, and forgets them.
    pub(super) fn sort_entries(&mut self, first: usize) {
        let starts = &self.entries[first..];
        let Some(&start) = starts.first() else {
            return;
        };
        let ends = starts[1..].iter().copied().chain([self.buf.len()]);
        self.order.clear();
        self.order
            .extend(starts.iter().zip(ends).map(|(&a, b)| a..b));
        let buf = &self.buf;
        // Keys are no beginnings of each other, so comparing whole entries compares keys first.
        if !self
            .order
            .is_sorted_by(|a, b| buf[a.clone()] <= buf[b.clone()])
        {
            self.order
                .sort_unstable_by(|a, b| buf[a.clone()].cmp(&buf[b.clone()]));
            self.sorted.clear();
            for entry in &self.order {
                self.sorted.extend_from_slice(&buf[entry.clone()]);
            }
            self.buf.truncate(start);
            self.buf.extend_from_slice(&self.sorted);
        }
        self.entries.truncate(first);
    }

    /// A tag, a length and the bytes.
    pub(super) fn prefixed(&mut self, tag: u8, bytes: &[u8]) {
        let mut head = [tag; 11];
        let length = leb128(bytes.len() as u64, &mut head[1..]);
        self.put(&head[..=length]);
        self.put(bytes);
    }

    /// A string that is known by its `Display` only.
    pub(super) fn display(&mut self, text: impl std::fmt::Display) -> Result<(), CanonicalError> {
        let mut whole = String::new();
        write!(whole, "{text}")
            .map_err(|_| CanonicalError::Custom("a `Display` implementation failed".into()))?;
        self.prefixed(tag::STR, whole.as_bytes());
        Ok(())
    }

    pub(super) fn unsigned(&mut self, n: u64) {
        self.magnitude(tag::UNSIGNED, &n.to_be_bytes());
    }

    pub(super) fn signed(&mut self, n: i64) {
        if n < 0 {
            self.magnitude(tag::NEGATIVE, &(!n).to_be_bytes());
        } else {
            self.magnitude(tag::UNSIGNED, &n.to_be_bytes());
        }
    }

    pub(super) fn unsigned_wide(&mut self, n: u128) {
        self.magnitude(tag::UNSIGNED, &n.to_be_bytes());
    }

    pub(super) fn signed_wide(&mut self, n: i128) {
        if n < 0 {
            self.magnitude(tag::NEGATIVE, &(!n).to_be_bytes());
        } else {
            self.magnitude(tag::UNSIGNED, &n.to_be_bytes());
        }
    }

    /// The shortest big-endian form; its length is in the tag.
    fn magnitude<const N: usize>(&mut self, tag: u8, bytes: &[u8; N]) {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let mut out = [0; 17];
        // At most 16, so it fits the tag's five low bits.
        out[0] = tag + (N - zeros) as u8;
        out[1..=N - zeros].copy_from_slice(&bytes[zeros..]);
        self.put(&out[..=N - zeros]);
    }
}

fn leb128(mut n: u64, out: &mut [u8]) -> usize {
    let mut length = 0;
    loop {
        let low = (n & 0x7f) as u8;
        n >>= 7;
        out[length] = if n == 0 { low } else { low | 0x80 };
        length += 1;
        if n == 0 {
            return length;
        }
    }
}
