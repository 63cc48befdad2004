// SPDX-License-Identifier: GPL-2.0-only
//! What a machine of the lab is made of, as its callers ask for it.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

const MAX_DEFAULT_CPUS: usize = 8;

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
            cpus: default_cpus(),
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

/// This machine's CPUs, at most 8.
pub fn default_cpus() -> usize {
    std::thread::available_parallelism()
        .map_or(1, std::num::NonZero::get)
        .min(MAX_DEFAULT_CPUS)
}
