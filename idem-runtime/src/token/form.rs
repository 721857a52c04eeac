use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Reason, TokenError};
use crate::error::{Error, ErrorKind};
use crate::key::RecordId;
use crate::retention::Retention;

/// The first byte of a token tells its kind; another form takes another number.
const STORED: u8 = 1;
#[cfg(feature = "_sqlx")]
pub(super) const SIGNED: u8 = 2;

const SECRET_BYTES: usize = 24;

/// A token as it is handed out. It is a secret: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// The text, which may stand in a URL as it is.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        Self(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// A token that is nothing but a secret.
    pub(super) fn random() -> Result<Self, TokenError> {
        let mut bytes = [STORED; SECRET_BYTES + 1];
        fill_random(&mut bytes[1..])?;
        Ok(Self::from_bytes(&bytes))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The token is used, when the transaction commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumed {
    id: RecordId,
}

impl Consumed {
    pub(super) fn new(id: RecordId) -> Self {
        Self { id }
    }

    /// What the store knows the token by; it does not give the token away.
    #[must_use]
    pub fn id(&self) -> RecordId {
        self.id
    }
}

pub(super) fn fill_random(bytes: &mut [u8]) -> Result<(), TokenError> {
    getrandom::fill(bytes).map_err(|error| {
        let what = "the system gives no random bytes";
        TokenError::store(
            Error::new(ErrorKind::StoreUnavailable)
                .detail(what)
                .caused_by(error),
        )
    })
}

/// The bytes of a token of `LEN` bytes and the given kind. There is one text for them: padding, other
/// alphabets and loose last bits are refused.
pub(super) fn decode<const LEN: usize>(token: &str, kind: u8) -> Result<[u8; LEN], Reason> {
    // Nothing that comes from outside is decoded before its length is known to be right.
    if token.len() != (LEN * 4).div_ceil(3) {
        return Err(Reason::Malformed);
    }
    let bytes = URL_SAFE_NO_PAD.decode(token);
    let bytes: [u8; LEN] = bytes
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or(Reason::Malformed)?;
    if bytes[0] != kind {
        return Err(Reason::Malformed);
    }
    Ok(bytes)
}

/// What a random token is kept under: who reads the table cannot make a token of it, and a look-up by
/// it takes a time that tells nothing about the token.
pub(super) fn stored_id(token: &str) -> Result<RecordId, Reason> {
    decode::<{ SECRET_BYTES + 1 }>(token, STORED)?;
    Ok(RecordId::new("", "idem.token", &["stored"], token))
}

/// What a token belongs to.
pub(super) fn binding(subject: &str, operation: &str) -> RecordId {
    RecordId::new("", "idem.token.binding", &[operation], subject)
}

/// Milliseconds that a token is good for.
pub(super) fn lifetime(ttl: Duration) -> Result<u64, TokenError> {
    let millis = Retention::new(ttl).map(Retention::millis);
    millis
        .map(Option::unwrap_or_default)
        .map_err(TokenError::store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_token_is_another_one_each_time_and_keeps_to_itself() {
        let (one, two) = (Token::random().unwrap(), Token::random().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.as_str().len(), 34);
        assert_eq!(format!("{one:?}"), "Token(..)");
        assert_ne!(
            stored_id(one.as_str()).unwrap(),
            stored_id(two.as_str()).unwrap()
        );
    }

    #[test]
    fn there_is_one_text_for_one_token() {
        let token = Token::from_bytes(&[STORED; SECRET_BYTES + 1]);
        let text = token.as_str();
        assert!(stored_id(text).is_ok());
        let loose = format!("{}F", &text[..33]);
        for other in [
            "",
            "x",
            &text[1..],
            &format!("{text}="),
            &loose,
            &text.replace('A', "+"),
        ] {
            assert_eq!(stored_id(other), Err(Reason::Malformed), "{other}");
        }
    }

    #[test]
    fn stored_forms_are_what_they_were() {
        let token = Token::from_bytes(&[STORED; SECRET_BYTES + 1]);
        let id = stored_id(token.as_str()).unwrap().to_string();
        let binding = binding("user:1", "reset").to_string();
        assert_eq!(
            (id.as_str(), binding.as_str()),
            (
                "72546cd0341abfa9123190fc87f65863",
                "c61fa8f1535a3bbd04e08258d89e3a54"
            )
        );
    }
}
