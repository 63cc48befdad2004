// SPDX-License-Identifier: GPL-2.0-only
//! Identification among many processes and beside a hot launcher: what it promises holds in the gate for a few starts, and
//! is measured in minutes by hand, alone on the machine:
//!
//! `cargo integration root::scale -- --ignored --nocapture --test-threads=1`
//!
//! The measurements are no matrices of `gpuaware-bench`: they look at identification itself, which is in this process, on
//! a kernel without sched_ext, and what they count is not tokens a second.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use scx_gpuaware::identify::Identify;
use scx_gpuaware::identify::marks::Pins;
use scx_gpuaware::policy::Policy;
use tempfile::NamedTempFile;

use super::feed::other_scheduler;
use super::late::copy_of_libcuda;
use super::measure::{Launcher, own_cpu_time, record, serve};
use super::place::{Place, identify_within, marks_of};
use crate::disturbed::unless_disturbed;
use crate::process::{Process, eventually, gpu_launch, lab_folder, scx_gpuaware};
use crate::tier;

/// So few samples are needed that the largest of 459 bounds the 99th percentile with 99 % confidence.
const STARTS: usize = 459;

/// A GPU process that launches nothing: 50 threads, all but asleep.
const RESTING: &str = "import ctypes, threading, time
ctypes.CDLL('libcuda.so.1').cuInit(0)
def rest():
    while True: time.sleep(10)
for _ in range(49): threading.Thread(target=rest, daemon=True).start()
rest()
";

/// Time from the first launch of each thread to its mark; `None`: it got none.
type Delays = Vec<Option<Duration>>;

/// Starts a launcher with the libcuda in `folder` and waits for its end.
fn one_start(identify: &mut Identify<'_>, pins: &Pins, folder: &Path) -> Delays {
    let mut launcher = Launcher::start("--profile eager --duration 0.5", folder);
    let mut first_seen = BTreeMap::new();
    while !launcher.process.has_ended() {
        identify_within(identify, Duration::from_millis(50), |_| false);
        for mark in pins.list().unwrap() {
            first_seen.insert(mark.tid, mark.first_seen_ns.unwrap_or(0));
        }
    }
    let launches = launcher.first_launches().into_iter();
    launches
        .map(|(tid, launched_ns)| {
            let seen_ns = first_seen.get(&tid)?;
            Some(Duration::from_nanos(seen_ns.saturating_sub(launched_ns)))
        })
        .collect()
}

