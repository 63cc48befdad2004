// SPDX-License-Identifier: GPL-2.0-only
//! Where the schedulers are that an arm names without a path: those of `make peers`, whose versions
//! are pinned, before whatever the PATH has.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::folders;

/// The program's path.
pub fn find(name: &str) -> Option<PathBuf> {
    let peers = folders::cache_dir()
        .ok()
        .map(|cache| cache.join("peers/bin"));
    let own = peers
        .map(|bin| bin.join(name))
        .filter(|file| file.is_file());
    own.or_else(|| folders::on_path(name))
}

/// The first line of what it says of its version. `None`: it cannot be started, or says nothing.
pub fn version(program: impl AsRef<Path>) -> Option<String> {
    let output = Command::new(program.as_ref())
        .arg("--version")
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_programs_on_the_path_and_knows_when_there_is_none() {
        let shell = find("sh").unwrap();
        assert!(shell.is_absolute() && shell.exists(), "{shell:?}");
        assert_eq!(find("scx_nobody_wrote_this"), None);
    }

    #[test]
    fn the_first_line_is_the_version() {
        assert!(version("cargo").is_some_and(|line| line.starts_with("cargo ")));
        assert_eq!(version("/no/such/program"), None);
    }
}
