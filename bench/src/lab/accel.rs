// SPDX-License-Identifier: GPL-2.0-only
//! Whether KVM works here, found out by booting a kernel on it.
//!
//! `/dev/kvm` that opens proves nothing: inside some virtual machines every guest fails to start, or
//! a few instructions work and every kernel hangs.
//! The answer is remembered until this machine's next boot.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::kernel::Kernel;
use super::machine::Accel;
use super::tools::Tools;
use crate::folders;
use crate::interrupt;
use crate::process::{Supervised, read_back};

const KVM: &str = "/dev/kvm";
/// A kernel is up in two seconds; a host may be busy.
const PROBE_LIMIT: Duration = Duration::from_secs(20);

/// KVM if `kernel` boots on it, else emulation. Says which on stderr.
pub fn choose(tools: &Tools, kernel: &Kernel) -> Result<Accel> {
    if let Err(error) = File::options().read(true).write(true).open(KVM) {
        eprintln!("lab: emulation (KVM: {KVM}: {error})");
        return Ok(Accel::Emulation);
    }
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let memory = folders::cache_dir()?.join("lab-kvm");
    let key = format!("{} {}", boot_id.trim(), tools.qemu.display());
    let verdict = match recall(&fs::read_to_string(&memory).unwrap_or_default(), &key) {
        Some(verdict) => verdict,
        None => {
            let verdict = probe(&tools.qemu, kernel)?;
            // Only costs a probe the next time.
            let _ = fs::write(&memory, format!("{key}\n{verdict}\n"));
            verdict
        }
    };
    if verdict.is_empty() {
        eprintln!("lab: KVM");
        Ok(Accel::Kvm)
    } else {
        eprintln!("lab: emulation (KVM: {verdict})");
        Ok(Accel::Emulation)
    }
}

/// The remembered verdict, if it was reached on this boot with this QEMU.
fn recall(memory: &str, key: &str) -> Option<String> {
    let (old_key, verdict) = memory.split_once('\n')?;
    (old_key == key).then(|| verdict.trim_end().to_owned())
}

/// Boots `kernel` on KVM; returns why that failed, nothing when it worked. Without a root file system
/// it panics once it is up, and ends QEMU.
fn probe(qemu: &Path, kernel: &Kernel) -> Result<String> {
    let mut said = tempfile::tempfile().context("cannot keep what QEMU says")?;
    let mut guest = Command::new(qemu);
    guest
        .args(["-accel", "kvm", "-cpu", "host", "-m", "512", "-smp", "2"])
        .args(["-nodefaults", "-no-user-config", "-display", "none"])
        .args(["-no-reboot", "-append", "quiet panic=-1", "-kernel"])
        .arg(&kernel.image)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said.try_clone()?);
    let mut guest = Supervised::spawn("QEMU", &mut guest)?;
    let ended = guest.wait_until(Instant::now() + PROBE_LIMIT);
    interrupt::check()?;
    let unsaid = match ended {
        Ok(status) if status.success() => return Ok(String::new()),
        Ok(_) => "a test guest did not start",
        Err(_) => "a test guest hung",
    };
    let text = read_back(&mut said).unwrap_or_default();
    Ok(reason(&String::from_utf8_lossy(&text), unsaid))
}

/// QEMU's first complaint, as one short line; `unsaid` if it made none.
fn reason(said: &str, unsaid: &str) -> String {
    let line = said
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or(unsaid);
    line.trim_start_matches("qemu-system-x86_64: ").to_owned()
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
        assert_eq!(recall("k\n\n", "k").as_deref(), Some(""));
    }

    #[test]
    fn gives_one_line_of_reason() {
        let said = "qemu-system-x86_64: error: failed to set MSR 0x48f to 0x7fff\nqemu: ../kvm.c: Assertion\n";
        assert_eq!(reason(said, ""), "error: failed to set MSR 0x48f to 0x7fff");
        assert_eq!(reason("\n", "a test guest hung"), "a test guest hung");
    }
}
