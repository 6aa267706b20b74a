//! Runs the copy's programs with one mutant after the other.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::ROOMS;
use super::copy::{Built, CHOICE};

/// Random schedules, in the last place: most mutants are caught before.
const SEEDS: &str = "40";
/// What is not asked: some drive no room, some take minutes, and others run what these run.
const LEFT_OUT: [&str; 7] = [
    "client_properties",
    "client_scenarios",
    "planted",
    "seeds",
    "determinism",
    "placement",
    "model",
];
/// Tests that take seconds, where the others of their programs take milliseconds: asked later.
const SLOW: [&str; 7] = [
    "planted::",
    "random::",
    "transfer::",
    "sections::",
    "explore::",
    "atomicity::",
    "epochs::",
];
/// Address space of a program, in KiB: a mutant may collect without end.
const MEMORY_KIB: u64 = 6 << 20;
/// A mutant that takes so many times as long as no mutant, and a minute, goes round in circles.
const TIMES_MAX: u32 = 10;
const GRACE: Duration = Duration::from_secs(60);

/// A program that judges mutants.
pub(super) struct Program {
    built: Built,
    args: Vec<String>,
    is_last: bool,
    /// How long it takes without a mutant.
    base: Duration,
}

/// What a program says of a mutant.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Caught(String),
    OverTime,
}

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// By this test.
    Killed(String),
    /// This program did not end.
    OverTime(String),
    Survived,
}

/// The programs, the quickest first and random schedules last. Each was run without a mutant, in
/// an earlier run if `known` says how long that took; `note` is told of those that were run now.
///
/// # Errors
/// One sentence, if one of them fails without a mutant.
pub(super) fn programs(
    built: Vec<Built>,
    known: impl Fn(&str) -> Option<Duration>,
    mut note: impl FnMut(&str, Duration) -> Result<(), String>,
) -> Result<Vec<Program>, String> {
    let mut programs = Vec::new();
    for built in built {
        if built.name == "fermata-lab" {
            programs.push(Program {
                built: Built {
                    name: format!("{SEEDS} seeds"),
                    ..built
                },
                args: ["sim", "--seed", "0", "--seeds", SEEDS]
                    .map(str::to_owned)
                    .to_vec(),
                is_last: true,
                base: Duration::ZERO,
            });
        } else if !LEFT_OUT.contains(&&*built.name) {
            let one = "--test-threads=1";
            let skips = SLOW.iter().flat_map(|slow| ["--skip", slow]);
            let quick: Vec<&str> = std::iter::once(one).chain(skips).collect();
            let slow: Vec<&str> = std::iter::once(one).chain(SLOW).collect();
            let name = format!("{}, what takes long", built.name);
            for (name, args) in [(built.name.clone(), quick), (name, slow)] {
                let file = built.file.clone();
                let folder = built.folder.clone();
                programs.push(Program {
                    built: Built { name, file, folder },
                    args: args.into_iter().map(str::to_owned).collect(),
                    is_last: false,
                    base: Duration::ZERO,
                });
            }
        }
    }
    for program in &mut programs {
        let name = program.built.name.clone();
        program.base = match known(&name) {
            Some(base) => base,
            None => {
                let base = program.run_without_mutant()?;
                note(&name, base)?;
                base
            }
        };
    }
    programs.sort_by_key(|program| (program.is_last, program.base));
    Ok(programs)
}

/// Asks the programs in order until one notices the mutant of this room. A program that is named
/// after a room is asked about that one alone.
///
/// # Errors
/// One sentence, if a program cannot be run.
pub(super) fn judge(programs: &[Program], room: &str, mutant: usize) -> Result<Verdict, String> {
    for program in programs {
        let name = &program.built.name;
        let of = ROOMS
            .iter()
            .find(|room| name.starts_with(&format!("{room}_")));
        if of.is_some_and(|of| *of != room) {
            continue;
        }
        match program.run(mutant, program.base * TIMES_MAX + GRACE)? {
            Said::Nothing => {}
            Said::Caught(test) => return Ok(Verdict::Killed(format!("{name}, {test}"))),
            Said::OverTime => return Ok(Verdict::OverTime(name.clone())),
        }
    }
    Ok(Verdict::Survived)
}

impl Program {
    fn run_without_mutant(&self) -> Result<Duration, String> {
        let begin = Instant::now();
        let said = self.run(0, Duration::from_secs(600))?;
        if said != Said::Nothing {
            return Err(format!("without a mutant, {}: {said:?}", self.built.name));
        }
        let base = begin.elapsed();
        println!(
            "{:>8.1} s without a mutant: {}",
            base.as_secs_f64(),
            self.built.name
        );
        Ok(base)
    }

    fn run(&self, mutant: usize, limit: Duration) -> Result<Said, String> {
        let said = self.start(mutant).and_then(|mut child| {
            let said = listen(&mut child, Instant::now() + limit);
            // What was caught, or goes round in circles, needs no end.
            let ended = match said {
                Said::Nothing => child.wait()?,
                _ => {
                    child.kill()?;
                    child.wait()?;
                    return Ok(said);
                }
            };
            Ok(match ended.success() {
                true => Said::Nothing,
                false => Said::Caught(format!("which ended with {ended}")),
            })
        });
        said.map_err(|error| format!("{} could not be run: {error}", self.built.name))
    }

    fn start(&self, mutant: usize) -> std::io::Result<Child> {
        Command::new("sh")
            .args(["-c", &format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"")])
            .arg(&self.built.file)
            .args(&self.args)
            .current_dir(&self.built.folder)
            .env("CARGO_MANIFEST_DIR", &self.built.folder)
            .env(CHOICE, mutant.to_string())
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
    }
}

/// Reads what a program prints, until a test failed, the program ended, or the time is over.
fn listen(child: &mut Child, until: Instant) -> Said {
    let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let (tell, hear) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = output.split(b'\n').map_while(Result::ok);
        for line in lines {
            if tell
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                return;
            }
        }
    });
    loop {
        match hear.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                let failed = line
                    .strip_prefix("test ")
                    .and_then(|l| l.strip_suffix(" ... FAILED"));
                if let Some(test) = failed {
                    return Said::Caught(test.to_owned());
                }
            }
            Err(RecvTimeoutError::Timeout) => return Said::OverTime,
            Err(RecvTimeoutError::Disconnected) => return Said::Nothing,
        }
    }
}
