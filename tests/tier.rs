// SPDX-License-Identifier: GPL-2.0-only
//! Whether a tier can run here, and the loud skip if not.

use std::io::Write;
use std::path::Path;

/// Can tests of `tier` run? `missing` says what they lack. Panics where the tier is required.
fn ready(tier: &str, missing: Option<&str>) -> bool {
    let Some(missing) = missing else { return true };
    let required = std::env::var("GPUAWARE_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name.trim() == tier),
        "tier {tier} is required (GPUAWARE_REQUIRE) and cannot run: {missing}"
    );
    skip(&format!("tier {tier} needs {missing}"));
    false
}

/// Says on standard error that this test does not run here, and why.
pub fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    // Not eprintln!, which the test runner captures.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {reason}");
}

/// Root and a kernel that loads BPF programs with BTF.
pub fn root() -> bool {
    let missing = if !nix::unistd::geteuid().is_root() {
        Some("root")
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        Some("a kernel with BTF (/sys/kernel/btf/vmlinux)")
    } else {
        None
    };
    ready("root", missing)
}

/// What the lab runs on. Part of tier `host`: it needs no rights on this machine.
pub fn lab() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_qemu = std::env::split_paths(&path).any(|dir| dir.join("qemu-system-x86_64").exists());
    ready("host", (!has_qemu).then_some("QEMU: run make setup"))
}

/// A sched_ext kernel that nobody else schedules on.
pub fn vm() -> bool {
    let missing = if !Path::new("/sys/kernel/sched_ext").exists() {
        Some("a sched_ext kernel: make test boots one")
    } else if std::env::var_os("GPUAWARE_LAB").is_none() {
        Some("the lab: it loads schedulers and offlines CPUs, which is not for a machine in use")
    } else {
        None
    };
    ready("vm", missing)
}

/// Two hardware threads a core.
pub fn smt() -> bool {
    let active = std::fs::read_to_string("/sys/devices/system/cpu/smt/active");
    let there = active.is_ok_and(|active| active.trim() == "1");
    ready(
        "vm",
        (!there).then_some("SMT: gpuaware-bench lab --cpus 4 --smt"),
    )
}

/// Two NUMA nodes and a GPU on one of them.
pub fn numa() -> bool {
    let pci = std::fs::read_dir("/sys/bus/pci/devices")
        .into_iter()
        .flatten();
    let is_display = |folder: &Path| {
        std::fs::read_to_string(folder.join("class")).is_ok_and(|class| class.starts_with("0x03"))
    };
    let there = Path::new("/sys/devices/system/node/node1").exists()
        && pci.flatten().any(|device| is_display(&device.path()));
    let missing = "NUMA and a GPU: gpuaware-bench lab --cpus 8 --numa 2 --gpu-node 0";
    ready("vm", (!there).then_some(missing))
}

/// A kernel with sched_ext and so many CPUs.
pub fn vm_with_cpus(nr_cpus: usize) -> bool {
    let there = std::thread::available_parallelism().map_or(1, usize::from);
    let missing = format!("{nr_cpus} CPUs: gpuaware-bench lab --cpus {nr_cpus}");
    vm() && ready("vm", (there < nr_cpus).then_some(missing.as_str()))
}

/// A GPU with its own driver.
pub fn gpu() -> bool {
    let missing = (!Path::new("/dev/nvidia0").exists()).then_some("a GPU (/dev/nvidia0)");
    ready("gpu", missing)
}
