use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};

use super::trace::Mark;
use super::writer::Outer;
use super::{CanonicalError, Writer, tag};

/// A sequence, set, map or struct that is being written.
pub(crate) struct Compound<'w> {
    out: &'w mut Writer,
    /// The number of the first entry, where entries are sorted.
    sorted_from: Option<usize>,
    /// The entry of a map whose key is written and whose value is not.
    entry: Option<(Outer, Option<Mark>)>,
    /// How many elements there were.
    index: usize,
}

impl<'w> Compound<'w> {
    pub(super) fn sequence(out: &'w mut Writer) -> Result<Self, CanonicalError> {
        if out.any_order() {
            Self::set(out)
        } else {
            Self::begin(out, tag::SEQ, false)
        }
    }

    pub(super) fn set(out: &'w mut Writer) -> Result<Self, CanonicalError> {
        Self::begin(out, tag::SET, true)
    }

    pub(super) fn map(out: &'w mut Writer) -> Result<Self, CanonicalError> {
        Self::begin(out, tag::MAP, true)
    }

    fn begin(out: &'w mut Writer, tag: u8, sorted: bool) -> Result<Self, CanonicalError> {
        out.enter()?;
        out.put(&[tag]);
        Ok(Self {
            sorted_from: sorted.then(|| out.entry_count()),
            out,
            entry: None,
            index: 0,
        })
    }

    pub(super) fn element<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), CanonicalError> {
        let index = self.index;
        self.index += 1;
        if self.sorted_from.is_some() {
            let entry = self.out.open_entry();
            let mark = self.out.trace().map(|trace| trace.hide());
            value.serialize(&mut *self.out)?;
            if let (Some(mark), Some(trace)) = (mark, self.out.trace()) {
                trace.leave(mark, &[]);
            }
            self.out.close(entry);
            return Ok(());
        }
        let position = self.out.position();
        let mark = self.out.trace().map(|trace| trace.index(index));
        value.serialize(&mut *self.out)?;
        self.end_mark(mark, position);
        Ok(())
    }

    fn field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        let entry = self.out.open_entry();
        self.out.prefixed(tag::STR, name.as_bytes());
        let position = self.out.position();
        let mark = self.out.trace().map(|trace| trace.field(name));
        value.serialize(&mut *self.out)?;
        self.end_mark(mark, position);
        self.out.close(entry);
        Ok(())
    }

    fn key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), CanonicalError> {
        let entry = self.out.open_entry();
        let position = self.out.position();
        key.serialize(&mut *self.out)?;
        let text = if self.out.trace().is_some() {
            self.out.since(position).to_vec()
        } else {
            Vec::new()
        };
        let mark = self.out.trace().map(|trace| trace.key(&text));
        self.entry = Some((entry, mark));
        Ok(())
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        let Some((entry, mark)) = self.entry.take() else {
            return Err(CanonicalError::Custom("a map value without a key".into()));
        };
        let position = self.out.position();
        value.serialize(&mut *self.out)?;
        self.end_mark(mark, position);
        self.out.close(entry);
        Ok(())
    }

    fn end_mark(&mut self, mark: Option<Mark>, position: usize) {
        let Some(mark) = mark else {
            return;
        };
        let bytes = self.out.since(position).to_vec();
        if let Some(trace) = self.out.trace() {
            trace.leave(mark, &bytes);
        }
    }

    pub(super) fn finish(self) -> Result<(), CanonicalError> {
        if self.entry.is_some() {
            return Err(CanonicalError::Custom("a map key without a value".into()));
        }
        if let Some(first) = self.sorted_from {
            self.out.sort_entries(first);
        }
        self.out.put(&[tag::END]);
        self.out.leave();
        Ok(())
    }
}

macro_rules! elements {
    ($($trait:ident $method:ident)*) => {$(
        impl $trait for Compound<'_> {
            type Ok = ();
            type Error = CanonicalError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
                self.element(value)
            }

            fn end(self) -> Result<(), CanonicalError> {
                self.finish()
            }
        }
    )*};
}

elements! {
    SerializeSeq serialize_element
    SerializeTuple serialize_element
    SerializeTupleStruct serialize_field
    SerializeTupleVariant serialize_field
}

macro_rules! fields {
    ($($trait:ident)*) => {$(
        impl $trait for Compound<'_> {
            type Ok = ();
            type Error = CanonicalError;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), CanonicalError> {
                self.field(name, value)
            }

            fn end(self) -> Result<(), CanonicalError> {
                self.finish()
            }
        }
    )*};
}

fields! { SerializeStruct SerializeStructVariant }

impl SerializeMap for Compound<'_> {
    type Ok = ();
    type Error = CanonicalError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), CanonicalError> {
        self.key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        self.value(value)
    }

    fn end(self) -> Result<(), CanonicalError> {
        self.finish()
    }
}
