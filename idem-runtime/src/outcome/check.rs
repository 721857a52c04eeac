//! The check before recording: a value is recorded only if its stored form gives the same value back.

use std::any::type_name;

use bytes::Bytes;

use super::envelope::{HEADER_BYTES, Kind, header};
use super::{CodecId, Outcome, codec};
use crate::canonical::{CanonicalError, Doubt, Trace, with_writer};
use crate::error::{Error, ErrorKind};

/// The envelope of `value`, if it reads back as the same value, and the value that it reads back as:
/// what every replay will give.
///
/// # Errors
/// It does not; the error carries the value in a form that can be read, if there is one.
pub(super) fn encode<T: Outcome>(
    value: &T,
    kind: Kind,
    codec: CodecId,
    schema: u32,
    equality: Option<fn(&T, &T) -> bool>,
) -> Result<(Bytes, T), Error> {
    let mut out = Vec::with_capacity(128);
    out.extend(header(kind, codec as u8, schema));
    match write_and_read(value, codec, equality, &mut out) {
        Ok(back) => Ok((out.into(), back)),
        Err(error) => Err(carrying(error, value, kind)),
    }
}

fn write_and_read<T: Outcome>(
    value: &T,
    codec: CodecId,
    equality: Option<fn(&T, &T) -> bool>,
    out: &mut Vec<u8>,
) -> Result<T, Error> {
    with_writer(|writer| {
        let no_form = |error: CanonicalError| {
            refuse::<T>(&format!("does not serialise: {error}")).caused_by(error)
        };
        // First, because it bounds the depth, which codecs do not when they write.
        writer.value(value).map_err(no_form)?;
        codec::write(codec, value, out).map_err(|cause| {
            let words = codec::public_text(&cause);
            let place = doubt(value, &[Doubt::Key, Doubt::NotFinite, Doubt::Wide]);
            let name = codec.name();
            refuse::<T>(&format!("cannot be written as {name}: {words}{place}")).caused_by(cause)
        })?;
        let back: T = codec::read(codec, &out[HEADER_BYTES..]).map_err(|cause| {
            let words = codec::public_text(&cause);
            let place = doubt(value, &[Doubt::NotFinite, Doubt::Wide]);
            let name = codec.name();
            refuse::<T>(&format!(
                "written as {name} does not read back: {words}{place}"
            ))
            .caused_by(cause)
        })?;
        let length = writer.bytes().len();
        writer.value(&back).map_err(no_form)?;
        let (before, after) = writer.bytes().split_at(length);
        compare(value, &back, before == after, codec, equality)?;
        Ok(back)
    })
}

/// The value that is not recorded goes with its error, by the first codec that reads it at all: the
/// effect may be done, and its caller is the only one who will ever see it.
#[cold]
fn carrying<T: Outcome>(error: Error, value: &T, kind: Kind) -> Error {
    // Beyond this depth codecs may overflow the stack.
    if with_writer(|writer| writer.value(value)).is_err() {
        return error;
    }
    let readable = [CodecId::MessagePack, CodecId::Json]
        .into_iter()
        .find_map(|codec| {
            let mut out = header(kind, codec as u8, 0).to_vec();
            codec::write(codec, value, &mut out).ok()?;
            codec::read::<T>(codec, &out[HEADER_BYTES..]).ok()?;
            Some(out)
        });
    match readable {
        Some(out) => error.carrying(out.into()),
        None => error,
    }
}

fn compare<T: Outcome>(
    value: &T,
    back: &T,
    same_form: bool,
    codec: CodecId,
    equality: Option<fn(&T, &T) -> bool>,
) -> Result<(), Error> {
    // A value that is not equal to itself (NaN inside) has no say in the matter.
    let equal = equality
        .filter(|equal| equal(value, value))
        .map(|equal| equal(value, back));
    // A hash table that a hand-written `Serialize` hands out as a list comes back in another order.
    // With the same elements at every level, the type's own equality may say that this is no
    // difference.
    let same = same_form || (equal == Some(true) && same_elements(value, back));
    if !same {
        let place = difference(value, back);
        return Err(refuse::<T>(&format!(
            "written as {} reads back as another value{place}",
            codec.name()
        )));
    }
    if equal == Some(false) {
        return Err(refuse::<T>(
            "reads back as a value that is not equal to it: part of it is not stored, for example \
             because of `#[serde(skip)]` or of a lossy form such as `ts_seconds`",
        ));
    }
    Ok(())
}

#[cold]
fn refuse<T>(why: &str) -> Error {
    Error::new(ErrorKind::OutcomeNotRecordable).detail(format!("`{}` {why}", type_name::<T>()))
}

#[cold]
fn same_elements<T: Outcome>(value: &T, back: &T) -> bool {
    with_writer(|writer| {
        writer.ignore_order();
        writer.value(value)?;
        let length = writer.bytes().len();
        writer.value(back)?;
        let (before, after) = writer.bytes().split_at(length);
        Ok::<_, CanonicalError>(before == after)
    })
    .unwrap_or(false)
}

/// Where `value` holds what codecs are known to fail at.
#[cold]
fn doubt<T: Outcome>(value: &T, kinds: &[Doubt]) -> String {
    match trace(value).first_doubt(kinds) {
        Some((doubt, path)) => format!("; {} {}", place(path), doubt.describe()),
        None => String::new(),
    }
}

#[cold]
fn difference<T: Outcome>(value: &T, back: &T) -> String {
    let (before, after) = (trace(value), trace(back));
    match before.difference(&after) {
        Some(path) => format!(", at {}", place(path)),
        None => String::new(),
    }
}

fn place(path: &str) -> String {
    if path.is_empty() {
        "the value itself".to_owned()
    } else {
        format!("`{path}`")
    }
}

fn trace<T: Outcome>(value: &T) -> Trace {
    with_writer(|writer| {
        writer.start_trace();
        // What was noted before an error is still of use.
        let _ = writer.value(value);
        writer.take_trace()
    })
}
