// SPDX-License-Identifier: GPL-2.0-only
//! What is known of a host, for the checks.

use crate::bpffs::Obstacle;

use super::config::KernelConfig;
use super::libraries::Libcuda;
use super::servers::Server;
use super::waking::Waking;

/// What is known of a host.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// As `uname -r` prints it.
    pub kernel: String,
    /// Does the kernel have sched_ext?
    pub has_sched_ext: bool,
    /// The sched_ext scheduler that is loaded.
    pub scheduler: Option<String>,
    /// The kernel's configuration, if it is there.
    pub kernel_config: Option<KernelConfig>,
    /// Does the kernel describe its types?
    pub has_btf: bool,
    /// What keeps objects from being pinned below /sys/fs/bpf.
    pub bpffs: Option<Obstacle>,
    /// Effective user id.
    pub uid: u32,
    /// The user namespace, in words; `None`: the host's.
    pub user_namespace: Option<String>,
    /// Are the numbers of processes the kernel's own?
    pub pids_are_initial: bool,
    /// Effective capabilities, bit by number.
    pub capabilities: u64,
    /// net.core.bpf_jit_enable, if it can be seen.
    pub jit: Option<u32>,
    /// net.core.bpf_jit_harden
    pub jit_harden: Option<u32>,
    /// kernel.unprivileged_bpf_disabled
    pub unprivileged_bpf_disabled: Option<u32>,
    /// Memory that may be locked, bytes; `None`: all.
    pub memlock: Option<u64>,
    /// Kernel lockdown: none, integrity, confidentiality; `None`: not built in.
    pub lockdown: Option<String>,
    /// The kernel's command line.
    pub command_line: String,
    /// CPUs that the kernel keeps out of the scheduling domains, if it tells: empty for none.
    pub isolated: Option<String>,
    /// Where the cgroup v2 hierarchy is mounted.
    pub cgroup2: Option<String>,
    /// Are the numbers in `/proc` those of this process's PID namespace?
    pub proc_is_own: bool,
    /// Are all cgroups of the host seen, by their names?
    pub cgroups_are_initial: bool,
    /// Is the cpu controller one of cgroup v1?
    pub cpu_on_cgroup1: bool,
    /// Cgroups with a limit in cpu.max.
    pub cpu_max: Vec<String>,
    /// Cgroups that cpu.idle makes idle.
    pub cpu_idle: Vec<String>,
    /// libcuda files that the loader or a process knows.
    pub libcuda: Vec<Libcuda>,
    /// GPUs on PCI.
    pub gpus: Vec<Gpu>,
    /// Does irqbalance run?
    pub irqbalance: bool,
    /// Threads of user space with a real-time policy.
    pub realtime: Vec<Realtime>,
    /// How fast CPUs answer.
    pub waking: Waking,
    /// kernel.numa_balancing, if the kernel has it, and the number of nodes with CPUs.
    pub numa_balancing: Option<(u32, usize)>,
    /// Processes that hold GPUs open.
    pub servers: Vec<Server>,
    /// Number of online CPUs, if sysfs tells and they are not too many to be handled.
    pub cpus: Option<usize>,
    /// One more than the largest possible number.
    pub possible_cpus: Option<usize>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// PCI address.
    pub address: String,
    /// NUMA node, if the firmware tells.
    pub node: Option<u32>,
}

/// A thread that runs before every task of a sched_ext scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Realtime {
    /// Thread id.
    pub tid: u32,
    /// Its name.
    pub comm: String,
}
