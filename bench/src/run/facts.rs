// SPDX-License-Identifier: GPL-2.0-only
//! What a machine is and which versions of things are on it, for whoever reads the figures later.
//! Nothing here can fail a run: what is not known is left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::program;

/// Facts by name; the names are the report's.
pub type Facts = BTreeMap<String, String>;

/// The machine that this runs on: the guest's inside the lab.
pub fn of_this_machine() -> Facts {
    let mut facts = Facts::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    put("cpu model", cpu_model());
    put("cpus", Some(crate::cpus::online().to_string()));
    put("kernel", read("/proc/sys/kernel/osrelease"));
    put(
        "kernel parameters",
        read("/proc/cmdline").map(|line| relevant_parameters(&line)),
    );
    put(
        "clocksource",
        read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    );
    put("virtualisation", virtualisation());
    put("memory", memory());
    put(
        "governor",
        read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    );
    put("smt", read("/sys/devices/system/cpu/smt/control"));
    for tool in ["stress-ng", "iperf3", "fio"] {
        put(tool, program::version(tool));
    }
    facts
}

/// Facts that only the machine outside the lab has.
pub fn of_the_host(target_dir: &Path) -> Facts {
    let mut facts = of_this_machine();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    put("qemu", program::version("qemu-system-x86_64"));
    put("gpuaware-bench", Some(env!("CARGO_PKG_VERSION").to_owned()));
    let scheduler = target_dir.join("release/scx_gpuaware");
    put("scx_gpuaware", program::version(scheduler));
    put("git revision", revision());
    put("load average", read("/proc/loadavg"));
    facts
}

/// The load of the last minute.
pub fn load_average() -> Option<f64> {
    read("/proc/loadavg")?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The kernel parameters that change scheduling or the price of a system call; the rest of the line
/// says where this machine keeps its files.
fn relevant_parameters(line: &str) -> String {
    const NAMES: &[&str] = &[
        "isolcpus",
        "nohz",
        "nohz_full",
        "rcu_nocbs",
        "irqaffinity",
        "mitigations",
        "preempt",
        "threadirqs",
        "idle",
        "nosmt",
        "maxcpus",
        "processor.max_cstate",
        "intel_pstate",
        "amd_pstate",
        "skew_tick",
        "transparent_hugepage",
    ];
    let named = |word: &&str| NAMES.contains(&word.split('=').next().unwrap_or_default());
    line.split_whitespace()
        .filter(named)
        .collect::<Vec<_>>()
        .join(" ")
}

fn cpu_model() -> Option<String> {
    let text = read("/proc/cpuinfo")?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory() -> Option<String> {
    let text = read("/proc/meminfo")?;
    let kib: u64 = text
        .lines()
        .next()?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()?;
    Some(format!("{} MiB", kib / 1024))
}

/// The hypervisor's own name for itself: QEMU's emulation and KVM differ in it.
#[cfg(target_arch = "x86_64")]
fn virtualisation() -> Option<String> {
    use std::arch::x86_64::__cpuid;
    // Bit 31 of leaf 1's ecx: there is a hypervisor, and leaf 0x4000_0000 names it.
    if __cpuid(1).ecx >> 31 == 0 {
        return Some("none".to_owned());
    }
    let leaf = __cpuid(0x4000_0000);
    let bytes: Vec<u8> = [leaf.ebx, leaf.ecx, leaf.edx]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let name = String::from_utf8_lossy(&bytes)
        .trim_end_matches('\0')
        .trim()
        .to_owned();
    Some(match name.as_str() {
        "TCGTCGTCGTCG" => "QEMU, software emulation (TCG)".to_owned(),
        "KVMKVMKVM" => "KVM".to_owned(),
        _ => name,
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn virtualisation() -> Option<String> {
    None
}

/// The revision of the repository, and whether it was changed since.
fn revision() -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(env!("CARGO_MANIFEST_DIR"))
            .args(args)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let head = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() {
        head
    } else {
        format!("{head} with local changes")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_parameters_that_matter() {
        let line = "console=ttyS0 isolcpus=domain,1 root=/dev/x nohz_full=1 init=/home/me/init";
        assert_eq!(relevant_parameters(line), "isolcpus=domain,1 nohz_full=1");
    }

    #[test]
    fn knows_this_machine() {
        let facts = of_this_machine();
        assert!(facts.contains_key("kernel"), "{facts:?}");
        assert!(facts["cpus"].parse::<u32>().unwrap() >= 1);
    }
}
