//! Table `[tls]`: what a node shows, whom it trusts, and which clients it talks to.

use fermata_tls::{Admits, Files, Keeper, Own};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Table `[tls]`. With it peers and clients are spoken to over TLS 1.3 alone; without it, in clear.
/// The files are looked at again while the node runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// Certificates of the authorities that the node trusts, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The node's certificate, which names cluster and label, and behind it those between it and
    /// its authority, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its key, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Whether clients show a certificate, too.
    #[serde(skip_serializing_if = "ClientCertificates::is_default")]
    pub clients: ClientCertificates,
}

/// Whether clients show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificates {
    /// Each of them, by an authority that the node trusts.
    #[default]
    Required,
    /// Who wants.
    Optional,
}

impl ClientCertificates {
    /// Their names, as flags and files have them.
    pub const NAMES: [&str; 2] = ["required", "optional"];

    fn is_default(&self) -> bool {
        *self == ClientCertificates::default()
    }
}

impl TlsConfig {
    /// Whether nothing is said of it.
    pub fn is_default(&self) -> bool {
        *self == TlsConfig::default()
    }

    /// The files that are named.
    pub(super) fn files(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.ca, &mut self.certificate, &mut self.key]
            .into_iter()
            .flatten()
    }

    /// Where all files are; none: the node speaks in clear.
    ///
    /// # Errors
    /// One sentence: some are missing.
    pub fn named(&self) -> Result<Option<Files>, String> {
        match (&self.ca, &self.certificate, &self.key) {
            (Some(ca), Some(certificate), Some(key)) => Ok(Some(Files {
                ca: ca.clone(),
                own: Some((certificate.clone(), key.clone())),
            })),
            _ if self.is_default() => Ok(None),
            _ => Err("tls wants all of ca, certificate and key: `fermata cert` makes them".into()),
        }
    }

    pub(super) fn resolve(&self, cluster: u128, label: &str) -> Result<Option<Tls>, String> {
        let Some(files) = self.named()? else {
            return Ok(None);
        };
        Ok(Some(Tls {
            files,
            own: Own {
                cluster,
                label: label.to_owned(),
            },
            admits: match self.clients {
                ClientCertificates::Required => Admits::Certified,
                ClientCertificates::Optional => Admits::Anybody,
            },
        }))
    }
}

/// The same, checked but for what is in the files.
#[derive(Clone, Debug)]
pub struct Tls {
    files: Files,
    own: Own,
    admits: Admits,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// As [`Keeper::read`].
    pub fn read(self) -> Result<Keeper, String> {
        Keeper::read(self.files, self.own, self.admits)
    }
}
