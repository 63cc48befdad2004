// SPDX-License-Identifier: GPL-2.0-only
//! Moments in which a CPU of the lab ran nothing: its host was busy. No scheduler of the guest can help that, so
//! they are no fault of the one under test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::machine::nr_cpus;

const PAUSE: Duration = Duration::from_millis(10);
/// A thread of a higher class than sched_ext is late by less, unless its CPU stands still.
const TOLERATED: Duration = Duration::from_millis(50);

/// A real-time thread on each CPU that sleeps briefly, again and again, and adds up how late it is.
pub struct Stalls {
    watch: Arc<Watch>,
    watchers: Vec<JoinHandle<()>>,
}

struct Watch {
    stop: AtomicBool,
    stalled_us: Vec<AtomicU64>,
}

impl Stalls {
    pub fn watch() -> Self {
        let watch = Arc::new(Watch {
            stop: AtomicBool::new(false),
            stalled_us: (0..nr_cpus()).map(|_| AtomicU64::new(0)).collect(),
        });
        let watcher = |cpu| {
            let watch = Arc::clone(&watch);
            std::thread::spawn(move || follow(cpu, &watch))
        };
        let watchers = (0..nr_cpus()).map(watcher).collect();
        Self { watch, watchers }
    }

    /// For how long the CPU with the most of it has stood still.
    pub fn so_far(&self) -> Duration {
        let each = self.watch.stalled_us.iter();
        let worst = each.map(|stalled| stalled.load(Ordering::Relaxed)).max();
        Duration::from_micros(worst.unwrap_or(0))
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.watch.stop.store(true, Ordering::Relaxed);
        for watcher in self.watchers.drain(..) {
            let _ = watcher.join();
        }
    }
}

fn follow(cpu: usize, watch: &Watch) {
    let mut here = CpuSet::new();
    here.set(cpu).expect("a CPU number");
    sched_setaffinity(Pid::from_raw(0), &here).expect("affinity");
    // SAFETY: sched_param is plain data for which zero is valid.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = 1;
    // SAFETY: `param` is valid for the call, which is about the calling thread.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    Errno::result(set).expect("SCHED_FIFO");
    while !watch.stop.load(Ordering::Relaxed) {
        let asleep = Instant::now();
        std::thread::sleep(PAUSE);
        let late = asleep.elapsed() - PAUSE;
        if late > TOLERATED {
            eprintln!("CPU {cpu} of the lab stood still for {late:?}: its host was busy");
            watch.stalled_us[cpu].fetch_add(late.as_micros() as u64, Ordering::Relaxed);
        }
    }
}
