use std::borrow::Cow;
use std::num;
use std::rc::Rc;
use std::sync::Arc;

use super::KeyWriter;

/// A value that can be part of an idempotency key: it has one canonical text.
///
/// Implemented for integers, strings, `char`, `bool`, byte ids (`[u8; N]`, as hex), references and
/// smart pointers to them, and by feature for `uuid::Uuid`, `rust_decimal::Decimal` (without
/// trailing zeros) and `chrono::NaiveDate`. For your own newtypes and enums use
/// `#[derive(KeyPart)]`.
///
/// Not for floats, `Option`, collections and moments: their text is not one identity.
///
/// ```
/// use idem_runtime::key::{KeyPart, KeyWriter};
///
/// struct OrderNo(u64);
///
/// impl KeyPart for OrderNo {
///     fn write_key(&self, out: &mut KeyWriter<'_>) {
///         self.0.write_key(out);
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of an idempotency key",
    label = "not a key part",
    note = "a key part has one canonical text: integers, strings, `char`, `bool`, `Uuid`, byte ids",
    note = "for your own newtype or enum add `#[derive(KeyPart)]`; else name a field or a method that returns a key part"
)]
pub trait KeyPart {
    /// Writes the canonical text. A part without a visible character is refused.
    fn write_key(&self, out: &mut KeyWriter<'_>);
}

macro_rules! by_display {
    ($($t:ty)*) => {$(
        impl KeyPart for $t {
            fn write_key(&self, out: &mut KeyWriter<'_>) {
                out.write_display(self);
            }
        }
    )*};
}

by_display! {
    i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize char
    num::NonZeroI8 num::NonZeroI16 num::NonZeroI32 num::NonZeroI64 num::NonZeroI128 num::NonZeroIsize
    num::NonZeroU8 num::NonZeroU16 num::NonZeroU32 num::NonZeroU64 num::NonZeroU128 num::NonZeroUsize
}

impl KeyPart for bool {
    fn write_key(&self, out: &mut KeyWriter<'_>) {
        out.write_str(if *self { "true" } else { "false" });
    }
}

impl KeyPart for str {
    fn write_key(&self, out: &mut KeyWriter<'_>) {
        out.write_str(self);
    }
}

impl KeyPart for String {
    fn write_key(&self, out: &mut KeyWriter<'_>) {
        out.write_str(self);
    }
}

impl<const N: usize> KeyPart for [u8; N] {
    fn write_key(&self, out: &mut KeyWriter<'_>) {
        for byte in self {
            out.write_display(format_args!("{byte:02x}"));
        }
    }
}

macro_rules! by_deref {
    ($($t:ty)*) => {$(
        impl<P: KeyPart + ?Sized> KeyPart for $t {
            fn write_key(&self, out: &mut KeyWriter<'_>) {
                (**self).write_key(out);
            }
        }
    )*};
}

by_deref! { &P &mut P Box<P> Arc<P> Rc<P> }

impl<P: KeyPart + ToOwned + ?Sized> KeyPart for Cow<'_, P> {
    fn write_key(&self, out: &mut KeyWriter<'_>) {
        (**self).write_key(out);
    }
}

#[cfg(feature = "uuid")]
impl KeyPart for uuid::Uuid {
    fn write_key(&self, out: &mut KeyWriter<'_>) {
        out.write_display(self.as_hyphenated());
    }
}

#[cfg(feature = "rust_decimal")]
impl KeyPart for rust_decimal::Decimal {
    fn write_key(&self, out: &mut KeyWriter<'_>) {
        // 10.0 and 10.00 are equal and print differently.
        out.write_display(self.normalize());
    }
}

#[cfg(feature = "chrono")]
impl KeyPart for chrono::NaiveDate {
    fn write_key(&self, out: &mut KeyWriter<'_>) {
        out.write_display(self);
    }
}

mod refused;
