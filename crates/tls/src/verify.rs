//! Who is let in: whoever names a node of one cluster, by an authority that is trusted.
//!
//! Paths, times and signatures are checked by [`rustls`]; what is added, and left out, is about
//! names. A node is not judged by the host at which it was reached: that is what the cluster's
//! registry says, and it may change.

use crate::error::unfit;
use crate::name::Name;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// Whether a certificate names a node of the cluster.
fn is_node(cluster: u128, certificate: &CertificateDer<'_>) -> Result<(), Error> {
    match Name::of(certificate).map_err(unfit)? {
        Name::Node { cluster: of, .. } if of == cluster => Ok(()),
        Name::Node { .. } => Err(unfit("it is a node of another cluster".into())),
        name @ Name::Client { .. } => Err(unfit(format!("it is {name}, and no node"))),
    }
}

/// Takes a node of the cluster for the other end that was connected to.
#[derive(Debug)]
pub(crate) struct ServingNodes {
    pub(crate) cluster: u128,
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ServingNodes {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end_entity)?,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        is_node(self.cluster, end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Whether a certificate names nobody of another cluster: an authority may have several. One that
/// is no name of ours says nothing of clusters.
fn is_ours(cluster: u128, certificate: &CertificateDer<'_>) -> Result<(), Error> {
    match Name::of(certificate) {
        Ok(Name::Node { cluster: of, .. } | Name::Client { cluster: of, .. }) if of != cluster => {
            Err(unfit("its certificate is of another cluster".into()))
        }
        Err(why) if Name::is_claimed(certificate) => Err(unfit(why)),
        _ => Ok(()),
    }
}

/// Whom a node takes that connects to it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whom {
    /// Nodes of the cluster.
    Nodes,
    /// Anybody but who is of another cluster.
    Clients,
}

/// Takes those, of whom `inner` takes.
#[derive(Debug)]
pub(crate) struct Connecting {
    pub(crate) whom: Whom,
    pub(crate) cluster: u128,
    pub(crate) inner: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for Connecting {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .inner
            .verify_client_cert(end_entity, intermediates, now)?;
        match self.whom {
            Whom::Nodes => is_node(self.cluster, end_entity)?,
            Whom::Clients => is_ours(self.cluster, end_entity)?,
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
