//! How a data directory becomes that of a node of a cluster which exists.
//!
//! **Problem.** A node that joins has no cluster file, and nobody but the cluster gives it a name.
//! It may be stopped at any moment, and then has to become the same node: a directory that asked
//! twice under two incarnations would leave a node behind that never comes.
//!
//! **Idea.** The incarnation is drawn first, and noted in `joining.toml`. Asked again, the cluster
//! gives the same incarnation the same name. Then the directory gets all that a node begins with:
//!
//! ```text
//! data_dir/joining.toml      the incarnation, until the directory has a name
//! data_dir/cluster.toml      what the cluster began with
//! data_dir/node.toml         this node, as the cluster admitted it
//! data_dir/store/            the identity, and the registry
//! data_dir/identity.toml     last, for with it the directory is a node's
//! ```

use crate::config::{ClusterConfig, NodeConfig};
use crate::identity::{self, Identity};
use crate::{StartError, clock};
use fermata_protocol::base::{ClusterId, Incarnation, Micros};
use fermata_protocol::request::Admitted;
use serde::{Deserialize, Serialize};
use std::path::Path;

pub(crate) const NOTE: &str = "joining.toml";
/// What the cluster began with, in a data directory.
pub(crate) const CLUSTER: &str = "cluster.toml";
/// The node itself, in the data directory of one that has joined.
pub(crate) const NODE: &str = "node.toml";

/// This machine's boot-time clock.
pub fn boot_clock() -> Micros {
    clock::monotonic()
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    incarnation: String,
}

/// How far a data directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It asks for a name under this incarnation.
    Asks(Incarnation),
    /// It is that of a node of this cluster.
    Named(ClusterId),
}

/// Begins to make a directory that of a node, or goes on with it.
///
/// # Errors
/// [`StartError::Data`]: the directory is no node's, or cannot be used.
pub fn begin(dir: &Path) -> Result<Begun, StartError> {
    begun(dir).map_err(StartError::Data)
}

fn begun(dir: &Path) -> Result<Begun, String> {
    if let Some(identity) = identity::read(dir)? {
        return Ok(Begun::Named(identity.cluster(dir)?));
    }
    identity::refuse_foreign(dir)?;
    std::fs::create_dir_all(dir).map_err(|e| format!("cannot create {}: {e}", dir.display()))?;
    if let Some(note) = identity::read_file::<Note>(dir, NOTE)? {
        return identity::incarnation_of(dir, &note.incarnation).map(Begun::Asks);
    }
    let incarnation = clock::random().map_err(|e| format!("cannot draw an incarnation: {e}"))?;
    let note = Note {
        incarnation: format!("{incarnation:032x}"),
    };
    identity::write_file(dir, NOTE, &note)?;
    Ok(Begun::Asks(Incarnation(incarnation)))
}

/// Makes the directory that of the node which the cluster has admitted. It may have been begun
/// before.
///
/// # Errors
/// [`StartError::Data`]: the directory cannot be written, or is another's.
pub fn finish(
    dir: &Path,
    incarnation: Incarnation,
    admitted: &Admitted,
    own: &NodeConfig,
) -> Result<(), StartError> {
    finished(dir, incarnation, admitted, own).map_err(StartError::Data)
}

fn finished(
    dir: &Path,
    incarnation: Incarnation,
    admitted: &Admitted,
    own: &NodeConfig,
) -> Result<(), String> {
    let cluster = ClusterConfig::of(&admitted.cluster, admitted.registry.sites());
    identity::write_file(dir, CLUSTER, &cluster)?;
    identity::write_file(dir, NODE, own)?;
    let identity = Identity::new(admitted.cluster.id, admitted.name, incarnation);
    identity::found(dir, &identity, admitted)?;
    tracing::info!(
        "cluster {} has admitted this node, {}, as node {}",
        cluster.id,
        own.label,
        own.name
    );
    let note = dir.join(NOTE);
    match std::fs::remove_file(&note) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {e}", note.display()))
        }
        _ => Ok(()),
    }
}
