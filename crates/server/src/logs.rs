//! The log of the process: how it is written, what it shows, and that it may show more or less
//! while the process runs.

use crate::config::LogFormat;
use serde::{Deserialize, Serialize};
use std::io::IsTerminal;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry};

/// Libraries that tell of every frame and connection, and at which level that ends.
const LIBRARIES: [(&str, LevelFilter); 5] = [
    ("h2", LevelFilter::INFO),
    ("hyper", LevelFilter::INFO),
    ("hyper_util", LevelFilter::INFO),
    ("tonic", LevelFilter::INFO),
    ("scylla", LevelFilter::WARN),
];

/// What the log shows: a level, or levels by target beside it, as `info,fermata_server=debug`. Of
/// some libraries only what is worth a line, unless they are named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogLevel(String);

impl Default for LogLevel {
    fn default() -> LogLevel {
        LogLevel("info".into())
    }
}

impl From<LogLevel> for String {
    fn from(level: LogLevel) -> String {
        level.0
    }
}

impl TryFrom<String> for LogLevel {
    type Error = String;

    fn try_from(text: String) -> Result<LogLevel, String> {
        let is_level = |text: &str| !text.is_empty() && text.parse::<LevelFilter>().is_ok();
        // To the parser of targets a misspelt level is a target.
        let mut all = text.split(',');
        match all.all(|one| is_level(one.rsplit('=').next().unwrap_or(one))) {
            true => Ok(LogLevel(text)),
            false => Err(format!(
                "log_level is `{text}`: give error, warn, info, debug, trace or off, and for \
                 single targets TARGET=LEVEL behind it, after commas"
            )),
        }
    }
}

impl LogLevel {
    fn targets(&self) -> Targets {
        let given: Targets = self.0.parse().unwrap_or_default();
        let level = given.default_level().unwrap_or(LevelFilter::INFO);
        let libraries = LIBRARIES.map(|(library, most)| (library, most.min(level)));
        // What the log shows is told in any case.
        Targets::from_iter([(module_path!(), LevelFilter::INFO)])
            .with_default(level)
            .with_targets(libraries)
            .with_targets(given.iter())
    }
}

/// The log of this process, as long as it is nobody else's.
#[derive(Clone, Debug)]
pub struct Logs(Handle<Targets, Registry>);

impl Logs {
    /// From now on on standard error; the first call in a process counts.
    pub fn begin(format: LogFormat, level: &LogLevel) -> Logs {
        let (levels, handle) = reload::Layer::new(level.targets());
        let lines = fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal());
        let lines = match format {
            LogFormat::Text => lines.with_target(false).boxed(),
            LogFormat::Json => lines.json().boxed(),
        };
        // A subscriber that was set before stays.
        let _ = registry().with(levels).with(lines).try_init();
        Logs(handle)
    }

    /// Shows more or less from now on, or says why not.
    pub fn change(&self, level: Result<&LogLevel, &str>) {
        match level {
            Ok(level) => {
                // It fails where the log is another's, which then stays as it is.
                let _ = self.0.reload(level.targets());
                tracing::info!(level = level.0, "what the log shows was read again");
            }
            Err(why) => {
                tracing::warn!(why, "the configuration cannot be read, and nothing changed")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    fn level(text: &str) -> Result<LogLevel, String> {
        LogLevel::try_from(text.to_owned())
    }

    #[test]
    fn a_level_is_one_for_all_and_others_for_some() {
        let own = "fermata_server::driver";
        for (text, target, most) in [
            ("info", own, Level::INFO),
            ("warn", own, Level::WARN),
            ("warn", "h2", Level::WARN),
            ("warn", module_path!(), Level::INFO),
            ("debug", own, Level::DEBUG),
            ("debug", "h2", Level::INFO),
            ("debug,h2=trace", "h2", Level::TRACE),
            ("fermata_server=debug", own, Level::DEBUG),
            ("fermata_server=debug", "other", Level::INFO),
        ] {
            let shown = level(text).unwrap().targets();
            let levels = [
                Level::ERROR,
                Level::WARN,
                Level::INFO,
                Level::DEBUG,
                Level::TRACE,
            ];
            let would = |level: &Level| shown.would_enable(target, level);
            let last = levels.into_iter().rfind(would);
            assert_eq!(last, Some(most), "{text}, {target}");
        }
        for wrong in ["", "loud", "info,fermata_server", "info,h2=loud"] {
            assert!(level(wrong).unwrap_err().contains("log_level"), "{wrong}");
        }
    }
}
