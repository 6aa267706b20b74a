//! Whom a certificate names: `fermata://CLUSTER/nodes/LABEL`, or `fermata://CLUSTER/clients/NAME`,
//! as a URI among its alternative names (RFC 5280, section 4.2.1.6).

use rustls::pki_types::CertificateDer;
use std::fmt;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Where such a name begins.
const SCHEME: &str = "fermata://";

/// A node or a client of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A node.
    Node {
        /// The cluster's id.
        cluster: u128,
        /// What people call the node, in the cluster.
        label: String,
    },
    /// A client.
    Client {
        /// The cluster's id.
        cluster: u128,
        /// What the authority calls it.
        name: String,
    },
}

impl Name {
    /// The name in a certificate.
    ///
    /// # Errors
    /// One sentence: it has none, or several, or one that makes no sense.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Name, String> {
        let uris = uris(certificate)?;
        let mut own = uris.iter().filter(|uri| uri.starts_with(SCHEME));
        let Some(uri) = own.next() else {
            return Err("the certificate names neither a node nor a client of Fermata".into());
        };
        if own.next().is_some() {
            return Err("the certificate names more than one node or client of Fermata".into());
        }
        Name::parse(uri).ok_or_else(|| {
            format!(
                "the certificate says {uri:?}, not fermata://CLUSTER/nodes/LABEL or \
                 fermata://CLUSTER/clients/NAME"
            )
        })
    }

    /// Whether a certificate has some such name, if perhaps a wrong one.
    pub(crate) fn is_claimed(certificate: &CertificateDer<'_>) -> bool {
        let uris = uris(certificate).unwrap_or_default();
        uris.iter().any(|uri| uri.starts_with(SCHEME))
    }

    fn parse(uri: &str) -> Option<Name> {
        let mut parts = uri.strip_prefix(SCHEME)?.splitn(3, '/');
        let (cluster, kind, text) = (parts.next()?, parts.next()?, parts.next()?);
        let digits = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if cluster.len() != 32 || !cluster.bytes().all(digits) {
            return None;
        }
        let cluster = u128::from_str_radix(cluster, 16).ok()?;
        let text = unescaped(text).filter(|text| !text.is_empty())?;
        match kind {
            "nodes" => Some(Name::Node {
                cluster,
                label: text,
            }),
            "clients" => Some(Name::Client {
                cluster,
                name: text,
            }),
            _ => None,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cluster, kind, text) = match self {
            Name::Node { cluster, label } => (cluster, "nodes", label),
            Name::Client { cluster, name } => (cluster, "clients", name),
        };
        write!(f, "{SCHEME}{cluster:032x}/{kind}/{}", escaped(text))
    }
}

fn uris(certificate: &CertificateDer<'_>) -> Result<Vec<String>, String> {
    let unread = |_| "the certificate cannot be read".to_owned();
    let (_, read) = X509Certificate::from_der(certificate).map_err(unread)?;
    let names = read.subject_alternative_name();
    let names = names.map_err(|_| "the certificate has alternative names twice".to_owned())?;
    let names = names.iter().flat_map(|names| &names.value.general_names);
    let uri = |name: &GeneralName<'_>| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    };
    Ok(names.filter_map(uri).collect())
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Every byte that is none of RFC 3986's unreserved ones, as `%` and two digits.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match is_plain(byte) {
            true => escaped.push(char::from(byte)),
            false => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// What was [`escaped`]; none where it was not: each text is written in one way.
fn unescaped(uri: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = uri.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    let text = String::from_utf8(bytes).ok()?;
    (escaped(&text) == uri).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_written_in_one_way() {
        for label in ["ohio-1", "a b", "ä/é", "%41", "x"] {
            let (cluster, label) = (7, label.to_owned());
            let node = Name::Node { cluster, label };
            assert_eq!(Name::parse(&node.to_string()), Some(node));
        }
        let name = "app".to_owned();
        let client = Name::Client { cluster: 7, name };
        assert_eq!(Name::parse(&client.to_string()), Some(client));
        let id = format!("{:032x}", 0xab);
        for wrong in [
            format!("fermata://{id}/nodes/"),
            format!("fermata://{id}/nodes/a b"),
            format!("fermata://{id}/nodes/%61"),
            format!("fermata://{id}/nodes/%2"),
            format!("fermata://{id}/nodes/%+1"),
            format!("fermata://{id}/nodes/%ff"),
            format!("fermata://{id}/nodes/a/b"),
            format!("fermata://{id}/node/a"),
            format!("fermata://{id}"),
            format!("fermata://{}/nodes/a", id.to_uppercase()),
            "fermata://7/nodes/a".to_owned(),
            "spiffe://7/nodes/a".to_owned(),
        ] {
            assert_eq!(Name::parse(&wrong), None, "{wrong}");
        }
    }
}
