//! Tokens: what a principal is known by that has no certificate.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::{self, Debug, Display, Formatter};

/// What every token begins with, so that whoever looks for secrets in files finds it.
const BEGIN: &str = "fmt_";

/// The name of a token, which is no secret: 64 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u64);

/// The SHA-256 of a token's secret. The secret has 128 random bits: nothing slower is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash(pub [u8; 32]);

/// A token: its name and its secret. It is shown once, to whoever draws it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: TokenId,
    secret: u128,
}

impl Token {
    /// The token of these random bits.
    pub fn new(id: u64, secret: u128) -> Token {
        Token {
            id: TokenId(id),
            secret,
        }
    }

    /// Its name.
    pub fn id(&self) -> TokenId {
        self.id
    }

    /// The hash of its secret, which says nothing of it.
    pub fn hash(&self) -> Hash {
        Hash(Sha256::digest(self.secret.to_be_bytes()).into())
    }

    /// The text that [`Token::reveal`] makes, and no other; none for anything else.
    pub fn parse(text: &str) -> Option<Token> {
        let (id, secret) = text.strip_prefix(BEGIN)?.split_once('_')?;
        let secret = (secret.len() == 32 && is_hex(secret)).then_some(secret)?;
        Some(Token {
            id: TokenId::parse(id)?,
            secret: u128::from_str_radix(secret, 16).ok()?,
        })
    }

    /// The secret text.
    pub fn reveal(&self) -> String {
        format!("{BEGIN}{}_{:032x}", self.id, self.secret)
    }
}

/// The secret is not in it.
impl Debug for Token {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id)
    }
}

impl TokenId {
    /// The name that a text is: 16 hexadecimal digits.
    pub fn parse(text: &str) -> Option<TokenId> {
        let digits = (text.len() == 16 && is_hex(text)).then_some(text)?;
        u64::from_str_radix(digits, 16).ok().map(TokenId)
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

impl Display for TokenId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Debug for TokenId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl Debug for Hash {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for TokenId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TokenId {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<TokenId, D::Error> {
        let text = String::deserialize(from)?;
        let wrong = || serde::de::Error::custom("a token's name is 16 hexadecimal digits");
        TokenId::parse(&text).ok_or_else(wrong)
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{self:?}"))
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Hash, D::Error> {
        let text = String::deserialize(from)?;
        let wrong = || serde::de::Error::custom("a SHA-256 is 64 hexadecimal digits");
        let digits = (text.len() == 64 && is_hex(&text)).then_some(text);
        let digits = digits.ok_or_else(wrong)?;
        let byte = |at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| wrong());
        let mut hash = [0; 32];
        for (at, to) in hash.iter_mut().enumerate() {
            *to = byte(at)?;
        }
        Ok(Hash(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_shown_and_in_no_other_form() {
        let token = Token::new(0xab, 0xcd);
        let text = token.reveal();
        assert_eq!(text.len(), 4 + 16 + 1 + 32);
        assert_eq!(Token::parse(&text), Some(token.clone()));
        let altered = [
            text[..text.len() - 1].to_owned(),
            text.to_uppercase(),
            format!("{text} "),
            format!("{text}0"),
            text.replace("fmt_", "fmt-"),
            text.replace('c', "+"),
            String::new(),
        ];
        for text in altered {
            assert_eq!(Token::parse(&text), None, "{text:?}");
        }
        assert!(!format!("{token:?}").contains("cd"), "no secret in a log");
    }

    #[test]
    fn another_secret_has_another_hash() {
        let hash = Token::new(1, 2).hash();
        assert_ne!(hash, Token::new(1, 3).hash());
        let text = serde_json::to_string(&hash).unwrap();
        assert_eq!(serde_json::from_str::<Hash>(&text).unwrap(), hash);
        assert!(serde_json::from_str::<Hash>("\"00\"").is_err());
    }
}
