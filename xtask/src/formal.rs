//! `cargo xtask formal`: asks the Alloy Analyzer about the models below `formal/`.
//!
//! **Problem.** A model says something only as long as somebody runs it, and a check that passes
//! because nothing can happen says nothing at all.
//!
//! **Idea.** The models say what they expect: each `check` or `run` ends with `expect 0` (nothing
//! is found) or `expect 1` (an instance, or a counter-example, is found). This task finds all
//! `.als` files and all their commands, runs them, and compares. A new model or check needs no
//! line here.
//!
//! **Rules for a model.** Every command has an expectation, and a name that is unique in its file.
//! One whose name ends in `_deep` takes long and is left out by `--short`.
//!
//! Alloy comes from Maven, at its pinned version, into `target/formal`, once; Java runs it. Both
//! are needed here alone. One process asks many commands of a model: to start Java, and to let it
//! compile Alloy, costs more than most answers.
//!
//! **Invariant.** A command without an answer is a failure, and the table says why there is none:
//! out of time, or how its process ended. Nothing is asked again that has brought a process down.

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::gate::root;

/// Where Maven finds Alloy.
const ARTIFACT: &str = "org.alloytools:org.alloytools.alloy.dist";
const VERSION: &str = "6.2.0";

/// The solver that is in Java: it runs everywhere, and where most of the work is small problems,
/// those in C are no faster.
const SOLVER: &str = "sat4j";

/// What one command may take.
const LIMIT: Duration = Duration::from_secs(900);

/// End of the names of commands that only the full run asks.
const DEEP: &str = "_deep";

/// Solvers at work at the same time.
const JOBS: usize = 2;

/// Queries that one process gets: all of a model in the short run, and not so many in the full one
/// that the last process works alone for long.
const BATCH: usize = 24;

/// What Java is told. Any check of the short run gets by with 500 MiB; left alone, each process
/// would take a quarter of the machine before it cleans up, and then be the one that is ended when
/// memory is short. Its collector's threads would only wait for each other here.
const JAVA: &[&str] = &["-Xmx2g", "-XX:+UseSerialGC"];

/// Short runs end before the second compiler of Java has paid.
const JAVA_SHORT: &str = "-XX:TieredStopAtLevel=1";

/// What to run.
#[derive(Default)]
pub(crate) struct Choice {
    /// Without what takes long.
    short: bool,
    /// Only commands whose file or name contains one of these; all if empty.
    words: Vec<String>,
}

impl Choice {
    /// Reads `[--short] [WORD]...`; none where an option is unknown.
    pub(crate) fn of(arguments: &[&str]) -> Option<Choice> {
        let mut choice = Choice::default();
        for argument in arguments {
            match *argument {
                "--short" => choice.short = true,
                option if option.starts_with('-') => return None,
                word => choice.words.push(word.to_owned()),
            }
        }
        Some(choice)
    }

    fn takes(&self, query: &Query) -> bool {
        let named = |word: &String| query.name.contains(word) || query.file.contains(word);
        let deep = self.short && query.name.ends_with(DEEP);
        !deep && (self.words.is_empty() || self.words.iter().any(named))
    }
}

/// One `check` or `run` of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Query {
    /// The model, relative to the root.
    file: String,
    name: String,
    scope: String,
    /// Whether an instance or counter-example is to be found.
    found: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Found,
    None,
    /// The solver did not end within [`LIMIT`].
    OutOfTime,
    /// The process that was to answer did not: its exit code, or none where a signal ended it.
    Ended(Option<i32>),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Found => f.pad("found"),
            Verdict::None => f.pad("none"),
            Verdict::OutOfTime => write!(f, "undecided: out of time"),
            Verdict::Ended(Some(code)) => write!(f, "undecided: Java exited with {code}"),
            Verdict::Ended(None) => write!(f, "undecided: Java was killed (memory?)"),
        }
    }
}

