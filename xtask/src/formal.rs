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
//! One whose name ends in `_deep` takes long and is left out by `--short`, and so are models called
//! `planted.als`, of which each command takes a rule away.
//!
//! One process asks many commands of a model: to start Java, and to let it compile Alloy, costs
//! more than most answers.
//!
//! **Invariant.** A command without an answer is a failure, and the table says why there is none:
//! out of time, or how its process ended. Nothing is asked again that has brought a process down. A
//! model that Alloy cannot read is a failure of its own, and in the way of no other.

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
use crate::java::{self, Scratch, at, complaint, is_stack, shown};

/// The solver that is in Java: it runs everywhere, and where most of the work is small problems,
/// those in C are no faster.
const SOLVER: &str = "sat4j";

/// What one command may take.
const LIMIT: Duration = Duration::from_secs(900);

/// End of the names of commands that only the full run asks.
const DEEP: &str = "_deep";

/// Models that only the full run asks.
const PLANTED: &str = "/planted.als";

/// Solvers at work at the same time.
const JOBS: usize = 2;

/// Queries that one process gets: all of a model in the short run, and not so many in the full one
/// that the last process works alone for long.
const BATCH: usize = 24;

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
    /// Reads `[--short] [WORD]...`; none where an option is unknown, or another task is meant.
    pub(crate) fn of(arguments: &[&str]) -> Option<Choice> {
        let mut choice = Choice::default();
        for argument in arguments {
            match *argument {
                "--short" => choice.short = true,
                option if option.starts_with('-') => return None,
                "traces" => return None,
                word => choice.words.push(word.to_owned()),
            }
        }
        Some(choice)
    }

    fn takes(&self, query: &Query) -> bool {
        let deep = query.name.ends_with(DEEP) || query.file.ends_with(PLANTED);
        !(self.short && deep) && self.names(query)
    }

    fn names(&self, query: &Query) -> bool {
        let named = |word: &String| query.name.contains(word) || query.file.contains(word);
        self.words.is_empty() || self.words.iter().any(named)
    }

    /// Whether a model may have such a command: otherwise it need not be read by Alloy.
    fn may_name(&self, model: &Path) -> io::Result<bool> {
        let text = fs::read_to_string(model).map_err(at(model))?;
        let path = shown(model);
        let named = |word: &String| path.contains(word) || text.contains(word);
        Ok(self.words.is_empty() || self.words.iter().any(named))
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

/// How many failures there are.
fn ask_all(choice: &Choice) -> io::Result<usize> {
    let start = Instant::now();
    let mut models = Vec::new();
    models_in(&root().join("formal"), &mut models)?;
    models.sort();
    let mut read = Vec::new();
    for model in models {
        if choice.may_name(&model)? {
            read.push(model);
        }
    }
    if read.is_empty() {
        return Err(io::Error::other("no model and no check has such a name"));
    }
    let alloy = Alloy::fetched(choice.short)?;
    let mut failures = Vec::new();
    let mut named = Vec::new();
    for model in &read {
        match alloy.queries(model) {
            Ok(queries) => named.extend(queries.into_iter().filter(|q| choice.names(q))),
            Err(error) if error.contains(java::DAMAGED) => return Err(io::Error::other(error)),
            Err(error) => failures.push(error),
        }
    }
    let asked: Vec<Query> = named.iter().filter(|q| choice.takes(q)).cloned().collect();
    if asked.is_empty() && failures.is_empty() {
        return Err(io::Error::other(match named.len() {
            0 => "no check has such a name".to_owned(),
            _ => "all checks of such a name take long: leave out --short".to_owned(),
        }));
    }
    let count = asked.len();
    let broken = failures.len();
    failures.extend(work(&alloy, asked));
    let seconds = start.elapsed().as_secs();
    println!("\ncommands run: {count}, in {seconds} s");
    for failure in &failures {
        println!("\n{failure}");
    }
    // As the other tests say it, so that the gate counts these, too.
    let failed = failures.len();
    let word = if failed == 0 { "ok" } else { "FAILED" };
    let passed = count + broken - failed;
    println!("test result: {word}. {passed} passed; {failed} failed");
    Ok(failed)
}

/// In parts of one model each, the long ones first, so that no job is left alone with one.
fn batches(queries: Vec<Query>) -> VecDeque<Vec<Query>> {
    let models = queries.chunk_by(|a, b| a.file == b.file);
    let parts = models.flat_map(|queries| queries.chunks(BATCH));
    let mut batches: Vec<Vec<Query>> = parts.map(<[Query]>::to_vec).collect();
    batches.sort_by_key(|batch| std::cmp::Reverse(batch.len()));
    batches.into()
}

/// Asks all, and prints each answer as it comes. Returns what is not as expected.
fn work(alloy: &Alloy, queries: Vec<Query>) -> Vec<String> {
    if queries.is_empty() {
        return Vec::new();
    }
    let table = Table::of(&queries);
    let batches = Mutex::new(batches(queries));
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
        let mut failures = Vec::new();
        for (query, verdict, time) in answers {
            let failed = verdict != query.expected();
            let result = match failed {
                false => verdict.to_string(),
                true => "FAILED".to_owned(),
            };
            let seconds = format!("{:.1}", time.as_secs_f64());
            table.row([&query.file, &query.name, &query.scope, &result, &seconds]);
            if failed {
                failures.push(query.failure(verdict));
            }
        }
        failures
    })
}

/// The columns of the answers.
struct Table {
    widths: [usize; 5],
}

