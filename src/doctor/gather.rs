// SPDX-License-Identifier: GPL-2.0-only
//! Reads the facts from `/proc`, `/sys`, `/boot` and `/etc` below a root path. What cannot be read is
//! absent: a doctor does not fail.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::identify::cgroups;
use crate::identify::marks::PIN_DIR;
use crate::proc::mounts::Mounts;
use crate::proc::{Stat, numbers_in};
use crate::topology::Topology;
use crate::topology::pci::{Devices, PciDevice};
use crate::{bpffs, namespaces};

use super::config::KernelConfig;
use super::facts::{Facts, Gpu, Realtime};
use super::{libraries, servers, waking};

/// The facts of the host whose files are below `root`.
pub fn gather(root: &Path) -> Facts {
    let text = |path: &str| read(&root.join(path)).unwrap_or_default();
    let number = |path: &str| text(path).parse().ok();
    let kernel = text("proc/sys/kernel/osrelease");
    let mounts = std::fs::read(root.join("proc/self/mounts")).unwrap_or_default();
    let mounts = Mounts::parse(&mounts);
    let status = text("proc/self/status");
    let cgroup2 = mounts.cgroup2();
    let processes = processes(root);
    let topology = Topology::read(&root.join("sys")).ok();
    let devices = Devices::read(&root.join("sys"));
    Facts {
        has_sched_ext: root.join("sys/kernel/sched_ext").exists(),
        scheduler: scheduler(root),
        kernel_config: KernelConfig::read(root, &kernel),
        kernel,
        has_btf: root.join("sys/kernel/btf/vmlinux").exists(),
        bpffs: bpffs::obstacle(&mounts, Path::new(PIN_DIR)),
        uid: status_field(&status, "Uid:", 1)
            .and_then(|uid| uid.parse().ok())
            .unwrap_or(u32::MAX),
        user_namespace: namespaces::user(root),
        pids_are_initial: namespaces::has_initial_pids(root),
        proc_is_own: namespaces::has_own_proc(root),
        cgroups_are_initial: namespaces::has_initial_cgroups(root),
        capabilities: status_field(&status, "CapEff:", 0)
            .and_then(|caps| u64::from_str_radix(caps, 16).ok())
            .unwrap_or(0),
        jit: number("proc/sys/net/core/bpf_jit_enable"),
        jit_harden: number("proc/sys/net/core/bpf_jit_harden"),
        unprivileged_bpf_disabled: number("proc/sys/kernel/unprivileged_bpf_disabled"),
        memlock: locked_memory(&text("proc/self/limits")),
        lockdown: read(&root.join("sys/kernel/security/lockdown")).and_then(|text| in_force(&text)),
        command_line: text("proc/cmdline"),
        isolated: read(&root.join("sys/devices/system/cpu/isolated")),
        cpu_on_cgroup1: (mounts.iter())
            .any(|mount| mount.kind == "cgroup" && mount.has_option("cpu")),
        cpu_max: cgroup2
            .as_deref()
            .map(|place| cgroups::limited(&below(root, place)))
            .unwrap_or_default(),
        cpu_idle: cgroup2
            .as_deref()
            .map(|place| cgroups::idle(&below(root, place)))
            .unwrap_or_default(),
        cgroup2: cgroup2.map(|path| path.display().to_string()),
        libcuda: libraries::gather(root, &processes),
        waking: waking::gather(root, topology.as_ref(), &devices),
        numa_balancing: number("proc/sys/kernel/numa_balancing")
            .map(|mode| (mode, topology.as_ref().map_or(0, nodes))),
        servers: servers::gather(root, &processes, topology.as_ref(), &devices),
        gpus: gpus(devices),
        irqbalance: processes
            .iter()
            .any(|process| read(&process.join("comm")).as_deref() == Some("irqbalance")),
        realtime: processes
            .iter()
            .flat_map(|process| realtime(process))
            .collect(),
        cpus: topology.map(|topology| topology.cpus.len()),
        possible_cpus: largest_in(&text("sys/devices/system/cpu/possible")).map(|cpu| cpu + 1),
    }
}

fn read(path: &Path) -> Option<String> {
    Some(
        String::from_utf8_lossy(&std::fs::read(path).ok()?)
            .trim()
            .to_owned(),
    )
}

/// An absolute path of the host, below `root`.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn scheduler(root: &Path) -> Option<String> {
    let folder = root.join("sys/kernel/sched_ext");
    let state = read(&folder.join("state"))?;
    (state != "disabled").then(|| read(&folder.join("root/ops")).unwrap_or_default())
}

/// Word `index` after `name` in a `/proc/PID/status`.
fn status_field<'t>(status: &'t str, name: &str, index: usize) -> Option<&'t str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(index)
}

/// The last number of a list of CPUs, however large: more than this program handles is no list to it.
fn largest_in(list: &str) -> Option<usize> {
    list.rsplit([',', '-']).next()?.trim().parse().ok()
}

