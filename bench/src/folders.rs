// SPDX-License-Identifier: GPL-2.0-only
//! Where things are on this machine: the repository's data files, built programs, the user's cache, the PATH.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;

use crate::datafile::DataError;

/// Where data files and built programs are.
#[derive(Debug, Clone, Default, Args)]
pub struct Folders {
    /// Folder of matrix files [default: the repository's bench/matrices].
    #[arg(long, value_name = "DIR")]
    matrices: Option<PathBuf>,

    /// Folder of arm files [default: the repository's scheds/arms].
    #[arg(long = "arms-dir", value_name = "DIR")]
    arms_dir: Option<PathBuf>,

    /// Folder with release/scx_gpuaware and lab/gpu_launch [default: the repository's target].
    #[arg(long, value_name = "DIR")]
    target_dir: Option<PathBuf>,
}

impl Folders {
    pub fn matrices(&self) -> PathBuf {
        let default = || {
            bench_dir()
                .unwrap_or_else(|| "bench".into())
                .join("matrices")
        };
        self.matrices.clone().unwrap_or_else(default)
    }

    pub fn arms(&self) -> PathBuf {
        let default = || repository().unwrap_or_default().join("scheds/arms");
        self.arms_dir.clone().unwrap_or_else(default)
    }

    /// The folder of the policies that are shipped, beside that of the arms.
    pub fn policies(&self) -> PathBuf {
        self.arms().with_file_name("policies")
    }

    /// The same with arm files from elsewhere.
    pub fn with_arms(&self, folder: PathBuf) -> Self {
        Self {
            arms_dir: Some(folder),
            ..self.clone()
        }
    }

    /// The target folder as an absolute path: the guest sees it at the same place.
    pub fn target(&self) -> Result<PathBuf, DataError> {
        let folder = match &self.target_dir {
            Some(folder) => folder.clone(),
            None => repository().unwrap_or_default().join("target"),
        };
        folder.canonicalize().map_err(|_| {
            DataError::Usage(format!(
                "--target-dir: expected a folder with the built programs, got {}: run make build, or name another",
                folder.display()
            ))
        })
    }
}

/// The repository's bench folder: where this was built, else above the program's own file.
pub fn bench_dir() -> Option<PathBuf> {
    Some(repository()?.join("bench"))
}

/// The folder that holds it and this program's data files.
pub fn repository() -> Option<PathBuf> {
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_owned);
    let program = std::env::current_exe().ok();
    let above = program
        .iter()
        .flat_map(|program| program.ancestors().skip(1).map(Path::to_owned));
    built_in
        .into_iter()
        .chain(above)
        .find(|folder| folder.join("bench/matrices").is_dir())
}

/// `$XDG_CACHE_HOME/scx_gpuaware`, else `~/.cache/scx_gpuaware`; where sudo has made the home root's, that of who called
/// it, if there is one.
pub fn cache_dir() -> Result<PathBuf> {
    let absolute = |key| {
        std::env::var_os(key)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let callers = || Some(home_of(&std::env::var("SUDO_UID").ok()?)?.join(".cache/scx_gpuaware"));
    if absolute("XDG_CACHE_HOME").is_none()
        && nix::unistd::geteuid().is_root()
        && let Some(cache) = callers().filter(|cache| cache.is_dir())
    {
        return Ok(cache);
    }
    let base = match (absolute("XDG_CACHE_HOME"), absolute("HOME")) {
        (Some(cache), _) => cache,
        (None, Some(home)) => home.join(".cache"),
        (None, None) => bail!(
            "neither XDG_CACHE_HOME nor HOME is set to an absolute path: no place for the lab's kernels"
        ),
    };
    Ok(base.join("scx_gpuaware"))
}

/// Of the user with that number.
fn home_of(uid: &str) -> Option<PathBuf> {
    let uid = nix::unistd::Uid::from_raw(uid.parse().ok()?);
    Some(nix::unistd::User::from_uid(uid).ok()??.dir)
}

/// The program's path, looked for on the PATH and where administrators' programs are.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|path| is_program(path))
}

pub fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_home_and_a_number_that_is_none_has_not() {
        assert!(home_of("0").is_some_and(|home| home.is_absolute()));
        assert_eq!((home_of("4294967294"), home_of("x")), (None, None));
    }

    #[test]
    fn finds_the_repositorys_files() {
        let folders = Folders {
            matrices: None,
            arms_dir: None,
            target_dir: None,
        };
        assert!(folders.matrices().join("demo.toml").is_file());
        assert!(folders.arms().join("gpuaware.toml").is_file());
    }
}
