// SPDX-License-Identifier: GPL-2.0-only
//! Whether KVM works here, found out by running a few instructions on it.
//!
//! `/dev/kvm` that opens proves nothing: inside some virtual machines every guest fails to start.
//! The answer is remembered until this machine's next boot.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::machine::Accel;
use super::tools::{self, Tools};

const KVM: &str = "/dev/kvm";
/// A guest of five instructions needs milliseconds; a host may be busy.
const PROBE_LIMIT: Duration = Duration::from_secs(10);
/// What QEMU's isa-debug-exit device makes of the value that the guest writes: 2 * 16 + 1.
const PROBE_EXIT: i32 = 33;

/// KVM if a guest runs on it, else emulation. Says which on stderr.
pub fn choose(tools: &Tools) -> Result<Accel> {
    if let Err(error) = File::options().read(true).write(true).open(KVM) {
        eprintln!("lab: emulation (KVM: {KVM}: {error})");
        return Ok(Accel::Emulation);
    }
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let memory = tools::cache_dir()?.join("lab-kvm");
    let key = format!("{} {}", boot_id.trim(), tools.qemu.display());
    let verdict = match recall(&fs::read_to_string(&memory).unwrap_or_default(), &key) {
        Some(verdict) => verdict,
        None => {
            let verdict = probe(&tools.qemu)?;
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

/// Runs a guest on KVM; returns why that failed, nothing when it worked.
fn probe(qemu: &Path) -> Result<String> {
    let dir = tempfile::tempdir().context("cannot create a temporary folder")?;
    let firmware = dir.path().join("firmware");
    fs::write(&firmware, probe_firmware())?;
    let mut child = Command::new(qemu)
        .args([
            "-accel",
            "kvm",
            "-cpu",
            "host",
            "-m",
            "64",
            "-nodefaults",
            "-no-user-config",
        ])
        .args([
            "-display",
            "none",
            "-no-reboot",
            "-device",
            "isa-debug-exit,iobase=0xf4,iosize=4",
            "-bios",
        ])
        .arg(&firmware)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start QEMU")?;
    let deadline = Instant::now() + PROBE_LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok("a test guest hung".to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    if status.code() == Some(PROBE_EXIT) {
        return Ok(String::new());
    }
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut said);
    }
    Ok(reason(&said))
}

/// QEMU's first complaint, as one short line.
fn reason(said: &str) -> String {
    let line = said
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or("a test guest did not start");
    line.trim_start_matches("qemu-system-x86_64: ").to_owned()
}

/// 64 KiB of firmware whose reset vector (16 bytes from the end) is the whole program:
/// mov al, 16; out 0xf4, al; hlt.
fn probe_firmware() -> Vec<u8> {
    let mut image = vec![0xf4; 64 * 1024];
    let reset = image.len() - 16;
    image[reset..reset + 5].copy_from_slice(&[0xb0, 0x10, 0xe6, 0xf4, 0xf4]);
    image
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
    fn puts_the_program_at_the_reset_vector() {
        let image = probe_firmware();
        assert_eq!(image.len(), 65536);
        assert_eq!(image[65520..65525], [0xb0, 0x10, 0xe6, 0xf4, 0xf4]);
    }

    #[test]
    fn gives_one_line_of_reason() {
        let said = "qemu-system-x86_64: error: failed to set MSR 0x48f to 0x7fff\nqemu: ../kvm.c: Assertion\n";
        assert_eq!(reason(said), "error: failed to set MSR 0x48f to 0x7fff");
        assert_eq!(reason(""), "a test guest did not start");
    }
}
