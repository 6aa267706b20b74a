//! The way back in: who owns a node's machine can always administer the cluster, through that node.
//!
//! Whoever can write the data directory can do worse already. So `fermata auth recover` leaves the
//! hash of a token there, which counts at this node alone, for an hour, and shows the token.

use crate::clock;
use crate::identity::{read_file, write_file};
use fermata_access::{Hash, Token};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the way in stays open.
pub const RECOVERY_LASTS: Duration = Duration::from_secs(3_600);
/// The file is looked at this often at most, however many wrong tokens are shown.
const LOOK: Duration = Duration::from_millis(100);
/// How far the clock may have been set back since the way in was opened.
const SET_BACK: u64 = 60;

const FILE: &str = "recovery.toml";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    sha256: Hash,
    /// Seconds since 1970.
    expires: u64,
}

/// Opens a way in through the node of a data directory; the token for it, which is shown once.
///
/// # Errors
/// One sentence: the directory is no node's, or cannot be written.
pub fn recover(dir: &Path) -> Result<Token, String> {
    if crate::identity::read(dir)?.is_none() {
        return Err(format!(
            "{} is not the data directory of a node",
            dir.display()
        ));
    }
    let random = || clock::random().map_err(|e| format!("no randomness: {e}"));
    let token = Token::new(random()? as u64, random()?);
    let note = Note {
        sha256: token.hash(),
        expires: super::seconds() + RECOVERY_LASTS.as_secs(),
    };
    write_file(dir, FILE, &note)?;
    Ok(token)
}

/// The way in of one node.
pub(super) struct Recovery {
    /// None: the node has no directory.
    dir: Option<PathBuf>,
    seen: Mutex<(Option<Instant>, Option<Note>)>,
    /// The one of which the log was told that somebody came in.
    used: Mutex<Option<Hash>>,
}

impl Recovery {
    pub(super) fn new(dir: Option<PathBuf>) -> Recovery {
        Recovery {
            dir,
            seen: Mutex::new((None, None)),
            used: Mutex::default(),
        }
    }

    fn note(&self, now: u64) -> Option<Note> {
        let dir = self.dir.as_ref()?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0.is_none_or(|at| at.elapsed() >= LOOK) {
            // One that cannot be read opens nothing.
            let note = read_file::<Note>(dir, FILE).unwrap_or_default();
            *seen = (Some(Instant::now()), note);
        }
        let note = seen.1.clone();
        let latest = now + RECOVERY_LASTS.as_secs() + SET_BACK;
        note.filter(|note| (now + 1..=latest).contains(&note.expires))
    }

    /// Whether somebody who shows this comes in.
    pub(super) fn is_opened_by(&self, token: &Token, now: u64) -> bool {
        let note = self.note(now).filter(|note| note.sha256 == token.hash());
        let Some(note) = note else {
            return false;
        };
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.replace(note.sha256) != Some(note.sha256) {
            tracing::warn!("somebody has come in by `fermata auth recover`, and may do everything");
        }
        true
    }

    /// Whether it is still open.
    pub(super) fn is_open(&self, now: u64) -> bool {
        self.note(now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_in_is_open_for_an_hour_and_to_one_token() {
        let dir = tempfile::tempdir().unwrap();
        assert!(recover(dir.path()).is_err(), "no node's directory");
        let token = Token::new(1, 2);
        let now = 1_000_000;
        let note = |expires| Note {
            sha256: token.hash(),
            expires,
        };
        let open = |expires| {
            write_file(dir.path(), FILE, &note(expires)).unwrap();
            Recovery::new(Some(dir.path().to_owned()))
        };
        let recovery = open(now + 10);
        assert!(recovery.is_opened_by(&token, now) && recovery.is_open(now));
        assert!(!recovery.is_opened_by(&Token::new(1, 3), now));
        assert!(!recovery.is_open(now + 11));
        assert!(
            !open(now + 3_661).is_open(now),
            "no longer than it would be opened for"
        );
        std::fs::write(dir.path().join(FILE), "x").unwrap();
        assert!(!Recovery::new(Some(dir.path().to_owned())).is_open(now));
        assert!(!Recovery::new(None).is_open(now));
    }
}
