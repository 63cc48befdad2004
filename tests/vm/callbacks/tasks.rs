// SPDX-License-Identifier: GPL-2.0-only
//! Tasks, described once: `gpuaware-sim callbacks` reads them as JSON, and threads of the test do the same on this
//! kernel.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::super::machine::{mark_thread, set_affinity};

/// As `Situation` in sim/src/situation.rs.
#[derive(Debug, Clone, Serialize)]
pub struct Situation {
    #[serde(skip)]
    pub name: &'static str,
    pub machine: &'static str,
    pub hz: u64,
    pub ms: u64,
    pub seed: u64,
    pub reach_us: u64,
    pub tasks: Vec<Task>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Task {
    #[serde(skip)]
    pub name: &'static str,
    pub class: Option<&'static str>,
    pub cpus: Option<Vec<usize>>,
    pub real_time: bool,
    pub program: Program,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    Loop,
    Periodic {
        run_us: u64,
        sleep_us: u64,
    },
    /// Waits for its partner, works and wakes it; `ahead` times without waiting.
    Pair {
        partner: usize,
        work_us: u64,
        ahead: u64,
    },
}

/// Threads that do what tasks do, until this is dropped.
pub struct Threads {
    stop: Arc<AtomicBool>,
    pub tids: Vec<i64>,
    joins: Vec<JoinHandle<()>>,
}

/// How a thread of a pair waits for the other one and wakes it.
struct Ends {
    own: PipeReader,
    partners: PipeWriter,
}

/// As `chrt --fifo` does.
fn make_real_time(tid: i64) {
    let status = Command::new("chrt")
        .args(["--fifo", "--pid", "10", &tid.to_string()])
        .status();
    assert!(status.expect("chrt").success());
}

fn work(length: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < length {}
}

fn run(program: Program, ends: Option<Ends>, stop: &AtomicBool) {
    let us = Duration::from_micros;
    let mut ends = ends;
    let mut ahead = match program {
        Program::Pair { ahead, .. } => ahead,
        _ => 0,
    };
    while !stop.load(Ordering::Relaxed) {
        match (program, &mut ends) {
            (Program::Periodic { run_us, sleep_us }, _) => {
                work(us(run_us));
                sleep(us(sleep_us));
            }
            (Program::Pair { work_us, .. }, Some(ends)) => {
                // One that ends closes its end: the other one is not left waiting.
                if ahead == 0 && ends.own.read_exact(&mut [0]).is_err() {
                    return;
                }
                ahead = ahead.saturating_sub(1);
                work(us(work_us));
                if ends.partners.write_all(&[0]).is_err() {
                    return;
                }
            }
            _ => work(us(1000)),
        }
    }
}

/// A pipe to each task; those that are no pairs drop theirs.
fn pipes(tasks: &[Task]) -> Vec<Option<Ends>> {
    let (mut readers, writers): (Vec<_>, Vec<_>) = tasks
        .iter()
        .map(|_| {
            pipe()
                .map(|(reader, writer)| (Some(reader), writer))
                .unwrap()
        })
        .unzip();
    let ends = |(at, task): (usize, &Task)| match task.program {
        Program::Pair { partner, .. } => Some(Ends {
            own: readers[at].take()?,
            partners: writers[partner].try_clone().unwrap(),
        }),
        _ => None,
    };
    tasks.iter().enumerate().map(ends).collect()
}

impl Threads {
    /// All of them, where they may run, and marked.
    pub fn start(tasks: &[Task]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, tids) = channel();
        let mut threads = Self {
            stop: Arc::clone(&stop),
            tids: Vec::new(),
            joins: Vec::new(),
        };
        for (task, ends) in tasks.iter().zip(pipes(tasks)) {
            let (sender, stop, program) = (sender.clone(), Arc::clone(&stop), task.program);
            threads.joins.push(spawn(move || {
                let tid = nix::unistd::gettid().as_raw();
                sender.send(i64::from(tid)).unwrap();
                run(program, ends, &stop);
            }));
            let tid = tids.recv().unwrap();
            if let Some(cpus) = &task.cpus {
                set_affinity(tid, cpus);
            }
            if let Some(class) = task.class {
                mark_thread(tid, class);
            }
            if task.real_time {
                make_real_time(tid);
            }
            threads.tids.push(tid);
        }
        threads
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for join in self.joins.drain(..) {
            let ended = join.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}
