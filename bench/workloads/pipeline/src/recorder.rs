// SPDX-License-Identifier: GPL-2.0-only
//! What one thread sees of the measured window. Nobody else writes to it, so that measuring costs no lock but the one on
//! where it worked, which is free.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use busy::Usage;

use crate::item::Window;
use crate::samples::Samples;
use crate::timing::Timing;

/// How many items a thread did on which CPU.
pub type Places = Arc<Mutex<BTreeMap<usize, u64>>>;

#[derive(Debug, Default)]
pub struct Recorder {
    /// Place in `Graph::stages`.
    pub stage: usize,
    pub name: String,
    pub tid: i32,
    pub edges: BTreeMap<usize, EdgeTimes>,
    pub times: StageTimes,
    pub ends: Ends,
    pub places: Places,
    pub launches: u64,
    /// Of the whole run, as the first call of a server.
    pub first_launch_ns: Option<u64>,
    pub first_call_ns: Option<u64>,
    before: Option<Snapshot>,
    after: Option<Snapshot>,
}

#[derive(Debug, Clone, Default)]
struct Snapshot {
    usage: Usage,
    launches: u64,
}

/// Of items on their way from one stage to another.
#[derive(Debug, Clone, Default)]
pub struct EdgeTimes {
    /// From being ready until being taken.
    pub delay: Timing,
    /// From the arrival of the request until being ready.
    pub age: Timing,
    /// Copying the message.
    pub transfer: Timing,
}

#[derive(Debug, Clone, Default)]
pub struct StageTimes {
    pub items: u64,
    pub failed: u64,
    pub batch_size: Timing,
    /// All work on a batch.
    pub service: Timing,
    pub gpu: Timing,
    pub rpc: Timing,
    /// Waiting for room behind, for each item handed over.
    pub blocked: Timing,
}

/// Items that have come to an end of the graph.
#[derive(Debug, Clone, Default)]
pub struct Ends {
    pub latency: Timing,
    pub samples: Samples,
}

impl Ends {
    pub fn record(&mut self, request: u64, latency: Duration) {
        self.latency.record(latency);
        self.samples.add(request, latency);
    }

    pub fn add(&mut self, other: Self) {
        self.latency.add(&other.latency);
        self.samples.join(other.samples);
    }
}

impl EdgeTimes {
    pub fn add(&mut self, other: &Self) {
        self.delay.add(&other.delay);
        self.age.add(&other.age);
        self.transfer.add(&other.transfer);
    }
}

impl StageTimes {
    pub fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.failed += other.failed;
        self.batch_size.add(&other.batch_size);
        self.service.add(&other.service);
        self.gpu.add(&other.gpu);
        self.rpc.add(&other.rpc);
        self.blocked.add(&other.blocked);
    }
}

impl Recorder {
    /// Of the calling thread.
    pub fn new(stage: usize, name: String, places: Places) -> Self {
        Self {
            stage,
            name,
            tid: nix::unistd::gettid().as_raw(),
            places,
            ..Self::default()
        }
    }

    pub fn worked_here(&self, items: u64) {
        if let Ok(cpu) = nix::sched::sched_getcpu() {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            *places.entry(cpu).or_default() += items;
        }
    }

    /// Notes what the thread has used when the window begins and ends: between two looks it sleeps, or does one batch.
    pub fn look(&mut self, window: &Window) {
        let now = Instant::now();
        if self.before.is_none() && (window.holds(now) || window.is_over(now)) {
            self.before = self.snapshot();
        }
        if self.after.is_none() && window.is_over(now) {
            self.after = self.snapshot();
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        let usage = Usage::of_this_thread().ok()?;
        Some(Snapshot {
            usage,
            launches: self.launches,
        })
    }

    /// Usage and launches of the window.
    pub fn spent(&self) -> (Usage, u64) {
        let (Some(before), Some(after)) = (&self.before, &self.after) else {
            return (Usage::default(), 0);
        };
        let launches = after.launches - before.launches;
        (after.usage.since(&before.usage), launches)
    }
}
