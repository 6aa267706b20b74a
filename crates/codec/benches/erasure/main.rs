//! Which library, or which kernel of our own: all candidates, measured in turns.
//!
//! ```text
//! cargo bench -p fermata-codec                 our best kernel, the portable one, the libraries
//! cargo bench -p fermata-codec -- --full       all kernels that this processor has, longer
//! cargo bench -p fermata-codec -- --code 5,3   one code alone
//! ```
//!
//! GB/s are bytes of the value over the time of one call, one thread, the value in the cache if it
//! fits. A call is what Fermata makes: a value in, n fragments out (`encode_all`), or l fragments
//! in, a value out (`decode`), memory for the result included. Decoding is the worst case:
//! min(n − l, l) data fragments are lost. `memcpy` copies the value into memory that is there;
//! `copy` into memory that it allocates, as every coder has to do.
//!
//! All candidates of a cell take turns, many short ones, and the best counts, in time of the
//! processor: so that a machine with other work to do disturbs numbers little, and ratios less.
//! That is why this is not done with criterion, which measures one candidate after the other, by
//! the clock on the wall.

mod isal;
mod others;

use bytes::Bytes;
use fermata_codec::{Code, Kernel, checksum};
use isal::Isal;
use others::{Coder, Erasure, Rusty, Simd};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::{Duration, Instant};

const CODES: [(usize, usize); 7] = [(3, 1), (5, 3), (5, 2), (7, 5), (9, 5), (9, 3), (14, 10)];
const SIZES: [usize; 6] = [128, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20];

/// What this thread has had of a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How much is measured.
#[derive(Clone, Copy)]
struct Effort {
    all_kernels: bool,
    /// Rounds of each cell, at most and at least.
    rounds: (usize, usize),
    /// Time of one candidate in one round; at least one call. Short, so that some round of many is
    /// not interrupted.
    turn: Duration,
    /// Time of a cell, after which no further round begins.
    cell: Duration,
}

/// Something to call, with its best time so far.
struct Cell<'a> {
    call: Box<dyn FnMut() + 'a>,
    calls: u32,
    best: f64,
}

