//! What the table behind the log costs, by its size, on a real disk.
//!
//! ```text
//! cargo run --release -p fermata-storage --example table -- [--sizes 1,4]
//!     [--orders random,sorted] [--rounds 8] [--in DIRECTORY]
//! ```
//!
//! Sizes are in GB of values of 1 KiB. Each size and order has a store of its own, below `target/`
//! unless a directory is named, and these steps:
//!
//! 1. *Fill*: the values, as fast as the disk takes them.
//! 2. *Commits* of random keys at a steady pace, in turns into a store that was empty and into this
//!    one, each until it is settled. Each round has a 99th percentile; their medians are compared,
//!    and how far they lie apart is printed, since one slow second of the disk is a whole round's.
//! 3. *Delete* half of the keys, in the order of the fill, then a quiet hour.
//! 4. *Start*, with nothing of the files in the page cache, and the reading of all behind it.
//!
//! Where the system lets it, the process puts itself into a memory group of a quarter of the size
//! (page cache included, and at least 320 MB: two memtables and the cache need that); else it says
//! so. Bytes written are those of each write, in whole blocks of 4 KiB, since no
//! disk writes less. Figures per GB are the slope between the first and the last size.

use fermata_storage::{Batch, CheckpointDone, Disk, File, FileDisk, Options, Store};
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Bytes that a disk writes at least.
const BLOCK: u64 = 4096;
/// Bytes of a value.
const VALUE: usize = 1024;
/// Values in one commit of the fill.
const FILL: u64 = 256;
/// Values in one paced commit.
const PACED: u64 = 33;
/// A paced commit begins this often.
const PACE: Duration = Duration::from_millis(4);
/// Paced commits in a round: two checkpoints, and what is to be merged by then.
const COMMITS: u64 = 4_000;

fn main() -> Fallible<()> {
    let mut sizes = vec![1.0, 4.0];
    let mut orders = vec!["random".to_owned(), "sorted".to_owned()];
    let mut rounds = 8;
    let mut directory = PathBuf::from("target");
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().ok_or("an option lacks its value")?;
        match &name[..] {
            "--sizes" => sizes = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--orders" => orders = value.split(',').map(str::to_owned).collect(),
            "--rounds" => rounds = value.parse()?,
            "--in" => directory = value.into(),
            _ => return Err(format!("what is {name}?").into()),
        }
    }
    let group = enter_group();
    println!(
        "memory: {}",
        match &group {
            Ok(_) =>
                "a group of a quarter of the size and at least 320 MB, page cache included".into(),
            Err(why) => format!("not bounded, since this system gives no group ({why})"),
        }
    );
    for order in &orders {
        let mut columns = Vec::new();
        for size in &sizes {
            if let Ok(bound) = &group {
                fs::write(
                    bound,
                    (f64::max(size * 1e9 / 4.0, 320e6) as u64).to_string(),
                )?;
            }
            let folder = tempfile::Builder::new()
                .prefix("table-")
                .tempdir_in(&directory)?;
            eprintln!("{size} GB, {order}");
            let measure = Measure {
                path: folder.path(),
                keys: (size * 1e9) as u64 / VALUE as u64,
                sorted: order == "sorted",
                rounds,
                chance: 1,
                figures: Vec::new(),
            };
            columns.push((*size, measure.run()?));
        }
        print(order, &columns);
    }
    if let Some(group) = group.ok().as_deref().and_then(Path::parent) {
        let above = group.parent().ok_or("a group lies in another one")?;
        fs::write(above.join("cgroup.procs"), std::process::id().to_string())?;
        fs::remove_dir(group)?;
    }
    Ok(())
}

