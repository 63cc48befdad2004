// SPDX-License-Identifier: GPL-2.0-only
//! What real-time tasks do to those that are ours: a class above takes a CPU whenever it likes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::gettid;

use crate::length;
use crate::process::{Process, busy_loop, eventually, within};

use super::machine::{
    cpu_of, involuntary, mark, mark_launch, pin, preferred_cpu, set_affinity, sleeper, voluntary,
};
use super::shared::beside_the_scheduler;
use super::stalls::become_fifo;

/// For how long it is looked at.
const LOOK: Duration = Duration::from_secs(3);

/// How long a real-time task that comes and goes stays.
const STAY_US: u32 = 50_000;

/// CPU time of a real-time task: the kernel's watchdog ends the scheduler after 30 s.
const TAKEN_LIMIT: Duration = Duration::from_secs(20);

/// A real-time task on a CPU, which it leaves to nobody. Ends when dropped, or at `TAKEN_LIMIT`. It is a thread of this
/// program: a program that starts reads files, and each wait for one is a chance to take the CPU from under somebody who
/// was just fetched, of which the kernel does not always tell before 6.19 (docs/scheduling.md).
struct Taken {
    spin: Arc<Spin>,
    thread: Option<JoinHandle<()>>,
    began: Instant,
    ran: Duration,
}

#[derive(Default)]
struct Spin {
    ends: AtomicBool,
    ran_ns: AtomicU64,
}

impl Spin {
    /// It is real-time before it comes to `cpu`, and throws out whoever is there.
    fn spin(&self, cpu: usize) {
        become_fifo();
        set_affinity(gettid().as_raw().into(), &[cpu]);
        while !self.ends.load(Relaxed) && self.ran() < TAKEN_LIMIT {
            let ran = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock");
            let ran = Duration::from(ran).as_nanos() as u64;
            self.ran_ns.store(ran, Relaxed);
        }
    }

    fn ran(&self) -> Duration {
        Duration::from_nanos(self.ran_ns.load(Relaxed))
    }
}

impl Taken {
    fn new(cpu: usize) -> Self {
        // A page of this program may have to be read by a kernel thread of the CPU that is taken: it
        // would wait for the end of what it is here to end.
        mlockall(MlockAllFlags::MCL_CURRENT).expect("memory to lock");
        let spin = Arc::new(Spin::default());
        let spins = spin.clone();
        let thread = std::thread::spawn(move || spins.spin(cpu));
        // By then it has come.
        let has_come = || (spin.ran() > Duration::from_millis(300)).then_some(());
        eventually(has_come).expect("it spins");
        Self {
            began: Instant::now(),
            ran: spin.ran(),
            thread: Some(thread),
            spin,
        }
    }

    /// The share of the time since the real-time task came that `of` has run; it had `before` then.
    fn share(&self, of: &Process, before: Duration) -> f64 {
        let elapsed = self.began.elapsed().as_secs_f64();
        let own = (self.spin.ran() - self.ran).as_secs_f64() / elapsed;
        assert!(
            own > 0.8,
            "the real-time task had {:.0} % of its CPU",
            own * 100.0
        );
        (of.cpu_time() - before).as_secs_f64() / elapsed
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.spin.ends.store(true, Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(
            std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()),
            "it did not spin"
        );
    }
}

fn cpu_that_runs(process: &Process) -> usize {
    cpu_of(process.pid(), process.pid().into()).expect("it runs")
}

