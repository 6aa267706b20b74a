//! Tables `[jwt]` and `[audit]`: whose word says who somebody is, and where it is written who did
//! what.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Table `[jwt]`: an issuer of JWTs (OpenID Connect) whose word this node takes for who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JwtConfig {
    /// What tokens say in `iss`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub issuer: String,
    /// What they say in `aud`: that they are for this cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub audience: String,
    /// Where the issuer's keys are, as a JWK set: a file, or an `https://` address, which is asked
    /// again now and then, and where a key is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub keys: String,
    /// Certificates of the authorities that are trusted for that address, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Which claim names the principal; empty: `sub`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub principal: String,
}

impl JwtConfig {
    /// Whether nothing is said of it.
    pub fn is_default(&self) -> bool {
        *self == JwtConfig::default()
    }

    /// The same, checked; none: no issuer is known.
    pub(super) fn resolve(&self) -> Result<Option<JwtConfig>, String> {
        if self.is_default() {
            return Ok(None);
        }
        if [&self.issuer, &self.audience, &self.keys]
            .iter()
            .any(|text| text.is_empty())
        {
            return Err("jwt wants all of issuer, audience and keys".into());
        }
        if self.keys.starts_with("http://") {
            return Err("jwt.keys would be fetched in clear: give a file or https://".into());
        }
        if self.is_fetched() != self.ca.is_some() {
            return Err(
                "jwt.ca names the authorities for jwt.keys where those are at https://, and only \
                 there"
                    .into(),
            );
        }
        let mut whole = self.clone();
        if whole.principal.is_empty() {
            whole.principal = "sub".into();
        }
        Ok(Some(whole))
    }

    /// Whether keys are fetched, and not read.
    pub(crate) fn is_fetched(&self) -> bool {
        self.keys.starts_with("https://")
    }
}

/// Table `[audit]`: administrative acts, sections ended by force and refused requests, as lines of
/// JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// The file; none: nothing is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Bytes after which another file is begun.
    pub file_bytes: u64,
    /// Former files that are kept, as FILE.1, the last one, to FILE.N.
    pub files: usize,
    /// Whether keys are in it; values and secrets never are.
    pub keys: bool,
}

impl Default for AuditConfig {
    fn default() -> AuditConfig {
        AuditConfig {
            file: None,
            file_bytes: 64 << 20,
            files: 8,
            keys: false,
        }
    }
}

impl AuditConfig {
    /// Whether nothing is said of it.
    pub fn is_default(&self) -> bool {
        *self == AuditConfig::default()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        match (4_096..=1 << 40).contains(&self.file_bytes) && (1..=1_000).contains(&self.files) {
            true => Ok(()),
            false => Err("audit.file_bytes is 4096 to 2^40, and audit.files 1 to 1000".into()),
        }
    }
}
