// SPDX-License-Identifier: GPL-2.0-only
//! Every finding, from facts that differ from a good host in one thing.

use super::*;
use crate::bpffs::Obstacle;
use crate::doctor::{Gpu, Libcuda, Realtime, Server, Verdict};
use crate::identify::flavour::Flavour;
use crate::policy::cpuset::CpuSet;

/// A host on which all is well.
fn good() -> Facts {
    Facts {
        kernel: "6.18.15+deb14-cloud-amd64".to_owned(),
        has_sched_ext: true,
        kernel_config: Some(config::tests::all()),
        has_btf: true,
        pids_are_initial: true,
        cgroups_are_initial: true,
        capabilities: !0,
        command_line: "root=/dev/vda quiet".to_owned(),
        cgroup2: Some("/sys/fs/cgroup".to_owned()),
        libcuda: vec![Libcuda {
            path: "/lib/libcuda.so.1".to_owned(),
            flavour: Flavour::Driver,
            in_use: false,
        }],
        gpus: vec![Gpu {
            address: "0000:17:00.0".to_owned(),
            node: Some(1),
        }],
        cpus: Some(64),
        possible_cpus: Some(128),
        proc_is_own: true,
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
        |facts| facts.bpffs = Some(Obstacle::Missing),
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
        |facts| facts.possible_cpus = Some(2048),
        "cpus",
        Problem,
        "1024",
    );
}

#[test]
fn switches_that_stop_bpf_are_named_with_what_to_write() {
    use Verdict::{Problem, Warning};
    let off = |facts: &mut Facts| facts.jit = Some(0);
    assert_only(off, "bpf", Problem, "sysctl -w net.core.bpf_jit_enable=1");
    let hard = |facts: &mut Facts| facts.jit_harden = Some(2);
    assert_only(hard, "bpf", Warning, "net.core.bpf_jit_harden=1");
    let found = |change: fn(&mut Facts)| {
        let mut facts = good();
        change(&mut facts);
        let mut found = examine(&facts).into_iter();
        found.find(|finding| finding.check == "bpf").unwrap()
    };
    let root_only = found(|facts| facts.unprivileged_bpf_disabled = Some(2));
    assert_eq!(root_only.verdict, Verdict::Ok);
    assert!(root_only.found.contains("unprivileged_bpf_disabled is 2"));
    let limited = |facts: &mut Facts| facts.memlock = Some(65536);
    assert_eq!(found(limited).verdict, Verdict::Ok);
    let old = found(|facts| (facts.memlock, facts.kernel) = (Some(65536), "5.10.1".to_owned()));
    assert!(old.remedy.unwrap().contains("LimitMEMLOCK"));
}

#[test]
fn what_a_container_hides_is_told() {
    let rootless = |facts: &mut Facts| {
        facts.user_namespace = Some("a user namespace (uid_map: 0 1000 1)".to_owned());
    };
    assert_only(rootless, "privileges", Verdict::Problem, "user namespace");
    let pids = |facts: &mut Facts| facts.pids_are_initial = false;
    assert_only(pids, "pids", Verdict::Warning, "hostPID");
    let stranger = |facts: &mut Facts| facts.proc_is_own = false;
    assert_only(stranger, "pids", Verdict::Problem, "mount -t proc");
    let cgroups = |facts: &mut Facts| facts.cgroups_are_initial = false;
    assert_only(cgroups, "cgroup2", Verdict::Warning, "--cgroupns=host");
    let hidden = |facts: &mut Facts| {
        let (kind, on) = ("tmpfs".to_owned(), "/sys/fs/bpf".to_owned());
        facts.bpffs = Some(Obstacle::Hidden { kind, on });
    };
    assert_only(hidden, "bpffs", Verdict::Problem, "umount /sys/fs/bpf");
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
    let escape = |facts: &mut Facts| {
        facts.realtime = vec![Realtime {
            tid: 7,
            comm: "a\n\x1b[2J".to_owned(),
        }];
    };
    assert_only(escape, "realtime", Warning, "a\\n\\u{1b}[2J (7)");
}

