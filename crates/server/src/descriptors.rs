//! How many files and sockets this process may have open, and whose they are.
//!
//! **Problem.** Every connection of a client is a descriptor, and so is the next segment of the
//! log. A client that opens enough connections would otherwise take from the node what it needs to
//! go on.
//!
//! **Idea.** The soft limit is raised to the hard one, and a part of it is kept for the node's own
//! files and its peers; the faces share the rest, and count their connections. The system gives the
//! lowest number that is free. So a new connection with a number among the last ones shows, whoever
//! has the others, that only those are left: it is closed at once.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files, the runtime's own descriptors, connections that are being refused, and those of peers
/// that have not yet said who they are.
const OWN: u64 = 128;
/// Connections from each node of the cluster and to it.
const PER_NODE: u64 = 8;

/// Raises this process's soft limit of open files as far as it goes. Where it stays as it was, a
/// node has fewer places for connections.
pub fn raise_open_files() {
    let given = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: given.maximum,
        ..given
    };
    let _ = setrlimit(Resource::Nofile, raised);
}

/// The descriptors that clients may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Numbers from here on are not for clients.
    pub(crate) kept_from: u64,
}

impl Descriptors {
    /// Raises the soft limit as far as it goes, and keeps what a node among so many needs.
    ///
    /// # Errors
    /// One sentence, where the limit leaves clients too little.
    pub(crate) fn reserve(nodes: usize) -> Result<Descriptors, String> {
        raise_open_files();
        Descriptors::under(getrlimit(Resource::Nofile).current, nodes)
    }

    /// The same under a limit that is known; none: there is no limit.
    fn under(limit: Option<u64>, nodes: usize) -> Result<Descriptors, String> {
        let own = OWN + PER_NODE * nodes as u64;
        let limit = limit.unwrap_or(u64::MAX);
        if limit < own + OWN {
            return Err(format!(
                "this process may have {limit} files open, and a node of this cluster needs {} at \
                 least: raise the limit (ulimit -n)",
                own + OWN
            ));
        }
        Ok(Descriptors {
            kept_from: limit - own,
        })
    }

    /// Most connections of one of so many faces.
    pub(crate) fn per_face(self, faces: usize) -> usize {
        usize::try_from(self.kept_from).unwrap_or(usize::MAX) / faces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_node_needs_is_kept() {
        let of = |limit| Descriptors::under(limit, 3);
        assert_eq!(of(Some(1_024)).unwrap().kept_from, 1_024 - 128 - 24);
        assert_eq!(of(Some(1_024)).unwrap().per_face(2), 436);
        assert!(of(None).unwrap().per_face(2) > 1 << 60);
        assert!(of(Some(200)).unwrap_err().contains("ulimit -n"));
    }
}
