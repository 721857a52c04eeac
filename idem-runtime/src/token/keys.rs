use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::form::{SIGNED, Token, decode, fill_random};
use super::{Reason, TokenError};
use crate::clock::Moment;
use crate::error::{Effect, Retry};
use crate::key::RecordId;

/// Version, key, id, expiry, binding, signature.
const KEY: std::ops::Range<usize> = 1..5;
const ID: std::ops::Range<usize> = 5..21;
const EXPIRES: std::ops::Range<usize> = 21..29;
const BINDING: std::ops::Range<usize> = 29..45;
const LEN: usize = BINDING.end + 32;

const SHORTEST_SECRET: usize = 32;

/// The keys that tokens are signed with (HMAC-SHA256): one signs, others are still accepted.
///
/// To change keys, deploy the new one as accepted everywhere, then let it sign, and drop the old one
/// when its last token has expired. Dropping it at once withdraws all its tokens.
#[derive(Clone)]
pub struct SigningKeys {
    signs: u32,
    keys: Vec<(u32, Hmac<Sha256>)>,
}

/// A key that cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The secret has fewer than 32 bytes.
    TooShort,
    /// Another key has the same id.
    SameId(u32),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => {
                f.write_str("a signing secret needs 32 bytes from a random number generator")
            }
            Self::SameId(id) => write!(f, "two signing keys have the id {id}"),
        }
    }
}

impl std::error::Error for KeyError {}

impl KeyError {
    /// Nothing was done.
    #[must_use]
    pub fn effect(&self) -> Effect {
        Effect::None
    }

    /// The keys have to be others.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

impl SigningKeys {
    /// The key that signs. The id stands in every token and tells keys apart; it is no secret.
    ///
    /// # Errors
    /// [`KeyError::TooShort`].
    pub fn new(id: u32, secret: &[u8]) -> Result<Self, KeyError> {
        let keys = Vec::new();
        Self { signs: id, keys }.accept(id, secret)
    }

    /// Another key whose tokens are accepted and that signs none.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn accept(mut self, id: u32, secret: &[u8]) -> Result<Self, KeyError> {
        if secret.len() < SHORTEST_SECRET {
            return Err(KeyError::TooShort);
        }
        if self.key(id).is_some() {
            return Err(KeyError::SameId(id));
        }
        // HMAC takes a key of any length; there is nothing else that can be wrong with it.
        let key = Hmac::new_from_slice(secret).map_err(|_| KeyError::TooShort)?;
        self.keys.push((id, key));
        Ok(self)
    }

    fn key(&self, id: u32) -> Option<&Hmac<Sha256>> {
        let key = self.keys.iter().find(|(key, _)| *key == id);
        key.map(|(_, key)| key)
    }

    pub(super) fn sign(
        &self,
        subject: &str,
        operation: &str,
        expires: Moment,
    ) -> Result<Token, TokenError> {
        let mut token = [0; LEN];
        token[0] = SIGNED;
        token[KEY].copy_from_slice(&self.signs.to_be_bytes());
        fill_random(&mut token[ID])?;
        token[EXPIRES].copy_from_slice(&expires.as_millis().to_be_bytes());
        let key = self.key(self.signs).ok_or(Reason::Unknown)?;
        let binding = binding(key, subject, operation).finalize().into_bytes();
        token[BINDING].copy_from_slice(&binding[..BINDING.len()]);
        let signature = signature(key, &token).finalize().into_bytes();
        token[BINDING.end..].copy_from_slice(&signature);
        Ok(Token::from_bytes(&token))
    }

    /// What the token says, if one of our keys has signed it for this subject and operation. Compares
    /// in a time that does not depend on where two values differ.
    pub(super) fn verify(
        &self,
        token: &str,
        subject: &str,
        operation: &str,
    ) -> Result<Claims, Reason> {
        let bytes: [u8; LEN] = decode(token, SIGNED)?;
        let key_id = u32::from_be_bytes(array(&bytes[KEY]));
        let key = self.key(key_id).ok_or(Reason::Unknown)?;
        signature(key, &bytes)
            .verify_slice(&bytes[BINDING.end..])
            .map_err(|_| Reason::Unknown)?;
        binding(key, subject, operation)
            .verify_truncated_left(&bytes[BINDING])
            .map_err(|_| Reason::Foreign)?;
        Ok(Claims {
            id: RecordId::new("", "idem.token", &["signed"], token),
            binding: array(&bytes[BINDING]),
            expires: u64::from_be_bytes(array(&bytes[EXPIRES])),
        })
    }
}