impl Table {
    /// Prints its head, wide enough for these.
    fn of(queries: &[Query]) -> Table {
        let head = ["model", "command", "scope", "result", "seconds"];
        let mut widths = head.map(str::len);
        for query in queries {
            for (width, text) in widths
                .iter_mut()
                .zip([&query.file, &query.name, &query.scope])
            {
                *width = text.len().max(*width);
            }
        }
        let table = Table { widths };
        println!(
            "none: nothing that contradicts exists in the scope, as a proof expects; found: the \
             run, or the\ncounter-example, that is looked for. `N..N steps`: in runs of N states.\n"
        );
        table.row(head);
        table.row(widths.map(|width| "-".repeat(width)));
        table
    }

    fn row<S: AsRef<str>>(&self, cells: [S; 5]) {
        let mut line = String::from("|");
        for (index, (cell, width)) in cells.iter().zip(self.widths).enumerate() {
            let cell = cell.as_ref();
            line += &match index {
                4 => format!(" {cell:>width$} |"),
                _ => format!(" {cell:width$} |"),
            };
        }
        println!("{line}");
    }
}

/// All models below a folder.
fn models_in(folder: &Path, models: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let path = entry?.path();
        if path.is_dir() {
            models_in(&path, models)?;
        } else if path.extension().is_some_and(|e| e == "als") {
            models.push(path);
        }
    }
    Ok(())
}

/// The Alloy Analyzer.
struct Alloy {
    jar: PathBuf,
    /// Its output, of which nothing is kept.
    scratch: Scratch,
    /// Whether only the short run's commands are asked.
    short: bool,
}

impl Alloy {
    fn fetched(short: bool) -> io::Result<Alloy> {
        java::programs(false)?;
        let scratch = Scratch::new("out")?;
        let jar = java::fetched_jar(&scratch)?;
        Ok(Alloy {
            jar,
            scratch,
            short,
        })
    }

    fn java(&self, short: bool) -> Command {
        let mut java = java::java();
        java.args(short.then_some(JAVA_SHORT));
        java.arg("-jar").arg(&self.jar);
        java
    }

    /// The commands of a model, each with its expectation; or what is wrong with it.
    fn queries(&self, model: &Path) -> Result<Vec<Query>, String> {
        let output = self.java(true).arg("commands").arg(model).output();
        let output = output.map_err(|error| format!("Java could not be run: {error}"))?;
        let file = shown(model);
        let listed = String::from_utf8_lossy(&output.stdout);
        let mut queries: Vec<Query> = Vec::new();
        for line in listed.lines() {
            if line.ends_with("Run Default") {
                // What Alloy makes up for a model without commands: a part of others.
                continue;
            }
            let query = Query::of_line(&file, line)?;
            if queries.iter().any(|q| q.name == query.name) {
                return Err(format!("{file}: two commands are called {}", query.name));
            }
            queries.push(query);
        }
        if queries.is_empty() && !output.stderr.is_empty() {
            return Err(complaint(&String::from_utf8_lossy(&output.stderr)));
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
                if !is_noise(&line) {
                    eprintln!("{line}");
                }
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
        java.arg("-o").arg(self.scratch.path.join(job.to_string()));
        java.arg(root().join(&open[0].file));
        java.stdout(Stdio::null()).stderr(Stdio::piped());
        java
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
    /// Reads `2 . Check NAME for 3 but exactly 2 A expect 0`, or `12. Check …`; or says which rule
    /// for commands it breaks.
    fn of_line(file: &str, line: &str) -> Result<Query, String> {
        let command = line.split_once(". ").map_or(line, |(_, command)| command);
        let (rest, expected) = command
            .rsplit_once(" expect ")
            .ok_or_else(|| format!("{file}: no `expect 0|1`: {command}"))?;
        let mut words = rest.splitn(3, ' ').skip(1);
        let name = words.next().unwrap_or_default().to_owned();
        // What Alloy calls those that have none.
        if name.is_empty() || name.contains('$') {
            return Err(format!("{file}: a command has no name: {command}"));
        }
        let scope = words.next().unwrap_or_default();
        Ok(Query {
            file: file.to_owned(),
            name,
            scope: scope.trim_start_matches("for ").to_owned(),
            found: expected == "1",
        })
    }

    fn expected(&self) -> Verdict {
        match self.found {
            true => Verdict::Found,
            false => Verdict::None,
        }
    }

    /// What a reader of the failure asks next.
    fn failure(&self, verdict: Verdict) -> String {
        let Query {
            file, name, scope, ..
        } = self;
        let expected = self.expected();
        let mut said =
            format!("FAILED {file}: {name} ({scope})\n  expected: {expected}; got: {verdict}\n");
        if verdict == Verdict::Found {
            let jar = shown(&java::jar());
            said +=
                &format!("  to print it:\n  java -jar {jar} exec -t text -o - -c {name} {file}\n");
        }
        said
    }
}

/// What Alloy says beside its answers, and this task says better.
fn is_noise(line: &str) -> bool {
    let line = line.trim();
    is_stack(line) || line.is_empty() || line == "Error" || line.contains("against expectation")
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
        assert!(tenth.is_ok_and(|query| query.name == "p" && query.found));
        assert!(Query::of_line("formal/m.als", "3 . Run p for 3").is_err());
        let unnamed = Query::of_line("formal/m.als", "0 . Check check$1 for 3 expect 1");
        assert!(unnamed.is_err_and(|error| error.contains("no name")));
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
        let planted = Query {
            file: "formal/critical/planted.als".to_owned(),
            ..query("without_put")
        };
        assert!(!short.takes(&planted) && some.takes(&planted));
        let none = Choice::of(&["registers"]).expect("known");
        assert!(!none.takes(&query("put")));
        assert!(Choice::of(&["--fast"]).is_none());
        assert!(Choice::of(&["--short", "traces"]).is_none());
    }
}
