// SPDX-License-Identifier: GPL-2.0-only
//! `generate`: man pages and shell completions from the command line's own description, for packages.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;

/// `generate`
#[derive(Debug, Args)]
pub struct Generate {
    /// Folder, made if need be: gets man/*.1 and completions for bash, fish and zsh.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes the files that describe `command`.
///
/// # Errors
/// The folder cannot be written.
pub fn run(args: &Generate, command: &Command) -> Result<()> {
    let make = |name: &str| {
        let folder = args.folder.join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok::<_, anyhow::Error>(folder)
    };
    let wrote = || format!("writing below {}", args.folder.display());
    clap_mangen::generate_to(command.clone(), make("man")?).with_context(wrote)?;
    let completions = make("completions")?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        let name = command.get_name().to_owned();
        clap_complete::generate_to(shell, &mut command.clone(), name, &completions)
            .with_context(wrote)?;
    }
    Ok(())
}
