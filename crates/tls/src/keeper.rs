//! What a node needs: how it is spoken to, and how it speaks to others, by its files as they are.

use crate::ending::{Ending, endings};
use crate::files::{Chain, Files, Material, Text};
use crate::name::Name;
use crate::verify::{Connecting, ServingNodes, Whom};
use crate::{VERSIONS, error, provider};
use rustls::client::Resumption;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, ServerConfig};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// What nodes speak between them, by ALPN's word (RFC 7301), and demand of each other: whoever
/// relays a connection of a client to a node's port for peers gets no further than this.
pub const PEERS_PROTOCOL: &[u8] = b"fermata-peers";

/// What clients speak: the first alone where only gRPC is served.
const FACES_PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Which clients a node talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admits {
    /// Those with a certificate by an authority that it trusts.
    Certified,
    /// Those without one, too.
    Anybody,
}

/// Whose node this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// The cluster's id.
    pub cluster: u128,
    /// The node's label.
    pub label: String,
}

impl Own {
    fn name(&self) -> Name {
        Name::Node {
            cluster: self.cluster,
            label: self.label.clone(),
        }
    }
}

/// The certificates and the key of a node, which may change while it runs.
pub struct Keeper {
    files: Files,
    own: Own,
    admits: Admits,
    now: RwLock<Present>,
}

/// What the files came to when they were read last.
struct Present {
    text: Text,
    faces: Arc<ServerConfig>,
    grpc: Arc<ServerConfig>,
    peers: Arc<ServerConfig>,
    to_peers: Arc<ClientConfig>,
    to_faces: Arc<ClientConfig>,
    endings: Vec<Ending>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Keeper");
        shown.field("files", &self.files).field("own", &self.own);
        shown.finish_non_exhaustive()
    }
}

impl Keeper {
    /// Reads the files.
    ///
    /// # Errors
    /// One sentence: a file cannot be read, the key is another certificate's, or the certificate is
    /// not this node's, or one that others will not take.
    pub fn read(files: Files, own: Own, admits: Admits) -> Result<Keeper, String> {
        let text = files.read()?;
        let now = Present::of(&files, text, &own, admits)?;
        Ok(Keeper {
            now: RwLock::new(now),
            files,
            own,
            admits,
        })
    }

    /// Reads the files again: whether they have changed. What cannot be used leaves all as it was.
    ///
    /// # Errors
    /// As [`Keeper::read`].
    pub fn reread(&self) -> Result<bool, String> {
        let text = self.files.read()?;
        if self.look(|now| now.text == text) {
            return Ok(false);
        }
        let new = Present::of(&self.files, text, &self.own, self.admits)?;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(true)
    }

    /// For clients that connect, over HTTP of any version.
    pub fn faces(&self) -> Arc<ServerConfig> {
        self.look(|now| now.faces.clone())
    }

    /// For clients that connect where gRPC alone is served.
    pub fn grpc(&self) -> Arc<ServerConfig> {
        self.look(|now| now.grpc.clone())
    }

    /// For peers that connect: they name a node of the cluster.
    pub fn peers(&self) -> Arc<ServerConfig> {
        self.look(|now| now.peers.clone())
    }

    /// For connections to peers: they name a node of the cluster, wherever they are reached.
    pub fn to_peers(&self) -> Arc<ClientConfig> {
        self.look(|now| now.to_peers.clone())
    }

    /// The same, to what they serve clients.
    pub fn to_faces(&self) -> Arc<ClientConfig> {
        self.look(|now| now.to_faces.clone())
    }

    /// When the node's certificate is over, or one between it and its authority, and when the first
    /// of the authorities' is.
    pub fn endings(&self) -> Vec<Ending> {
        self.look(|now| now.endings.clone())
    }

