use std::any::type_name;
use std::fmt;

use serde::{Serialize, Serializer};

use super::compound::Compound;
use super::{CanonicalError, Doubt, Writer, tag};

impl<'w> Serializer for &'w mut Writer {
    type Ok = ();
    type Error = CanonicalError;
    type SerializeSeq = Compound<'w>;
    type SerializeTuple = Compound<'w>;
    type SerializeTupleStruct = Compound<'w>;
    type SerializeTupleVariant = Compound<'w>;
    type SerializeMap = Compound<'w>;
    type SerializeStruct = Compound<'w>;
    type SerializeStructVariant = Compound<'w>;

    fn serialize_bool(self, v: bool) -> Result<(), CanonicalError> {
        self.put(&[if v { tag::TRUE } else { tag::FALSE }]);
        Ok(())
    }

    fn serialize_i8(self, v: i8) -> Result<(), CanonicalError> {
        self.signed(v.into());
        Ok(())
    }

    fn serialize_i16(self, v: i16) -> Result<(), CanonicalError> {
        self.signed(v.into());
        Ok(())
    }

    fn serialize_i32(self, v: i32) -> Result<(), CanonicalError> {
        self.signed(v.into());
        Ok(())
    }

    fn serialize_i64(self, v: i64) -> Result<(), CanonicalError> {
        self.signed(v);
        Ok(())
    }

    fn serialize_i128(self, v: i128) -> Result<(), CanonicalError> {
        if let Some(trace) = self.trace() {
            trace.doubt(Doubt::Wide);
        }
        self.signed_wide(v);
        Ok(())
    }

    fn serialize_u8(self, v: u8) -> Result<(), CanonicalError> {
        self.unsigned(v.into());
        Ok(())
    }

    fn serialize_u16(self, v: u16) -> Result<(), CanonicalError> {
        self.unsigned(v.into());
        Ok(())
    }

    fn serialize_u32(self, v: u32) -> Result<(), CanonicalError> {
        self.unsigned(v.into());
        Ok(())
    }

    fn serialize_u64(self, v: u64) -> Result<(), CanonicalError> {
        self.unsigned(v);
        Ok(())
    }

    fn serialize_u128(self, v: u128) -> Result<(), CanonicalError> {
        if let Some(trace) = self.trace() {
            trace.doubt(Doubt::Wide);
        }
        self.unsigned_wide(v);
        Ok(())
    }

    fn serialize_f32(self, v: f32) -> Result<(), CanonicalError> {
        if !v.is_finite()
            && let Some(trace) = self.trace()
        {
            trace.doubt(Doubt::NotFinite);
        }
        let [a, b, c, d] = v.to_bits().to_be_bytes();
        self.put(&[tag::F32, a, b, c, d]);
        Ok(())
    }

    fn serialize_f64(self, v: f64) -> Result<(), CanonicalError> {
        if !v.is_finite()
            && let Some(trace) = self.trace()
        {
            trace.doubt(Doubt::NotFinite);
        }
        let mut out = [tag::F64; 9];
        out[1..].copy_from_slice(&v.to_bits().to_be_bytes());
        self.put(&out);
        Ok(())
    }

    fn serialize_char(self, v: char) -> Result<(), CanonicalError> {
        let [a, b, c, d] = u32::from(v).to_be_bytes();
        self.put(&[tag::CHAR, a, b, c, d]);
        Ok(())
    }

    fn serialize_str(self, v: &str) -> Result<(), CanonicalError> {
        self.prefixed(tag::STR, v.as_bytes());
        Ok(())
    }

    fn serialize_bytes(self, v: &[u8]) -> Result<(), CanonicalError> {
        self.prefixed(tag::BYTES, v);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), CanonicalError> {
        self.put(&[tag::NONE]);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), CanonicalError> {
        self.put(&[tag::SOME]);
        self.enter()?;
        value.serialize(&mut *self)?;
        self.leave();
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), CanonicalError> {
        self.put(&[tag::UNIT]);
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), CanonicalError> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), CanonicalError> {
        self.prefixed(tag::UNIT_VARIANT, variant.as_bytes());
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        self.enter()?;
        value.serialize(&mut *self)?;
        self.leave();
        Ok(())
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        self.prefixed(tag::VARIANT, variant.as_bytes());
        self.enter()?;
        value.serialize(&mut *self)?;
        self.leave();
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Compound<'w>, CanonicalError> {
        Compound::sequence(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Compound<'w>, CanonicalError> {
        Compound::sequence(self)
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Compound<'w>, CanonicalError> {
        Compound::sequence(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'w>, CanonicalError> {
        self.prefixed(tag::VARIANT, variant.as_bytes());
        Compound::sequence(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Compound<'w>, CanonicalError> {
        Compound::map(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Compound<'w>, CanonicalError> {
        Compound::map(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'w>, CanonicalError> {
        self.prefixed(tag::VARIANT, variant.as_bytes());
        Compound::map(self)
    }

    fn collect_seq<I>(self, iter: I) -> Result<(), CanonicalError>
    where
        I: IntoIterator,
        I::Item: Serialize,
    {
        let mut elements = if iterates_in_no_order(type_name::<I>()) {
            Compound::set(self)?
        } else {
            Compound::sequence(self)?
        };
        for element in iter {
            elements.element(&element)?;
        }
        elements.finish()
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<(), CanonicalError> {
        self.display(value)
    }
}

/// Whether the type of this name iterates in an order of its own: hash tables and binary heaps, by
/// reference or by value, and their own iterators. serde gives no other sign of it.
fn iterates_in_no_order(type_name: &str) -> bool {
    let path = type_name
        .trim_start_matches('&')
        .split('<')
        .next()
        .unwrap_or_default();
    path.starts_with("std::collections::hash::")
        || path.starts_with("hashbrown::")
        || path.starts_with("alloc::collections::binary_heap::")
        || path.ends_with("::HashSet")
}

#[cfg(test)]
mod tests {
    use super::iterates_in_no_order;
    use std::any::type_name;
    use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque, hash_map, hash_set};

    #[test]
    fn key_09_hash_tables_are_known_by_name() {
        for name in [
            type_name::<&HashSet<u8>>(),
            type_name::<HashSet<String>>(),
            type_name::<hash_set::Iter<'_, u8>>(),
            type_name::<hash_map::Iter<'_, u8, u8>>(),
            type_name::<&HashMap<u8, u8>>(),
            type_name::<&BinaryHeap<u8>>(),
            "&hashbrown::set::HashSet<u8>",
        ] {
            assert!(iterates_in_no_order(name), "{name}");
        }
        for name in [
            type_name::<&Vec<HashSet<u8>>>(),
            type_name::<&[u8]>(),
            type_name::<&VecDeque<u8>>(),
            type_name::<&BTreeSet<u8>>(),
        ] {
            assert!(!iterates_in_no_order(name), "{name}");
        }
    }
}
