//! What went wrong in a handshake, in a sentence.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// A certificate that is good, and of somebody else.
#[derive(Debug)]
pub(crate) struct Unfit(pub(crate) String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Unfit {}

/// The refusal of a certificate for a reason of our own.
pub(crate) fn unfit(why: String) -> Error {
    let why = rustls::OtherError(Arc::new(Unfit(why)));
    Error::InvalidCertificate(CertificateError::Other(why))
}

/// Why TLS failed, in words for the operator of this end: what the error, or what caused it, says;
/// none where it was not TLS that failed.
pub fn why(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<Error>() {
            return Some(sentence(error));
        }
        // An error of input and output hides the one inside it from its sources.
        next = match error.downcast_ref::<std::io::Error>() {
            Some(error) => error
                .get_ref()
                .map(|inner| inner as &(dyn StdError + 'static)),
            None => error.source(),
        };
    }
    None
}

/// Why the other end has refused this one, which it says once both speak in secret: nobody in
/// between has made it up. None: it has not.
pub fn refused(error: &std::io::Error) -> Option<String> {
    let inner = error.get_ref()?.downcast_ref::<Error>()?;
    matches!(inner, Error::AlertReceived(_)).then(|| sentence(inner))
}

/// A sentence, without its full stop.
pub(crate) fn sentence(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => of_theirs(error),
        Error::NoCertificatesPresented => "it shows no certificate, and has to".into(),
        Error::AlertReceived(alert) => told(*alert),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => "it does not speak TLS".into(),
        Error::PeerIncompatible(_) => format!("it does not speak TLS 1.3 ({error})"),
        Error::NoApplicationProtocol => "it does not speak the protocol of this port".into(),
        Error::InconsistentKeys(_) => "the key is not that of the certificate".into(),
        error => format!("TLS failed: {error}"),
    }
}

/// What is wrong with the other end's certificate.
fn of_theirs(error: &CertificateError) -> String {
    let of = "its certificate";
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("{of} has expired, or the clock of this machine is ahead")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("{of} is not valid yet, or the clock of this machine is behind")
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!("{of} is by an authority that is not trusted here")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("{of} is for another host than was asked for ({error})")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            format!("{of} is not made for this use")
        }
        CertificateError::Other(inner) => match inner.0.downcast_ref::<Unfit>() {
            Some(unfit) => unfit.to_string(),
            // What the checker of paths says, which has no other name for it here.
            None if error.to_string().contains("CaUsedAsEndEntity") => {
                format!("{of} is that of an authority, which nobody is: it may have signed itself")
            }
            None => format!("{of} is refused: {error}"),
        },
        error => format!("{of} is refused: {error}"),
    }
}

/// What the other end has told this one of its certificate.
fn told(alert: AlertDescription) -> String {
    let here = "this end's certificate";
    match alert {
        AlertDescription::CertificateRequired => {
            "it asks for a certificate, and this end has shown none".into()
        }
        AlertDescription::CertificateExpired => {
            format!("it says that {here} has expired, or is not valid yet")
        }
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            format!("it does not trust the authority of {here}")
        }
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::AccessDenied => {
            format!("it refuses {here} ({alert:?}): its own log says why")
        }
        AlertDescription::NoApplicationProtocol => {
            "it does not speak this protocol at that port".into()
        }
        AlertDescription::ProtocolVersion => "it does not speak TLS 1.3".into(),
        alert => format!("it has ended the handshake ({alert:?})"),
    }
}
