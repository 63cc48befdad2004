// SPDX-License-Identifier: GPL-2.0-only
//! Whether a tier can run here, and the loud skip if not.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::disturbed::unless_disturbed;
use crate::vm::shared;

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

/// Runs `test` in the lab, and again where it failed while the machine did other things. Nobody schedules but the kernel.
pub fn in_lab(test: impl Fn()) {
    in_lab_as_it_is(|| {
        shared::end();
        test();
    });
}

/// The same with the scheduler that other tests may have left.
pub fn in_lab_as_it_is(test: impl Fn()) {
    if vm() {
        unless_disturbed(test);
    }
}

/// The lab's larger machine: eight CPUs, two hardware threads a core, two NUMA nodes and a GPU on one of them.
fn large() -> bool {
    let smt = std::fs::read_to_string("/sys/devices/system/cpu/smt/active");
    let pci = std::fs::read_dir("/sys/bus/pci/devices");
    let is_display = |folder: &Path| {
        std::fs::read_to_string(folder.join("class")).is_ok_and(|class| class.starts_with("0x03"))
    };
    let there = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 8)
        && smt.is_ok_and(|active| active.trim() == "1")
        && Path::new("/sys/devices/system/node/node1").exists()
        && (pci.into_iter().flatten().flatten()).any(|device| is_display(&device.path()));
    let missing = "gpuaware-bench lab --cpus 8 --smt --numa 2 --gpu-node 0";
    vm() && ready("vm", (!there).then_some(missing))
}

/// The same on its larger machine.
pub fn in_large_lab(test: impl Fn()) {
    if large() {
        in_lab(test);
    }
}

/// A program that tests of the harness run beside the workload. Part of tier `host`.
pub fn program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|dir| dir.join(name).exists());
    let missing = format!("{name}: run make setup");
    ready("host", (!there).then_some(missing.as_str()))
}

/// Where `make setup` puts what it fetches and builds.
fn cache() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    Some(cache.or(home)?.join("scx_gpuaware"))
}

/// Prometheus's own checker, from the path or from `make setup`. Part of tier `host`.
pub fn promtool() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(cache().map(|cache| cache.join("bin")))
        .map(|folder| folder.join("promtool"))
        .find(|file| file.exists());
    ready(
        "host",
        found.is_none().then_some("promtool: run make setup"),
    );
    found
}

/// A Python that has the validator of JSON Schemas. Part of tier `host`.
pub fn python_with_jsonschema() -> Option<&'static str> {
    let has_it = |python: &&str| {
        let mut command = std::process::Command::new(python);
        let output = command.args(["-c", "import jsonschema, tomllib"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let found = ["/usr/bin/python3", "python3"].into_iter().find(has_it);
    let missing = "Python 3.11 with jsonschema: run make setup";
    ready("host", found.is_none().then_some(missing));
    found
}

/// A scheduler of others. Not part of tier `vm`: nothing but the comparisons needs them.
pub fn peer(name: &str) -> Option<PathBuf> {
    let program = cache()?.join("peers/bin").join(name);
    let there = program.is_file();
    let missing = format!("{name}: run make peers");
    ready("peers", (!there).then_some(missing.as_str())).then_some(program)
}

/// A GPU with its own driver.
pub fn gpu() -> bool {
    let missing = (!Path::new("/dev/nvidia0").exists()).then_some("a GPU (/dev/nvidia0)");
    ready("gpu", missing)
}
