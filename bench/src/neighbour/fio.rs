// SPDX-License-Identifier: GPL-2.0-only
//! fio: random 4 KiB writes on a scratch disk or a file, four jobs or more, direct I/O.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::program::{self, Own, Terms};
use crate::process::Supervised;

/// What it writes at a time.
const JOBS: u32 = 4;
const BLOCK_BYTES: u64 = 4096;

pub(super) fn command(disk: &Path, output: &Path, terms: &Terms) -> Command {
    let mut command = terms.command("fio");
    command
        .args([
            "--name=neighbour",
            "--rw=randwrite",
            &format!("--bs={BLOCK_BYTES}"),
            "--iodepth=32",
            &format!("--numjobs={}", JOBS * program::size()),
        ])
        .args([
            "--direct=1",
            "--ioengine=libaio",
            "--time_based",
            "--runtime=86400",
        ])
        // Threads, because forked jobs would outlive a killed leader.
        .args([
            "--thread",
            "--group_reporting",
            "--eta=never",
            "--output-format=json",
        ])
        .arg(flag("--filename=", &one_file(disk)))
        .arg(flag("--output=", output.as_os_str()));
    command
}

fn flag(name: &str, value: &OsStr) -> OsString {
    let mut flag = OsString::from(name);
    flag.push(value);
    flag
}

/// A path as fio takes one: names are split at each colon that has no backslash before it.
fn one_file(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes().iter();
    let escaped = bytes.flat_map(|&byte| (byte == b':').then_some(b'\\').into_iter().chain([byte]));
    OsString::from_vec(escaped.collect())
}

pub(super) fn start(disk: &Path, output: &Path, terms: &Terms) -> Result<Supervised> {
    let log = fs::File::create(output.with_extension("log")).context("cannot create fio's log")?;
    let mut command = command(disk, output, terms);
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("cannot share fio's log")?)
        .stderr(log);
    terms.spawn("fio", &mut command)
}

/// Writes so far: those that the block device has completed since boot, or where fio writes to a file, the blocks that
/// `fio` has handed to storage. `None`: it does not run yet.
pub(super) fn disk_writes(disk: &Path, fio: Option<u32>) -> Result<u64> {
    let device =
        fs::canonicalize(disk).with_context(|| format!("no scratch disk {}", disk.display()))?;
    let kind =
        fs::metadata(&device).with_context(|| format!("no scratch disk {}", disk.display()))?;
    if !kind.file_type().is_block_device() {
        return fio.map_or(Ok(0), blocks_written);
    }
    let name = device.file_name().context("the scratch disk has no name")?;
    let path = Path::new("/sys/class/block").join(name).join("stat");
    let stat = fs::read_to_string(&path).with_context(|| {
        format!(
            "{} is not a block device: no {}",
            disk.display(),
            path.display()
        )
    })?;
    // Fields: reads (completed, merged, sectors, ticks), then writes completed.
    stat.split_whitespace()
        .nth(4)
        .and_then(|field| field.parse().ok())
        .with_context(|| format!("{} has no count of writes", path.display()))
}

/// proc_pid_io(5), of all threads of the process.
fn blocks_written(pid: u32) -> Result<u64> {
    let file = format!("/proc/{pid}/io");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    let bytes = text
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes:"));
    let bytes: Option<u64> = bytes.and_then(|bytes| bytes.trim().parse().ok());
    Ok(bytes.with_context(|| format!("{file} has no write_bytes"))? / BLOCK_BYTES)
}

#[derive(Deserialize)]
struct Report {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i64,
    write: Writes,
}

#[derive(Deserialize)]
struct Writes {
    total_ios: f64,
    /// Milliseconds.
    runtime: f64,
}

/// Reads fio's JSON, which "terminating on signal 2" may precede.
pub(super) fn parse(text: &str) -> Result<Own> {
    let start = text.find('{').context("no JSON")?;
    let report: Report = serde_json::from_str(&text[start..]).context("no fio report")?;
    let mut total = 0.0;
    let mut seconds: f64 = 0.0;
    for job in &report.jobs {
        if job.error != 0 {
            bail!("job failed with errno {}", job.error);
        }
        if job.write.runtime <= 0.0 {
            bail!("no time was spent writing");
        }
        total += job.write.total_ios;
        seconds = seconds.max(job.write.runtime / 1e3);
    }
    if report.jobs.is_empty() {
        bail!("no jobs");
    }
    Ok(Own { total, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_writes_of_an_interrupted_run() {
        let own = parse(include_str!("../../tests/data/neighbour/fio.json")).unwrap();
        assert_eq!((own.total, own.seconds), (587_225.0, 1.715));
    }

    #[test]
    fn a_path_with_colons_or_any_bytes_is_one_file() {
        let disk = Path::new(OsStr::from_bytes(
            b"/dev/disk/by-path/pci-0000:01:00.0-\xff",
        ));
        let output = Path::new("/tmp/a:b.json");
        let command = command(disk, output, &Terms::default());
        let words: Vec<&OsStr> = command.get_args().collect();
        let filename = b"--filename=/dev/disk/by-path/pci-0000\\:01\\:00.0-\xff";
        assert!(words.contains(&OsStr::from_bytes(filename)), "{words:?}");
        assert!(
            words.contains(&OsStr::new("--output=/tmp/a:b.json")),
            "{words:?}"
        );
    }

    #[test]
    fn refuses_a_failed_job() {
        let json = r#"{"jobs":[{"error":28,"write":{"total_ios":1,"runtime":5}}]}"#;
        assert!(parse(json).unwrap_err().to_string().contains("errno 28"));
        assert!(parse("fio: nothing").is_err());
        assert!(parse(r#"{"jobs":[]}"#).is_err());
    }
}
