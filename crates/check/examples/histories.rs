//! Writes the random histories on which another checker is asked, one file per seed, into an
//! existing folder: `cargo run -p fermata-check --features file --example histories -- FOLDER`.
//! `cargo xtask porcupine` runs it.

use fermata_check::{Action, Operation, file, random};
use std::fs::File;
use std::io::{BufWriter, Result, Write};
use std::path::PathBuf;

fn main() -> Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: histories FOLDER");
        std::process::exit(2);
    };
    for seed in 0..random::COMPARED {
        let mut to = BufWriter::new(File::create(folder.join(format!("{seed:03}.jsonl")))?);
        file::write_head(&mut to)?;
        for operation in random::compared(seed) {
            let text = |value: Option<u64>| value.map(|value| value.to_string());
            let action = match operation.action {
                Action::Write(value) => Action::Write(text(value)),
                Action::Read(value) => Action::Read(text(value)),
            };
            let operation = Operation {
                client: operation.client,
                call: operation.call,
                action,
                outcome: operation.outcome,
            };
            file::write_operation(&mut to, b"k", &operation)?;
        }
        to.flush()?;
    }
    Ok(())
}