/// Runs what was chosen and prints a table of it.
pub(crate) fn run(choice: &Choice) -> ExitCode {
    match ask_all(choice) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the models could not be checked: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Alloy, fetched unless it is there.
pub(crate) fn fetched_jar() -> io::Result<PathBuf> {
    Alloy::fetched(true).map(|alloy| alloy.jar)
}

/// How many results are unexpected.
fn ask_all(choice: &Choice) -> io::Result<usize> {
    let start = Instant::now();
    let alloy = Alloy::fetched(choice.short)?;
    let mut models = Vec::new();
    models_in(&root().join("formal"), &mut models)?;
    models.sort();
    let mut batches: Vec<Vec<Query>> = Vec::new();
    for model in &models {
        let mut queries = alloy.queries(model)?;
        queries.retain(|query| choice.takes(query));
        batches.extend(queries.chunks(BATCH).map(<[Query]>::to_vec));
    }
    // The long ones first, so that no job is left alone with one.
    batches.sort_by_key(|batch| std::cmp::Reverse(batch.len()));
    let asked: usize = batches.iter().map(Vec::len).sum();
    if asked == 0 {
        return Err(io::Error::other("no check has such a name"));
    }
    print_row("model", "assertion", "scope", "result", "seconds");
    let unexpected = work(&alloy, batches.into());
    // What cannot be removed lies in the target folder, and is in nobody's way.
    let _ = fs::remove_dir_all(&alloy.out);
    let seconds = start.elapsed().as_secs();
    println!("\n{asked} checks in {seconds} s");
    // As the other tests say it, so that the gate counts these, too.
    let word = if unexpected == 0 { "ok" } else { "FAILED" };
    let passed = asked - unexpected;
    println!("test result: {word}. {passed} passed; {unexpected} failed");
    Ok(unexpected)
}

/// Asks all batches, and prints each answer as it comes. Returns how many are unexpected.
fn work(alloy: &Alloy, batches: VecDeque<Vec<Query>>) -> usize {
    let batches = Mutex::new(batches);
    let (send, answers) = mpsc::channel();
    std::thread::scope(|scope| {
        for job in 0..JOBS {
            let (send, batches) = (send.clone(), &batches);
            scope.spawn(move || {
                loop {
                    let next = batches.lock().expect("no job panics").pop_front();
                    let Some(batch) = next else { return };
                    alloy.ask(job, batch, &mut |query, verdict, time| {
                        // The receiver lives until all senders are gone.
                        let _ = send.send((query, verdict, time));
                    });
                }
            });
        }
        drop(send);
        let mut unexpected = 0;
        for (query, verdict, time) in answers {
            let expected = match query.found {
                true => Verdict::Found,
                false => Verdict::None,
            };
            let result = match verdict == expected {
                true => verdict.to_string(),
                false => format!("{verdict}, NOT AS EXPECTED"),
            };
            unexpected += usize::from(verdict != expected);
            let seconds = format!("{:.1}", time.as_secs_f64());
            print_row(&query.file, &query.name, &query.scope, &result, &seconds);
        }
        unexpected
    })
}

fn print_row(model: &str, name: &str, scope: &str, result: &str, seconds: &str) {
    println!("| {model} | {name:32} | {scope} | {result:5} | {seconds:>7} |");
}

/// All models below a folder.
fn models_in(folder: &Path, models: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            models_in(&path, models)?;
        } else if path.extension().is_some_and(|e| e == "als") {
            models.push(path);
        }
    }
    Ok(())
}

/// Where everything is that this task fetches or writes.
fn folder() -> PathBuf {
    root().join("target").join("formal")
}

/// The one file that Alloy is.
fn jar() -> PathBuf {
    folder().join(format!("org.alloytools.alloy.dist-{VERSION}.jar"))
}

/// An error that says what to install, unless all programs are there that this task needs.
pub(crate) fn programs() -> io::Result<()> {
    let advice = "install Java 17 or later (on Debian: apt-get install openjdk-17-jdk-headless)";
    there("java", "-version", advice)?;
    if jar().exists() {
        return Ok(());
    }
    let advice = "install Maven 3, which fetches Alloy once (on Debian: apt-get install maven)";
    there("mvn", "--version", advice)
}

