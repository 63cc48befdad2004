// SPDX-License-Identifier: GPL-2.0-only
//! A stage's work on the GPU: so much time for a batch, in so many launches.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use busy::{Driver, Sync};

use crate::graph;

/// Belongs to the thread that opened it.
#[derive(Debug)]
pub struct Gpu {
    driver: Driver,
    work: graph::Gpu,
}

impl Gpu {
    /// For the stage's thread with this number.
    pub fn open(work: &graph::Gpu, sync: Sync, thread: usize) -> Result<Self> {
        let device = work.devices[thread % work.devices.len()];
        let driver =
            Driver::open(device, sync).with_context(|| format!("cannot use GPU {device}"))?;
        Ok(Self {
            driver,
            work: work.clone(),
        })
    }

    pub fn device_name(&self) -> &str {
        &self.driver.device_name
    }

    pub fn launches(&self) -> u64 {
        u64::from(self.work.launches)
    }

    /// Launches the batch and waits for it. How long that took.
    pub fn run(&self, batch: usize) -> Result<Duration> {
        let began = Instant::now();
        let time = self.work.service.time(batch) / self.work.launches;
        let gap = Duration::from_secs_f64(self.work.gap_us / 1e6);
        let time_ns = u64::try_from(time.as_nanos()).context("a kernel that long")?;
        for _ in 0..self.work.launches {
            busy::burn(gap);
            self.driver.launch(time_ns)?;
        }
        self.driver.synchronize()?;
        Ok(began.elapsed())
    }
}