#[test]
#[ignore = "runs in the lab: make test"]
fn who_loses_a_cpu_to_a_real_time_task_goes_on_elsewhere() {
    beside_the_scheduler("", |_| {
        let classes = [None, Some("handoff"), Some("launch")];
        // The kernel does not always tell before 6.19 (docs/scheduling.md), which none of 180 showed beside a busy host:
        // not twice.
        let mut missed = 0;
        let times = length::of(2, 3);
        for class in classes.into_iter().cycle().take(times * classes.len()) {
            let spinner = Process::start(busy_loop());
            if let Some(class) = class {
                mark(spinner.pid(), class);
            }
            std::thread::sleep(Duration::from_millis(300));
            let taken = Taken::new(cpu_that_runs(&spinner));
            let before = spinner.cpu_time();
            std::thread::sleep(Duration::from_secs(1));
            let share = taken.share(&spinner, before);
            println!("{class:?} ran {:.0} % of it", share * 100.0);
            missed += usize::from(share < 0.6);
        }
        assert!(missed <= 1, "{missed} waited for the real-time task");
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_launcher_that_sleeps_does_not_wake_up_behind_a_real_time_task() {
    beside_the_scheduler("", |_| {
        let folder = tempfile::tempdir().expect("a folder");
        let waits = folder.path().join("waits");
        let launcher = sleeper(&format!(
            "at=${{EPOCHREALTIME/./}}; while :; do \
                 read -t 0.002 -u 4; now=${{EPOCHREALTIME/./}}; \
                 (( now - at < {STAY_US} * 4 / 5 )) || echo >> {}; at=$now; \
             done",
            waits.display()
        ));
        mark_launch(launcher.pid());
        // It comes when the CPU is idle, most often, and the launcher may be about to.
        let taker = sleeper(&format!(
            "taskset -cp {} $$; chrt --pid --fifo 1 $$; while :; do \
                 read -t 0.00$((RANDOM % 5 + 3)) -u 4; end=$(( ${{EPOCHREALTIME/./}} + {STAY_US} )); \
                 while (( ${{EPOCHREALTIME/./}} < end )); do :; done; \
             done",
            preferred_cpu()
        ));
        let comes = || (voluntary(taker.pid()) > 20).then_some(());
        eventually(comes).expect("it comes and goes");
        let waited = || std::fs::read(&waits).map_or(0, |lines| lines.len() as u64);
        let before = (waited(), voluntary(taker.pid()), voluntary(launcher.pid()));
        std::thread::sleep(3 * LOOK);
        let came = voluntary(taker.pid()) - before.1;
        let woke = voluntary(launcher.pid()) - before.2;
        let waited = waited() - before.0;
        println!("woke up {woke} times, and waited for {waited} of {came} real-time turns");
        assert!(came > 80 && woke > came);
        assert!(waited * 20 < came, "{waited} of {came} times");
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_launcher_comes_back_from_where_a_real_time_task_drove_it() {
    beside_the_scheduler("", |_| {
        let launcher = Process::start(busy_loop());
        mark_launch(launcher.pid());
        let at_home = || (cpu_that_runs(&launcher) == preferred_cpu()).then_some(());
        eventually(at_home).expect("on a preferred CPU");
        let home = preferred_cpu();
        let is_away = || (cpu_that_runs(&launcher) != home).then_some(());
        // Before 6.19 nobody is told of a real-time task that comes while the kernel moves another one there. The way back
        // is what is looked at here.
        let taken = (0..3).find_map(|_| {
            let taken = Taken::new(home);
            within(LOOK, is_away).map(|()| taken)
        });
        assert!(
            taken.is_some(),
            "on CPU {home}, preferred: {}",
            preferred_cpu()
        );
        drop(taken);
        eventually(at_home).expect("back on a preferred CPU");
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_pinned_launcher_that_waits_for_a_real_time_task_disturbs_nobody_elsewhere() {
    beside_the_scheduler("", |_| {
        let launcher = Process::start(busy_loop());
        pin(&launcher, preferred_cpu());
        mark_launch(launcher.pid());
        let other = Process::start(busy_loop());
        std::thread::sleep(Duration::from_millis(300));
        let taken = Taken::new(preferred_cpu());
        let (before, switches) = (other.cpu_time(), involuntary(other.pid()));
        std::thread::sleep(LOOK);
        let share = taken.share(&other, before);
        let switches = involuntary(other.pid()) - switches;
        println!(
            "background ran {:.0} % of it, {switches} switches",
            share * 100.0
        );
        assert!(share > 0.6, "background ran {:.0} % of it", share * 100.0);
        drop(taken);
        // And it is served when the CPU is its own again.
        let ran = launcher.cpu_time();
        let served = || (launcher.cpu_time() - ran > Duration::from_secs(1)).then_some(());
        eventually(served).expect("the launcher goes on");
    });
}
