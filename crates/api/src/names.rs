//! Keyspaces and sites have names in the API and numbers in the protocol; this is the dictionary.
//!
//! A server makes it from the catalogue and the cluster file and looks names up strictly. A client
//! needs no catalogue: it adds the names it uses and gets numbers of its own, which never leave it.

use fermata_protocol::base::{Keyspace, KeyspaceId, SiteId, TagRule};
use std::collections::HashMap;

/// Both directions of both dictionaries.
#[derive(Clone, Debug, Default)]
pub struct Names {
    ids: HashMap<String, KeyspaceId>,
    keyspaces: HashMap<KeyspaceId, (String, TagRule)>,
    sites: Vec<String>,
}

impl Names {
    /// A server's dictionary: its catalogue, and the cluster's sites by [`SiteId`].
    pub fn new(catalogue: &[Keyspace], sites: Vec<String>) -> Names {
        let ids = catalogue.iter().map(|k| (k.name.clone(), k.id)).collect();
        let named = |k: &Keyspace| (k.id, (k.name.clone(), k.tag_rule));
        let keyspaces = catalogue.iter().map(named).collect();
        Names {
            ids,
            keyspaces,
            sites,
        }
    }

    /// The number of a keyspace, if the name is known.
    pub fn keyspace(&self, name: &str) -> Option<KeyspaceId> {
        self.ids.get(name).copied()
    }

    /// The dictionary in which this name, if it is not known, is that of a deleted keyspace:
    /// no keyspace has the number 0.
    #[must_use]
    pub fn or_deleted(mut self, name: &str) -> Names {
        self.ids.entry(name.to_owned()).or_insert(KeyspaceId(0));
        self
    }

    /// The name of a keyspace; a number nobody named reads as `#number`.
    pub fn keyspace_name(&self, id: KeyspaceId) -> String {
        match self.keyspaces.get(&id) {
            Some((name, _)) => name.clone(),
            None => format!("#{}", id.0),
        }
    }

    /// The name of a keyspace and the rule for its tags, which clients do not know.
    pub fn named(&self, id: KeyspaceId) -> Option<(&str, TagRule)> {
        let (name, rule) = self.keyspaces.get(&id)?;
        Some((name, *rule))
    }

    /// The number of a keyspace; a new name gets the next free number. For clients only.
    pub fn add_keyspace(&mut self, name: &str) -> KeyspaceId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let mut id = KeyspaceId(self.keyspaces.len() as u32 + 1);
        while self.keyspaces.contains_key(&id) {
            id.0 += 1;
        }
        self.ids.insert(name.to_owned(), id);
        self.keyspaces
            .insert(id, (name.to_owned(), TagRule::default()));
        id
    }

    /// The number of a site, if the name is known.
    pub fn site(&self, name: &str) -> Option<SiteId> {
        let at = self.sites.iter().position(|s| s == name)?;
        u16::try_from(at).ok().map(SiteId)
    }

    /// The name of a site; a number nobody named reads as `#number`.
    pub fn site_name(&self, id: SiteId) -> String {
        match self.sites.get(usize::from(id.0)) {
            Some(name) => name.clone(),
            None => format!("#{}", id.0),
        }
    }

    /// The number of a site; a new name gets the next one. For clients only. After 65,535 names,
    /// which no cluster has, all others share the last number.
    pub fn add_site(&mut self, name: &str) -> SiteId {
        if let Some(id) = self.site(name) {
            return id;
        }
        if self.sites.len() < usize::from(u16::MAX) {
            self.sites.push(name.to_owned());
        }
        SiteId(self.sites.len().saturating_sub(1) as u16)
    }

    /// All site names, by [`SiteId`].
    pub fn sites(&self) -> &[String] {
        &self.sites
    }
}