/// Prints and records what came of `delays`; returns the worst. Nobody may be unmarked.
fn worst(name: &str, what: &str, delays: Delays) -> Duration {
    let us: Vec<_> = delays
        .iter()
        .map(|delay| delay.map(|delay| delay.as_micros() as u64))
        .collect();
    record(name, &serde_json::json!({ "what": what, "delay_us": us }));
    let unmarked = delays.iter().filter(|delay| delay.is_none()).count();
    let mut marked: Vec<_> = delays.into_iter().flatten().collect();
    marked.sort_unstable();
    let at = |share: f64| marked[((marked.len() - 1) as f64 * share).ceil() as usize];
    println!(
        "{what}: {} starts: median {:?}, p99 {:?}, worst {:?}, {unmarked} unmarked",
        marked.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    assert_eq!(unmarked, 0);
    at(1.0)
}

/// Identification with a launcher that it knows.
fn beside_a_hot_one<T>(then: impl FnOnce(&mut Identify<'_>, &Pins) -> T) -> Option<T> {
    let place = Place::new()?;
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let mut hot = gpu_launch("--profile eager --duration 3600");
    hot.stdout(Stdio::null());
    let _hot = Process::start(hot);
    serve(&mut identify, Duration::from_secs(2));
    let done = then(&mut identify, &pins);
    println!("{:?}", identify.sightings());
    Some(done)
}

/// `starts` launchers beside a hot one: nobody is unmarked, or marked late.
fn starts_beside_a_hot_one(name: &str, starts: usize) {
    let delays = beside_a_hot_one(|identify, pins| {
        let mut delays = Delays::new();
        while delays.len() < starts {
            delays.extend(one_start(identify, pins, &lab_folder()));
        }
        delays
    });
    let Some(delays) = delays else { return };
    let worst = worst(name, "a known libcuda", delays);
    assert!(worst <= Duration::from_millis(250), "{worst:?}");
}

#[test]
fn a_few_new_launchers_beside_a_hot_one_are_marked_in_time() {
    unless_disturbed(|| starts_beside_a_hot_one("a-few-first-launches", 8));
}

#[test]
#[ignore = "a measurement of minutes"]
fn new_launchers_beside_a_hot_one() {
    // The worst of 459 is what bounds the 99th percentile with 99 % confidence.
    starts_beside_a_hot_one("first-launch", STARTS);
}

/// Initialises CUDA, starts a thread, and has it launch for the first time so many seconds later.
const LATE: &str = "import ctypes, sys, threading, time
lib = ctypes.CDLL('libcuda.so.1')
lib.cuInit(0)
def work():
    time.sleep(float(sys.argv[1]))
    print(threading.get_native_id(), time.monotonic_ns(), flush=True)
    while True:
        lib.cuLaunchKernel(*[None] * 11)
        time.sleep(0.001)
threading.Thread(target=work, daemon=True).start()
time.sleep(float(sys.argv[1]) + 20)
";

/// Time from the first launch of a thread, `age` seconds after its start and `cuInit`, to its mark.
fn one_late_start(identify: &mut Identify<'_>, pins: &Pins, age: f64) -> Option<Duration> {
    let said = NamedTempFile::new().unwrap();
    let mut command = Command::new("python3");
    command
        .args(["-c", LATE, &age.to_string()])
        .env("LD_LIBRARY_PATH", lab_folder())
        .stdin(Stdio::null())
        .stdout(said.reopen().unwrap());
    let process = Process::start(command);
    let mut mark = None;
    identify_within(identify, Duration::from_secs_f64(age + 15.0), |_| {
        mark = marks_of(pins, process.pid()).into_iter().next();
        mark.is_some()
    });
    let said = std::fs::read_to_string(said.path()).unwrap();
    let (tid, launched_ns) = said.trim().split_once(' ')?;
    let mark = mark?;
    assert_eq!(mark.tid.to_string(), tid);
    let launched_ns: u64 = launched_ns.parse().unwrap();
    let seen_ns = mark.first_seen_ns?;
    Some(Duration::from_nanos(seen_ns.saturating_sub(launched_ns)))
}

/// `starts` threads beside a hot launcher that launch for the first time at the age of so many seconds: nobody is unmarked.
fn late_starts(name: &str, age: f64, starts: usize) {
    let delays = beside_a_hot_one(|identify, pins| {
        let delays = (0..starts).map(|_| one_late_start(identify, pins, age));
        delays.collect()
    });
    let Some(delays) = delays else { return };
    worst(
        name,
        &format!("first launches {age} s after cuInit"),
        delays,
    );
}

#[test]
fn a_few_threads_that_launch_late_beside_a_hot_one_are_marked() {
    late_starts("a-few-first-launches-after-1-s", 1.0, 3);
}

#[test]
#[ignore = "a measurement of ten minutes"]
fn threads_that_launch_late_beside_a_hot_one() {
    for (age, starts) in [(1.0, 100), (60.0, 5)] {
        late_starts(&format!("first-launch-after-{age}-s"), age, starts);
    }
}

/// `starts` launchers whose libcuda was never seen: nobody is unmarked, or marked late.
fn unseen_starts(name: &str, starts: usize) {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let mut delays = Delays::new();
    for _ in 0..starts {
        let (folder, _copy) = copy_of_libcuda();
        delays.extend(one_start(&mut identify, &pins, folder.path()));
    }
    let worst = worst(name, "a libcuda that was never seen", delays);
    assert!(worst <= Duration::from_secs(1), "{worst:?}");
}

#[test]
fn a_few_launchers_of_a_libcuda_that_was_never_seen_are_marked_in_time() {
    unless_disturbed(|| unseen_starts("a-few-first-launches-unseen", 4));
}

#[test]
#[ignore = "a measurement of minutes"]
fn launchers_of_a_libcuda_that_was_never_seen() {
    unseen_starts("first-launch-unseen", 100);
}

/// Everybody who has a mark at some time before `stop`, looked up on a thread of its own: what that
/// costs is not the agent's.
fn marked_until(stop: &AtomicBool, pins: &Pins) -> BTreeSet<i32> {
    let mut marked = BTreeSet::new();
    while !stop.load(Ordering::Relaxed) {
        marked.extend(pins.list().unwrap().iter().map(|mark| mark.tid));
        std::thread::sleep(Duration::from_secs(2));
    }
    marked
}

/// GPU processes of 50 threads: most rest, some launch from one thread each.
#[derive(Clone, Copy)]
struct Crowd {
    resting: usize,
    launching: usize,
}

const TWO_HUNDRED: Crowd = Crowd {
    resting: 190,
    launching: 10,
};

impl Crowd {
    /// Starts them one after the other; who launches does for so many seconds.
    fn start(
        self,
        seconds: u64,
        mut meanwhile: impl FnMut(Duration),
    ) -> (Vec<Process>, Vec<Launcher>) {
        let resting = || {
            let mut command = Command::new("python3");
            command
                .args(["-c", RESTING])
                .env("LD_LIBRARY_PATH", lab_folder())
                .stdin(Stdio::null());
            command
        };
        let resting = (0..self.resting).map(|_| {
            let process = Process::start(resting());
            meanwhile(Duration::from_millis(50));
            process
        });
        let resting = resting.collect();
        let args = format!("--profile graph --idle-threads 48 --duration {seconds}");
        let launchers = (0..self.launching).map(|_| Launcher::start(&args, &lab_folder()));
        (resting, launchers.collect())
    }

    /// Exactly those that launch are marked, for a hundredth of a CPU in the `window` that follows when they are settled.
    fn assert_found(self, name: &str, settles: u64, window: u64) {
        let Some(place) = Place::new() else { return };
        let pins = place.pins();
        let mut object = MaybeUninit::uninit();
        let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
        // A process takes some twentieth of a second to start.
        let seconds = settles + window + 3 + self.resting as u64 / 15;
        let (_resting, mut launchers) = self.start(seconds, |time| serve(&mut identify, time));
        serve(&mut identify, Duration::from_secs(settles));
        let stop = AtomicBool::new(false);
        let (used, marked) = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| marked_until(&stop, &pins));
            let (cpu, start) = (own_cpu_time(), Instant::now());
            serve(&mut identify, Duration::from_secs(window));
            let used = (own_cpu_time() - cpu).as_secs_f64() / start.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            (used, watcher.join().unwrap())
        });
        println!("{:?}", identify.sightings());
        let mut launching = BTreeSet::new();
        for launcher in &mut launchers {
            while !launcher.process.has_ended() {
                serve(&mut identify, Duration::from_millis(100));
            }
            launching.extend(launcher.first_launches().into_keys());
        }
        println!(
            "{} marked, {} launching, identification {:.2} % of one CPU",
            marked.len(),
            launching.len(),
            used * 100.0
        );
        let results = serde_json::json!({
            "marked": marked, "launching": launching, "cpu_of_identification": used,
        });
        record(name, &results);
        assert_eq!(launching.len(), self.launching);
        assert_eq!(marked, launching);
        assert!(used <= 0.01, "{used}");
    }
}

