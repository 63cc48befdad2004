// SPDX-License-Identifier: GPL-2.0-only
//! Facts to findings, one function a check. Pure.

use crate::policy::cpuset::MAX_CPU;

use super::{Facts, Finding, Verdict, config};

/// The oldest kernel with sched_ext, the oldest that the lab tries, the first with a hook for cpu.max.
const FIRST: (u32, u32) = (6, 12);
const TRIED: (u32, u32) = (6, 18);
const CPU_MAX: (u32, u32) = (6, 17);

/// Numbers and names of what loading needs, from linux/capability.h.
const CAPABILITIES: [(u32, &str); 5] = [
    (19, "CAP_SYS_PTRACE"),
    (21, "CAP_SYS_ADMIN"),
    (23, "CAP_SYS_NICE"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
];

/// Names that are listed before "and N more".
const LISTED: usize = 4;

/// What every check finds, in the order in which a newcomer should mend it.
pub fn examine(facts: &Facts) -> Vec<Finding> {
    let checks: [Check; 15] = [
        ("kernel", kernel),
        ("sched_ext", sched_ext),
        ("config", config),
        ("btf", btf),
        ("bpffs", bpffs),
        ("privileges", privileges),
        ("lockdown", lockdown),
        ("isolcpus", isolcpus),
        ("cpus", cpus),
        ("cgroup2", cgroup2),
        ("cpu_max", cpu_max),
        ("libcuda", libcuda),
        ("gpus", gpus),
        ("irqbalance", irqbalance),
        ("realtime", realtime),
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

/// Verdict, what was found, what to do.
pub type Judgement = (Verdict, String, Option<String>);

pub fn ok(found: impl Into<String>) -> Judgement {
    (Verdict::Ok, found.into(), None)
}

pub fn warning(found: impl Into<String>, remedy: impl Into<String>) -> Judgement {
    (Verdict::Warning, found.into(), Some(remedy.into()))
}

pub fn problem(found: impl Into<String>, remedy: impl Into<String>) -> Judgement {
    (Verdict::Problem, found.into(), Some(remedy.into()))
}

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
    if facts.has_bpffs {
        return ok("a BPF file system is on /sys/fs/bpf");
    }
    problem(
        "no BPF file system on /sys/fs/bpf: marks cannot be pinned",
        "mount -t bpf bpf /sys/fs/bpf",
    )
}

fn privileges(facts: &Facts) -> Judgement {
    if facts.uid != 0 {
        return problem(
            format!("user {}: loading needs root", facts.uid),
            "try sudo",
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
    let parameters = facts.command_line.split_whitespace();
    match parameters
        .take_while(|word| *word != "--")
        .find(|word| word.starts_with("isolcpus="))
    {
        None => ok("no isolcpus= on the kernel's command line"),
        Some(parameter) => problem(
            format!("{parameter} on the kernel's command line: sched_ext refuses to load"),
            "take it out of the boot loader's configuration and reboot; name the CPUs as \
             preferred.cpus instead",
        ),
    }
}

fn cpus(facts: &Facts) -> Judgement {
    match facts.cpus {
        None => problem("the CPUs cannot be read from sysfs", "mount sysfs on /sys"),
        Some((_, ids)) if ids > MAX_CPU as usize + 1 => problem(
            format!("{ids} possible CPUs: at most {} are supported", MAX_CPU + 1),
            "boot with possible_cpus= or nr_cpus= if fewer are there",
        ),
        Some((1, _)) => warning(
            "one CPU: launchers can only share it",
            "give the virtual machine or the container more CPUs",
        ),
        Some((online, _)) => ok(format!("{online} CPUs online")),
    }
}

fn cgroup2(facts: &Facts) -> Judgement {
    match &facts.cgroup2 {
        None => warning(
            "no cgroup v2 hierarchy is mounted: cgroup rules of the policy match nothing",
            "mount -t cgroup2 none /sys/fs/cgroup, or boot with systemd.unified_cgroup_hierarchy=1",
        ),
        Some(place) if facts.cpu_on_cgroup1 => warning(
            format!("cgroup v2 is on {place}, but the cpu controller is one of cgroup v1"),
            "boot with systemd.unified_cgroup_hierarchy=1 if cpu.weight and cpu.max should count",
        ),
        Some(place) => ok(format!("cgroup v2 is on {place}")),
    }
}

fn cpu_max(facts: &Facts) -> Judgement {
    if facts.cpu_max.is_empty() {
        return ok("no cgroup has a cpu.max");
    }
    let found = format!("cgroups with a cpu.max: {}", listed(&facts.cpu_max));
    match version(&facts.kernel) {
        Some(version) if version >= CPU_MAX => ok(format!("{found}; their limits hold")),
        _ => warning(
            format!("{found}; a sched_ext scheduler does not see them on this kernel"),
            format!(
                "boot Linux {}.{} or newer if these limits matter",
                CPU_MAX.0, CPU_MAX.1
            ),
        ),
    }
}

fn libcuda(facts: &Facts) -> Judgement {
    if facts.libcuda.is_empty() {
        return warning(
            "no libcuda.so is known to the loader or mapped by a process",
            "install the GPU's driver; containers that bring their own are found when they run",
        );
    }
    ok(listed(&facts.libcuda))
}

fn gpus(facts: &Facts) -> Judgement {
    if facts.gpus.is_empty() {
        return warning(
            "no GPU on PCI",
            "look for the card in lspci; an emulated GPU is not on PCI, and need not be",
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
        .map(|thread| format!("{} ({})", thread.comm, thread.tid))
        .collect();
    warning(
        format!(
            "real-time threads run before every launcher: {}",
            listed(&names)
        ),
        "keep them off the preferred CPUs with taskset -p where they are busy",
    )
}

fn listed(names: &[String]) -> String {
    let first = names[..names.len().min(LISTED)].join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Gpu, Realtime};
    use super::*;

    /// A host on which all is well.
    fn good() -> Facts {
        Facts {
            kernel: "6.18.15+deb14-cloud-amd64".to_owned(),
            has_sched_ext: true,
            kernel_config: Some(config::tests::all()),
            has_btf: true,
            has_bpffs: true,
            capabilities: !0,
            command_line: "root=/dev/vda quiet".to_owned(),
            cgroup2: Some("/sys/fs/cgroup".to_owned()),
            libcuda: vec!["/lib/libcuda.so.1".to_owned()],
            gpus: vec![Gpu {
                address: "0000:17:00.0".to_owned(),
                node: Some(1),
            }],
            cpus: Some((64, 128)),
            ..Facts::default()
        }
    }

    /// The only finding that is not ok.
    fn only(facts: &Facts) -> Finding {
        let mut found = examine(facts);
        found.retain(|finding| finding.verdict != Verdict::Ok);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].remedy.is_some());
        found.remove(0)
    }

    fn assert_only(change: impl Fn(&mut Facts), check: &str, verdict: Verdict, says: &str) {
        let mut facts = good();
        change(&mut facts);
        let finding = only(&facts);
        assert_eq!(
            (finding.check, finding.verdict),
            (check, verdict),
            "{finding:?}"
        );
        let remedy = finding.remedy.unwrap_or_default();
        assert!(
            finding.found.contains(says) || remedy.contains(says),
            "{remedy}"
        );
    }

    #[test]
    fn nothing_is_said_against_a_good_host() {
        let findings = examine(&good());
        assert!(
            findings
                .iter()
                .all(|finding| finding.verdict == Verdict::Ok),
            "{findings:#?}"
        );
        assert!(findings.iter().all(|finding| finding.remedy.is_none()));
        let mut runs = good();
        runs.scheduler = Some("gpuaware_0.1.0".to_owned());
        assert!(
            examine(&runs)
                .iter()
                .all(|finding| finding.verdict == Verdict::Ok)
        );
    }

    #[test]
    fn what_stops_the_scheduler_is_a_problem() {
        use Verdict::Problem;
        assert_only(
            |facts| facts.has_sched_ext = false,
            "sched_ext",
            Problem,
            "CONFIG_SCHED_CLASS_EXT",
        );
        let other = |facts: &mut Facts| facts.scheduler = Some("lavd".to_owned());
        assert_only(other, "sched_ext", Problem, "lavd");
        let old = |facts: &mut Facts| facts.kernel = "6.1.0-32-amd64".to_owned();
        assert_only(old, "kernel", Problem, "6.12");
        assert_only(
            |facts| facts.kernel_config = None,
            "config",
            Problem,
            "/boot/config-6.18.15",
        );
        assert_only(
            |facts| facts.has_btf = false,
            "btf",
            Problem,
            "CONFIG_DEBUG_INFO_BTF",
        );
        assert_only(
            |facts| facts.has_bpffs = false,
            "bpffs",
            Problem,
            "mount -t bpf",
        );
        assert_only(|facts| facts.uid = 1000, "privileges", Problem, "sudo");
        assert_only(
            |facts| facts.capabilities &= !(1 << 39),
            "privileges",
            Problem,
            "CAP_BPF",
        );
        let locked = |facts: &mut Facts| facts.lockdown = Some("confidentiality".to_owned());
        assert_only(locked, "lockdown", Problem, "lockdown=integrity");
        let isolated = |facts: &mut Facts| facts.command_line.push_str(" isolcpus=2-3");
        assert_only(isolated, "isolcpus", Problem, "isolcpus=2-3");
        assert_only(
            |facts| facts.cpus = Some((8, 2048)),
            "cpus",
            Problem,
            "1024",
        );
    }

    #[test]
    fn what_only_works_less_well_is_a_warning() {
        use Verdict::Warning;
        let older = |facts: &mut Facts| facts.kernel = "6.14.2".to_owned();
        assert_only(older, "kernel", Warning, "6.18");
        assert_only(
            |facts| facts.cgroup2 = None,
            "cgroup2",
            Warning,
            "match nothing",
        );
        assert_only(
            |facts| facts.cpu_on_cgroup1 = true,
            "cgroup2",
            Warning,
            "cgroup v1",
        );
        assert_only(|facts| facts.libcuda.clear(), "libcuda", Warning, "driver");
        assert_only(|facts| facts.gpus.clear(), "gpus", Warning, "PCI");
        assert_only(
            |facts| facts.irqbalance = true,
            "irqbalance",
            Warning,
            "BANNED_CPULIST",
        );
        let thread = Realtime {
            tid: 7,
            comm: "jackd".to_owned(),
        };
        let audio = |facts: &mut Facts| facts.realtime = vec![thread.clone(); 6];
        assert_only(audio, "realtime", Warning, "jackd (7) and 2 more");
    }

    #[test]
    fn limits_of_cgroups_hold_from_the_kernel_on_that_tells_of_them() {
        let mut facts = good();
        facts.cpu_max = vec!["user.slice".to_owned()];
        assert!(
            examine(&facts)
                .iter()
                .all(|finding| finding.verdict == Verdict::Ok)
        );
        facts.kernel = "6.14.2".to_owned();
        let found = examine(&facts);
        let limit = found
            .iter()
            .find(|finding| finding.check == "cpu_max")
            .unwrap();
        assert_eq!(limit.verdict, Verdict::Warning);
        assert!(limit.found.contains("user.slice"));
    }

    #[test]
    fn parameters_of_init_are_not_the_kernels() {
        let mut facts = good();
        facts.command_line = "quiet -- isolcpus=1".to_owned();
        assert!(
            examine(&facts)
                .iter()
                .all(|finding| finding.verdict == Verdict::Ok)
        );
    }
}
