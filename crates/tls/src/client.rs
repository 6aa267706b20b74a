//! What a client needs.

use crate::files::{Files, Text};
use crate::{VERSIONS, error, provider};
use rustls::ClientConfig;
use rustls::client::Resumption;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Files are looked at again after so long, where somebody connects.
const LOOK: Duration = Duration::from_secs(10);

/// Whom a client trusts, and what it shows. Clones share it.
#[derive(Clone)]
pub struct Trust(Arc<Shared>);

struct Shared {
    files: Files,
    now: Mutex<Present>,
}

struct Present {
    text: Text,
    config: Arc<ClientConfig>,
    looked: Instant,
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
        let config = config(&files, &text)?;
        let now = Mutex::new(Present {
            text,
            config,
            looked: Instant::now(),
        });
        Ok(Trust(Arc::new(Shared { files, now })))
    }

    /// For the next connection. Files that have changed are taken if they can be.
    pub fn config(&self) -> Arc<ClientConfig> {
        let now = self.0.now.lock();
        let mut now = now.unwrap_or_else(PoisonError::into_inner);
        if now.looked.elapsed() >= LOOK {
            now.looked = Instant::now();
            if let Ok(text) = self.0.files.read()
                && text != now.text
                && let Ok(config) = config(&self.0.files, &text)
            {
                (now.text, now.config) = (text, config);
            }
        }
        now.config.clone()
    }
}

fn config(files: &Files, text: &Text) -> Result<Arc<ClientConfig>, String> {
    let material = files.understand(text)?;
    let failed = |error: rustls::Error| match &files.own {
        Some((certificate, _)) => {
            format!("{}: {}", certificate.display(), error::sentence(&error))
        }
        None => error::sentence(&error),
    };
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(VERSIONS).map_err(failed)?;
    let builder = builder.with_root_certificates(material.roots);
    let mut config = match material.own {
        Some(chain) => builder
            .with_client_auth_cert(chain.certificates, chain.key)
            .map_err(failed)?,
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}