impl<'a> Cell<'a> {
    fn new(call: impl FnMut() + 'a) -> Cell<'a> {
        Cell {
            call: Box::new(call),
            calls: 1,
            best: f64::INFINITY,
        }
    }

    /// One turn; the next one has as many calls as fill `turn`.
    fn turn(&mut self, turn: Duration) {
        let start = processor_time();
        for _ in 0..self.calls {
            (self.call)();
        }
        let each = (processor_time() - start).as_secs_f64() / f64::from(self.calls);
        self.best = self.best.min(each);
        self.calls = (turn.as_secs_f64() / each.max(1e-9)).clamp(1.0, 1e6) as u32;
    }
}

/// GB/s of each cell, `length` bytes a call.
fn measure(cells: &mut [Cell<'_>], length: usize, effort: Effort) -> Vec<f64> {
    // The first two turns are to warm up and to count.
    let start = Instant::now();
    for round in 0..effort.rounds.0 + 2 {
        if round >= effort.rounds.1 + 2 && start.elapsed() > effort.cell {
            break;
        }
        for cell in cells.iter_mut() {
            cell.turn(effort.turn);
        }
    }
    let speed = |cell: &Cell<'_>| length as f64 / cell.best / 1e9;
    cells.iter().map(speed).collect()
}

fn candidates(n: usize, l: usize, effort: Effort) -> Vec<(String, Box<dyn Coder>)> {
    let mut all: Vec<(String, Box<dyn Coder>)> = Vec::new();
    for (place, kernel) in Kernel::available().enumerate() {
        if place == 0 || kernel == Kernel::PORTABLE || effort.all_kernels {
            let code = Code::on(kernel, n, l).expect("a possible code");
            all.push((kernel.name().into(), Box::new(code)));
        }
    }
    all.push(("rs-erasure".into(), Box::new(Erasure::new(n, l))));
    all.push(("rusty".into(), Box::new(Rusty::new(n, l))));
    all.push(("rs-simd".into(), Box::new(Simd::new(n, l))));
    if let Some(isal) = Isal::new(n, l) {
        all.push(("isa-l".into(), Box::new(isal)));
    }
    all
}

/// `memcpy`, to `target`, and `copy`.
fn copies<'a>(value: &'a Bytes, target: &'a mut [u8]) -> Vec<Cell<'a>> {
    vec![
        Cell::new(move || black_box(&mut *target).copy_from_slice(black_box(value))),
        Cell::new(|| drop(black_box(Bytes::copy_from_slice(black_box(value))))),
    ]
}

/// Encoding and worst-case decoding of one size, GB/s: `memcpy`, `copy`, then the candidates.
fn size(
    value: &Bytes,
    (n, l): (usize, usize),
    candidates: &[(String, Box<dyn Coder>)],
    effort: Effort,
) -> (Vec<f64>, Vec<f64>) {
    let length = value.len();
    let mut target = vec![0; length];
    let mut cells = copies(value, &mut target);
    for (_, coder) in candidates {
        cells.push(Cell::new(|| {
            drop(black_box(coder.encode_all(black_box(value))))
        }));
    }
    let encoding = measure(&mut cells, length, effort);
    drop(cells);
    let mut target = vec![0; length];
    let mut cells = copies(value, &mut target);
    for (name, coder) in candidates {
        let lost = (n - l).min(l);
        let fragments = coder.encode_all(value).into_iter().enumerate();
        // Fragments that came from elsewhere: no memory shared with the value.
        let parts = fragments.map(|(i, bytes)| (i, Bytes::copy_from_slice(&bytes)));
        let parts: Vec<(usize, Bytes)> = parts.skip(lost).take(l).collect();
        let decoded = coder.decode(length as u64, &parts).expect("enough parts");
        assert!(decoded == value, "{name} gives another value");
        cells.push(Cell::new(move || {
            drop(black_box(coder.decode(length as u64, black_box(&parts))));
        }));
    }
    (encoding, measure(&mut cells, length, effort))
}

fn bytes(length: usize) -> Bytes {
    let word = |i: usize| (i as u32).wrapping_mul(0x9e37_79b1).rotate_left(13);
    (0..length)
        .map(|i| word(i).wrapping_mul(0x85eb_ca6b) as u8)
        .collect()
}

fn label(length: usize) -> String {
    match length {
        0..1024 => format!("{length} B"),
        1024..1_048_576 => format!("{} KiB", length >> 10),
        _ => format!("{} MiB", length >> 20),
    }
}

/// A row of speeds in three digits.
fn speeds(values: &[f64]) -> String {
    let digits = |value: &f64| match *value {
        v if v >= 99.5 => format!("{v:>12.0}"),
        v if v >= 9.95 => format!("{v:>12.1}"),
        v => format!("{v:>12.2}"),
    };
    values.iter().map(digits).collect()
}

/// Geometric means of the speed of our best kernel over that of each other column, by size.
struct Ratios {
    logarithms: Vec<[Vec<f64>; 2]>,
}

impl Ratios {
    fn new() -> Ratios {
        Ratios {
            logarithms: SIZES.map(|_| [Vec::new(), Vec::new()]).to_vec(),
        }
    }

    fn add(&mut self, size: usize, way: usize, speeds: &[f64]) {
        let sums = &mut self.logarithms[size][way];
        sums.resize(speeds.len() + 1, 0.0);
        for (sum, speed) in sums[1..].iter_mut().zip(speeds) {
            *sum += (speeds[2] / speed).ln();
        }
        sums[0] += 1.0;
    }

    fn print(&self) {
        for (size, ways) in self.logarithms.iter().enumerate() {
            for (way, sums) in ways.iter().enumerate().filter(|(_, sums)| !sums.is_empty()) {
                let means: Vec<f64> = sums[1..].iter().map(|s| (s / sums[0]).exp()).collect();
                let way = ["encode", "decode"][way];
                println!("{:>9} {way:<9}{}", label(SIZES[size]), speeds(&means));
            }
        }
    }
}

fn header(names: &[String]) {
    let names = names.iter().map(|name| format!("{name:>12}"));
    println!("{:>9} {:<9}{}", "value", "", names.collect::<String>());
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let full = arguments.iter().any(|a| a == "--full");
    let only = arguments.iter().position(|a| a == "--code");
    let only = only.and_then(|i| arguments.get(i + 1)).map(String::as_str);
    let effort = Effort {
        all_kernels: full,
        rounds: if full { (200, 5) } else { (60, 3) },
        turn: Duration::from_micros(500),
        cell: Duration::from_millis(if full { 1_500 } else { 400 }),
    };
    println!("GB/s of value bytes, one thread");
    if Isal::new(3, 2).is_none() {
        println!("ISA-L is not measured: no libisal is installed (Debian: libisal2)");
    }
    let start = Instant::now();
    let mut ratios = Ratios::new();
    let mut names = Vec::new();
    for (n, l) in CODES {
        if only.is_some_and(|only| only != format!("{n},{l}")) {
            continue;
        }
        let candidates = candidates(n, l, effort);
        names = vec!["memcpy".to_owned(), "copy".to_owned()];
        names.extend(candidates.iter().map(|(name, _)| name.clone()));
        println!("\n({n},{l})");
        header(&names);
        for (index, length) in SIZES.into_iter().enumerate() {
            let (encoding, decoding) = size(&bytes(length), (n, l), &candidates, effort);
            println!("{:>9} {:<9}{}", label(length), "encode", speeds(&encoding));
            println!("{:>9} {:<9}{}", "", "decode", speeds(&decoding));
            // Repetition copies nothing: its speed is no speed.
            if l > 1 {
                ratios.add(index, 0, &encoding);
                ratios.add(index, 1, &decoding);
            }
        }
    }
    println!("\nour best kernel over each, geometric mean of the codes with l > 1");
    header(&names);
    ratios.print();
    let value = bytes(1 << 20);
    let sum = || {
        black_box(checksum(black_box(0), black_box(&value)));
    };
    let speed = measure(&mut [Cell::new(sum)], value.len(), effort)[0];
    println!("\nchecksum of 1 MiB: {speed:.1} GB/s");
    println!("measured in {:.0} s", start.elapsed().as_secs_f64());
}
