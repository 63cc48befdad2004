// SPDX-License-Identifier: GPL-2.0-only
//! Facts to findings, one function a check. Pure.

use crate::namespaces::MOUNT_PROC;
use crate::policy::cpuset::MAX_CPU;
use crate::printable::printable;

use super::facts::Facts;
use super::finding::{Finding, Judgement, listed, ok, problem, warning};
use super::{cmdline, config, libraries, servers, waking};

/// The oldest kernel with sched_ext, the oldest that the lab tries, the first with a hook for cpu.max, for cpu.idle.
const FIRST: (u32, u32) = (6, 12);
const TRIED: (u32, u32) = (6, 18);
const CPU_MAX: (u32, u32) = (6, 17);
const CPU_IDLE: (u32, u32) = (6, 19);
/// The first kernel that takes the memory of maps from the cgroup's, not from what may be locked.
const MEMORY_BY_CGROUP: (u32, u32) = (5, 11);

/// Numbers and names of what loading needs, from linux/capability.h.
const CAPABILITIES: [(u32, &str); 5] = [
    (19, "CAP_SYS_PTRACE"),
    (21, "CAP_SYS_ADMIN"),
    (23, "CAP_SYS_NICE"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
];

/// What every check finds, in the order in which a newcomer should mend it.
pub fn examine(facts: &Facts) -> Vec<Finding> {
    let checks: [Check; 26] = [
        ("kernel", kernel),
        ("sched_ext", sched_ext),
        ("config", config),
        ("btf", btf),
        ("bpffs", bpffs),
        ("privileges", privileges),
        ("pids", pids),
        ("lockdown", lockdown),
        ("bpf", bpf),
        ("isolcpus", isolcpus),
        ("cpus", cpus),
        ("cgroup2", cgroup2),
        ("cpu_max", cpu_max),
        ("cpu_idle", cpu_idle),
        ("libcuda", libcuda),
        ("gpus", gpus),
        ("irqbalance", irqbalance),
        ("realtime", realtime),
        ("governor", |facts| waking::judge_governor(&facts.waking)),
        ("idle_states", |facts| waking::judge_idle(&facts.waking)),
        ("managed_irqs", |facts| waking::judge_managed(&facts.waking)),
        ("numa_balancing", numa_balancing),
        ("gpu_cpus", |facts| servers::judge_cpus(&facts.servers)),
        ("gpu_nodes", |facts| servers::judge_nodes(&facts.servers)),
        ("gpu_memory", |facts| servers::judge_memory(&facts.servers)),
        ("openmp", openmp),
    ];
    let finding = |(check, judge): Check| {
        let (verdict, found, remedy) = judge(facts);
        Finding {
            check,
            verdict,
            found,
            remedy,
        }
    };
    checks.into_iter().map(finding).collect()
}

/// Name and function.
type Check = (&'static str, fn(&Facts) -> Judgement);

/// Major and minor number of a release such as `6.18.15-cloud-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|char: char| !char.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn kernel(facts: &Facts) -> Judgement {
    let release = &facts.kernel;
    match version(release) {
        Some(found) if found >= TRIED => ok(format!("Linux {release}")),
        Some(found) if found >= FIRST => warning(
            format!("Linux {release} is older than what this is tried on"),
            format!("use Linux {}.{} or newer where you can", TRIED.0, TRIED.1),
        ),
        Some(_) => problem(
            format!("Linux {release} is too old for sched_ext"),
            format!(
                "boot Linux {}.{} or newer, better {}.{}",
                FIRST.0, FIRST.1, TRIED.0, TRIED.1
            ),
        ),
        None => warning(
            format!("kernel release {release:?} is no version"),
            "look at uname -r",
        ),
    }
}

fn sched_ext(facts: &Facts) -> Judgement {
    match &facts.scheduler {
        _ if !facts.has_sched_ext => problem(
            "the kernel has no sched_ext (/sys/kernel/sched_ext is missing)",
            "boot a kernel with CONFIG_SCHED_CLASS_EXT=y; Debian's own 6.12 has it off, its backports \
             have it on",
        ),
        None => ok("the kernel has sched_ext, no scheduler is loaded"),
        Some(name) if name.starts_with("gpuaware") => ok(format!("scx_gpuaware runs ({name})")),
        Some(name) => problem(
            format!("another sched_ext scheduler is loaded: {name}"),
            "stop it, for instance with systemctl stop scx: only one can be loaded",
        ),
    }
}

fn config(facts: &Facts) -> Judgement {
    config::judge(facts.kernel_config.as_ref(), &facts.kernel)
}

fn btf(facts: &Facts) -> Judgement {
    if facts.has_btf {
        return ok("the kernel describes its types (/sys/kernel/btf/vmlinux)");
    }
    problem(
        "/sys/kernel/btf/vmlinux is missing",
        "boot a kernel with CONFIG_DEBUG_INFO_BTF=y",
    )
}

fn bpffs(facts: &Facts) -> Judgement {
    match &facts.bpffs {
        None => ok("a BPF file system is on /sys/fs/bpf"),
        Some(obstacle) => problem(format!("{obstacle}, so no marks"), obstacle.remedy()),
    }
}

fn privileges(facts: &Facts) -> Judgement {
    if facts.uid != 0 {
        return problem(
            format!("user {}: loading needs root", facts.uid),
            "try sudo",
        );
    }
    if let Some(namespace) = &facts.user_namespace {
        return problem(
            format!("root of {namespace}: the kernel lets only the host's root load BPF programs"),
            "start it on the host, or in a container without a user namespace of its own (rootless ones have one)",
        );
    }
    let missing: Vec<_> = CAPABILITIES
        .iter()
        .filter(|(bit, _)| facts.capabilities & (1 << bit) == 0)
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        return ok("root with the capabilities that loading needs");
    }
    problem(
        format!("root without {}", missing.join(", ")),
        "give the container or the service these capabilities",
    )
}