#[test]
fn of_twenty_processes_of_fifty_threads_those_that_launch_are_found_at_little_cost() {
    let twenty = Crowd {
        resting: 18,
        launching: 2,
    };
    unless_disturbed(|| twenty.assert_found("twenty", 3, 6));
}

#[test]
#[ignore = "a measurement of minutes"]
fn two_hundred_processes_of_fifty_threads_of_which_ten_launch() {
    TWO_HUNDRED.assert_found("two-hundred", 15, 60);
}

/// Share of a CPU that all of `agent` takes beside the two hundred, once their first minute is over.
fn whole_agent(mut agent: Process, ready: &str) -> f64 {
    agent.wait_for_line(ready);
    let (resting, launchers) = TWO_HUNDRED.start(600, std::thread::sleep);
    // They start within seconds, in an emulated machine within minutes.
    let is_there = |process: &Process| {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", process.pid()));
        tasks.is_ok_and(|tasks| tasks.count() >= 50)
    };
    let all = || resting.iter().all(is_there).then_some(());
    eventually(all).expect("190 processes of 50 threads");
    std::thread::sleep(Duration::from_secs(65));
    let (before, start) = (agent.cpu_time(), Instant::now());
    std::thread::sleep(Duration::from_secs(60));
    let used = (agent.cpu_time() - before).as_secs_f64() / start.elapsed().as_secs_f64();
    // An agent that finds nobody is cheap.
    let output = scx_gpuaware(&["marks", "--json"]).output().unwrap();
    let marks: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let marked: BTreeSet<_> = marks.iter().map(|mark| mark["tgid"].as_i64()).collect();
    let launching = launchers.iter().map(|it| Some(i64::from(it.process.pid())));
    assert_eq!(marked, launching.collect());
    used
}

/// Identification, and telling another scheduler. Needs a bpffs on `/sys/fs/bpf`.
#[test]
#[ignore = "a measurement of minutes"]
fn what_feeding_costs_with_two_hundred_processes() {
    let Some(place) = Place::new() else { return };
    let pin = place.pins().dir().join("other");
    std::fs::create_dir_all(place.pins().dir()).unwrap();
    other_scheduler(&pin);
    let agent = Process::start(scx_gpuaware(&["feed", "--map", pin.to_str().unwrap()]));
    let used = whole_agent(agent, "feeding");
    println!("feed, all of it: {:.2} % of one CPU", used * 100.0);
    record(
        "two-hundred-feed",
        &serde_json::json!({ "cpu_of_the_process": used }),
    );
}

/// Identification, and all else that the scheduler does in user space. In the lab, or where the kernel
/// has sched_ext.
#[test]
#[ignore = "a measurement of minutes"]
fn what_the_scheduler_takes_with_two_hundred_processes() {
    tier::in_lab(|| {
        let used = whole_agent(Process::start(scx_gpuaware(&[])), "attached");
        println!("the scheduler, all of it: {:.2} % of one CPU", used * 100.0);
        record(
            "two-hundred-scheduler",
            &serde_json::json!({ "cpu_of_the_process": used }),
        );
    });
}
