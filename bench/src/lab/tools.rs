// SPDX-License-Identifier: GPL-2.0-only
//! Finds the programs that the lab drives, and the folder of the user's cache.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::folders::{cache_dir, is_program, on_path};

const QEMU: &str = "qemu-system-x86_64";
/// QEMU 7.2's multi-threaded emulation panicked guests.
const MIN_QEMU_MAJOR: u32 = 9;
/// Where virtme-ng looks besides the PATH.
const VIRTIOFSD: [&str; 4] = [
    "/usr/libexec/virtiofsd",
    "/usr/lib/virtiofsd/virtiofsd",
    "/usr/lib/virtiofsd",
    "/usr/lib/qemu/virtiofsd",
];

/// The programs, all there.
#[derive(Debug)]
pub struct Tools {
    pub virtme_run: PathBuf,
    pub qemu: PathBuf,
}

impl Tools {
    /// An error names the first that is missing and how to get it.
    pub fn find() -> Result<Self> {
        let virtme_run = find_virtme_run()?.context(
            "virtme-ng not found (virtme-run, in its environment or on the PATH): run make setup",
        )?;
        let qemu = on_path(QEMU).with_context(|| format!("{QEMU} not found: run make setup"))?;
        let version = output(Command::new(&qemu).arg("--version"))?;
        let major = qemu_major(&version).with_context(|| {
            format!("{QEMU} --version answers what is not understood: {version:?}")
        })?;
        ensure!(
            major >= MIN_QEMU_MAJOR,
            "{QEMU} is version {major}, the lab needs {MIN_QEMU_MAJOR} or later (older ones crash emulated guests): run make setup"
        );
        let virtiofsd = VIRTIOFSD.iter().any(|path| is_program(Path::new(path)));
        ensure!(
            virtiofsd || on_path("virtiofsd").is_some(),
            "virtiofsd not found (not at {} either): run make setup",
            VIRTIOFSD[0]
        );
        Ok(Self { virtme_run, qemu })
    }
}

/// Runs a program and returns its stdout; an error carries its stderr.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name} failed ({}): {}",
        output.status,
        said.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn find_virtme_run() -> Result<Option<PathBuf>> {
    let own = cache_dir()?.join("venv/bin/virtme-run");
    Ok(Some(own)
        .filter(|path| is_program(path))
        .or_else(|| on_path("virtme-run")))
}

fn qemu_major(version: &str) -> Option<u32> {
    let (_, rest) = version.split_once("version ")?;
    rest.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_qemus_version() {
        assert_eq!(
            qemu_major("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright"),
            Some(10)
        );
        assert_eq!(qemu_major("QEMU emulator version 7.2.19"), Some(7));
        assert_eq!(qemu_major("bash: not found"), None);
    }

    #[test]
    fn an_error_carries_what_the_program_said() {
        let error =
            output(Command::new("sh").args(["-c", "echo no luck >&2; exit 9"])).unwrap_err();
        assert!(error.to_string().contains("no luck"), "{error}");
    }
}