fn pids(facts: &Facts) -> Judgement {
    if !facts.proc_is_own {
        return problem(
            "/proc is of another PID namespace: the processes that it lists have other numbers here",
            MOUNT_PROC,
        );
    }
    if facts.pids_are_initial {
        return ok("processes have the numbers that the kernel gave them");
    }
    warning(
        "a PID namespace: only the processes in it are seen",
        "start scx_gpuaware with the host's (docker run --pid=host, hostPID: true) to find launchers of the whole host",
    )
}

/// Switches that stop BPF programs, or slow them down.
fn bpf(facts: &Facts) -> Judgement {
    if facts.jit == Some(0) {
        return problem(
            "net.core.bpf_jit_enable is 0: the kernel refuses schedulers that are not compiled (errno 524)",
            "sysctl -w net.core.bpf_jit_enable=1, and take the line with 0 out of /etc/sysctl.d",
        );
    }
    if let Some(limit) = facts.memlock
        && version(&facts.kernel).is_some_and(|version| version < MEMORY_BY_CGROUP)
    {
        return problem(
            format!(
                "at most {limit} bytes may be locked, from which this kernel takes the maps of BPF"
            ),
            "ulimit -l unlimited, or LimitMEMLOCK=infinity in the service",
        );
    }
    if facts.jit_harden == Some(2) {
        return warning(
            "net.core.bpf_jit_harden is 2: constants of root's programs are blinded too, which makes each slower",
            "sysctl -w net.core.bpf_jit_harden=1, which blinds those of other users",
        );
    }
    match facts.unprivileged_bpf_disabled {
        Some(mode @ 1..) => ok(format!(
            "no switch stops BPF (kernel.unprivileged_bpf_disabled is {mode}: not for root)"
        )),
        _ => ok("no switch stops BPF"),
    }
}

fn lockdown(facts: &Facts) -> Judgement {
    match facts.lockdown.as_deref() {
        Some("confidentiality") => problem(
            "kernel lockdown is confidentiality: BPF may not read kernel memory",
            "boot with lockdown=integrity, or without lockdown",
        ),
        Some(mode) => ok(format!("kernel lockdown: {mode}")),
        None => ok("kernel lockdown is not built in"),
    }
}

fn isolcpus(facts: &Facts) -> Judgement {
    let isolating = cmdline::isolating(&facts.command_line).join(" ");
    if isolating.is_empty() {
        return ok("no isolcpus= on the kernel's command line that takes CPUs out of scheduling");
    }
    if facts.isolated.as_deref() == Some("") {
        return ok(format!("the kernel has ignored {isolating}"));
    }
    problem(
        format!("{isolating} on the kernel's command line: sched_ext refuses to load"),
        "take it out of the boot loader's configuration and reboot (the flags managed_irq and nohz without \
         domain may stay); name the CPUs as preferred.cpus instead",
    )
}

