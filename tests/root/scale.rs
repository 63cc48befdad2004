// SPDX-License-Identifier: GPL-2.0-only
//! Measurements of identification that take minutes: run by hand, alone on the machine.
//!
//! `cargo test --release --test integration root::scale -- --ignored --nocapture --test-threads=1`
//!
//! With `GPUAWARE_RUNS=FOLDER` each leaves its raw results there, in a JSON file of its own. They are no
//! matrices of `gpuaware-bench`: they look at identification itself, which is in this process, on a kernel
//! without sched_ext, and what they count is not tokens a second.

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

use super::place::{Place, identify_until, marks_of};
use crate::process::{Process, gpu_launch, lab_folder};

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

/// Leaves the raw results of measurement `name` where it is asked for.
pub fn record(name: &str, results: &serde_json::Value) {
    let Some(folder) = std::env::var_os("GPUAWARE_RUNS") else {
        return;
    };
    let file = Path::new(&folder).join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(results).unwrap();
    std::fs::write(&file, text + "\n")
        .unwrap_or_else(|error| panic!("GPUAWARE_RUNS: {}: {error}", file.display()));
}

/// CPU time of this thread, which identification runs on.
fn own_cpu_time() -> Duration {
    let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
    nix::time::clock_gettime(clock).map(Duration::from).unwrap()
}

/// Runs identification for `time`, as often as it asks to be.
pub fn serve(identify: &mut Identify<'_>, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let wait = identify.step().expect("a step of identification");
        std::thread::sleep(wait);
    }
}

/// `gpu_launch` with its result in a file: a pipe has no room for that of a minute.
struct Launcher {
    process: Process,
    result: NamedTempFile,
}

impl Launcher {
    /// On the libcuda in `folder`.
    fn start(args: &str, folder: &Path) -> Self {
        let result = NamedTempFile::new().unwrap();
        let mut command = gpu_launch(args);
        command
            .env("LD_LIBRARY_PATH", folder)
            .stdout(result.reopen().unwrap());
        Self {
            process: Process::start(command),
            result,
        }
    }

    /// What it printed, after the end.
    fn result(&self) -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(self.result.path()).unwrap()).unwrap()
    }

    /// TID and time of the first launch of each thread that launched.
    fn first_launches(&self) -> BTreeMap<i32, u64> {
        let result = self.result();
        let threads = result["threads_detail"].as_array().unwrap().iter();
        threads
            .map(|thread| {
                let tid = thread["tid"].as_i64().unwrap() as i32;
                (tid, thread["first_launch_monotonic_ns"].as_u64().unwrap())
            })
            .collect()
    }
}

/// Time from the first launch of each thread to its mark; `None`: it got none.
type Delays = Vec<Option<Duration>>;

/// Starts a launcher with the libcuda in `folder` and waits for its end.
fn one_start(identify: &mut Identify<'_>, pins: &Pins, folder: &Path) -> Delays {
    let mut launcher = Launcher::start("--profile eager --duration 0.5", folder);
    let mut first_seen = BTreeMap::new();
    while !launcher.process.has_ended() {
        identify_until(identify, Duration::from_millis(50), |_| false);
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

#[test]
#[ignore = "a measurement of minutes"]
fn new_launchers_beside_a_hot_one() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let mut hot = gpu_launch("--profile eager --duration 3600");
    hot.stdout(Stdio::null());
    let _hot = Process::start(hot);
    serve(&mut identify, Duration::from_secs(2));
    let mut delays = Delays::new();
    while delays.len() < STARTS {
        delays.extend(one_start(&mut identify, &pins, &lab_folder()));
    }
    println!("{:?}", identify.sightings());
    // The worst of 459 is what bounds the 99th percentile with 99 % confidence.
    worst("first-launch", "a known libcuda", delays);
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
    identify_until(identify, Duration::from_secs_f64(age + 15.0), |_| {
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

#[test]
#[ignore = "a measurement of ten minutes"]
fn threads_that_launch_late_beside_a_hot_one() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let mut hot = gpu_launch("--profile eager --duration 3600");
    hot.stdout(Stdio::null());
    let _hot = Process::start(hot);
    serve(&mut identify, Duration::from_secs(2));
    for (age, starts) in [(1.0, 100), (60.0, 5)] {
        let delays = (0..starts).map(|_| one_late_start(&mut identify, &pins, age));
        let name = format!("first-launch-after-{age}-s");
        let what = format!("first launches {age} s after cuInit");
        worst(&name, &what, delays.collect());
    }
}

#[test]
#[ignore = "a measurement of minutes"]
fn launchers_of_a_libcuda_that_was_never_seen() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let mut delays = Delays::new();
    for _ in 0..100 {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("libcuda.so.1");
        std::fs::copy(lab_folder().join("libcuda.so.1"), copy).unwrap();
        delays.extend(one_start(&mut identify, &pins, folder.path()));
    }
    worst(
        "first-launch-unseen",
        "a libcuda that was never seen",
        delays,
    );
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

#[test]
#[ignore = "a measurement of minutes"]
fn two_hundred_processes_of_fifty_threads_of_which_ten_launch() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let resting = || {
        let mut command = Command::new("python3");
        command
            .args(["-c", RESTING])
            .env("LD_LIBRARY_PATH", lab_folder())
            .stdin(Stdio::null());
        command
    };
    let _resting: Vec<_> = (0..190)
        .map(|_| {
            let process = Process::start(resting());
            serve(&mut identify, Duration::from_millis(50));
            process
        })
        .collect();
    let args = "--profile graph --idle-threads 48 --duration 90";
    let mut launchers: Vec<_> = (0..10)
        .map(|_| Launcher::start(args, &lab_folder()))
        .collect();
    serve(&mut identify, Duration::from_secs(15));
    let stop = AtomicBool::new(false);
    let (used, marked) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| marked_until(&stop, &pins));
        let (cpu, start) = (own_cpu_time(), Instant::now());
        serve(&mut identify, Duration::from_secs(60));
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
    record("two-hundred", &results);
    assert_eq!(marked, launching);
}

/// Tokens a second of a steady launcher that is probed as `probes` says, and how often it was.
fn steady(place: &Place, probes: &str) -> (f64, u64) {
    let policy = Policy::parse(&format!("[identify]\nprobes = \"{probes}\"\n")).unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy, place.pins(), &mut object).unwrap();
    // It is known when the measured part begins; beside it runs a stranger, which sweeps look for.
    let args = "--profile qwen3 --warmup-tokens 300 --idle-threads 1 --duration 5";
    let mut launcher = Launcher::start(args, &lab_folder());
    while !launcher.process.has_ended() {
        serve(&mut identify, Duration::from_millis(20));
    }
    let rate = launcher.result()["tokens_per_s"].as_f64().unwrap();
    (rate, identify.sightings().launch_hits)
}

