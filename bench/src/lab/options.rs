// SPDX-License-Identifier: GPL-2.0-only
//! The flags of `gpuaware-bench lab`: from words to a `Lab`. Boots nothing.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::spec::{DiskDriver, Lab, default_cpus};
use crate::kernel_release;

const MAX_CPUS: u64 = 64;
const MAX_NUMA_NODES: u64 = 8;
const MAX_TIMEOUT_S: u64 = 30 * 24 * 3600;

/// What to boot and what to run in it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
In the guest GPUAWARE_LAB=1 is set and GPUAWARE_LAB_DISK names the scratch disk,
GPUAWARE_LAB_HOST_LOAD a file that says what else this machine does. HOME, PATH, CI and GPUAWARE_*
variables are passed on. Exit code: the command's; 124 when the time limit is reached;
1 when the lab itself failed; 2 bad usage.")]
pub struct Options {
    /// Kernel: a series of the distribution's, or the path of a vmlinuz.
    #[arg(long, value_name = "SERIES|PATH", default_value = "6.18", value_parser = kernel_release::named)]
    kernel: String,

    /// Virtual CPUs [default: this machine's, at most 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_CPUS))]
    cpus: Option<u64>,

    /// Two hardware threads a core.
    #[arg(long)]
    smt: bool,

    /// NUMA nodes, with CPUs and memory split evenly.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MAX_NUMA_NODES))]
    numa: u64,

    /// NUMA node with a GPU that is seen on PCI and computes nothing [default: no GPU].
    #[arg(long, value_name = "NODE")]
    gpu_node: Option<usize>,

    /// Kernel parameters to add, such as "isolcpus=1 nohz_full=1".
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    boot: Vec<String>,

    /// Time limit for boot and command together, in seconds.
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=MAX_TIMEOUT_S))]
    timeout: u64,

    /// How often to boot again where the guest did not boot, or where the emulation made its kernel
    /// panic (docs/bench.md, a stale int3); the command starts anew, with the whole time limit.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=9))]
    restarts: u32,

    /// Directory that the guest may write to; repeatable.
    #[arg(long, value_name = "DIR")]
    rwdir: Vec<PathBuf>,

    /// Environment variable for the command; repeatable.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    env: Vec<(String, String)>,

    /// Size of the scratch disk in MiB; 0: none.
    #[arg(long, value_name = "N", default_value_t = 512)]
    disk_mib: u64,

    /// Driver of the scratch disk.
    #[arg(long, value_enum, value_name = "DRIVER", default_value_t)]
    disk_driver: DiskDriver,

    /// The guest's memory in MiB.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(256..))]
    memory_mib: u64,

    /// Show the guest's kernel messages on stderr.
    #[arg(long)]
    console: bool,

    /// Command to run in the guest, as root.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

impl Options {
    pub fn command(&self) -> &[String] {
        &self.command
    }

    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// The machine that these flags describe.
    pub fn lab(&self) -> Result<Lab> {
        let lab = Lab {
            kernel: self.kernel.clone(),
            cpus: self.cpus.map_or_else(default_cpus, |cpus| cpus as usize),
            smt: self.smt,
            numa_nodes: self.numa as usize,
            gpu_node: self.gpu_node,
            boot_args: boot_words(&self.boot),
            timeout: Duration::from_secs(self.timeout),
            rw_dirs: self.rwdir.clone(),
            env: self.env.clone(),
            disk_mib: self.disk_mib,
            disk_driver: self.disk_driver,
            memory_mib: self.memory_mib,
            show_console: self.console,
        };
        super::machine::check(&lab)?;
        for dir in &lab.rw_dirs {
            ensure!(dir.is_dir(), "--rwdir {}: no such directory", dir.display());
        }
        Ok(lab)
    }
}

fn boot_words(texts: &[String]) -> Vec<String> {
    texts
        .iter()
        .flat_map(|text| text.split_whitespace())
        .map(str::to_owned)
        .collect()
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if key.is_empty() || key.starts_with(|c: char| c.is_ascii_digit()) || !key.chars().all(letters)
    {
        return Err(format!("{key:?} is not the name of a variable"));
    }
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn parse(words: &[&str]) -> Result<Lab> {
        let words = ["lab"].iter().chain(words).copied();
        Cli::try_parse_from(words)?.options.lab()
    }

    #[test]
    fn defaults_to_kernel_6_18_and_at_most_8_cpus() {
        let lab = parse(&["--", "true"]).unwrap();
        assert_eq!(lab.kernel, "6.18");
        assert!((1..=8).contains(&lab.cpus));
        assert_eq!(lab.disk_mib, 512);
    }

    #[test]
    fn splits_kernel_parameters_at_blanks() {
        let lab = parse(&[
            "--boot",
            "isolcpus=1 nohz_full=1",
            "--boot",
            "quiet",
            "--",
            "true",
        ])
        .unwrap();
        assert_eq!(lab.boot_args, ["isolcpus=1", "nohz_full=1", "quiet"]);
    }

    #[test]
    fn keeps_equal_signs_in_a_variables_value() {
        let lab = parse(&["--env", "A=b=c", "--", "true"]).unwrap();
        assert_eq!(lab.env, [("A".to_owned(), "b=c".to_owned())]);
    }

    #[test]
    fn rejects_what_is_not_usable() {
        for words in [
            &["--kernel", "newest", "--", "true"][..],
            &["--env", "novalue", "--", "true"],
            &["--env", "1A=x", "--", "true"],
            &["--cpus", "0", "--", "true"],
            &["--cpus", "3", "--smt", "--", "true"],
            &["--cpus", "2", "--numa", "4", "--", "true"],
            &[
                "--cpus",
                "4",
                "--numa",
                "2",
                "--gpu-node",
                "2",
                "--",
                "true",
            ],
            &["--rwdir", "/no/such/dir", "--", "true"],
            &["--restarts", "10", "--", "true"],
            &[],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