/// What a genuine token says.
pub(super) struct Claims {
    pub(super) id: RecordId,
    pub(super) binding: [u8; 16],
    /// Milliseconds since the epoch.
    pub(super) expires: u64,
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

/// Over everything before the signature.
fn signature(key: &Hmac<Sha256>, token: &[u8; LEN]) -> Hmac<Sha256> {
    key.clone()
        .chain_update(b"idem.token.signature\0")
        .chain_update(&token[..BINDING.end])
}

/// Keyed, so that nobody can find a subject out by trying.
fn binding(key: &Hmac<Sha256>, subject: &str, operation: &str) -> Hmac<Sha256> {
    key.clone()
        .chain_update(b"idem.token.binding\0")
        .chain_update((subject.len() as u64).to_be_bytes())
        .chain_update(subject)
        .chain_update(operation)
}

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKeys")
            .field("signs", &self.signs)
            .field(
                "ids",
                &self.keys.iter().map(|(id, _)| id).collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &[u8] = b"an old secret of thirty-two byte";
    const NEW: &[u8] = b"a fresh secret of thirty-two byt";

    fn token(keys: &SigningKeys) -> String {
        let token = keys.sign("user:1", "reset", Moment::from_millis(1_700_000_000_000));
        token.unwrap().into_string()
    }

    fn reason(keys: &SigningKeys, token: &str, subject: &str, operation: &str) -> Option<Reason> {
        keys.verify(token, subject, operation).err()
    }

    #[test]
    fn a_token_is_good_for_its_subject_and_operation_alone() {
        let keys = SigningKeys::new(1, NEW).unwrap();
        let token = token(&keys);
        assert_eq!(token.len(), 103);
        assert_eq!(reason(&keys, &token, "user:1", "reset"), None);
        for (subject, operation) in [
            ("user:2", "reset"),
            ("user:1", "delete"),
            ("user:1r", "eset"),
        ] {
            assert_eq!(
                reason(&keys, &token, subject, operation),
                Some(Reason::Foreign)
            );
        }
        let claims = keys.verify(&token, "user:1", "reset").unwrap();
        assert_eq!(claims.expires, 1_700_000_000_000);
    }

    #[test]
    fn no_bit_of_it_can_be_changed() {
        let keys = SigningKeys::new(1, NEW).unwrap();
        let bytes: [u8; LEN] = decode(&token(&keys), SIGNED).unwrap();
        for bit in 0..LEN * 8 {
            let mut forged = bytes;
            forged[bit / 8] ^= 1 << (bit % 8);
            let forged = Token::from_bytes(&forged);
            let reason = reason(&keys, forged.as_str(), "user:1", "reset");
            let expected = if bit < 8 {
                Reason::Malformed
            } else {
                Reason::Unknown
            };
            assert_eq!(reason, Some(expected), "bit {bit}");
        }
    }

    #[test]
    fn keys_are_changed_without_losing_tokens() {
        let old = SigningKeys::new(1, OLD).unwrap();
        let both = SigningKeys::new(2, NEW).unwrap().accept(1, OLD).unwrap();
        let new = SigningKeys::new(2, NEW).unwrap();
        let (before, after) = (token(&old), token(&both));
        assert_eq!(reason(&both, &before, "user:1", "reset"), None);
        assert_eq!(reason(&new, &after, "user:1", "reset"), None);
        assert_eq!(
            reason(&new, &before, "user:1", "reset"),
            Some(Reason::Unknown)
        );
        assert_eq!(
            reason(&old, &after, "user:1", "reset"),
            Some(Reason::Unknown)
        );
        // The same id with another secret is another key.
        let other = SigningKeys::new(1, NEW).unwrap();
        assert_eq!(
            reason(&other, &before, "user:1", "reset"),
            Some(Reason::Unknown)
        );
    }

    #[test]
    fn weak_and_doubled_keys_are_refused_and_none_is_shown() {
        assert_eq!(
            SigningKeys::new(1, &OLD[1..]).unwrap_err(),
            KeyError::TooShort
        );
        let keys = SigningKeys::new(1, OLD).unwrap();
        assert_eq!(
            keys.clone().accept(1, NEW).unwrap_err(),
            KeyError::SameId(1)
        );
        assert_eq!(
            format!("{keys:?}"),
            "SigningKeys { signs: 1, ids: [1], .. }"
        );
    }

    /// Made from the description of the form by another program: HMAC-SHA256 with the secret over a
    /// label that ends in a zero byte, then what `signature` and `binding` take.
    #[test]
    fn a_token_of_an_earlier_build_is_still_good() {
        let (one, two) = (
            "AgAAAAEHBwcHBwcHBwcHBwcHBwcHAAABi8_laAA1-g_iitZiYBrA",
            "IsiMdFECzv1bDKIzXIqKOzNSLto3sLG5MzJFj6ntuRoS8aoCHgs",
        );
        let token = format!("{one}{two}");
        let keys = SigningKeys::new(1, OLD).unwrap();
        let claims = keys.verify(&token, "user:1", "reset").unwrap();
        assert_eq!(claims.expires, 1_700_000_000_000);
        assert_eq!(claims.id.to_string(), "0b7cbda19cdcddad140f95d0dcbde697");
    }
}
