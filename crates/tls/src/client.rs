//! What a client needs.

use crate::ending::{Ending, endings};
use crate::files::{Files, Text};
use crate::{VERSIONS, error, provider};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Files are looked at again after so long, where somebody connects.
const LOOK: Duration = Duration::from_secs(10);

/// What ends: of a node, that is a client of the stores of its engine.
const NAMES: [&str; 2] = ["certificate for the stores", "authority of the stores"];

/// Whom a client trusts, and what it shows. Clones share it.
#[derive(Clone)]
pub struct Trust(Arc<Shared>);

struct Shared {
    files: Files,
    now: Mutex<Present>,
}

struct Present {
    text: Text,
    usable: Usable,
    looked: Instant,
}

/// What can be done with the text of the files.
#[derive(Clone)]
struct Usable {
    config: Arc<ClientConfig>,
    /// What the configuration judges others by.
    verifier: Arc<WebPkiServerVerifier>,
    endings: Vec<Ending>,
}

/// The text of the files, for libraries that read it themselves.
pub struct Pem {
    /// Certificates of authorities.
    pub ca: String,
    /// The certificate that is shown, and its key: a secret.
    pub own: Option<(String, String)>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trust").field(&self.0.files).finish()
    }
}

impl Trust {
    /// Reads the files.
    ///
    /// # Errors
    /// One sentence that names the file.
    pub fn read(files: Files) -> Result<Trust, String> {
        let text = files.read()?;
        let usable = usable(&files, &text)?;
        let now = Mutex::new(Present {
            text,
            usable,
            looked: Instant::now(),
        });
        Ok(Trust(Arc::new(Shared { files, now })))
    }

    /// For the next connection. Files that have changed are taken if they can be.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.present(|now| now.usable.config.clone())
    }

    /// For all connections to come, where a library takes one configuration for its life: each
    /// handshake goes by the files as [`Trust::config`] would take them then.
    pub fn following(&self) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.config());
        let follows = Arc::new(Following(self.clone()));
        config.client_auth_cert_resolver = follows.clone();
        config.dangerous().set_certificate_verifier(follows);
        Arc::new(config)
    }

    /// What is in the files, as [`Trust::config`] takes it.
    pub fn pem(&self) -> Pem {
        // Whatever is beside the certificates of a file, they are ASCII.
        let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.present(|now| Pem {
            ca: read(&now.text.ca),
            own: (now.text.own.as_ref()).map(|(shown, key)| (read(shown), read(key))),
        })
    }

    /// When the certificate that is shown is over, and those of authorities, the first of each.
    pub fn endings(&self) -> Vec<Ending> {
        self.present(|now| now.usable.endings.clone())
    }

    fn present<T>(&self, take: impl FnOnce(&Present) -> T) -> T {
        let now = self.0.now.lock();
        let mut now = now.unwrap_or_else(PoisonError::into_inner);
        if now.looked.elapsed() >= LOOK {
            now.looked = Instant::now();
            if let Ok(text) = self.0.files.read()
                && text != now.text
                && let Ok(usable) = usable(&self.0.files, &text)
            {
                (now.text, now.usable) = (text, usable);
            }
        }
        take(&now)
    }

    fn verifier(&self) -> Arc<WebPkiServerVerifier> {
        self.present(|now| now.usable.verifier.clone())
    }
}

fn usable(files: &Files, text: &Text) -> Result<Usable, String> {
    let material = files.understand(text)?;
    let failed = |error: Error| match &files.own {
        Some((certificate, _)) => {
            format!("{}: {}", certificate.display(), error::sentence(&error))
        }
        None => error::sentence(&error),
    };
    let endings = endings(material.own.as_ref(), &material.authorities, NAMES);
    let verifier = WebPkiServerVerifier::builder_with_provider(material.roots, provider());
    let verifier = verifier.build().map_err(|error| error.to_string())?;
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(VERSIONS).map_err(failed)?;
    let builder = builder.with_webpki_verifier(verifier.clone());
    let mut config = match material.own {
        Some(chain) => builder
            .with_client_auth_cert(chain.certificates, chain.key)
            .map_err(failed)?,
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    let config = Arc::new(config);
    Ok(Usable {
        config,
        verifier,
        endings,
    })
}

/// Judges, and shows, by what is in the files at the time.
#[derive(Debug)]
struct Following(Trust);

impl ServerCertVerifier for Following {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let present = self.0.verifier();
        present.verify_server_cert(end_entity, intermediates, host, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let present = self.0.verifier();
        present.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let present = self.0.verifier();
        present.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.verifier().supported_verify_schemes()
    }
}

impl ResolvesClientCert for Following {
    fn resolve(&self, hints: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let shown = self.0.config().client_auth_cert_resolver.clone();
        shown.resolve(hints, schemes)
    }

    fn has_certs(&self) -> bool {
        self.0.config().client_auth_cert_resolver.has_certs()
    }
}
