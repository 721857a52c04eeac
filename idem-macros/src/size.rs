//! Sizes that are checked while the user's crate compiles.

/// What every store takes: Redis ends at 512 MiB, Postgres at 1 GiB.
const MAX_MIB: u64 = 256;
const MAX_BYTES: u64 = MAX_MIB << 20;

const UNITS: [(&str, u64); 3] = [("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Reads `"64KiB"`, `"1MiB"`, `"500B"` as bytes.
///
/// # Errors
/// What is wrong and what to write instead, for the user.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("a size is missing: write for example \"64KiB\"".to_owned());
    }
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    if number.is_empty() {
        return Err(format!(
            "`{text}` is not a size: write a whole number with a unit, for example \"64KiB\""
        ));
    }
    if unit.starts_with(['.', ',']) {
        return Err("sizes are whole numbers: write \"1536KiB\", not \"1.5MiB\"".to_owned());
    }
    if unit.is_empty() {
        return Err(format!(
            "a bare number has no unit: write \"{number}B\" for bytes or \"{number}KiB\""
        ));
    }
    let &(_, factor) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| unknown_unit(unit))?;
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(factor))
        .filter(|bytes| *bytes <= MAX_BYTES)
        .ok_or_else(|| format!("more than {MAX_MIB}MiB, which not every store can keep"))?;
    if bytes == 0 {
        return Err("a size of zero: nothing could be recorded".to_owned());
    }
    Ok(bytes)
}

fn unknown_unit(unit: &str) -> String {
    let meant = match unit.to_ascii_lowercase().as_str() {
        "b" | "byte" | "bytes" => "B",
        "k" | "kb" | "kib" => "KiB",
        "m" | "mb" | "mib" => "MiB",
        _ => return format!("unknown unit `{unit}`: the units are B, KiB and MiB"),
    };
    format!("unknown unit `{unit}`: write `{meant}`")
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn every_unit() {
        for (text, bytes) in [
            ("1B", 1),
            ("64KiB", 65_536),
            (" 1 MiB ", 1_048_576),
            ("256MiB", 268_435_456),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        for (text, part) in [
            ("", "missing"),
            ("64", "\"64B\" for bytes"),
            ("0KiB", "zero"),
            ("1.5MiB", "whole numbers"),
            ("-1B", "not a size"),
            ("KiB", "not a size"),
            ("64kb", "write `KiB`"),
            ("64 bytes", "write `B`"),
            ("64GiB", "unknown unit"),
            ("257MiB", "more than 256MiB"),
            ("99999999999999999999B", "more than 256MiB"),
        ] {
            let message = parse(text).expect_err(text);
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
