// SPDX-License-Identifier: GPL-2.0-only
//! What a machine is and which versions of things are on it. Readers of the figures need it later.
//! Nothing here can fail a run: what is not known is left out.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::program;
use crate::record::facts::{CHANGED, Facts};
use crate::workload::driver;

/// The machine that this runs on: the guest's inside the lab.
pub fn of_this_machine() -> Facts {
    let mut facts = Facts::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    put("cpu model", cpu_model());
    put("cpus", Some(crate::cpus::online().len().to_string()));
    put("kernel", read("/proc/sys/kernel/osrelease"));
    put(
        "kernel parameters",
        read("/proc/cmdline").map(|line| relevant_parameters(&line)),
    );
    for (name, value) in super::kernel::facts() {
        put(name, value);
    }
    put("clocksource", clocksource());
    put("virtualisation", virtualisation());
    put("memory", memory());
    put("governor", governor());
    put("turbo", turbo());
    put("smt", read("/sys/devices/system/cpu/smt/control"));
    put("mitigations", mitigations());
    put("gpu", gpus());
    put("gpu driver", gpu_driver());
    put(
        "cuda driver of workloads",
        Some(driver::automatic().name().to_owned()),
    );
    for tool in ["stress-ng", "iperf3", "fio", "hackbench"] {
        put(tool, program::version(tool));
    }
    facts
}

/// Of the first CPU's frequency; `None`: nobody governs it here.
pub fn governor() -> Option<String> {
    read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
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
    put("programs", fingerprint(target_dir));
    put("peers", peers());
    put("git revision", revision());
    put("load average", read("/proc/loadavg"));
    facts
}

/// One number for what the built programs are, byte by byte (FNV-1a); those that are not there are left out.
fn fingerprint(target_dir: &Path) -> Option<String> {
    const PROGRAMS: &[&str] = &[
        "release/scx_gpuaware",
        "release/gpuaware-bench",
        "release/gpuaware-sim",
        "release/llm_server",
        "release/llm_client",
        "release/pipeline",
        "lab/gpu_launch",
        "lab/libcuda.so.1",
    ];
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut found = false;
    for name in PROGRAMS {
        let Ok(bytes) = fs::read(target_dir.join(name)) else {
            continue;
        };
        found = true;
        for byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    found.then(|| format!("{hash:016x}"))
}

/// The versions of the schedulers that arms name and that are installed apart; of none: empty.
fn peers() -> Option<String> {
    const NAMES: [&str; 4] = ["scx_bpfland", "scx_cosmos", "scx_lavd", "scx_layered"];
    let versions = NAMES.map(|name| program::find(name).and_then(program::version));
    Some(
        versions
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", "),
    )
}

/// What the kernel takes the time from. It may change while the machine runs.
pub fn clocksource() -> Option<String> {
    read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
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
        "noautogroup",
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

/// Whether the CPUs may run faster than they can for long: a reason why a first run is the fastest.
fn turbo() -> Option<String> {
    let on = match read("/sys/devices/system/cpu/intel_pstate/no_turbo") {
        Some(no_turbo) => no_turbo == "0",
        None => read("/sys/devices/system/cpu/cpufreq/boost")? == "1",
    };
    Some(if on { "on" } else { "off" }.to_owned())
}

/// What the kernel does about the CPUs' vulnerabilities, which makes entering it dearer; only what is at work.
fn mitigations() -> Option<String> {
    let entries = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").ok()?;
    let mut found: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            let state = fs::read_to_string(entry.path()).ok()?;
            let how = state.trim().strip_prefix("Mitigation: ")?.to_owned();
            Some(format!("{}: {how}", entry.file_name().to_str()?))
        })
        .collect();
    found.sort();
    Some(if found.is_empty() {
        "none".to_owned()
    } else {
        found.join("; ")
    })
}

/// The GPUs that NVIDIA's driver drives, by their names.
fn gpus() -> Option<String> {
    let entries = fs::read_dir("/proc/driver/nvidia/gpus").ok()?;
    let mut models: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path().join("information")).ok()?;
            model(&text)
        })
        .collect();
    models.sort();
    Some(models.join(", "))
}

/// From the driver's `information` of one GPU.
fn model(information: &str) -> Option<String> {
    let mut lines = information.lines();
    let name = lines.find_map(|line| line.strip_prefix("Model:"))?;
    Some(name.trim().to_owned())
}

fn gpu_driver() -> Option<String> {
    let text = read("/proc/driver/nvidia/version")?;
    let line = text.lines().next()?;
    Some(
        line.strip_prefix("NVRM version:")
            .unwrap_or(line)
            .trim()
            .to_owned(),
    )
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
        format!("{head} {CHANGED}")
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
    fn programs_are_told_apart_by_their_bytes() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(fingerprint(dir.path()), None);
        fs::create_dir(dir.path().join("lab")).unwrap();
        let of = |text: &str| {
            fs::write(dir.path().join("lab/gpu_launch"), text).unwrap();
            fingerprint(dir.path()).unwrap()
        };
        // FNV-1a of "a", as its authors publish it.
        assert_eq!(of("a"), "af63dc4c8601ec8c");
        assert_ne!(of("a"), of("b"));
    }

    #[test]
    fn knows_a_gpu_by_its_name() {
        let text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 100\nGPU UUID: \t GPU-0\n";
        assert_eq!(model(text).as_deref(), Some("NVIDIA H200"));
        assert_eq!(model("IRQ: 1\n"), None);
    }

    #[test]
    fn knows_this_machine() {
        let facts = of_this_machine();
        assert!(facts.contains_key("kernel"), "{facts:?}");
        assert!(facts["cpus"].parse::<u32>().unwrap() >= 1);
        assert!(!facts["mitigations"].is_empty());
    }
}
