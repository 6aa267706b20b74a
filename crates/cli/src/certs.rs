//! The files of an authority of one's own, and what it signs.
//!
//! ```text
//! DIR/ca.pem       whom nodes and clients trust
//! DIR/ca.key       what signs: nobody but the operator has it
//! DIR/LABEL.pem    a node's certificate, or a client's
//! DIR/LABEL.key    its key
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fermata_tls::authority::{Authority, Made, Span};
use fermata_tls::{Files, Name};

use crate::exit::Failure;

/// A day.
const DAY: Duration = Duration::from_secs(86_400);
/// How long an authority counts unless told otherwise, in days.
pub(crate) const AUTHORITY_DAYS: u32 = 3_650;
/// How long what it signs does.
pub(crate) const SIGNED_DAYS: u32 = 365;
/// What the authority's files are called.
const AUTHORITY: &str = "ca";

/// A directory with an authority.
pub(crate) struct Desk {
    dir: PathBuf,
    authority: Authority,
}

impl Desk {
    /// Makes an authority in a directory, which is created if it is missing.
    ///
    /// # Errors
    /// One is there already, or its files cannot be written.
    pub(crate) fn make(dir: &Path, called: &str, days: u32) -> Result<Desk, Failure> {
        std::fs::create_dir_all(dir).map_err(|error| Failure::local(dir.display(), error))?;
        let made = Authority::make(called, lasting(days)).map_err(Failure::usage)?;
        store(dir, AUTHORITY, &made, false)?;
        Desk::of(dir, &made)
    }

    /// The one that is there.
    ///
    /// # Errors
    /// There is none, or its files are not to be used.
    pub(crate) fn open(dir: &Path) -> Result<Desk, Failure> {
        let read = |end: &str| {
            let path = dir.join(format!("{AUTHORITY}.{end}"));
            std::fs::read_to_string(&path).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => Failure::usage(format!(
                    "there is no {}: make an authority with `fermata cert ca --dir {}`",
                    path.display(),
                    dir.display()
                )),
                _ => Failure::local(path.display(), error),
            })
        };
        let made = Made {
            certificate: read("pem")?,
            key: read("key")?,
        };
        Desk::of(dir, &made)
    }

    fn of(dir: &Path, made: &Made) -> Result<Desk, Failure> {
        let authority = Authority::of(made);
        let refused = |why| Failure::usage(format!("the authority in {}: {why}", dir.display()));
        Ok(Desk {
            dir: dir.to_owned(),
            authority: authority.map_err(refused)?,
        })
    }

    /// Signs for a node or a client, and stores that under its own name. `days`: none, as long as
    /// is usual, or as the authority counts.
    ///
    /// # Errors
    /// Files of that name are there, unless they are to be replaced; or it would count for longer
    /// than the authority.
    pub(crate) fn sign(
        &self,
        name: &Name,
        hosts: &[String],
        days: Option<u32>,
        replace: bool,
    ) -> Result<Files, Failure> {
        let file = match name {
            Name::Node { label, .. } => label,
            Name::Client { name, .. } => name,
        };
        check(file)?;
        let mut span = lasting(days.unwrap_or(SIGNED_DAYS));
        if days.is_none() {
            span.until = span.until.min(self.authority.until());
        }
        let signed = self.authority.sign(name, hosts, span);
        let made = signed.map_err(|why| Failure::usage(format!("{file}: {why}")))?;
        store(&self.dir, file, &made, replace)?;
        Ok(self.files(file))
    }

    /// Where what was signed for somebody is, with whom to trust.
    pub(crate) fn files(&self, file: &str) -> Files {
        let [ca, certificate, key] = paths(&self.dir, file);
        Files {
            ca,
            own: Some((certificate, key)),
        }
    }
}

/// The authority's certificate, somebody's own, and its key.
pub(crate) fn paths(dir: &Path, file: &str) -> [PathBuf; 3] {
    [
        dir.join(format!("{AUTHORITY}.pem")),
        dir.join(format!("{file}.pem")),
        dir.join(format!("{file}.key")),
    ]
}

/// Whether a label or name may be that of files beside the authority's.
///
/// # Errors
/// [`Exit::Usage`](crate::exit::Exit::Usage): it may not.
pub(crate) fn check(file: &str) -> Result<(), Failure> {
    let plain = !file.is_empty() && !file.contains(['/', '\\']) && file != "..";
    match plain && file != AUTHORITY {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "{file:?} names files beside the authority's, and cannot: choose another name"
        ))),
    }
}

fn lasting(days: u32) -> Span {
    Span::lasting(DAY * days)
}

/// Writes both files.
fn store(dir: &Path, file: &str, made: &Made, replace: bool) -> Result<(), Failure> {
    let [_, certificate, key] = paths(dir, file);
    for path in [&certificate, &key] {
        if path.exists() && !replace {
            return Err(Failure::usage(format!(
                "{} is there already: choose another name or --dir, or, for a node or a client, \
                 say --replace",
                path.display()
            )));
        }
    }
    let failed = |error| Failure::local(certificate.display(), error);
    made.store(dir, file).map_err(failed)
}
