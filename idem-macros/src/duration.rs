//! Durations that are checked while the user's crate compiles.

/// The longest duration, as in the runtime.
const MAX_DAYS: u64 = 36_500;
const MAX_MILLIS: u64 = MAX_DAYS * 86_400_000;

/// From large to small.
const UNITS: [(&str, u64); 6] = [
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Reads `"7d"`, `"1h30m"`, `"500ms"` as milliseconds.
///
/// # Errors
/// What is wrong and what to write instead, for the user.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("a duration is missing: write for example \"7d\"".to_owned());
    }
    if rest.starts_with('-') {
        return Err("a duration cannot be negative".to_owned());
    }
    let mut total: u64 = 0;
    let mut next_unit = 0;
    while !rest.is_empty() {
        let (count, unit, after) = component(text, rest)?;
        let index = UNITS
            .iter()
            .position(|&(name, _)| name == unit)
            .ok_or_else(|| unknown_unit(unit))?;
        if index < next_unit {
            return Err(format!(
                "units go from large to small, each once, as in \"1h30m\"; `{unit}` is out of order"
            ));
        }
        next_unit = index + 1;
        total = count
            .checked_mul(UNITS[index].1)
            .and_then(|millis| total.checked_add(millis))
            .filter(|&millis| millis <= MAX_MILLIS)
            .ok_or_else(too_long)?;
        rest = after;
    }
    if total == 0 {
        return Err("a duration of zero: write at least \"1ms\"".to_owned());
    }
    Ok(total)
}

/// One number with its unit, and what follows.
fn component<'a>(whole: &str, text: &'a str) -> Result<(u64, &'a str, &'a str), String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = text.split_at(digits);
    if rest.starts_with(['.', ',']) {
        return Err("durations are whole numbers: write \"1h30m\", not \"1.5h\"".to_owned());
    }
    if number.is_empty() {
        return Err(format!(
            "`{whole}` is not a duration: write a number with a unit, for example \"7d\" or \"1h30m\""
        ));
    }
    let rest = rest.trim_start();
    let letters = rest.len() - rest.trim_start_matches(char::is_alphabetic).len();
    let (unit, rest) = rest.split_at(letters);
    if unit.is_empty() && !rest.is_empty() {
        return Err(format!(
            "`{whole}` is not a duration: write a number with a unit, for example \"7d\" or \"1h30m\""
        ));
    }
    if unit.is_empty() {
        return Err(format!(
            "a bare number has no unit: write \"{number}s\" for seconds or \"{number}d\" for days"
        ));
    }
    let number = number.parse().map_err(|_| too_long())?;
    Ok((number, unit, rest.trim_start()))
}

fn too_long() -> String {
    format!("longer than {MAX_DAYS} days, which no clock here can promise: use \"never\" as a ttl")
}

fn unknown_unit(unit: &str) -> String {
    match unit {
        "mo" | "month" | "months" | "M" | "y" | "yr" | "year" | "years" | "Y" => format!(
            "`{unit}` is a calendar unit, which has no fixed length: write days, for example \"30d\" or \"365d\""
        ),
        "sec" | "secs" | "second" | "seconds" => instead(unit, "s"),
        "min" | "mins" | "minute" | "minutes" => instead(unit, "m"),
        "hr" | "hrs" | "hour" | "hours" => instead(unit, "h"),
        "day" | "days" => instead(unit, "d"),
        "week" | "weeks" => instead(unit, "w"),
        "millis" | "msec" | "millisecond" | "milliseconds" => instead(unit, "ms"),
        _ => format!("unknown unit `{unit}`: the units are ms, s, m, h, d and w"),
    }
}

fn instead(unit: &str, short: &str) -> String {
    format!("unknown unit `{unit}`: write `{short}`")
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn every_unit_and_combinations() {
        for (text, millis) in [
            ("1ms", 1),
            ("5s", 5_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("7d", 604_800_000),
            ("1w", 604_800_000),
            ("1h30m", 5_400_000),
            ("1d 12h", 129_600_000),
            ("1w1d1h1m1s1ms", 694_861_001),
            ("36500d", 3_153_600_000_000),
        ] {
            assert_eq!(parse(text), Ok(millis), "{text}");
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        for (text, part) in [
            ("", "missing"),
            ("  ", "missing"),
            ("7", "\"7s\" for seconds"),
            ("1h30", "bare number"),
            ("0s", "zero"),
            ("0d0h", "zero"),
            ("-5s", "negative"),
            ("1.5h", "whole numbers"),
            ("1mo", "calendar unit"),
            ("1y", "calendar unit"),
            ("2 years", "calendar unit"),
            ("5min", "write `m`"),
            ("5parsec", "unknown unit"),
            ("d", "not a duration"),
            ("1h1h", "out of order"),
            ("1m1h", "out of order"),
            ("36501d", "longer than"),
            ("99999999999999999999d", "longer than"),
            ("9999999999999999999w", "longer than"),
            ("5s!", "not a duration"),
            ("5_000s", "not a duration"),
        ] {
            let message = parse(text).expect_err(text);
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
