// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts where the launcher runs: receive packet steering has the loopback device's packets
//! handled on given CPUs, each burst by an inter-processor interrupt and a softirq there. It needs no
//! hardware that interrupts.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cpus;
use crate::watchdog::{Duty, Guarded};

const FILE: &str = "/sys/class/net/lo/queues/rx-0/rps_cpus";

/// Dropping it puts back what was there.
#[derive(Debug)]
pub(super) struct Steering {
    file: PathBuf,
    before: String,
    _guarded: Guarded,
}

impl Steering {
    /// From now on the CPUs of the list receive what comes over loopback.
    pub(super) fn to(list: &str) -> Result<Self> {
        let cpus = cpus::parse_list(list).map_err(anyhow::Error::msg)?;
        Self::write(PathBuf::from(FILE), &cpus::format_mask(&cpus))
    }

    fn write(file: PathBuf, mask: &str) -> Result<Self> {
        let shown = file.display();
        let before = fs::read_to_string(&file).with_context(|| {
            format!("cannot read {shown}: the neighbour irq needs a kernel with CONFIG_RPS")
        })?;
        let guarded = Guarded::new(Duty::File {
            path: file.clone(),
            text: before.clone(),
        });
        fs::write(&file, mask)
            .with_context(|| format!("cannot write {shown}: the neighbour irq needs root"))?;
        Ok(Self {
            file,
            before,
            _guarded: guarded,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_is_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rps_cpus");
        fs::write(&file, "0\n").unwrap();
        let steering = Steering::write(file.clone(), "00000002").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "00000002");
        drop(steering);
        assert_eq!(fs::read_to_string(&file).unwrap(), "0\n");
        let error = Steering::write(dir.path().join("none"), "1").unwrap_err();
        assert!(error.to_string().contains("CONFIG_RPS"), "{error}");
    }
}