/// Mean and half of the 95 % interval (Student's) of ten values.
pub fn mean_of_ten(values: &[f64]) -> (f64, f64) {
    const T_9: f64 = 2.262;
    let nr = values.len() as f64;
    let mean = values.iter().sum::<f64>() / nr;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / (nr - 1.0);
    (mean, T_9 * (variance / nr).sqrt())
}

#[test]
#[ignore = "a measurement of minutes"]
fn what_probing_costs_a_steady_launcher() {
    let Some(place) = Place::new() else { return };
    let arms = ["off", "auto", "always"];
    let mut rates = [const { Vec::new() }; 3];
    for round in 0..10 {
        // Each comes first, second and last in turn.
        for arm in (0..3).map(|place| (place + round) % 3) {
            let (rate, hits) = steady(&place, arms[arm]);
            println!("{}: {rate:.2} tokens/s, {hits} launches probed", arms[arm]);
            rates[arm].push(rate);
        }
    }
    let against_off = |arm: &[f64]| {
        let ratios = arm.iter().zip(&rates[0]).map(|(rate, off)| rate / off);
        mean_of_ten(
            &ratios
                .map(|ratio| (ratio - 1.0) * 100.0)
                .collect::<Vec<_>>(),
        )
    };
    let (windows, around) = against_off(&rates[1]);
    println!("windows: {windows:+.3} % of tokens/s, 95 % interval +-{around:.3}");
    let (always, always_around) = against_off(&rates[2]);
    println!("always: {always:+.2} % of tokens/s, 95 % interval +-{always_around:.2}");
    let results = serde_json::json!({ "arms": arms, "tokens_per_s": rates });
    record("probing-cost", &results);
}

#[test]
#[ignore = "a measurement of minutes"]
fn how_often_a_steady_launcher_is_probed_beside_a_stranger() {
    let Some(place) = Place::new() else { return };
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), place.pins(), &mut object).unwrap();
    let args = "--profile qwen3 --idle-threads 1 --duration 130";
    let _launcher = Launcher::start(args, &lab_folder());
    let mut results = Vec::new();
    for seconds in [10, 50, 60] {
        let before = identify.sightings();
        serve(&mut identify, Duration::from_secs(seconds));
        let after = identify.sightings();
        println!(
            "in the next {seconds} s: {} sweeps, {:.0} launches probed a second, pause {:?}",
            after.windows - before.windows,
            (after.launch_hits - before.launch_hits) as f64 / seconds as f64,
            after.pause
        );
        results.push(serde_json::json!({
            "seconds": seconds,
            "windows": after.windows - before.windows,
            "launches_probed": after.launch_hits - before.launch_hits,
        }));
    }
    record("probed-beside-a-stranger", &results.into());
}

#[test]
#[ignore = "measures: docs/metrics.md"]
fn time_of_counting_marks() {
    const COUNTS: u32 = 50;
    let Some(place) = Place::new() else { return };
    let mut object = MaybeUninit::uninit();
    let policy = "[class.background]\nmatch = [{ cgroup = \"nobody/**\" }]\n";
    let policy = Policy::parse(policy).unwrap();
    let identify = Identify::start(&policy, place.pins(), &mut object).unwrap();
    let resting = "import threading, time
for _ in range(1999): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print('', flush=True)
time.sleep(600)
";
    let mut crowd = Vec::new();
    for nr_crowds in 0..3 {
        let tasks = std::fs::read_dir("/proc").unwrap().flatten();
        let tasks = tasks.filter_map(|process| std::fs::read_dir(process.path().join("task")).ok());
        let nr_tasks: usize = tasks.map(Iterator::count).sum();
        let start = own_cpu_time();
        for _ in 0..COUNTS {
            std::hint::black_box(identify.count_marks().unwrap());
        }
        let each = (own_cpu_time() - start) / COUNTS;
        println!("{nr_tasks} tasks: {each:?} of CPU to count their marks");
        if nr_crowds < 2 {
            let mut command = Command::new("python3");
            command.args(["-c", resting]).stdout(Stdio::null());
            crowd.push(Process::start(command));
            std::thread::sleep(Duration::from_secs(3));
        }
    }
}