/// A figure and what it is.
type Figure = (&'static str, f64);

/// A line per figure, a column per size, and the slope.
fn print(order: &str, columns: &[(f64, Vec<Figure>)]) {
    let sizes = columns.iter().map(|(size, _)| format!(" {size} GB |"));
    println!("\n| {order} |{} per GB |", sizes.collect::<String>());
    println!("| --- |{}", " --- |".repeat(columns.len() + 1));
    let (Some((low, first)), Some((high, last))) = (columns.first(), columns.last()) else {
        return;
    };
    for (at, (name, begin)) in first.iter().enumerate() {
        let cells = columns
            .iter()
            .map(|(_, figures)| format!(" {:.2} |", figures[at].1));
        let slope = match high - low {
            gap if gap > 0.0 => format!("{:.3}", (last[at].1 - begin) / gap),
            _ => "-".to_owned(),
        };
        println!("| {name} |{} {slope} |", cells.collect::<String>());
    }
}

/// Bytes sent to all disks so far.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

fn written() -> f64 {
    WRITTEN.load(Ordering::Relaxed) as f64
}

/// A real disk, or a file of it, of which every write is counted.
struct Counted<T>(T);

impl Disk for Counted<FileDisk> {
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(Counted(self.0.open(name)?)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.0.sync_dir()
    }
}

impl File for Counted<Arc<dyn File>> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let blocks = (offset + data.len() as u64).div_ceil(BLOCK) - offset / BLOCK;
        WRITTEN.fetch_add(blocks * BLOCK, Ordering::Relaxed);
        self.0.write_at(offset, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn sync_behind(&self) -> io::Result<()> {
        self.0.sync_behind()
    }
}

/// One store, flushed by this thread, with another for its table, as a node has it.
struct Node {
    store: Store,
    at_table: Option<(Instant, JoinHandle<CheckpointDone>)>,
    /// Seconds of what was done at the table.
    took: Vec<f64>,
}

impl Node {
    fn open(path: &Path) -> Fallible<Node> {
        let (store, _) = Store::open(Arc::new(Counted(FileDisk::open(path)?)), Options::default())?;
        Ok(Node {
            store,
            at_table: None,
            took: Vec::new(),
        })
    }

    /// One flush of what is appended. Waits with it while two checkpoints' worth is unsaved.
    fn commit(&mut self) -> Fallible<()> {
        if let Some(flush) = self.store.take_flush() {
            self.store.flushed(flush.run());
        }
        self.look_after(false)?;
        while self.store.stats().unsaved_bytes > 2 * Options::default().checkpoint_bytes
            && self.at_table.is_some()
        {
            self.look_after(true)?;
        }
        match self.store.failure() {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }

    /// Takes what was done at the table, and begins what is due.
    fn look_after(&mut self, wait: bool) -> Fallible<()> {
        let is_over = |(_, thread): &mut (_, JoinHandle<_>)| wait || thread.is_finished();
        if let Some((begun, thread)) = self.at_table.take_if(is_over) {
            let done = thread.join().map_err(|_| "a checkpoint panicked")?;
            self.store.checkpointed(done);
            self.took.push(begun.elapsed().as_secs_f64());
        }
        if self.at_table.is_none()
            && let Some(work) = self.store.take_checkpoint()
        {
            self.at_table = Some((Instant::now(), std::thread::spawn(|| work.run())));
        }
        Ok(())
    }

    fn settle(&mut self) -> Fallible<()> {
        self.commit()?;
        while self.at_table.is_some() {
            self.look_after(true)?;
        }
        Ok(())
    }
}

/// The steps of one size and order.
struct Measure<'a> {
    path: &'a Path,
    /// Number of keys.
    keys: u64,
    sorted: bool,
    rounds: u64,
    chance: u64,
    figures: Vec<Figure>,
}

impl Measure<'_> {
    fn figure(&mut self, name: &'static str, value: f64) {
        eprintln!("  {name:46} {value:.2}");
        self.figures.push((name, value));
    }

    fn run(mut self) -> Fallible<Vec<Figure>> {
        let table = self.path.join("table");
        fs::write("/proc/self/clear_refs", "5")?;
        let mut node = Node::open(&table)?;
        self.fill(&mut node)?;
        self.paced_commits(&mut node)?;
        self.delete(&mut node)?;
        self.figure(
            "most memory in use, MB",
            field("/proc/self/status", "VmHWM")? / 1e3,
        );
        drop(node);
        self.start(&table)?;
        Ok(self.figures)
    }

    fn fill(&mut self, node: &mut Node) -> Fallible<()> {
        let (begun, before) = (Instant::now(), written());
        for first in (0..self.keys).step_by(FILL as usize) {
            for number in first..self.keys.min(first + FILL) {
                self.put(node, number);
            }
            node.commit()?;
        }
        node.settle()?;
        let put = (self.keys * VALUE as u64) as f64;
        let seconds = begun.elapsed().as_secs_f64();
        self.figure("fill: MB per second", put / 1e6 / seconds);
        self.steps(node, "fill: longest step at the table, s");
        self.figure("fill: bytes written per byte", (written() - before) / put);
        let bytes = node.store.stats().table_bytes as f64;
        self.figure("fill: bytes of the table per byte", bytes / put);
        Ok(())
    }

    fn steps(&mut self, node: &mut Node, longest: &'static str) {
        let took = std::mem::take(&mut node.took);
        self.figure(longest, took.into_iter().fold(0.0, f64::max));
    }

    /// The same commits, in turns, into a store that was empty before, and here.
    fn paced_commits(&mut self, node: &mut Node) -> Fallible<()> {
        let (mut empty, mut here, mut bytes) = (Vec::new(), Vec::new(), 0.0);
        for _ in 0..self.rounds {
            let path = self.path.join("fresh");
            let mut fresh = Node::open(&path)?;
            empty.push(self.round(&mut fresh)?);
            drop(fresh);
            fs::remove_dir_all(path)?;
            let before = written();
            here.push(self.round(node)?);
            bytes += written() - before;
        }
        let [empty, here] = [empty, here].map(|rounds| {
            let mut late: Vec<f64> = rounds.iter().map(|(_, late)| *late).collect();
            late.sort_by(f64::total_cmp);
            (late[late.len() / 2], late[0], late[late.len() - 1])
        });
        self.figure("commits: rounds", self.rounds as f64);
        self.figure("commits, empty store: p99, median, ms", empty.0);
        self.figure("… best round", empty.1);
        self.figure("… worst round", empty.2);
        self.figure("commits: p99, median, ms", here.0);
        self.figure("… best round", here.1);
        self.figure("… worst round", here.2);
        self.figure(
            "commits: p99, times that of the empty store",
            here.0 / empty.0,
        );
        self.steps(node, "commits: longest step at the table, s");
        let put = (self.rounds * COMMITS * PACED) as f64 * VALUE as f64;
        self.figure("commits: bytes written per byte", bytes / put);
        Ok(())
    }

    /// Commits of random keys at a steady pace: the median and the 99th percentile of their times
    /// in milliseconds. One that begins late because of the one before it has waited, too.
    fn round(&mut self, node: &mut Node) -> Fallible<(f64, f64)> {
        let begun = Instant::now();
        let mut times = Vec::new();
        for turn in 0..COMMITS {
            let due = begun + PACE * turn as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            for _ in 0..PACED {
                let number = self.draw() % self.keys;
                self.put(node, number);
            }
            node.commit()?;
            times.push(due.elapsed().as_secs_f64() * 1e3);
        }
        node.settle()?;
        // What was left to the system would be in the next round's way.
        rustix::fs::sync();
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times[times.len() * percent / 100];
        eprintln!("    a round: p50 {:.2} ms, p99 {:.2} ms", at(50), at(99));
        Ok((at(50), at(99)))
    }

    /// Deletes half of the keys: those that were filled first, hence a range where the order is
    /// that of the keys, and one key in two where it is random.
    fn delete(&mut self, node: &mut Node) -> Fallible<()> {
        let half = self.keys / 2;
        for first in (0..half).step_by(FILL as usize) {
            for number in first..half.min(first + FILL) {
                node.store.append(Batch::new().delete(self.key(number)));
            }
            node.commit()?;
        }
        node.settle()?;
        let left = ((self.keys - half) * VALUE as u64) as f64;
        let per_byte = |node: &Node| node.store.stats().table_bytes as f64 / left;
        self.figure("delete: bytes of the table per byte left", per_byte(node));
        let begun = Instant::now();
        while let Some(step) = node.store.take_tidying() {
            node.store.checkpointed(step.run());
        }
        self.figure(
            "quiet hour: bytes of the table per byte left",
            per_byte(node),
        );
        self.figure("quiet hour: seconds", begun.elapsed().as_secs_f64());
        Ok(())
    }

    fn start(&mut self, path: &Path) -> Fallible<()> {
        for entry in fs::read_dir(path)? {
            let file = fs::File::open(entry?.path())?;
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
        let begun = Instant::now();
        let mut node = Node::open(path)?;
        self.figure("start, s", begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        while let Some(step) = node.store.take_check() {
            node.store.checkpointed(step.run());
        }
        self.figure("reading all behind it, s", begun.elapsed().as_secs_f64());
        Ok(())
    }

    fn put(&mut self, node: &mut Node, number: u64) {
        let key = self.key(number);
        let mut value = vec![0; VALUE];
        for part in value.chunks_mut(8) {
            part.copy_from_slice(&self.draw().to_le_bytes());
        }
        node.store.append(Batch::new().put(key, value));
    }

    /// The key with a number: in order, or anywhere.
    fn key(&self, number: u64) -> Vec<u8> {
        let place = if self.sorted { number } else { mix(number) };
        format!("register/{place:016x}").into_bytes()
    }

    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(1);
        mix(self.chance)
    }
}

/// A number of 64 bits for another, one to one (splitmix64).
fn mix(number: u64) -> u64 {
    let z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn field(file: &str, name: &str) -> Fallible<f64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next());
    Ok(value.ok_or("the system does not tell")?.parse()?)
}

/// Moves this process into a memory group of its own, below the one that it is in. Returns the file
/// that bounds it.
fn enter_group() -> Fallible<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup")?;
    let (root, own, bound) = match text.lines().find_map(|line| line.split_once(":memory:")) {
        Some((_, own)) => ("/sys/fs/cgroup/memory", own, "memory.limit_in_bytes"),
        None => (
            "/sys/fs/cgroup",
            text.trim().trim_start_matches("0::"),
            "memory.max",
        ),
    };
    let name = format!("fermata-table-{}", std::process::id());
    let group = Path::new(root).join(own.trim_start_matches('/')).join(name);
    fs::create_dir(&group)?;
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())?;
    Ok(group.join(bound))
}
