// SPDX-License-Identifier: GPL-2.0-only
//! What identification costs a launcher, and itself: counted in the gate, measured by hand, alone on the machine.
//!
//! `cargo integration root::cost -- --ignored --nocapture --test-threads=1`

use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use scx_gpuaware::identify::Identify;
use scx_gpuaware::identify::marks::monotonic_now;
use scx_gpuaware::policy::Policy;

use super::measure::{Launcher, mean_with_interval, own_cpu_time, record, serve};
use super::place::Place;
use crate::process::{Process, lab_folder};

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
        mean_with_interval(
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

/// Serves for `time` and until the probes are away, or leaves identification alone for as long. Returns
/// when that was, of CLOCK_MONOTONIC, and how many launches were probed.
fn block(identify: &mut Identify<'_>, on: bool, time: Duration) -> (Duration, Duration, u64) {
    let (start, hits) = (monotonic_now().unwrap(), identify.sightings().launch_hits);
    if on {
        serve(identify, time);
        let end = Instant::now() + Duration::from_secs(2);
        while identify.sightings().armed {
            assert!(Instant::now() < end, "the probes stay armed");
            serve(identify, Duration::from_millis(1));
        }
    } else {
        std::thread::sleep(time);
    }
    let hits = identify.sightings().launch_hits - hits;
    (start, monotonic_now().unwrap(), hits)
}

/// In one launcher that has run for more than a minute: ten seconds with identification, and ten in
/// which it does nothing at all, in turn.
#[test]
#[ignore = "a measurement of minutes"]
fn what_sweeping_costs_after_a_minute() {
    let Some(place) = Place::new() else { return };
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), place.pins(), &mut object).unwrap();
    let args = "--profile qwen3 --warmup-tokens 300 --idle-threads 1 --duration 475";
    let mut launcher = Launcher::start(args, &lab_folder());
    serve(&mut identify, Duration::from_secs(65));
    let blocks: Vec<_> = (0..40)
        .map(|index| {
            // on, off, off, on: neither comes first more often.
            let on = index % 4 == 0 || index % 4 == 3;
            (on, block(&mut identify, on, Duration::from_secs(10)))
        })
        .collect();
    while !launcher.process.has_ended() {
        serve(&mut identify, Duration::from_millis(100));
    }
    let result = launcher.result();
    let mut ended = Duration::from_nanos(result["measured_monotonic_ns"][0].as_u64().unwrap());
    let tokens: Vec<_> = result["token_us"]
        .as_array()
        .unwrap()
        .iter()
        .map(|us| {
            let began = ended;
            ended += Duration::from_micros(us.as_u64().unwrap());
            (began, ended)
        })
        .collect();
    // Tokens a second of those that lie wholly within the block.
    let rate = |from: Duration, to: Duration| {
        let inside = tokens
            .iter()
            .filter(|(began, ended)| *began >= from && *ended <= to);
        let (nr, time) = inside.fold((0, Duration::ZERO), |(nr, time), (began, ended)| {
            (nr + 1, time + (*ended - *began))
        });
        f64::from(nr) / time.as_secs_f64()
    };
    let rates: Vec<_> = blocks
        .iter()
        .map(|&(on, (from, to, hits))| (on, rate(from, to), hits))
        .collect();
    let of = |pair: &[(bool, f64, u64)], on| {
        pair.iter()
            .find(|block| block.0 == on)
            .map(|block| block.1)
            .unwrap()
    };
    let percent: Vec<_> = rates
        .chunks(2)
        .map(|pair| (of(pair, true) / of(pair, false) - 1.0) * 100.0)
        .collect();
    let (mean, around) = mean_with_interval(&percent);
    println!("identification: {mean:+.3} % of tokens/s, 95 % interval +-{around:.3}");
    let results =
        serde_json::json!({ "on_tokens_per_s_launches_probed": rates, "percent": percent });
    record("probing-cost-after-a-minute", &results);
    assert!(mean - around > -0.2, "{mean} +-{around}");
}

/// Sweeps are as frequent as they ever are: 10 ms in every 810. At 10 us for each that is probed they take a fiftieth of its time.
#[test]
fn of_a_steady_launcher_beside_a_stranger_one_launch_in_fifty_is_probed_at_most() {
    const WINDOW: Duration = Duration::from_secs(6);
    let Some(place) = Place::new() else { return };
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), place.pins(), &mut object).unwrap();
    let args = "--profile qwen3 --idle-threads 1 --duration 9";
    let mut launcher = Launcher::start(args, &lab_folder());
    serve(&mut identify, Duration::from_secs(2));
    let before = identify.sightings();
    serve(&mut identify, WINDOW);
    let after = identify.sightings();
    while !launcher.process.has_ended() {
        serve(&mut identify, Duration::from_millis(100));
    }
    let result = launcher.result();
    let of = |key: &str| result[key].as_f64().unwrap();
    let launches = of("launches") / of("seconds") * WINDOW.as_secs_f64();
    let probed = after.launch_hits - before.launch_hits;
    println!(
        "{probed} of {launches:.0} launches probed in {} sweeps",
        after.windows - before.windows
    );
    assert_eq!(before.launchers_found, 1, "{before:?}");
    assert!(
        after.windows > before.windows,
        "nobody looks for the stranger: {after:?}"
    );
    assert!(
        (probed * 50) as f64 <= launches,
        "{probed} of {launches:.0}"
    );
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
#[ignore = "measures: docs/decisions/scrape-cost.md"]
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
