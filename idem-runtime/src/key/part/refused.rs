//! Types that rustc should refuse with a reason of their own. The higher-ranked bound keeps the
//! never-satisfied clause from being rejected where it is written, so that it fails where the type
//! is used, with the marker's own text.

use std::marker::PhantomData;

use super::KeyPart;
use crate::key::KeyWriter;

/// Carries a lifetime, so that a bound on it can be higher-ranked.
#[derive(Debug)]
#[doc(hidden)]
pub struct Refused<'a, T: ?Sized>(PhantomData<(&'a (), PhantomData<T>)>);

macro_rules! refuse {
    ($marker:ident, $message:literal, $note:literal, $([$($generics:tt)*] $t:ty),* $(,)?) => {
        #[doc(hidden)]
        #[diagnostic::on_unimplemented(message = $message, label = "not a key part", note = $note)]
        pub trait $marker {}
        $(
            impl<$($generics)*> KeyPart for $t
            where
                for<'a> Refused<'a, $t>: $marker,
            {
                fn write_key(&self, _: &mut KeyWriter<'_>) {}
            }
        )*
    };
}

refuse!(
    FloatsAreNoIdentity,
    "a float cannot be part of an idempotency key",
    "equal amounts can print differently and -0.0, NaN and 0.1 + 0.2 are no identities: use minor units (`amount_cents: i64`) or `Decimal`",
    [] f32, [] f64,
);
refuse!(
    OptionsAreNoIdentity,
    "an `Option` cannot be part of an idempotency key",
    "`None` has no text that no value has: take the value out before the call (`let id = id.ok_or(..)?`) or give a method that decides what `None` means",
    [T] Option<T>,
);
refuse!(
    CollectionsAreNoIdentity,
    "a collection cannot be part of an idempotency key",
    "name the one field that identifies the call, or make an id of the elements in a method of yours",
    [T] Vec<T>, [T] [T], [K, V, S] std::collections::HashMap<K, V, S>, [K, V] std::collections::BTreeMap<K, V>,
    [T, S] std::collections::HashSet<T, S>, [T] std::collections::BTreeSet<T>, [T] std::collections::VecDeque<T>,
);
refuse!(
    MomentsAreNoIdentity,
    "a moment or duration cannot be part of an idempotency key",
    "every retry has another time: use the business identity; for a business day use a date",
    [] std::time::SystemTime, [] std::time::Instant, [] std::time::Duration,
);
#[cfg(feature = "chrono")]
refuse!(
    ChronoMomentsAreNoIdentity,
    "a moment cannot be part of an idempotency key",
    "every retry has another time and equal instants print differently: use the business identity; for a business day use `NaiveDate`",
    [Tz: chrono::TimeZone] chrono::DateTime<Tz>, [] chrono::NaiveDateTime, [] chrono::NaiveTime,
);
