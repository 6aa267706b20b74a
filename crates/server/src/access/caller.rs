//! Who asks: what a request shows, and what that proves.

use axum::http::Extensions;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fermata_access::{Token, TokenId};
use std::net::IpAddr;
use std::sync::Arc;

/// Who asks, and from where.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) who: Who,
    /// None: from this node itself.
    pub(crate) from: Option<IpAddr>,
}

/// Who somebody is, as far as is known.
#[derive(Clone, Debug)]
pub(crate) enum Who {
    /// This node, for itself.
    Node,
    /// This node, for a principal whom it has judged.
    For(Arc<str>),
    /// Somebody who shows nothing.
    Nobody,
    /// Another node of the cluster, or one that is about to be: by its certificate.
    Peer(Arc<str>),
    /// A principal.
    Known(Arc<Identity>),
}

/// A principal, and what proves it.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) principal: String,
    pub(crate) proof: Proof,
}

/// What proves who somebody is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Proof {
    /// A token, as long as the policy has it.
    Token(TokenId),
    /// A certificate, until then, seconds since 1970.
    Certificate(u64),
    /// An issuer's word, until then, likewise.
    Issuer(u64),
    /// Another node of the cluster says so of one call.
    Peer,
    /// The way back in, for who owns the machine.
    Recovery,
}

impl Caller {
    /// This node.
    pub(crate) const NODE: Caller = Caller {
        who: Who::Node,
        from: None,
    };

    /// Nobody of whom anything is known.
    pub(crate) const NOBODY: Caller = Caller {
        who: Who::Nobody,
        from: None,
    };

    /// The caller that came with a request; nobody where none was noted.
    pub(crate) fn taken(extensions: &mut Extensions) -> Caller {
        extensions.remove().unwrap_or(Caller::NOBODY)
    }

    /// Whose it is; none: nobody's that has a name.
    pub(crate) fn principal(&self) -> Option<&str> {
        match &self.who {
            Who::Known(identity) => Some(&identity.principal),
            Who::For(principal) => Some(principal),
            Who::Node | Who::Nobody | Who::Peer(_) => None,
        }
    }

    /// Whether another node asks, for itself or for somebody.
    pub(crate) fn is_by_node(&self) -> bool {
        match &self.who {
            Who::Peer(_) => true,
            Who::Known(identity) => matches!(identity.proof, Proof::Peer),
            Who::Node | Who::For(_) | Who::Nobody => false,
        }
    }

    /// Whether it is nobody, where one has to be somebody.
    pub(crate) fn is_stranger(&self, access: &super::Access) -> bool {
        matches!(self.who, Who::Nobody) && access.is_enabled()
    }

    /// The same principal, judged anew: the node knows whose something is that it keeps.
    pub(crate) fn unjudged(&self) -> Caller {
        let who = match &self.who {
            Who::For(principal) => Who::Known(Arc::new(Identity {
                principal: principal.to_string(),
                proof: Proof::Peer,
            })),
            who => who.clone(),
        };
        Caller { who, ..*self }
    }

    /// The node, for this caller, whom it has judged.
    pub(crate) fn judged(&self) -> Caller {
        let who = match self.principal() {
            Some(principal) => Who::For(principal.into()),
            None => Who::Node,
        };
        Caller { who, ..*self }
    }
}

/// What a connection has shown before any request.
#[derive(Clone, Debug)]
pub(crate) enum Certificate {
    /// A node of this cluster, by its label.
    Node(Arc<str>),
    /// A client of this cluster, until then, seconds since 1970.
    Client(String, u64),
}

/// What the header `Authorization` shows.
#[derive(Debug)]
pub(super) enum Shown {
    /// A token of this cluster.
    Token(Token),
    /// The same, for a principal that is named beside it.
    Basic(String, Token),
    /// An issuer's word.
    Jwt(String),
}

impl Shown {
    /// What the header says.
    ///
    /// # Errors
    /// Why it says nothing, for whoever administers the node.
    pub(super) fn parse(header: &str) -> Result<Shown, &'static str> {
        let (scheme, rest) = header.split_once(' ').unwrap_or((header, ""));
        let rest = rest.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            if let Some(token) = Token::parse(rest) {
                return Ok(Shown::Token(token));
            }
            return match rest.bytes().filter(|byte| *byte == b'.').count() {
                2 => Ok(Shown::Jwt(rest.to_owned())),
                _ => Err("the credentials are no token of Fermata and no JWT"),
            };
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return Err("the credentials are neither Bearer nor Basic");
        }
        let wrong = "the credentials are not those of HTTP's Basic with a token as the password";
        let text = STANDARD.decode(rest).map_err(|_| wrong)?;
        let text = String::from_utf8(text).map_err(|_| wrong)?;
        let (name, password) = text.split_once(':').ok_or(wrong)?;
        let token = Token::parse(password).ok_or(wrong)?;
        Ok(Shown::Basic(name.to_owned(), token))
    }
}

/// What a stranger shows.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let Ok(header) = std::str::from_utf8(bytes) else {
        return;
    };
    match Shown::parse(header) {
        Ok(Shown::Token(token) | Shown::Basic(_, token)) => {
            let again = Shown::parse(&format!("Bearer {}", token.reveal()));
            assert!(matches!(again, Ok(Shown::Token(again)) if again.id() == token.id()));
        }
        Ok(Shown::Jwt(token)) => super::jwt::fuzz(&token),
        Err(why) => assert!(!why.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_shows_a_token_in_one_of_three_ways_or_nothing() {
        let text = Token::new(1, 2).reveal();
        assert!(matches!(
            Shown::parse(&format!("Bearer {text}")),
            Ok(Shown::Token(_))
        ));
        let basic = STANDARD.encode(format!("app@site:{text}"));
        let shown = Shown::parse(&format!("basic {basic}"));
        assert!(matches!(shown, Ok(Shown::Basic(name, _)) if name == "app@site"));
        assert!(matches!(Shown::parse("Bearer a.b.c"), Ok(Shown::Jwt(_))));
        for wrong in [
            String::new(),
            "Bearer".into(),
            format!("Bearer {}", &text[1..]),
            format!("Digest {text}"),
            format!("Basic {}", STANDARD.encode("name")),
            format!("Basic {}", STANDARD.encode("name:password")),
            "Basic ?".into(),
        ] {
            assert!(Shown::parse(&wrong).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn no_header_is_too_strange(header in ".{0,200}") {
            let _shown = Shown::parse(&header);
        }
    }
}