#[test]
fn what_makes_launchers_late_is_a_warning_with_what_to_do() {
    use Verdict::Warning;
    let balancing = |facts: &mut Facts| facts.numa_balancing = Some((1, 2));
    assert_only(balancing, "numa_balancing", Warning, "numa_balancing=0");
    let deep = |facts: &mut Facts| facts.waking.deepest = Some(("C6".to_owned(), 133));
    assert_only(deep, "idle_states", Warning, "133 us to leave C6");
    let governor = |facts: &mut Facts| {
        let governors = &mut facts.waking.governors;
        governors.insert("schedutil".to_owned(), CpuSet::new(0..64));
    };
    assert_only(
        governor,
        "governor",
        Warning,
        "frequency-set -g performance",
    );
    let managed = |facts: &mut Facts| facts.waking.managed = vec!["nvme0q4 (CPU 3)".to_owned()];
    assert_only(managed, "managed_irqs", Warning, "isolcpus=managed_irq");
    let server = |cpus: u32| Server {
        gpus: [0].into(),
        cpus: CpuSet::new(0..cpus),
        ..Server::default()
    };
    let cramped = |facts: &mut Facts| facts.servers = vec![server(2)];
    assert_only(cramped, "gpu_cpus", Warning, "CPUs 0-1 for 1 GPU");
    let far = |facts: &mut Facts| {
        let mut far = server(8);
        (far.gpu_nodes, far.ran_on) = ([1].into(), [(0, 4)].into());
        facts.servers = vec![far];
    };
    assert_only(far, "gpu_nodes", Warning, "4 of 4 threads ran on others");
    let distant = |facts: &mut Facts| {
        let mut distant = server(8);
        (distant.gpu_nodes, distant.memory_on) = ([1].into(), [(0, 4 << 10)].into());
        facts.servers = vec![distant];
    };
    assert_only(distant, "gpu_memory", Warning, "4 of 4 MiB on others");
    let many = |facts: &mut Facts| {
        let mut many = server(64);
        many.openmp_unbounded = true;
        facts.servers = vec![many; 2];
    };
    assert_only(many, "openmp", Warning, "OMP_NUM_THREADS=1");
    let one_node = |facts: &mut Facts| facts.numa_balancing = Some((1, 1));
    let mut facts = good();
    one_node(&mut facts);
    let mut found = examine(&facts).into_iter();
    assert!(found.all(|finding| finding.verdict == Verdict::Ok));
}

#[test]
fn limits_of_cgroups_hold_from_the_kernel_on_that_tells_of_them() {
    let mut facts = good();
    facts.kernel = "6.19.0".to_owned();
    facts.cpu_max = vec!["user.slice".to_owned()];
    facts.cpu_idle = vec!["batch.slice".to_owned()];
    assert!(
        examine(&facts)
            .iter()
            .all(|finding| finding.verdict == Verdict::Ok)
    );
    facts.kernel = "6.14.2".to_owned();
    let found = examine(&facts);
    for (check, cgroup) in [("cpu_max", "user.slice"), ("cpu_idle", "batch.slice")] {
        let finding = found.iter().find(|finding| finding.check == check).unwrap();
        assert_eq!(finding.verdict, Verdict::Warning);
        assert!(finding.found.contains(cgroup));
    }
}

#[test]
fn what_does_not_keep_cpus_out_of_scheduling_is_no_problem() {
    let judged = |line: &str, isolated: Option<&str>| {
        let mut facts = good();
        facts.command_line = line.to_owned();
        facts.isolated = isolated.map(str::to_owned);
        let mut found = examine(&facts).into_iter();
        found.all(|finding| finding.verdict == Verdict::Ok)
    };
    assert!(judged("quiet -- isolcpus=1", None));
    assert!(judged("isolcpus=managed_irq,1", Some("")));
    assert!(judged("isolcpus=nohz,1", None));
    assert!(!judged("isolcpus=managed_irq,1 isolcpus=1", None));
    assert!(!judged("isolcpus=1", Some("1")));
    assert!(judged("isolcpus=99", Some("")), "it has no such CPU");
}