/// The Alloy Analyzer.
struct Alloy {
    jar: PathBuf,
    /// Its output, of which nothing is kept. One folder per process of this task: each empties its
    /// own when it starts, and would take another's away.
    out: PathBuf,
    /// Whether only the short run's commands are asked.
    short: bool,
}

impl Alloy {
    /// Fetches it through Maven, unless it is there.
    fn fetched(short: bool) -> io::Result<Alloy> {
        programs()?;
        let (folder, jar) = (folder(), jar());
        fs::create_dir_all(&folder)?;
        if !jar.exists() {
            let mut maven = Command::new("mvn");
            maven.args(["-q", "-B", "-Dstyle.color=never", "dependency:copy"]);
            maven.arg(format!("-Dartifact={ARTIFACT}:{VERSION}"));
            maven.arg(format!("-DoutputDirectory={}", folder.display()));
            let status = maven.current_dir(&folder).status()?;
            if !status.success() || !jar.exists() {
                let error = format!("Maven did not fetch {ARTIFACT}:{VERSION}: {status}");
                return Err(io::Error::other(error));
            }
        }
        let out = folder.join(format!("out-{}", std::process::id()));
        Ok(Alloy { jar, out, short })
    }

    fn java(&self, short: bool) -> Command {
        let mut java = Command::new("java");
        java.args(JAVA).args(short.then_some(JAVA_SHORT));
        java.arg("-jar").arg(&self.jar).stdin(Stdio::null());
        java
    }

    /// The commands of a model, each with its expectation.
    fn queries(&self, model: &Path) -> io::Result<Vec<Query>> {
        let output = self.java(true).arg("commands").arg(model).output()?;
        let file = model.strip_prefix(root()).unwrap_or(model);
        let file = file.to_string_lossy().replace('\\', "/");
        let listed = String::from_utf8_lossy(&output.stdout);
        let mut queries: Vec<Query> = Vec::new();
        for line in listed.lines() {
            if line.ends_with("Run Default") {
                // What Alloy makes up for a model without commands: a part of others.
                continue;
            }
            let query = Query::of_line(&file, line)
                .ok_or_else(|| io::Error::other(format!("{file}: no `expect 0|1`: {line}")))?;
            if queries.iter().any(|q| q.name == query.name) {
                let error = format!("{file}: two commands are called {}", query.name);
                return Err(io::Error::other(error));
            }
            queries.push(query);
        }
        if queries.is_empty() && !output.stderr.is_empty() {
            let error = String::from_utf8_lossy(&output.stderr);
            let error = error.lines().take(3).collect::<Vec<_>>().join("\n");
            return Err(io::Error::other(format!("{file}: {error}")));
        }
        Ok(queries)
    }

    /// Asks queries of one model, and `tells` each answer with the time that it took.
    fn ask(
        &self,
        job: usize,
        queries: Vec<Query>,
        tells: &mut dyn FnMut(Query, Verdict, Duration),
    ) {
        let mut open = queries;
        while !open.is_empty() {
            let since = Instant::now();
            let Some(verdict) = self.ask_once(job, &mut open, tells) else {
                continue;
            };
            // The first that is open is the one that it was at. The others get a process of their
            // own, so that one fault is reported of one command.
            tells(open.remove(0), verdict, since.elapsed());
        }
    }

    /// One process, for all of them unless one takes too long. Why it has not answered the first of
    /// those that are left open; none if it has answered all.
    fn ask_once(
        &self,
        job: usize,
        open: &mut Vec<Query>,
        tells: &mut dyn FnMut(Query, Verdict, Duration),
    ) -> Option<Verdict> {
        let mut child = match self.process(job, open).spawn() {
            Ok(child) => child,
            Err(error) => {
                eprintln!("Java could not be run: {error}");
                return Some(Verdict::Ended(None));
            }
        };
        let lines = lines_of(&mut child);
        let mut since = Instant::now();
        while !open.is_empty() {
            let line = match lines.recv_timeout(LIMIT.saturating_sub(since.elapsed())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    // If it has ended by itself just now, there is nobody left to kill.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Some(Verdict::OutOfTime);
                }
            };
            let Some((name, verdict)) = answer_of_line(&line) else {
                eprintln!("{line}");
                continue;
            };
            if let Some(index) = open.iter().position(|q| q.name == name) {
                tells(open.remove(index), verdict, since.elapsed());
                since = Instant::now();
            }
        }
        drop(lines);
        let code = child.wait().ok().and_then(|status| status.code());
        (!open.is_empty()).then_some(Verdict::Ended(code))
    }

    /// The process that asks these queries of their model.
    fn process(&self, job: usize, open: &[Query]) -> Command {
        let names: Vec<&str> = open.iter().map(|q| q.name.as_str()).collect();
        let mut java = self.java(self.short);
        java.args(["exec", "-f", "-t", "none", "-s", SOLVER, "-c"]);
        java.arg(format!("{{{}}}", names.join(",")));
        java.arg("-o").arg(self.out.join(job.to_string()));
        java.arg(root().join(&open[0].file));
        java.stdout(Stdio::null()).stderr(Stdio::piped());
        java
    }
}

