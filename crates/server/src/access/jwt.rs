//! An issuer's word for who somebody is: JWTs of OpenID Connect (RFC 7519), by public keys alone.
//!
//! Signatures and times are [`jsonwebtoken`]'s. Here is which keys count, as the issuer publishes
//! them, and which claims must be there. A key names its own kind; `none`, and secrets that both
//! sides know, are no kinds that there are here.

use crate::config::JwtConfig;
use axum::body;
use axum::http::Request;
use fermata_access::is_principal;
use fermata_tls::{Files, Trust};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Keys are looked at again this often.
const LOOK: Duration = Duration::from_secs(300);
/// And so often at most where a token names one that is not known, or they could not be read.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// How long a fetch may take.
const FETCH: Duration = Duration::from_secs(10);
/// Bytes of the longest set of keys.
const KEYS_MAX: usize = 1 << 20;
/// Bytes of the longest token.
const TOKEN_MAX: usize = 16 << 10;
/// How far the issuer's clock may be off, seconds.
const LEEWAY: u64 = 60;

/// The word on a token while no keys could be had yet.
pub(super) const NOT_YET: &str = "this node has not got the keys of the issuer of JWTs yet, and \
                                  nothing was done: ask again, or another node";

/// One key of the issuer's.
struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// An issuer.
pub(crate) struct Issuer {
    config: JwtConfig,
    keys: RwLock<Arc<Vec<Key>>>,
    /// A token has named a key that is not known.
    unknown: Notify,
}

/// The claims that are looked at, beside those that [`Validation`] does.
#[derive(Deserialize)]
struct Claims {
    exp: u64,
    /// Of another kind than a number it would be passed over.
    #[serde(default)]
    nbf: Option<u64>,
    #[serde(flatten)]
    all: Map<String, Value>,
}

/// With which algorithms a key may have signed: those of its kind, and of its own word.
fn algorithms(jwk: &Jwk) -> Vec<Algorithm> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    let kind: &[Algorithm] = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => &[RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(of) => match of.curve {
            EllipticCurve::P256 => &[ES256],
            EllipticCurve::P384 => &[ES384],
            _ => &[],
        },
        AlgorithmParameters::OctetKeyPair(of) if of.curve == EllipticCurve::Ed25519 => &[EdDSA],
        _ => &[],
    };
    let said = jwk.common.key_algorithm.map(|said| said.to_string());
    let fits = |algorithm: &&Algorithm| {
        said.as_ref()
            .is_none_or(|said| *said == format!("{algorithm:?}"))
    };
    kind.iter().filter(fits).copied().collect()
}

/// The keys of a set that can be used to verify.
///
/// # Errors
/// It is no set, or has none.
fn read(bytes: &[u8]) -> Result<Vec<Key>, String> {
    let set: JwkSet = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let key = |jwk: &Jwk| {
        let algorithms = algorithms(jwk);
        let key = DecodingKey::from_jwk(jwk).ok();
        let key = key.filter(|_| !algorithms.is_empty())?;
        let id = jwk.common.key_id.clone();
        Some(Key {
            id,
            algorithms,
            key,
        })
    };
    let keys: Vec<Key> = set.keys.iter().filter_map(key).collect();
    match keys.is_empty() {
        true => Err("it has no public key of a kind that is known here".into()),
        false => Ok(keys),
    }
}

impl Issuer {
    pub(crate) fn new(config: JwtConfig) -> Issuer {
        Issuer {
            config,
            keys: RwLock::default(),
            unknown: Notify::new(),
        }
    }

