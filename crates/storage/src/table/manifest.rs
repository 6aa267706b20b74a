//! The one small file that says which runs there are; each change of the table replaces it.

use super::fields::{Fields, put_bytes};
use super::file::{self, Sorted};
use super::runs::{self, Run, Slice};
use crate::checksum::crc32c;
use crate::disk::{Disk, final_if_full};
use crate::store::OpenError;
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// Its name.
pub(super) const NAME: &str = "table";
/// Its name while it is made.
pub(super) const UNFINISHED: &str = "table.new";
/// What there was before version 2 of the table.
const FORMER: &str = "table.redb";
const MAGIC: &[u8; 8] = b"FERMTAB\0";
/// Magic, version, checksum.
const HEAD: usize = 16;

/// What a table consists of.
#[derive(Clone, Default)]
pub(super) struct Manifest {
    /// The last batch in it.
    pub(super) lsn: u64,
    /// The number of the next file or run.
    pub(super) next: u64,
    /// Newest first.
    pub(super) runs: Arc<Vec<Run>>,
}

impl Manifest {
    /// A number that nothing has had.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Reads it, and opens all files.
    pub(super) fn open(disk: &dyn Disk, names: &[String]) -> Result<Manifest, OpenError> {
        let present = |name: &str| names.iter().any(|other| other == name);
        let missing = |file: &str| {
            let file = file.to_owned();
            Err(OpenError::Missing { file })
        };
        let version = |file: &str, found| {
            let (file, supported) = (file.to_owned(), file::VERSION);
            Err(OpenError::Version {
                file,
                found,
                supported,
            })
        };
        if present(FORMER) {
            return version(FORMER, 1);
        }
        if !present(NAME) {
            let is_left = |name: &String| name.starts_with("wal-") || file::is_name(name);
            return match names.iter().any(is_left) {
                true => missing(NAME),
                false => Ok(Manifest::default()),
            };
        }
        let manifest = disk.open(NAME)?;
        let mut bytes = vec![0; manifest.len()? as usize];
        manifest.read_at(0, &mut bytes)?;
        let damaged = || OpenError::Table(format!("{NAME} is damaged"));
        let mut fields = Fields(&bytes);
        let magic = fields.take(MAGIC.len());
        let found = fields.u32().ok_or_else(damaged)?;
        let crc = fields.u32().ok_or_else(damaged)?;
        if magic != Some(MAGIC) {
            return Err(damaged());
        }
        if found != file::VERSION {
            return version(NAME, found);
        }
        if crc != crc32c(&[fields.0]) {
            return Err(damaged());
        }
        let (mut manifest, named) = Self::parse(&mut fields).ok_or_else(damaged)?;
        let mut opened = Vec::new();
        for (mut run, files) in named {
            for (number, from) in files {
                let name = file::name(number);
                if !present(&name) {
                    return missing(&name);
                }
                let file = Arc::new(Sorted::open(disk, number)?);
                run.files.push(Slice { from, file });
            }
            opened.push(run);
        }
        if !runs::are_in_order(&opened) {
            return Err(damaged());
        }
        manifest.runs = Arc::new(opened);
        Ok(manifest)
    }

    /// The runs without their files, and the files' numbers with the keys where they begin.
    #[expect(
        clippy::type_complexity,
        reason = "two lines further on it is taken apart"
    )]
    fn parse(fields: &mut Fields<'_>) -> Option<(Manifest, Vec<(Run, Vec<(u64, Bytes)>)>)> {
        let manifest = Manifest {
            lsn: fields.u64()?,
            next: fields.u64()?,
            runs: Arc::default(),
        };
        let mut runs = Vec::new();
        for _ in 0..fields.u32()? {
            let (id, into, tier) = (fields.u64()?, fields.u64()?, fields.u32()?);
            let run = Run {
                id,
                tier,
                into: (into > 0).then_some(into),
                files: Vec::new(),
            };
            let mut files = Vec::new();
            for _ in 0..fields.u32()? {
                files.push((fields.u64()?, Bytes::copy_from_slice(fields.bytes()?)));
            }
            runs.push((run, files));
        }
        Some((manifest, runs))
    }

    /// Replaces what is on the disk. The files that it names must be durable but for their names.
    pub(super) fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        let mut body = Vec::new();
        body.extend(self.lsn.to_le_bytes());
        body.extend(self.next.to_le_bytes());
        body.extend((self.runs.len() as u32).to_le_bytes());
        for run in &*self.runs {
            body.extend(run.id.to_le_bytes());
            body.extend(run.into.unwrap_or(0).to_le_bytes());
            body.extend(run.tier.to_le_bytes());
            body.extend((run.files.len() as u32).to_le_bytes());
            for slice in &run.files {
                body.extend(slice.file.number.to_le_bytes());
                put_bytes(&mut body, &slice.from);
            }
        }
        let mut bytes = Vec::with_capacity(HEAD + body.len());
        bytes.extend(MAGIC);
        bytes.extend(file::VERSION.to_le_bytes());
        bytes.extend(crc32c(&[&body]).to_le_bytes());
        bytes.extend(body);
        let manifest = disk.open(UNFINISHED)?;
        manifest.set_len(0)?;
        manifest.write_at(0, &bytes)?;
        manifest.sync().map_err(final_if_full)?;
        // The files' names must last before a manifest with them does.
        disk.sync_dir().map_err(final_if_full)?;
        disk.rename(UNFINISHED, NAME)?;
        disk.sync_dir().map_err(final_if_full)
    }
}
