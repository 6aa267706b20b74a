//! An authority of one's own: for who has none, and for tests.
//!
//! It signs for the nodes and clients of one cluster. Keys are of the curve P-256 (RFC 5480), which
//! every library of TLS knows.

use crate::name::Name;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate counts from so long before it was made: clocks differ.
const EARLIER: Duration = Duration::from_secs(3_600);

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub struct Made {
    /// The certificate.
    pub certificate: String,
    /// The key: a secret.
    pub key: String,
}

impl Made {
    /// Writes `DIR/FILE.key`, which its owner alone may read, and then `DIR/FILE.pem`; whoever
    /// reads one finds the old text or the new one.
    ///
    /// # Errors
    /// What the system says.
    pub fn store(&self, dir: &Path, file: &str) -> io::Result<()> {
        write(&dir.join(format!("{file}.key")), &self.key, 0o600)?;
        write(&dir.join(format!("{file}.pem")), &self.certificate, 0o644)
    }
}

/// Writes beside the file and renames.
fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    // One that is there may be readable for others.
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(mode);
    let mut file = options.open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

/// The span in which a certificate counts.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// From then on.
    pub from: SystemTime,
    /// Until then.
    pub until: SystemTime,
}

impl Span {
    /// From now on, for so long.
    pub fn lasting(duration: Duration) -> Span {
        let now = SystemTime::now();
        Span {
            from: now - EARLIER,
            until: now + duration,
        }
    }
}

/// Signs certificates.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
    /// Nothing that it signs counts for longer.
    until: SystemTime,
}

impl Authority {
    /// A new one. Its name has a part of its own.
    ///
    /// # Errors
    /// One sentence.
    pub fn make(called: &str, span: Span) -> Result<Made, String> {
        let key = KeyPair::generate().map_err(failed)?;
        // Two of one name would be told apart by signatures alone.
        let id = key.public_key_raw().iter().skip(1).take(8);
        let id: String = id.map(|byte| format!("{byte:02x}")).collect();
        let mut params = params(&format!("{called} {id}"), span)?;
        // It signs what nodes and clients show, and no other authority.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(failed)?;
        Ok(Made {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// The one whose files these are.
    ///
    /// # Errors
    /// One sentence: they are no authority's, or do not fit each other.
    pub fn of(made: &Made) -> Result<Authority, String> {
        let der = CertificateDer::from_pem_slice(made.certificate.as_bytes());
        let der = der.map_err(|_| "there is no certificate in it")?;
        let (_, read) = X509Certificate::from_der(&der).map_err(|_| "it cannot be read")?;
        if !read.is_ca() {
            return Err("the certificate is none of an authority".into());
        }
        let key = KeyPair::from_pem(&made.key).map_err(|_| "there is no key that can be used")?;
        if read.public_key().subject_public_key.data != key.public_key_raw() {
            return Err("the key is not that of the certificate".into());
        }
        let until = read.validity().not_after.timestamp();
        let until = UNIX_EPOCH + Duration::from_secs(until.max(0) as u64);
        let issuer = Issuer::from_ca_cert_pem(&made.certificate, key).map_err(failed)?;
        Ok(Authority {
            certificate: made.certificate.clone(),
            issuer,
            until,
        })
    }

    /// Its own certificate, which others trust.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate for `name`; a node's is for these hosts, too, at which clients reach it.
    ///
    /// # Errors
    /// One sentence.
    pub fn sign(&self, name: &Name, hosts: &[String], span: Span) -> Result<Made, String> {
        // Certificates have whole seconds.
        if span.until >= self.until + Duration::from_secs(1) {
            return Err("it would count for longer than the authority does".into());
        }
        let (called, uses) = match name {
            Name::Node { label, .. } => (
                label,
                vec![
                    ExtendedKeyUsagePurpose::ServerAuth,
                    ExtendedKeyUsagePurpose::ClientAuth,
                ],
            ),
            Name::Client { name, .. } => (name, vec![ExtendedKeyUsagePurpose::ClientAuth]),
        };
        let mut params = params(called, span)?;
        let uri = Ia5String::try_from(name.to_string()).map_err(failed)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        let hosts = CertificateParams::new(hosts).map_err(failed)?;
        params.subject_alt_names.extend(hosts.subject_alt_names);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = uses;
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Made {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Until when it counts.
    pub fn until(&self) -> SystemTime {
        self.until
    }
}

fn params(called: &str, span: Span) -> Result<CertificateParams, String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, called);
    let date = |at: SystemTime| {
        let since = at.duration_since(UNIX_EPOCH);
        let seconds = since.map_or(0, |since| since.as_secs() as i64);
        OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| "that is too far away")
    };
    params.not_before = date(span.from)?;
    params.not_after = date(span.until)?;
    Ok(params)
}

fn failed(error: rcgen::Error) -> String {
    format!("a certificate cannot be made: {error}")
}
