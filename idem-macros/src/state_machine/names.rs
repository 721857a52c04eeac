//! The text of a state.

/// The default text of a variant. It is stored in rows: it must never change.
///
/// An underscore goes before a capital that follows a small letter or a digit, and before the last
/// of several capitals when a small letter follows it; then everything is lower case.
pub(super) fn snake_case(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut text = String::new();
    for (at, &char) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| chars[before]);
        let begins = before.is_some_and(|before| {
            char.is_uppercase()
                && (before.is_lowercase()
                    || before.is_numeric()
                    || before.is_uppercase()
                        && chars.get(at + 1).is_some_and(|next| next.is_lowercase()))
        });
        if begins {
            text.push('_');
        }
        text.extend(char.to_lowercase());
    }
    text
}

/// Why a text cannot be stored as a state. What is left means the same to every collation, and
/// needs no escaping in a statement.
pub(super) fn refusal(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("a state with an empty text cannot be told from a missing one");
    }
    if text.trim() != text {
        return Some(
            "a space at the end is lost in some columns and comparisons: leave it out of the text",
        );
    }
    let plain = |char: char| char.is_ascii_alphanumeric() || " _-.:/".contains(char);
    if text.chars().all(plain) {
        None
    } else {
        Some(
            "a state's text is made of ASCII letters, digits, inner spaces and `_-.:/`: what else is equal depends on the column's collation",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{refusal, snake_case};

    #[test]
    fn default_names_are_fixed() {
        for (name, text) in [
            ("Pending", "pending"),
            ("AwaitingPayment", "awaiting_payment"),
            ("PaidV2", "paid_v2"),
            ("Step2Done", "step2_done"),
            ("HTTPError", "http_error"),
            ("AwaitingSMS", "awaiting_sms"),
            ("A", "a"),
            ("Was_Sent", "was_sent"),
            ("pending", "pending"),
        ] {
            assert_eq!(snake_case(name), text);
        }
    }

    #[test]
    fn texts_that_depend_on_the_column_are_refused() {
        for text in ["", " paid", "paid ", "bezahlt ß", "it's", "a\\b", "a\nb"] {
            assert!(refusal(text).is_some(), "{text:?}");
        }
        for text in ["paid", "In Progress", "v1.2:a/b-c_d"] {
            assert_eq!(refusal(text), None, "{text:?}");
        }
    }
}
