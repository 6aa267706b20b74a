//! What the cluster as a whole agrees on: who is in it, and its keyspaces. It is the state of the
//! meta-group, beside where that is; every node keeps a copy, and takes over whatever is newer.

use crate::base::{Keyspace, Planted};
use crate::catalogue::Catalogue;
use crate::command::GroupCommand;
use crate::lock::Outcome;
use crate::registry::{Registry, Standing};
use crate::request::{Code, Refusal};
use alloc::format;
use serde::{Deserialize, Serialize};

/// Nodes and keyspaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    registry: Registry,
    catalogue: Catalogue,
}

impl Meta {
    /// The state of a cluster whose first nodes have met.
    pub fn start(registry: Registry) -> Meta {
        Meta {
            registry,
            catalogue: Catalogue::default(),
        }
    }

    /// The same with these keyspaces.
    pub(crate) fn with(self, catalogue: Catalogue) -> Meta {
        Meta { catalogue, ..self }
    }

    /// Who is in the cluster.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The keyspaces.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Applies a command, if it is one to this state. Keyspaces have a shape for `sizes`: every
    /// number of members that a view may come to have.
    pub(crate) fn apply(
        &mut self,
        command: &GroupCommand,
        sizes: impl Iterator<Item = usize>,
        planted: Planted,
    ) -> Option<Outcome> {
        Some(match command {
            GroupCommand::Admit(newcomer) => match self.registry.admit(newcomer, planted) {
                Ok(name) => Outcome::Admitted(name),
                Err(refusal) => Outcome::Refused(refusal),
            },
            GroupCommand::Dismiss { name, lost } => {
                let standing = match lost {
                    true => Standing::Lost,
                    false => Standing::Gone,
                };
                done(self.registry.dismiss(*name, standing))
            }
            GroupCommand::Drain { name, drains } => done(self.registry.drain(*name, *drains)),
            GroupCommand::Readdress { name, addresses } => {
                done(self.registry.readdress(*name, addresses))
            }
            GroupCommand::Settle(change) => done(self.registry.settle(*change, planted)),
            GroupCommand::Settled(version) => {
                self.registry.settled(*version);
                Outcome::Done
            }
            GroupCommand::CreateKeyspace(keyspace) => self.create(keyspace, sizes, planted),
            GroupCommand::ChangeKeyspace {
                id,
                lease,
                section_max,
            } => done(self.catalogue.change(*id, (*lease, *section_max))),
            GroupCommand::DeleteKeyspace(id) => done(self.catalogue.delete(*id)),
            GroupCommand::ChangeAccess { after, policy } => {
                done(self.catalogue.change_access(*after, policy, planted))
            }
            _ => return None,
        })
    }

    fn create(
        &mut self,
        keyspace: &Keyspace,
        mut sizes: impl Iterator<Item = usize>,
        planted: Planted,
    ) -> Outcome {
        // No change of members looks at keyspaces.
        if let Some(why) = sizes.find_map(|members| keyspace.storage.shape(members).err()) {
            let why = format!("the keyspace's storage is impossible: {why}; choose other terms");
            return Outcome::Refused(Refusal::definite(Code::BadRequest, why));
        }
        done(self.catalogue.create(keyspace, planted))
    }
}

fn done(result: Result<(), Refusal>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(refusal) => Outcome::Refused(refusal),
    }
}
