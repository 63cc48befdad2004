// SPDX-License-Identifier: GPL-2.0-only
//! The lab: a virtual machine with a sched_ext kernel over this machine's file system.
//!
//! Owns choosing and fetching the kernel, the machine's command line (virtme-ng over QEMU), the
//! guest's set-up, and the machine's life: output, exit code, time limit, panic, clean-up. Does not
//! know what is run in it.
//!
//! The guest sees this machine's files at the same paths: read-only, except for `rw_dirs` (written
//! through to this machine) and `/tmp`, `/var/tmp`, `/etc`, `/run` (writable, gone afterwards).

mod accel;
mod console;
mod debian;
mod files;
mod guest;
pub mod hostload;
mod kernel;
mod machine;
mod mainloop;
mod options;
mod pace;
mod session;
mod stream;
mod tools;
mod vcpus;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::watchdog;

pub use kernel::has_eevdf;
pub use options::Options;
pub use tools::{cache_dir, on_path};

/// Exit code when the time limit is reached, as `timeout(1)` has it.
pub const TIMED_OUT: u8 = 124;

/// What the scratch disk is, by the name of the guest's driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum DiskDriver {
    /// A disk of the machine, with interrupts. Emulation serves it with threads of this machine,
    /// which take the guest's CPUs the cores that they run on.
    #[default]
    VirtioBlk,
    /// Memory of the guest behind the kernel's block layer; completes in softirqs. All its work is
    /// done by the guest's own CPUs.
    NullBlk,
}

/// A machine to boot. Start from `Lab::default()` and change what must differ.
#[derive(Debug, Clone)]
pub struct Lab {
    /// A series (`6.18`), or the path of a vmlinuz with its config and modules beside it.
    pub kernel: String,
    /// Virtual CPUs. The default is this machine's, at most 8: with more virtual than real CPUs
    /// every latency measures the host.
    pub cpus: usize,
    /// Two hardware threads a core; needs an even number of CPUs.
    pub smt: bool,
    /// NUMA nodes; CPUs and memory are split evenly.
    pub numa_nodes: usize,
    /// A display device of AMD's on a PCI root of this node, which is a GPU to whoever looks for
    /// one in sysfs. Nothing can be computed on it.
    pub gpu_node: Option<usize>,
    /// Kernel parameters beside the lab's own, such as `isolcpus=1`.
    pub boot_args: Vec<String>,
    /// Wall-clock limit from the start of the machine to the end of the command.
    pub timeout: Duration,
    /// Directories of this machine that the guest may write to.
    pub rw_dirs: Vec<PathBuf>,
    /// Environment variables for the command, after those that the lab passes on by itself.
    pub env: Vec<(String, String)>,
    /// Size of the scratch disk whose path the guest finds in `GPUAWARE_LAB_DISK`; 0: no disk.
    pub disk_mib: u64,
    pub disk_driver: DiskDriver,
    pub memory_mib: u64,
    /// Copy the guest's kernel messages to stderr as they come.
    pub show_console: bool,
}

impl Default for Lab {
    fn default() -> Self {
        Self {
            kernel: "6.18".to_owned(),
            cpus: options::default_cpus(),
            smt: false,
            numa_nodes: 1,
            gpu_node: None,
            boot_args: Vec::new(),
            timeout: Duration::from_secs(600),
            rw_dirs: Vec::new(),
            env: Vec::new(),
            disk_mib: 512,
            disk_driver: DiskDriver::default(),
            memory_mib: 4096,
            show_console: false,
        }
    }
}

/// Gets the kernel that `wanted` names without booting it; says why there is none.
pub fn prepare(wanted: &str) -> Result<()> {
    kernel::obtain(wanted).map(drop)
}

impl Lab {
    /// Boots the machine, runs `command` in it as root in this process's working directory and
    /// streams its stdout and stderr to this process's.
    ///
    /// Returns the command's exit code (128 + N when signal N killed it), [`TIMED_OUT`] when
    /// the time limit was reached, 128 + N when SIGINT, SIGTERM or SIGHUP told this process to stop. An
    /// error is a lab that could not do its work: no kernel, no QEMU, a guest that panicked.
    pub fn run(&self, command: &[String]) -> Result<u8> {
        ensure!(!command.is_empty(), "the lab needs a command to run");
        let tools = tools::Tools::find()?;
        let kernel = kernel::obtain(&self.kernel)?;
        let accel = accel::choose(&tools, &kernel)?;
        session::run(self, command, &tools, &kernel, accel)
    }
}

/// Boots the lab and runs the command.
pub fn main(options: &Options) -> Result<ExitCode> {
    watchdog::start()?;
    let lab = match options.lab() {
        Ok(lab) => lab,
        Err(error) => {
            eprintln!("gpuaware-bench: error: {error:#}");
            return Ok(ExitCode::from(2));
        }
    };
    let mut restarts = options.restarts();
    loop {
        match lab.run(options.command()) {
            Err(error) if restarts > 0 && error.is::<session::Fault>() => {
                eprintln!("lab: {error}\nlab: that is the machine's fault: starting again");
                restarts -= 1;
            }
            ended => return ended.map(ExitCode::from),
        }
    }
}
