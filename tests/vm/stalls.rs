// SPDX-License-Identifier: GPL-2.0-only
//! Moments in which a CPU of the lab ran nothing: its host was busy. No scheduler of the guest can help that, so
//! they are no fault of the one under test.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
/// A wait that may take a second is held up by what happens in so long.
const SPAN: Duration = Duration::from_secs(2);

/// A real-time thread on each CPU that sleeps briefly, again and again, and notes when it was late by how much.
pub struct Stalls {
    watch: Arc<Watch>,
    watchers: Vec<JoinHandle<()>>,
}

struct Watch {
    stop: AtomicBool,
    /// Ends and lengths, a list for each CPU.
    stalls: Vec<Mutex<Vec<(Instant, Duration)>>>,
}

impl Stalls {
    pub fn watch() -> Self {
        let watch = Arc::new(Watch {
            stop: AtomicBool::new(false),
            stalls: (0..nr_cpus()).map(|_| Mutex::default()).collect(),
        });
        let watcher = |cpu| {
            let watch = Arc::clone(&watch);
            std::thread::spawn(move || follow(cpu, &watch))
        };
        let watchers = (0..nr_cpus()).map(watcher).collect();
        Self { watch, watchers }
    }

    /// For how long a CPU has stood still within the time of a wait, at most.
    pub fn so_far(&self) -> Duration {
        let each = self.watch.stalls.iter();
        let worst = each.map(|stalls| most_within_a_span(&lock(stalls))).max();
        worst.unwrap_or_default()
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn most_within_a_span(stalls: &[(Instant, Duration)]) -> Duration {
    let from = |&(begin, _): &(Instant, Duration)| {
        let within = stalls
            .iter()
            .filter(move |(end, _)| *end >= begin && *end <= begin + SPAN);
        within.map(|(_, late)| *late).sum()
    };
    stalls.iter().map(from).max().unwrap_or_default()
}

#[test]
fn stalls_count_together_within_the_time_of_a_wait() {
    let start = Instant::now();
    let at = |s: f64, ms| {
        (
            start + Duration::from_secs_f64(s),
            Duration::from_millis(ms),
        )
    };
    let stalls = [at(1.0, 100), at(1.5, 200), at(9.0, 250), at(11.1, 60)];
    assert_eq!(most_within_a_span(&stalls), Duration::from_millis(300));
    assert_eq!(most_within_a_span(&[]), Duration::ZERO);
}

/// Makes the calling thread a real-time one.
pub fn become_fifo() {
    // SAFETY: sched_param is plain data for which zero is valid.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = 1;
    // SAFETY: `param` is valid for the call, which is about the calling thread.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    Errno::result(set).expect("SCHED_FIFO");
}

fn follow(cpu: usize, watch: &Watch) {
    let mut here = CpuSet::new();
    here.set(cpu).expect("a CPU number");
    sched_setaffinity(Pid::from_raw(0), &here).expect("affinity");
    become_fifo();
    while !watch.stop.load(Ordering::Relaxed) {
        let asleep = Instant::now();
        std::thread::sleep(PAUSE);
        let late = asleep.elapsed() - PAUSE;
        if late > TOLERATED {
            eprintln!("CPU {cpu} of the lab stood still for {late:?}: its host was busy");
            lock(&watch.stalls[cpu]).push((Instant::now(), late));
        }
    }
}
