//! Money in minor units of its currency (fen, cents, yen), read and written exactly.

use std::fmt;

use serde::{Serialize, Serializer};

/// A currency by its ISO 4217 code, in capitals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Currency([u8; 3]);

impl Currency {
    pub(crate) const CNY: Self = Self(*b"CNY");

    /// A code in capitals or small letters.
    pub(crate) fn parse(code: &str) -> Result<Self, NotMoney> {
        match <[u8; 3]>::try_from(code.as_bytes()) {
            Ok(code) if code.iter().all(u8::is_ascii_alphabetic) => {
                Ok(Self(code.map(|letter| letter.to_ascii_uppercase())))
            }
            _ => Err(NotMoney::NoCurrency),
        }
    }

    pub(crate) fn code(&self) -> &str {
        // Three letters are text.
        str::from_utf8(&self.0).unwrap_or_default()
    }

    /// How many digits of a minor unit stand behind the point, as card providers count: yen have
    /// none; króna and Ugandan shilling have two in their interfaces, though none in the shop.
    fn decimals(self) -> u32 {
        match &self.0 {
            b"BIF" | b"CLP" | b"DJF" | b"GNF" | b"JPY" | b"KMF" | b"KRW" | b"MGA" | b"PYG"
            | b"RWF" | b"VND" | b"VUV" | b"XAF" | b"XOF" | b"XPF" => 0,
            b"BHD" | b"JOD" | b"KWD" | b"OMR" | b"TND" => 3,
            _ => 2,
        }
    }
}

impl Serialize for Currency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

/// A positive amount in minor units that every database holds as it is. Amounts of two currencies
/// are never added and never equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Money {
    minor: i64,
    currency: Currency,
}

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
    #[error("it is not a currency of three letters")]
    NoCurrency,
}

impl Money {
    /// An amount a provider gives in minor units.
    pub(crate) fn from_minor(minor: u64, currency: Currency) -> Result<Self, NotMoney> {
        match i64::try_from(minor) {
            Ok(0) => Err(NotMoney::Zero),
            Ok(minor) => Ok(Self { minor, currency }),
            Err(_) => Err(NotMoney::TooLarge),
        }
    }

    /// An amount in yuan, as a decimal text: `12`, `12.3` or `12.30`.
    ///
    /// Signs, exponents, blanks, leading zeros and a bare point are refused: a provider that sends
    /// them means something this program does not know.
    pub(crate) fn from_yuan_text(text: &str) -> Result<Self, NotMoney> {
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
            .and_then(|minor| Self::from_minor(minor, Currency::CNY))
    }

    pub(crate) const fn minor(self) -> i64 {
        self.minor
    }

    pub(crate) const fn currency(self) -> Currency {
        self.currency
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Sum(self.minor.into(), self.currency).fmt(f)
    }
}

/// Minor units, which may be a sum or a debt, shown in major units with their currency.
pub(crate) struct Sum(pub(crate) i128, pub(crate) Currency);

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(minor, currency) = self;
        let sign = if *minor < 0 { "-" } else { "" };
        let (units, code) = (minor.unsigned_abs(), currency.code());
        let shown = match currency.decimals() {
            0 => format!("{sign}{units} {code}"),
            decimals => {
                let (one, width) = (10_u128.pow(decimals), decimals as usize);
                format!("{sign}{}.{:0width$} {code}", units / one, units % one)
            }
        };
        f.pad(&shown)
    }
}

#[cfg(test)]
mod tests {
    use super::{Currency, Money, NotMoney, Sum};

    fn minor(text: &str) -> Result<i64, NotMoney> {
        Money::from_yuan_text(text).map(Money::minor)
    }

    fn currency(code: &str) -> Currency {
        Currency::parse(code).unwrap()
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
        let fen = |minor| Money::from_minor(minor, Currency::CNY);
        assert_eq!(minor("92233720368547758.08"), Err(NotMoney::TooLarge));
        assert_eq!(minor(&"9".repeat(400)), Err(NotMoney::TooLarge));
        assert_eq!(fen(u64::MAX), Err(NotMoney::TooLarge));
        assert_eq!(fen(0), Err(NotMoney::Zero));
    }

    #[test]
    fn a_currency_is_three_letters_in_any_case() {
        assert_eq!(currency("usd"), currency("USD"));
        for text in ["", "us", "usdc", "u$d", "¥"] {
            assert_eq!(Currency::parse(text), Err(NotMoney::NoCurrency), "{text:?}");
        }
    }

    #[test]
    fn amounts_of_two_currencies_are_not_equal() {
        let thousand = |code| Money::from_minor(1000, currency(code)).unwrap();
        assert_eq!(thousand("jpy"), thousand("JPY"));
        assert_ne!(thousand("jpy"), thousand("usd"));
        let shown = ["jpy", "usd", "hkd", "kwd"].map(|code| thousand(code).to_string());
        assert_eq!(shown, ["1000 JPY", "10.00 USD", "10.00 HKD", "1.000 KWD"]);
    }

    #[test]
    fn sums_and_debts_are_shown_in_major_units() {
        let yuan = |minor| Sum(minor, Currency::CNY);
        assert_eq!(yuan(1230).to_string(), "12.30 CNY");
        assert_eq!(yuan(-5).to_string(), "-0.05 CNY");
        assert_eq!(
            yuan(i128::from(i64::MIN)).to_string(),
            "-92233720368547758.08 CNY"
        );
        assert_eq!(Sum(-5, currency("JPY")).to_string(), "-5 JPY");
        assert_eq!(format!("{:>10}|", yuan(7)), "  0.07 CNY|");
    }
}
