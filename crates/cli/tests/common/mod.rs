//! The binary under test.

use std::process::{Command, Stdio};

/// It, with nothing of the caller's environment that may decide a test.
pub(crate) fn fermata() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fermata"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FERMATA_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}
