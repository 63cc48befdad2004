// SPDX-License-Identifier: GPL-2.0-only
//! Whether KVM works here, found out by booting a kernel on it.
//!
//! `/dev/kvm` that opens proves nothing: inside some virtual machines every guest fails to start, or
//! a few instructions work and every kernel hangs.
//! Where this machine's CPUs are a guest's themselves, KVM may refuse one register of theirs (`failed to set MSR
//! 0x10a`) and work without it. The answer is remembered until this machine's next boot.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::kernel::Kernel;
use super::machine::Accel;
use super::tools::Tools;
use crate::folders;
use crate::interrupt;
use crate::process::Supervised;

const KVM: &str = "/dev/kvm";
/// What QEMU's `-cpu` is tried with, in this order.
const CPUS: [&str; 2] = ["host", "host,-arch-capabilities"];
/// A kernel is up in two seconds; a host may be busy.
const PROBE_LIMIT: Duration = Duration::from_secs(20);
/// QEMU says it of an instruction that KVM cannot emulate, stops the guest, and does not end.
const STUCK: &str = "KVM internal error";
/// What the kernel says that has started and finds no root file system.
const BOOTED: &str = "Kernel panic - not syncing: VFS";
const SAID_AT_MOST: usize = 16 << 10;

/// KVM if `kernel` boots on it, else emulation. Says which on stderr.
pub fn choose(tools: &Tools, kernel: &Kernel) -> Result<Accel> {
    if let Err(error) = File::options().read(true).write(true).open(KVM) {
        eprintln!("lab: emulation (KVM: {KVM}: {error})");
        return Ok(Accel::Emulation);
    }
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let memory = folders::cache_dir()?.join("lab-kvm-cpu");
    let key = format!("{} {}", boot_id.trim(), tools.qemu.display());
    let verdict = match recall(&fs::read_to_string(&memory).unwrap_or_default(), &key) {
        Some(verdict) => verdict,
        None => {
            let verdict = probe_all(&tools.qemu, kernel)?;
            // Only costs a probe the next time.
            let _ = fs::write(&memory, format!("{key}\n{verdict}\n"));
            verdict
        }
    };
    match CPUS.into_iter().find(|cpu| *cpu == verdict) {
        Some(cpu) => {
            eprintln!("lab: KVM (-cpu {cpu})");
            Ok(Accel::Kvm(cpu))
        }
        None => {
            eprintln!("lab: emulation (KVM: {verdict})");
            Ok(Accel::Emulation)
        }
    }
}

/// The first of [`CPUS`] with which `kernel` boots; why it does with none, otherwise.
fn probe_all(qemu: &Path, kernel: &Kernel) -> Result<String> {
    let mut reasons = Vec::new();
    for cpu in CPUS {
        match probe(qemu, kernel, cpu)? {
            None => return Ok(cpu.to_owned()),
            Some(reason) => reasons.push(format!("-cpu {cpu}: {reason}")),
        }
    }
    Ok(reasons.join("; "))
}

/// The remembered verdict, if it was reached on this boot with this QEMU.
fn recall(memory: &str, key: &str) -> Option<String> {
    let (old_key, verdict) = memory.split_once('\n')?;
    (old_key == key).then(|| verdict.trim_end().to_owned())
}

/// Boots `kernel` on KVM; returns why that failed, nothing when it worked. Without a root file system
/// it panics once it is up, and ends QEMU. So does a guest that falls over before: the panic must be read.
fn probe(qemu: &Path, kernel: &Kernel, cpu: &str) -> Result<Option<String>> {
    let said = tempfile::tempfile().context("cannot keep what QEMU says")?;
    let mut guest = Command::new(qemu);
    guest
        .args(["-accel", "kvm", "-cpu", cpu, "-m", "512", "-smp", "2"])
        .args(["-nodefaults", "-no-user-config", "-display", "none"])
        .args(["-serial", "stdio", "-no-reboot", "-kernel"])
        .arg(&kernel.image)
        .args([
            "-append",
            "console=ttyS0 earlyprintk=serial,ttyS0 quiet panic=-1",
        ])
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(said.try_clone()?);
    let mut guest = Supervised::spawn("QEMU", &mut guest)?;
    let deadline = Instant::now() + PROBE_LIMIT;
    let said_so_far = || {
        // Not by reading on: QEMU writes where this process reads.
        let mut bytes = vec![0; SAID_AT_MOST];
        let length = said.read_at(&mut bytes, 0).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let ended = guest.wait_while(|| Instant::now() < deadline && !said_so_far().contains(STUCK));
    interrupt::check()?;
    let said = said_so_far();
    let unsaid = match ended {
        Ok(status) if status.success() && said.contains(BOOTED) => return Ok(None),
        Ok(_) => "a test guest did not start",
        Err(_) => "a test guest hung",
    };
    Ok(Some(reason(&said, unsaid)))
}

/// QEMU's first complaint, as one short line; `unsaid` if it made none. Between them is what the guest says.
fn reason(said: &str, unsaid: &str) -> String {
    const QEMU: &str = "qemu-system-x86_64: ";
    let mut lines = said.lines().map(str::trim);
    let line = lines.find(|line| line.starts_with(QEMU) || line.contains(STUCK));
    line.unwrap_or(unsaid).trim_start_matches(QEMU).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_verdict_of_another_boot() {
        let memory = "boot-1 /usr/bin/qemu\nfailed to set MSR\n";
        assert_eq!(
            recall(memory, "boot-1 /usr/bin/qemu").as_deref(),
            Some("failed to set MSR")
        );
        assert_eq!(recall(memory, "boot-2 /usr/bin/qemu"), None);
        assert_eq!(recall("", "boot-1 /usr/bin/qemu"), None);
    }

    #[test]
    fn gives_one_line_of_reason() {
        let said = "qemu-system-x86_64: error: failed to set MSR 0x48f to 0x7fff\nqemu: ../kvm.c: Assertion\n";
        assert_eq!(reason(said, ""), "error: failed to set MSR 0x48f to 0x7fff");
        assert_eq!(
            reason("\n[ 0.1] x\n", "a test guest hung"),
            "a test guest hung"
        );
        let stuck = "[ 0.1] Linux\nKVM internal error. Suberror: 1\n";
        assert_eq!(reason(stuck, ""), "KVM internal error. Suberror: 1");
    }
}
