//! `fermata completions` and `fermata man`: what shells and `man` know of this program, made from
//! the same definitions as `--help`.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::Failure;
use crate::output;

/// `fermata completions`.
pub(super) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fermata", &mut script);
    output::bytes(&script).map(|()| 0)
}

/// `fermata man`.
pub(super) fn man(folder: &Path) -> Result<u8, Failure> {
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    let failed = |error| Failure::local(format_args!("writing to {}", folder.display()), error);
    written.map(|()| 0).map_err(failed)
}