/// The limit of memory that is locked, in a `/proc/PID/limits`; `None`: there is none.
fn locked_memory(limits: &str) -> Option<u64> {
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// `none [integrity] confidentiality`
fn in_force(lockdown: &str) -> Option<String> {
    let (_, rest) = lockdown.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn processes(root: &Path) -> Vec<PathBuf> {
    let proc = root.join("proc");
    let mut pids: Vec<u32> = numbers_in(&proc);
    pids.sort_unstable();
    pids.iter().map(|pid| proc.join(pid.to_string())).collect()
}

/// How many nodes have CPUs.
fn nodes(topology: &Topology) -> usize {
    let nodes: BTreeSet<u32> = topology.cpus.iter().map(|cpu| cpu.node).collect();
    nodes.len()
}

/// GPUs on PCI with their nodes.
fn gpus(devices: Devices) -> Vec<Gpu> {
    let gpu = |device: PciDevice| Gpu {
        address: device.address,
        node: device.node,
    };
    devices.gpus.into_iter().map(gpu).collect()
}

/// The threads of `process` with SCHED_FIFO, SCHED_RR or SCHED_DEADLINE, if it is not the kernel's.
fn realtime(process: &Path) -> Vec<Realtime> {
    let tasks = process.join("task");
    let tids: Vec<u32> = numbers_in(&tasks);
    tids.into_iter()
        .filter_map(|tid| {
            let stat = Stat::read(&tasks.join(tid.to_string()))?;
            let is_realtime = matches!(stat.policy, Some(1 | 2 | 6));
            (is_realtime && !stat.is_kernel()).then_some(Realtime {
                tid,
                comm: stat.comm,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::tests::host;

    fn stat(tid: u32, comm: &str, flags: u64, policy: u32) -> String {
        let zeros = |nr| vec!["0"; nr].join(" ");
        format!(
            "{tid} ({comm}) S {} {flags} {} {policy} 0",
            zeros(5),
            zeros(31)
        )
    }

    #[test]
    fn reads_a_host() {
        let audio = stat(12, "a) b", 0, 1);
        let root = host(&[
            ("proc/sys/kernel/osrelease", "6.18.15\n"),
            ("proc/cmdline", "quiet isolcpus=1\n"),
            (
                "proc/self/status",
                "Uid:\t0\t1000\t0\t0\nCapEff:\t000000ffffffffff\n",
            ),
            (
                "proc/self/mounts",
                "bpf /sys/fs/bpf bpf rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n\
                 cgroup /sys/fs/v1 cgroup rw,cpu,cpuacct 0 0\n",
            ),
            ("proc/7/comm", "irqbalance\n"),
            (
                "proc/7/maps",
                "7f00-7f10 r-xp 00000000 fe:01 4711 /opt/libcuda.so.1\n",
            ),
            ("proc/12/task/12/stat", &audio),
            (
                "proc/13/task/13/stat",
                &stat(13, "migration/0", 0x0020_0000, 1),
            ),
            ("proc/14/task/14/stat", &stat(14, "sh", 0, 0)),
            (
                "proc/self/limits",
                "Max locked memory         8388608              8388608              bytes\n",
            ),
            ("proc/sys/net/core/bpf_jit_enable", "1\n"),
            ("proc/sys/net/core/bpf_jit_harden", "2\n"),
            ("boot/config-6.18.15", "CONFIG_SCHED_CLASS_EXT=y\n"),
            ("sys/kernel/sched_ext/state", "enabled\n"),
            ("sys/kernel/sched_ext/root/ops", "lavd\n"),
            (
                "sys/kernel/security/lockdown",
                "none [integrity] confidentiality\n",
            ),
            ("sys/fs/cgroup/user.slice/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/system.slice/cpu.max", "max 100000\n"),
            ("sys/bus/pci/devices/0000:17:00.0/class", "0x030200\n"),
            ("sys/bus/pci/devices/0000:17:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:17:00.0/numa_node", "1\n"),
            ("sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n"),
            ("sys/bus/pci/devices/0000:02:00.0/vendor", "0x1a03\n"),
            (
                "etc/ld.so.cache",
                "glibc\0libcuda.so.1\0/lib/libcuda.so.1\0/lib/libcudart.so.1\0",
            ),
        ]);
        let facts = gather(root.path());
        assert_eq!(facts.kernel, "6.18.15");
        assert_eq!(facts.scheduler.as_deref(), Some("lavd"));
        let config = facts.kernel_config.unwrap();
        assert_eq!(config.place, "/boot/config-6.18.15");
        assert!(config.enabled.contains("SCHED_CLASS_EXT"));
        assert!(facts.has_sched_ext && facts.bpffs.is_none() && !facts.has_btf);
        assert_eq!((facts.uid, facts.capabilities), (1000, 0xff_ffff_ffff));
        assert_eq!(facts.lockdown.as_deref(), Some("integrity"));
        assert_eq!((facts.jit, facts.jit_harden), (Some(1), Some(2)));
        assert_eq!(facts.memlock, Some(8 << 20));
        assert!(facts.command_line.contains("isolcpus=1"));
        assert_eq!(facts.cgroup2.as_deref(), Some("/sys/fs/cgroup"));
        assert!(facts.cpu_on_cgroup1 && facts.irqbalance);
        assert_eq!(facts.cpu_max, ["user.slice"]);
        let libraries = facts.libcuda.iter().map(|library| library.path.as_str());
        assert!(libraries.eq(["/lib/libcuda.so.1", "/opt/libcuda.so.1"]));
        let gpu = Gpu {
            address: "0000:17:00.0".to_owned(),
            node: Some(1),
        };
        assert_eq!(facts.gpus, [gpu]);
        let thread = Realtime {
            tid: 12,
            comm: "a) b".to_owned(),
        };
        assert_eq!(facts.realtime, [thread]);
        assert_eq!((facts.cpus, facts.possible_cpus), (None, None));
    }

    #[test]
    fn cpus_beyond_the_largest_that_is_handled_are_counted() {
        let root = host(&[
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/cpu/possible", "0-3,8-2047\n"),
        ]);
        let facts = gather(root.path());
        assert_eq!((facts.cpus, facts.possible_cpus), (None, Some(2048)));
    }

    #[test]
    fn an_empty_host_is_no_failure() {
        let root = tempfile::tempdir().unwrap();
        let facts = gather(root.path());
        assert!(!facts.has_sched_ext && facts.scheduler.is_none() && facts.gpus.is_empty());
    }
}
