// SPDX-License-Identifier: GPL-2.0-only
//! Reads the facts from `/proc`, `/sys`, `/boot` and `/etc` below a root path. What cannot be read is
//! absent: a doctor does not fail.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::identify::{cgroups, libcuda};
use crate::topology::Topology;
use crate::topology::pci::{Devices, PciDevice};

use super::{Facts, Gpu, KernelConfig, Realtime};

/// PF_KTHREAD of linux/sched.h.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The facts of the host whose files are below `root`.
pub fn gather(root: &Path) -> Facts {
    let text = |path: &str| read(&root.join(path)).unwrap_or_default();
    let kernel = text("proc/sys/kernel/osrelease");
    let mounts = text("proc/self/mounts");
    let status = text("proc/self/status");
    let cgroup2 = cgroups::mount_point(&mounts);
    let processes = processes(root);
    let topology = Topology::read(&root.join("sys")).ok();
    Facts {
        has_sched_ext: root.join("sys/kernel/sched_ext").exists(),
        scheduler: scheduler(root),
        kernel_config: KernelConfig::read(root, &kernel),
        kernel,
        has_btf: root.join("sys/kernel/btf/vmlinux").exists(),
        has_bpffs: is_mounted(&mounts, "/sys/fs/bpf", "bpf"),
        uid: status_field(&status, "Uid:", 1)
            .and_then(|uid| uid.parse().ok())
            .unwrap_or(u32::MAX),
        capabilities: status_field(&status, "CapEff:", 0)
            .and_then(|caps| u64::from_str_radix(caps, 16).ok())
            .unwrap_or(0),
        lockdown: read(&root.join("sys/kernel/security/lockdown")).and_then(|text| in_force(&text)),
        command_line: text("proc/cmdline"),
        cpu_on_cgroup1: mounts.lines().any(is_cpu_controller),
        cpu_max: cgroup2
            .as_deref()
            .map(|place| cgroups::limited(&below(root, place)))
            .unwrap_or_default(),
        cgroup2: cgroup2.map(|path| path.display().to_string()),
        libcuda: known_libcudas(root, &processes),
        gpus: gpus(root),
        irqbalance: processes
            .iter()
            .any(|process| read(&process.join("comm")).as_deref() == Some("irqbalance")),
        realtime: processes
            .iter()
            .flat_map(|process| realtime(process))
            .collect(),
        cpus: topology.map(|topology| (topology.cpus.len(), topology.nr_cpu_ids)),
    }
}

fn read(path: &Path) -> Option<String> {
    Some(
        String::from_utf8_lossy(&std::fs::read(path).ok()?)
            .trim()
            .to_owned(),
    )
}

fn folders(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
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

fn is_mounted(mounts: &str, place: &str, kind: &str) -> bool {
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(1);
        fields.next() == Some(place) && fields.next() == Some(kind)
    })
}

fn is_cpu_controller(mount: &str) -> bool {
    let mut fields = mount.split(' ').skip(2);
    let (kind, options) = (fields.next(), fields.next().unwrap_or_default());
    kind == Some("cgroup") && options.split(',').any(|option| option == "cpu")
}

/// Word `index` after `name` in a `/proc/PID/status`.
fn status_field<'t>(status: &'t str, name: &str, index: usize) -> Option<&'t str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(index)
}

/// `none [integrity] confidentiality`
fn in_force(lockdown: &str) -> Option<String> {
    let (_, rest) = lockdown.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn processes(root: &Path) -> Vec<PathBuf> {
    let is_process = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    };
    folders(&root.join("proc")).filter(is_process).collect()
}

/// Paths in the loader's cache, and of files that processes have mapped.
fn known_libcudas(root: &Path, processes: &[PathBuf]) -> Vec<String> {
    let cache = std::fs::read(root.join("etc/ld.so.cache")).unwrap_or_default();
    let mut paths = BTreeSet::new();
    for name in cache.split(|&byte| byte == 0) {
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        let file = name.rsplit('/').next().unwrap_or(name);
        if name.starts_with('/') && file.starts_with("libcuda.so") {
            paths.insert(name.to_owned());
        }
    }
    for process in processes {
        let maps = std::fs::read(process.join("maps")).unwrap_or_default();
        for mapping in libcuda::mappings(&maps, libcuda::is_libcuda) {
            paths.insert(mapping.path.display().to_string());
        }
    }
    paths.into_iter().collect()
}

/// GPUs on PCI with their nodes.
fn gpus(root: &Path) -> Vec<Gpu> {
    let devices = Devices::read(&root.join("sys"));
    let gpu = |device: PciDevice| Gpu {
        address: device.address,
        node: device.node,
    };
    devices.gpus.into_iter().map(gpu).collect()
}

/// The threads of `process` with SCHED_FIFO, SCHED_RR or SCHED_DEADLINE, if it is not the kernel's.
fn realtime(process: &Path) -> Vec<Realtime> {
    folders(&process.join("task"))
        .filter_map(|thread| {
            let stat = read(&thread.join("stat"))?;
            let (start, rest) = stat.rsplit_once(')')?;
            let (tid, comm) = start.split_once(" (")?;
            // The first of these is the third field of proc_pid_stat(5).
            let fields: Vec<_> = rest.split_whitespace().collect();
            let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
            let of_the_kernel = field(9)? & KERNEL_THREAD != 0;
            let is_realtime = matches!(field(41)?, 1 | 2 | 6);
            (is_realtime && !of_the_kernel).then(|| Realtime {
                tid: tid.parse().unwrap_or(0),
                comm: comm.to_owned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host as a tree of files.
    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

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
                &stat(13, "migration/0", KERNEL_THREAD, 1),
            ),
            ("proc/14/task/14/stat", &stat(14, "sh", 0, 0)),
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
        assert!(facts.has_sched_ext && facts.has_bpffs && !facts.has_btf);
        assert_eq!((facts.uid, facts.capabilities), (1000, 0xff_ffff_ffff));
        assert_eq!(facts.lockdown.as_deref(), Some("integrity"));
        assert!(facts.command_line.contains("isolcpus=1"));
        assert_eq!(facts.cgroup2.as_deref(), Some("/sys/fs/cgroup"));
        assert!(facts.cpu_on_cgroup1 && facts.irqbalance);
        assert_eq!(facts.cpu_max, ["user.slice"]);
        assert_eq!(facts.libcuda, ["/lib/libcuda.so.1", "/opt/libcuda.so.1"]);
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
        assert_eq!(facts.cpus, None);
    }

    #[test]
    fn an_empty_host_is_no_failure() {
        let root = tempfile::tempdir().unwrap();
        let facts = gather(root.path());
        assert!(!facts.has_sched_ext && facts.scheduler.is_none() && facts.gpus.is_empty());
    }
}
