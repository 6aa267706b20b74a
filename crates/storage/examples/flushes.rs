//! How long a flush of one batch takes on a real disk, by the length of its value.
//!
//! `cargo run --release -p fermata-storage --example flushes -- DIRECTORY`: an empty one, on the
//! disk that is meant.

use fermata_storage::{Batch, FileDisk, Options, Store};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("name a directory")?;
    for (length, flushes) in [(100, 20_000), (4 << 10, 6_000), (256 << 10, 400)] {
        let disk = FileDisk::open(PathBuf::from(&directory).join(length.to_string()))?;
        let (mut store, _) = Store::open(Arc::new(disk), Options::default())?;
        let mut times: Vec<Duration> = (0..flushes).map(|_| flush(&mut store, length)).collect();
        times.sort_unstable();
        let at = |percent: usize| times[times.len() * percent / 100];
        let (median, late) = (at(50), at(99));
        println!("{length:7} bytes: median {median:?}, 99 of 100 within {late:?}");
    }
    Ok(())
}

fn flush(store: &mut Store, length: usize) -> Duration {
    let begun = Instant::now();
    store.append(Batch::new().put("key", vec![7; length]));
    let flush = store.take_flush().expect("something is appended");
    store.flushed(flush.run());
    begun.elapsed()
}
