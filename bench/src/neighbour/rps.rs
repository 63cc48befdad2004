// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts where the launcher runs: receive packet steering has the loopback device's packets
//! handled on given CPUs, each burst by an inter-processor interrupt and a softirq there. It needs no
//! hardware that interrupts.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use nix::errno::Errno;

use crate::cpus;
use crate::watchdog::{Cleanup, Guarded};

const FILE: &str = "/sys/class/net/lo/queues/rx-0/rps_cpus";
const STAT: &str = "/proc/net/softnet_stat";

/// Dropping it puts back what was there.
#[derive(Debug)]
pub(super) struct Steering {
    file: PathBuf,
    before: String,
    cpus: BTreeSet<usize>,
    _guarded: Guarded,
}

impl Steering {
    /// From now on the CPUs of the list receive what comes over loopback. `None`: the kernel lets none of them, as they
    /// are isolated (`isolcpus=`, `nohz_full=`): whoever sends receives, too.
    pub(super) fn to(list: &str) -> Result<Option<Self>> {
        let cpus = cpus::parse_list(list).map_err(anyhow::Error::msg)?;
        Self::write(PathBuf::from(FILE), cpus)
    }

    /// How often these CPUs were interrupted to receive what others had, by the kernel's count.
    pub(super) fn evidence(&self) -> Result<u64> {
        let text = fs::read_to_string(STAT).with_context(|| format!("cannot read {STAT}"))?;
        received_for_others(&text, &self.cpus)
            .with_context(|| format!("cannot make sense of {STAT}"))
    }

    fn write(file: PathBuf, cpus: BTreeSet<usize>) -> Result<Option<Self>> {
        let mask = cpus::format_mask(&cpus);
        let shown = file.display();
        let before = fs::read_to_string(&file).with_context(|| {
            format!("cannot read {shown}: the neighbour irq needs a kernel with CONFIG_RPS")
        })?;
        let guarded = Guarded::new(Cleanup::File {
            path: file.clone(),
            text: before.clone(),
        });
        match fs::write(&file, &mask) {
            // net/core/net-sysfs.c: no CPU of the mask is for the kernel's own work.
            Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => return Ok(None),
            written => written
                .with_context(|| format!("cannot write {shown}: the neighbour irq needs root"))?,
        }
        Ok(Some(Self {
            file,
            before,
            cpus,
            _guarded: guarded,
        }))
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.file, &self.before) {
            eprintln!(
                "gpuaware-bench: warning: cannot put {} back: {error}",
                self.file.display()
            );
        }
    }
}

/// The column `received_rps` of /proc/net/softnet_stat: a line for each online CPU, hexadecimal; the CPU's number
/// is in the 13th column.
fn received_for_others(text: &str, cpus: &BTreeSet<usize>) -> Option<u64> {
    let mut sum = 0;
    for line in text.lines() {
        let column = |at| {
            let word = line.split_whitespace().nth(at)?;
            u64::from_str_radix(word, 16).ok()
        };
        if cpus.contains(&usize::try_from(column(12)?).ok()?) {
            sum += column(9)?;
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_the_steered_cpus_received_for_others() {
        let line = |rps: &str, cpu: &str| format!("0000ff {}{rps} 0 0 {cpu} 0 0\n", "0 ".repeat(8));
        let text = [line("1f", "0"), line("0a", "2"), line("05", "3")].concat();
        let of = |cpus: &[usize]| received_for_others(&text, &cpus.iter().copied().collect());
        assert_eq!(
            (of(&[2, 3]), of(&[0]), of(&[1])),
            (Some(15), Some(31), Some(0))
        );
        assert_eq!(received_for_others("1 2 3\n", &BTreeSet::new()), None);
    }

    #[test]
    fn what_was_there_is_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rps_cpus");
        fs::write(&file, "0\n").unwrap();
        let steering = Steering::write(file.clone(), [1].into()).unwrap();
        assert!(steering.is_some());
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            cpus::format_mask(&[1].into())
        );
        drop(steering);
        assert_eq!(fs::read_to_string(&file).unwrap(), "0\n");
        let error = Steering::write(dir.path().join("none"), [0].into()).unwrap_err();
        assert!(error.to_string().contains("CONFIG_RPS"), "{error}");
    }

    #[test]
    fn cpus_that_the_kernel_keeps_packets_off_are_left_alone() {
        // A number is expected there: what a mask of several words is to this file, isolated CPUs are to rps_cpus.
        let file = PathBuf::from("/proc/self/oom_score_adj");
        let before = fs::read_to_string(&file).unwrap();
        assert!(
            Steering::write(file.clone(), [40].into())
                .unwrap()
                .is_none()
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), before);
    }
}