/// An error that names what is missing, unless `program` can be run.
fn there(program: &str, version: &str, advice: &str) -> io::Result<()> {
    let mut command = Command::new(program);
    command.arg(version).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        _ => {
            let error = format!("`{program}` does not run; {advice}");
            Err(io::Error::new(io::ErrorKind::NotFound, error))
        }
    }
}

/// What a process says, line by line, as it comes.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let output = child.stderr.take().expect("stderr is piped");
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

impl Query {
    /// Reads `2 . Check NAME for 3 but exactly 2 A expect 0`, or `12. Check …`.
    fn of_line(file: &str, line: &str) -> Option<Query> {
        let (_, rest) = line.split_once(". ")?;
        let (rest, expected) = rest.rsplit_once(" expect ")?;
        let mut words = rest.splitn(3, ' ').skip(1);
        let name = words.next()?.to_owned();
        let scope = words.next().unwrap_or_default();
        Some(Query {
            file: file.to_owned(),
            name,
            scope: scope.trim_start_matches("for ").to_owned(),
            found: expected == "1",
        })
    }
}

/// Reads `01. check NAME    0    1/1     SAT`.
fn answer_of_line(line: &str) -> Option<(&str, Verdict)> {
    let line = line.rsplit('\r').next()?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let name = *words.get(2)?;
    let verdict = words.iter().skip(3).find_map(|word| match *word {
        "SAT" => Some(Verdict::Found),
        "UNSAT" => Some(Verdict::None),
        _ => None,
    })?;
    Some((name, verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_read_with_its_expectation() {
        let line = "2 . Check put_deep for 5 but exactly 2 State expect 0";
        let query = Query::of_line("formal/m.als", line).expect("a command");
        assert_eq!(query.name, "put_deep");
        assert_eq!(query.scope, "5 but exactly 2 State");
        assert!(!query.found);
        let tenth = Query::of_line("formal/m.als", "10. Run p for 3 expect 1");
        assert!(tenth.is_some_and(|query| query.name == "p" && query.found));
        assert_eq!(Query::of_line("formal/m.als", "3 . Run p for 3"), None);
    }

    #[test]
    fn an_answer_is_read() {
        let line = "01. check put                        0    1/1     SAT expects=0";
        assert_eq!(answer_of_line(line), Some(("put", Verdict::Found)));
        let line = "02. check c2                       0       UNSAT";
        assert_eq!(answer_of_line(line), Some(("c2", Verdict::None)));
        assert_eq!(answer_of_line("Error"), None);
    }

    #[test]
    fn deep_ones_are_left_out_of_the_short_run() {
        let query = |name: &str| Query {
            file: "formal/critical/m.als".to_owned(),
            name: name.to_owned(),
            scope: String::new(),
            found: false,
        };
        let short = Choice::of(&["--short"]).expect("known");
        assert!(short.takes(&query("put")) && !short.takes(&query("put_deep")));
        let some = Choice::of(&["critical/"]).expect("known");
        assert!(some.takes(&query("put_deep")));
        let none = Choice::of(&["registers"]).expect("known");
        assert!(!none.takes(&query("put")));
        assert!(Choice::of(&["--fast"]).is_none());
    }
}
