//! Values that tell who wrote them, and the history of what was done with them.
//!
//! **Problem.** A checker that is to decide a history must know which write each read has seen, and
//! a value that was put together wrongly from its parts must not pass for one that was written.
//!
//! **Idea.** A value is its name (`client/number`) and bytes that follow from the name. A read that
//! finds exactly the bytes of a name is recorded as having read the name; any other value is
//! recorded as damaged, which nobody has written, so that no order of the operations explains it.
//! The history stays small, whatever the size of values.

use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use fermata_check::{Action, Ending, Operation, file};
use fermata_client::Error;
use fermata_protocol::base::Rng;

use crate::exit::Failure;

/// A value's name ends here.
const END: u8 = b'\n';

/// A name with its end is never longer than this, bytes: a value of this size has its name whole.
pub(super) const NAME_MAX: usize = 32;

/// The value that the `number`-th write of `client` writes, `size` bytes, at least its name.
pub(super) fn value(client: u32, number: u64, size: usize) -> Bytes {
    filled(&format!("{client}/{number}"), size)
}

fn filled(name: &str, size: usize) -> Bytes {
    let mut value = name.as_bytes().to_vec();
    value.push(END);
    let seed = name.bytes().fold(0, |sum: u64, byte| {
        sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte)
    });
    let mut rng = Rng::new(seed);
    value.reserve(size);
    while value.len() < size {
        value.extend_from_slice(&rng.draw().to_be_bytes());
    }
    value.truncate(size.max(name.len() + 1));
    value.into()
}

/// The name of a value that was read.
fn name_of(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == END);
    let name = end.and_then(|end| std::str::from_utf8(&value[..end]).ok());
    match name {
        Some(name) if filled(name, value.len()) == value => name.to_owned(),
        _ => format!("damaged, {} bytes", value.len()),
    }
}

/// What one client did. Times are nanoseconds since the run began, one clock for all clients.
pub(super) struct Diary {
    client: u32,
    origin: Instant,
    lines: Vec<(u32, Operation<String>)>,
}

impl Diary {
    /// An empty one.
    pub(super) fn new(client: u32, origin: Instant) -> Diary {
        let lines = Vec::new();
        Diary {
            client,
            origin,
            lines,
        }
    }

    /// Notes a read of the key-th register, from its call to its return.
    pub(super) fn read(
        &mut self,
        key: u32,
        (call, returned): (Instant, Instant),
        seen: &Result<Option<Bytes>, Error>,
    ) {
        let returned = self.since(returned);
        let (found, outcome) = match seen {
            Ok(found) => (found.as_ref().map(|v| name_of(v)), Ending::Ok { returned }),
            Err(_) => (None, Ending::Unknown),
        };
        self.note(key, call, Action::Read(found), outcome);
    }

    /// Notes a write.
    pub(super) fn write(
        &mut self,
        key: u32,
        (call, returned): (Instant, Instant),
        number: u64,
        end: &Result<(), Error>,
    ) {
        let returned = self.since(returned);
        let outcome = match end {
            Ok(()) => Ending::Ok { returned },
            Err(error) if error.may_have_taken_effect() => Ending::Unknown,
            Err(_) => Ending::Failed,
        };
        let name = format!("{}/{number}", self.client);
        self.note(key, call, Action::Write(Some(name)), outcome);
    }

    fn note(&mut self, key: u32, call: Instant, action: Action<String>, outcome: Ending) {
        let operation = Operation {
            client: u64::from(self.client),
            call: self.since(call),
            action,
            outcome,
        };
        self.lines.push((key, operation));
    }

    fn since(&self, at: Instant) -> u64 {
        u64::try_from((at - self.origin).as_nanos()).unwrap_or(u64::MAX - 1)
    }
}

/// The file in which all diaries end.
pub(super) struct History {
    file: io::BufWriter<std::fs::File>,
    shown: String,
}

impl History {
    /// Creates the file, or empties it.
    pub(super) fn create(path: &Path) -> Result<History, Failure> {
        let shown = path.display().to_string();
        let created = || {
            let mut file = io::BufWriter::new(std::fs::File::create(path)?);
            file::write_head(&mut file)?;
            io::Result::Ok(file)
        };
        let file = created().map_err(|error| Failure::local(&shown, error))?;
        Ok(History { file, shown })
    }

    /// Adds a diary; `name` names its registers.
    pub(super) fn add(
        &mut self,
        diary: &Diary,
        name: impl Fn(u32) -> String,
    ) -> Result<(), Failure> {
        for (key, operation) in &diary.lines {
            file::write_operation(&mut self.file, name(*key).as_bytes(), operation)
                .map_err(|error| Failure::local(&self.shown, error))?;
        }
        Ok(())
    }

    /// Writes what is buffered.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let flushed = self.file.flush();
        flushed.map_err(|error| Failure::local(&self.shown, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_value_has_its_name() {
        for size in [0, 3, NAME_MAX, 1_000] {
            let whole = value(7, 99, size);
            assert!(whole.len() >= size);
            assert_eq!(name_of(&whole), "7/99");
        }
        let mut damaged = value(7, 99, 1_000).to_vec();
        damaged[900] ^= 1;
        assert!(name_of(&damaged).starts_with("damaged"));
        assert!(name_of(b"").starts_with("damaged"));
        let other = [&value(7, 99, 500)[..], &value(7, 98, 1_000)[500..]].concat();
        assert!(name_of(&other).starts_with("damaged"));
        assert!(format!("{}/{}\n", u16::MAX, u64::MAX).len() <= NAME_MAX);
    }
}