fn cpus(facts: &Facts) -> Judgement {
    const MOST: usize = MAX_CPU as usize + 1;
    if let Some(possible) = facts.possible_cpus.filter(|&possible| possible > MOST) {
        return problem(
            format!("{possible} possible CPUs: at most {MOST} are supported"),
            "boot with possible_cpus= or nr_cpus= if fewer are there",
        );
    }
    match facts.cpus {
        None => problem("the CPUs cannot be read from sysfs", "mount sysfs on /sys"),
        Some(1) => warning(
            "one CPU: launchers can only share it",
            "give the virtual machine or the container more CPUs",
        ),
        Some(online) => ok(format!("{online} CPUs online")),
    }
}

fn cgroup2(facts: &Facts) -> Judgement {
    let Some(place) = &facts.cgroup2 else {
        return warning(
            "no cgroup v2 hierarchy is mounted: cgroup rules of the policy match nothing",
            "mount -t cgroup2 none /sys/fs/cgroup, or boot with systemd.unified_cgroup_hierarchy=1",
        );
    };
    let mut found = format!("cgroup v2 is on {place}");
    let mut remedies = Vec::new();
    if facts.cpu_on_cgroup1 {
        found.push_str(", but the cpu controller is one of cgroup v1");
        remedies.push(
            "boot with systemd.unified_cgroup_hierarchy=1 if cpu.weight and cpu.max should count",
        );
    }
    if !facts.cgroups_are_initial {
        found.push_str(
            ", in a cgroup namespace: rules, pins and trace --cgroup know the cgroups below the container's only, by \
             paths that begin there",
        );
        remedies.push(
            "start scx_gpuaware with the host's (docker run --cgroupns=host) where a policy names cgroups of the host",
        );
    }
    match remedies[..] {
        [] => ok(found),
        _ => warning(found, remedies.join("; ")),
    }
}

fn cpu_max(facts: &Facts) -> Judgement {
    holds_since(facts, "cpu.max", &facts.cpu_max, CPU_MAX)
}

fn cpu_idle(facts: &Facts) -> Judgement {
    holds_since(facts, "cpu.idle", &facts.cpu_idle, CPU_IDLE)
}

/// What `file` says of `cgroups` reaches a scheduler from the kernel `first` on.
fn holds_since(facts: &Facts, file: &str, cgroups: &[String], first: (u32, u32)) -> Judgement {
    if cgroups.is_empty() {
        return ok(format!("no cgroup sets {file}"));
    }
    let found = format!("cgroups that set {file}: {}", listed(cgroups));
    match version(&facts.kernel) {
        Some(version) if version >= first => ok(format!("{found}; it holds")),
        _ => warning(
            format!("{found}; a sched_ext scheduler does not see that on this kernel"),
            format!("boot Linux {}.{} or newer if it matters", first.0, first.1),
        ),
    }
}

fn libcuda(facts: &Facts) -> Judgement {
    libraries::judge(&facts.libcuda)
}

fn gpus(facts: &Facts) -> Judgement {
    if facts.gpus.is_empty() {
        return warning(
            "no GPU on PCI",
            "look for the card in lspci; an emulated GPU and that of WSL are not on PCI, and need not be",
        );
    }
    let names: Vec<_> = facts
        .gpus
        .iter()
        .map(|gpu| match gpu.node {
            Some(node) => format!("{} on node {node}", gpu.address),
            None => gpu.address.clone(),
        })
        .collect();
    ok(listed(&names))
}

fn irqbalance(facts: &Facts) -> Judgement {
    if !facts.irqbalance {
        return ok("irqbalance does not run");
    }
    warning(
        "irqbalance runs: it moves interrupts onto preferred CPUs too",
        "name the preferred CPUs in IRQBALANCE_BANNED_CPULIST, or stop it",
    )
}

fn realtime(facts: &Facts) -> Judgement {
    if facts.realtime.is_empty() {
        return ok("no thread of user space has a real-time policy");
    }
    let names: Vec<_> = facts
        .realtime
        .iter()
        .map(|thread| format!("{} ({})", printable(&thread.comm), thread.tid))
        .collect();
    warning(
        format!(
            "real-time threads run before every launcher: {}",
            listed(&names)
        ),
        "keep them off the preferred CPUs with taskset -p where they are busy",
    )
}

fn numa_balancing(facts: &Facts) -> Judgement {
    match facts.numa_balancing {
        Some((1.., nodes @ 2..)) => warning(
            format!(
                "kernel.numa_balancing is on, on {nodes} nodes: launchers take page faults for it"
            ),
            "sysctl -w kernel.numa_balancing=0 where servers are bound to their nodes",
        ),
        _ => ok("no automatic NUMA balancing"),
    }
}

fn openmp(facts: &Facts) -> Judgement {
    servers::judge_openmp(&facts.servers, facts.cpus.unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests;
