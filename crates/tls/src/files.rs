//! Certificates and keys in files, as PEM (RFC 7468).

use crate::error;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A file is at most so long.
const FILE_MAX: u64 = 1 << 20;

/// Where the certificates and the key of one end are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Whom it trusts: the certificates of authorities, one or more.
    pub ca: PathBuf,
    /// Its own certificate, and behind it those between it and its authority; and its key. None for
    /// a client that shows none.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// What was in the files.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) ca: Vec<u8>,
    pub(crate) own: Option<(Vec<u8>, Vec<u8>)>,
}

/// A certificate with those between it and its authority, and its key.
pub(crate) struct Chain {
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Chain {
    /// The certificate itself.
    pub(crate) fn first(&self) -> &CertificateDer<'static> {
        &self.certificates[0]
    }
}

/// The same, understood.
pub(crate) struct Material {
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) authorities: Vec<CertificateDer<'static>>,
    pub(crate) own: Option<Chain>,
}

impl Files {
    /// Reads them.
    ///
    /// # Errors
    /// One sentence that names the file.
    pub(crate) fn read(&self) -> Result<Text, String> {
        Ok(Text {
            ca: read(&self.ca)?,
            own: match &self.own {
                Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
                None => None,
            },
        })
    }

    /// What the text of these files means.
    ///
    /// # Errors
    /// One sentence that names the file.
    pub(crate) fn understand(&self, text: &Text) -> Result<Material, String> {
        let authorities = certificates(&self.ca, &text.ca)?;
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            let added = is_authority(authority).and_then(|()| {
                let added = roots.add(authority.clone());
                added.map_err(|error| error::sentence(&error))
            });
            added.map_err(|why| format!("{}: {why}", self.ca.display()))?;
        }
        let own = match (&self.own, &text.own) {
            (Some((certificate, key)), Some((chain, secret))) => Some(Chain {
                certificates: certificates(certificate, chain)?,
                key: private_key(key, secret)?,
            }),
            _ => None,
        };
        Ok(Material {
            roots: Arc::new(roots),
            authorities,
            own,
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let unread = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let found = std::fs::metadata(path).map_err(unread)?;
    // What is read again and again must not wait for somebody who writes.
    if !found.is_file() {
        return Err(format!("{} is no regular file", path.display()));
    }
    let length = found.len();
    if length > FILE_MAX {
        return Err(format!(
            "{} has {length} bytes, more than certificates take: it is another file",
            path.display()
        ));
    }
    std::fs::read(path).map_err(unread)
}

fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let read = read.map_err(|error| match error {
        pem::Error::MissingSectionEnd { .. } => {
            format!(
                "{} is cut off: a certificate in it has no end",
                path.display()
            )
        }
        error => format!("{}: {error}", path.display()),
    })?;
    match read.is_empty() {
        true => Err(format!("{} has no certificate in it", path.display())),
        false => Ok(read),
    }
}

fn private_key(path: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let read = PrivateKeyDer::from_pem_slice(text);
    read.map_err(|_| format!("{} has no private key in it", path.display()))
}

/// A certificate that may sign no others would be trusted by nobody.
fn is_authority(certificate: &CertificateDer<'_>) -> Result<(), String> {
    let unread = "a certificate in it cannot be read".to_owned();
    let (_, read) = X509Certificate::from_der(certificate).map_err(|_| unread)?;
    match read.is_ca() {
        true => Ok(()),
        false => Err(format!(
            "the certificate of {} is none of an authority",
            read.subject()
        )),
    }
}

/// When a certificate is over, seconds since 1970.
pub(crate) fn not_after(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, read) = X509Certificate::from_der(certificate).ok()?;
    Some(read.validity().not_after.timestamp())
}
