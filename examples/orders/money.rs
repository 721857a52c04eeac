//! Money in minor units (fen, cents), read and written exactly.

use std::fmt;

use serde::Serialize;

/// A positive amount in minor units that every database holds as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Money(i64);

/// Why something is not an amount.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotMoney {
    #[error("it is empty")]
    Empty,
    #[error("it is not a plain decimal number such as \"12.30\"")]
    NotDecimal,
    #[error("it has more than two decimals")]
    TooFine,
    #[error("it is zero")]
    Zero,
    #[error("it is too large")]
    TooLarge,
}

impl Money {
    /// An amount a provider gives in minor units.
    pub(crate) fn from_minor(minor: u64) -> Result<Self, NotMoney> {
        match i64::try_from(minor) {
            Ok(0) => Err(NotMoney::Zero),
            Ok(minor) => Ok(Self(minor)),
            Err(_) => Err(NotMoney::TooLarge),
        }
    }

    /// An amount a provider gives as a decimal text in major units: `12`, `12.3` or `12.30`.
    ///
    /// Signs, exponents, blanks, leading zeros and a bare point are refused: a provider that sends
    /// them means something this program does not know.
    pub(crate) fn from_major_text(text: &str) -> Result<Self, NotMoney> {
        let (whole, fraction) = match text.split_once('.') {
            Some((_, "")) => return Err(NotMoney::NotDecimal),
            Some(parts) => parts,
            None => (text, ""),
        };
        if text.is_empty() {
            return Err(NotMoney::Empty);
        }
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let leading_zero = whole.len() > 1 && whole.starts_with('0');
        if whole.is_empty() || leading_zero || !digits(whole) || !digits(fraction) {
            return Err(NotMoney::NotDecimal);
        }
        if fraction.len() > 2 {
            return Err(NotMoney::TooFine);
        }
        format!("{whole}{fraction:0<2}")
            .parse()
            .map_err(|_| NotMoney::TooLarge)
            .and_then(Self::from_minor)
    }

    pub(crate) const fn minor(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Major(self.0.into()).fmt(f)
    }
}

/// Minor units, which may be a sum or a debt, shown in major units.
pub(crate) struct Major(pub(crate) i128);

impl fmt::Display for Major {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = self.0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        f.pad(&format!("{sign}{}.{:02}", units / 100, units % 100))
    }
}

#[cfg(test)]
mod tests {
    use super::{Major, Money, NotMoney};

    fn minor(text: &str) -> Result<i64, NotMoney> {
        Money::from_major_text(text).map(Money::minor)
    }

    #[test]
    fn decimals_are_read_exactly() {
        assert_eq!(minor("12.30"), Ok(1230));
        assert_eq!(minor("12.3"), Ok(1230));
        assert_eq!(minor("12"), Ok(1200));
        assert_eq!(minor("0.01"), Ok(1));
        assert_eq!(minor("0.29"), Ok(29));
        assert_eq!(minor("92233720368547758.07"), Ok(i64::MAX));
    }

    #[test]
    fn what_is_not_a_plain_positive_decimal_is_refused() {
        for text in [
            "1e3",
            "-1.00",
            "+1.00",
            " 1.00",
            "1.00 ",
            "1,000.00",
            "1.",
            ".5",
            ".",
            "1.0.0",
            "NaN",
            "inf",
            "0x10",
            "１２.00",
            "007.00",
            "1_000",
            "1.5e",
            "\u{661}",
        ] {
            assert_eq!(minor(text), Err(NotMoney::NotDecimal), "{text:?}");
        }
        assert_eq!(minor(""), Err(NotMoney::Empty));
        assert_eq!(minor("1.005"), Err(NotMoney::TooFine));
        assert_eq!(minor("1.000"), Err(NotMoney::TooFine));
        assert_eq!(minor("0.00"), Err(NotMoney::Zero));
    }

    #[test]
    fn what_no_database_column_holds_is_refused() {
        assert_eq!(minor("92233720368547758.08"), Err(NotMoney::TooLarge));
        assert_eq!(minor(&"9".repeat(400)), Err(NotMoney::TooLarge));
        assert_eq!(Money::from_minor(u64::MAX), Err(NotMoney::TooLarge));
        assert_eq!(Money::from_minor(0), Err(NotMoney::Zero));
    }

    #[test]
    fn sums_and_debts_are_shown_in_major_units() {
        assert_eq!(Major(1230).to_string(), "12.30");
        assert_eq!(Major(-5).to_string(), "-0.05");
        assert_eq!(
            Major(i128::from(i64::MIN)).to_string(),
            "-92233720368547758.08"
        );
        assert_eq!(format!("{:>8}|", Major(7)), "    0.07|");
    }
}