    fn look<A>(&self, at: impl FnOnce(&Present) -> A) -> A {
        at(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Present {
    fn of(files: &Files, text: Text, own: &Own, admits: Admits) -> Result<Present, String> {
        let Some((file, _)) = &files.own else {
            return Err("a node that speaks TLS has a certificate and a key".into());
        };
        let Material {
            roots,
            authorities,
            own: Some(chain),
        } = files.understand(&text)?
        else {
            return Err("a node that speaks TLS has a certificate and a key".into());
        };
        let failed = |why: String| format!("{}: {why}", file.display());
        let provider = provider();
        let algorithms = provider.signature_verification_algorithms;
        let nodes = Arc::new(ServingNodes {
            cluster: own.cluster,
            roots: roots.clone(),
            algorithms,
        });
        let known = || WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let no_roots = |error| format!("{}: {error}", files.ca.display());
        let certified = known().build().map_err(no_roots)?;
        check(own, &chain, &nodes, &*certified).map_err(failed)?;
        let clients = match admits {
            Admits::Certified => certified.clone(),
            Admits::Anybody => known().allow_unauthenticated().build().map_err(no_roots)?,
        };
        let connecting = |whom, inner| -> Arc<dyn ClientCertVerifier> {
            let cluster = own.cluster;
            Arc::new(Connecting {
                whom,
                cluster,
                inner,
            })
        };
        let server = |verifier, protocols: &[&[u8]]| {
            server(&chain, verifier, protocols).map_err(|error| failed(error::sentence(&error)))
        };
        let client = |protocols: &[&[u8]]| {
            client(&chain, &nodes, protocols).map_err(|error| failed(error::sentence(&error)))
        };
        let endings = endings(Some(&chain), &authorities, ["certificate", "authority"]);
        Ok(Present {
            grpc: server(
                connecting(Whom::Clients, clients.clone()),
                &FACES_PROTOCOLS[..1],
            )?,
            faces: server(connecting(Whom::Clients, clients), &FACES_PROTOCOLS)?,
            peers: server(connecting(Whom::Nodes, certified), &[PEERS_PROTOCOL])?,
            to_peers: client(&[PEERS_PROTOCOL])?,
            to_faces: client(&[])?,
            endings,
            text,
        })
    }
}

/// Whether others will take what this node shows: it learns at its start what they would tell it.
fn check(
    own: &Own,
    chain: &Chain,
    serving: &ServingNodes,
    connecting: &dyn ClientCertVerifier,
) -> Result<(), String> {
    use rustls::client::danger::ServerCertVerifier;
    let named = Name::of(chain.first())?;
    let name = own.name();
    if named != name {
        return Err(format!(
            "the certificate is that of {named}, and this node is {name}"
        ));
    }
    let now = UnixTime::now();
    let (first, others) = (chain.first(), &chain.certificates[1..]);
    // Nobody looks at it.
    let host = ServerName::try_from("node").map_err(|error| error.to_string())?;
    let refused = |error: rustls::Error| {
        let said = error::sentence(&error);
        let own = said.strip_prefix("its certificate ");
        own.map_or(said.clone(), |rest| format!("the certificate {rest}"))
    };
    serving
        .verify_server_cert(first, others, &host, &[], now)
        .map_err(refused)?;
    let taken = connecting.verify_client_cert(first, others, now);
    taken.map(drop).map_err(refused)
}

fn server(
    chain: &Chain,
    verifier: Arc<dyn ClientCertVerifier>,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.certificates.clone(), chain.key.clone_key())?;
    config.alpn_protocols = protocols.iter().map(|word| word.to_vec()).collect();
    // A resumed session would be judged by the certificates of an earlier one.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn client(
    chain: &Chain,
    nodes: &Arc<ServingNodes>,
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)?
        .dangerous()
        .with_custom_certificate_verifier(nodes.clone())
        .with_client_auth_cert(chain.certificates.clone(), chain.key.clone_key())?;
    config.alpn_protocols = protocols.iter().map(|word| word.to_vec()).collect();
    config.resumption = Resumption::disabled();
    // A node is found by its name in the certificate, and says nothing of hosts.
    config.enable_sni = false;
    Ok(Arc::new(config))
}