    /// The principal that a token names, and until when it counts, seconds since 1970.
    ///
    /// # Errors
    /// Why it counts for nothing, for whoever administers the node.
    pub(super) fn judge(&self, token: &str, now: u64) -> Result<(String, u64), &'static str> {
        if token.len() > TOKEN_MAX {
            return Err("the JWT is too long");
        }
        let header =
            decode_header(token).map_err(|_| "the JWT has no header that is known here")?;
        let keys = self
            .keys
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if keys.is_empty() {
            return Err(NOT_YET);
        }
        let named = |key: &&Key| header.kid.is_none() || key.id == header.kid;
        let fits = |key: &&Key| key.algorithms.contains(&header.alg);
        let Some(key) = keys.iter().filter(named).find(fits) else {
            self.unknown.notify_one();
            return Err("the JWT is not signed by a key of the issuer, as they are known here");
        };
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_audience(&[&self.config.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        let claims = decode::<Claims>(token, &key.key, &validation).map_err(|error| {
            use jsonwebtoken::errors::ErrorKind;
            match error.kind() {
                ErrorKind::ExpiredSignature => "the JWT is over",
                ErrorKind::ImmatureSignature => "the JWT does not count yet",
                ErrorKind::InvalidAudience => "the JWT is for another audience",
                ErrorKind::InvalidIssuer => "the JWT is of another issuer",
                ErrorKind::InvalidSignature => "the JWT's signature is wrong",
                _ => "the JWT lacks a claim, or one is malformed",
            }
        })?;
        let Claims { exp, nbf, all } = claims.claims;
        if nbf.is_some_and(|nbf| nbf > now + LEEWAY) {
            return Err("the JWT does not count yet");
        }
        let principal = all.get(&self.config.principal).and_then(Value::as_str);
        let principal = principal.filter(|name| is_principal(name));
        let principal = principal.ok_or("the JWT names no principal in the claim for that")?;
        Ok((principal.to_owned(), exp.saturating_add(LEEWAY)))
    }

    /// Keeps the keys as the issuer publishes them. While they cannot be had, the last ones count.
    pub(crate) async fn keep(self: Arc<Issuer>) {
        let mut told = String::new();
        loop {
            match self.look().await {
                Ok(keys) => {
                    *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
                    told.clear();
                }
                Err(why) if why != told => {
                    let at = &self.config.keys;
                    tracing::error!("the keys of the issuer of JWTs, {at}, cannot be had: {why}");
                    told = why;
                }
                Err(_) => {}
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            if told.is_empty() {
                let _ = timeout(LOOK - LOOK_AGAIN, self.unknown.notified()).await;
            }
        }
    }

    async fn look(&self) -> Result<Vec<Key>, String> {
        let bytes = match &self.config.ca {
            None => {
                let read = tokio::fs::read(&self.config.keys).await;
                read.map_err(|error| error.to_string())?
            }
            Some(ca) => {
                let trust = Files {
                    ca: ca.clone(),
                    own: None,
                };
                let fetched = timeout(FETCH, fetch(&self.config.keys, trust)).await;
                fetched.unwrap_or_else(|_| Err("it does not answer".into()))?
            }
        };
        read(&bytes)
    }

    #[cfg(any(test, feature = "fuzz"))]
    fn with(config: JwtConfig, keys: &[u8]) -> Issuer {
        let issuer = Issuer::new(config);
        *issuer.keys.write().unwrap() = Arc::new(read(keys).unwrap());
        issuer
    }
}

/// A stranger's JWT. The key is that of RFC 8037, appendix A.2.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn fuzz(token: &str) {
    use std::sync::LazyLock;
    static ISSUER: LazyLock<Issuer> = LazyLock::new(|| {
        let keys = br#"{"keys":[{"kty":"OKP","crv":"Ed25519",
            "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
        Issuer::with(JwtConfig::default(), keys)
    });
    assert!(ISSUER.judge(token, 0).is_err(), "nobody has its key");
}

/// What is at an address, of a server that one of these authorities vouches for.
async fn fetch(address: &str, trust: Files) -> Result<Vec<u8>, String> {
    let trust = Trust::read(trust)?;
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config((*trust.config()).clone())
        .https_only()
        .enable_http1()
        .build();
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let request = Request::get(address).body(body::Body::empty());
    let answered = client
        .request(request.map_err(|error| error.to_string())?)
        .await;
    let answer = answered.map_err(|error| error.to_string())?;
    if !answer.status().is_success() {
        return Err(format!("it answers {}", answer.status()));
    }
    let body = body::to_bytes(body::Body::new(answer.into_body()), KEYS_MAX).await;
    Ok(body.map_err(|error| error.to_string())?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::json;

    /// A key of the curve Ed25519, as PKCS #8 has it (RFC 8410), and its public half.
    const PRIVATE: &str = "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp-K06_nwoy_HU--CXqI9EdVhC";
    const NOW: u64 = 2_000_000_000;

    fn issuer() -> Issuer {
        let config = JwtConfig {
            issuer: "https://id".into(),
            audience: "fermata".into(),
            principal: "sub".into(),
            ..JwtConfig::default()
        };
        let set = json!({ "keys": [
            { "kty": "OKP", "crv": "Ed25519", "kid": "a", "x": public() },
            { "kty": "oct", "kid": "s", "k": "c2VjcmV0" },
        ]});
        Issuer::with(config, set.to_string().as_bytes())
    }

    fn private() -> EncodingKey {
        EncodingKey::from_ed_der(&BASE64.decode(PRIVATE).unwrap())
    }

    /// The half of it that is published.
    fn public() -> String {
        let pair = Jwk::from_encoding_key(&private(), Algorithm::EdDSA).unwrap();
        match pair.algorithm {
            AlgorithmParameters::OctetKeyPair(of) => of.x,
            other => panic!("{other:?}"),
        }
    }

    fn claims() -> Value {
        json!({
            "iss": "https://id", "aud": "fermata", "sub": "app",
            "exp": jsonwebtoken::get_current_timestamp() + 100,
        })
    }

    fn token(claims: &Value, kid: &str) -> String {
        let header = Header {
            kid: Some(kid.into()),
            ..Header::new(Algorithm::EdDSA)
        };
        encode(&header, claims, &private()).unwrap()
    }

    #[test]
    fn a_good_token_names_its_principal() {
        let judged = issuer().judge(&token(&claims(), "a"), NOW).unwrap();
        assert_eq!(judged.0, "app");
    }

    #[test]
    fn no_other_token_does() {
        let issuer = issuer();
        let refused = |token: &str, word: &str| {
            let why = issuer.judge(token, NOW).expect_err(word);
            assert!(why.contains(word), "{why}, not {word}");
        };
        let with = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            token(&claims, "a")
        };
        let good = token(&claims(), "a");
        refused(&with("aud", json!("other")), "another audience");
        refused(&with("iss", json!("https://other")), "another issuer");
        refused(&with("exp", json!(1)), "is over");
        refused(&with("exp", json!("2000000000")), "malformed");
        refused(&with("nbf", json!("1")), "malformed");
        let far = jsonwebtoken::get_current_timestamp() + 3_600;
        refused(&with("nbf", json!(far)), "does not count yet");
        refused(&with("sub", json!("a:b")), "no principal");
        refused(&with("sub", Value::Null), "no principal");
        refused(&token(&claims(), "b"), "not signed by a key");
        let body = good.split('.').nth(1).unwrap();
        let header = BASE64.encode(r#"{"alg":"none"}"#);
        refused(&format!("{header}.{body}."), "no header");
        // By what everybody knows, taken for a secret.
        let shared = Header {
            kid: Some("a".into()),
            ..Header::new(Algorithm::HS256)
        };
        let forged = encode(
            &shared,
            &claims(),
            &EncodingKey::from_secret(public().as_bytes()).unwrap(),
        );
        refused(&forged.unwrap(), "not signed by a key");
        let shared = Header {
            kid: Some("s".into()),
            ..Header::new(Algorithm::HS256)
        };
        let secret = encode(
            &shared,
            &claims(),
            &EncodingKey::from_secret(b"secret").unwrap(),
        );
        refused(&secret.unwrap(), "not signed by a key");
        // Another first byte: in the last character are bits that have to be zero.
        let (rest, signature) = good.rsplit_once('.').unwrap();
        let first = if signature.starts_with('A') { "B" } else { "A" };
        let altered = format!("{rest}.{first}{}", &signature[1..]);
        refused(&altered, "signature is wrong");
        refused(&good[..good.len() - 4], "");
        refused(&"a".repeat(TOKEN_MAX + 1), "too long");
        assert!(read(b"{}").is_err() && read(br#"{"keys":[]}"#).is_err());
    }
}
