// SPDX-License-Identifier: GPL-2.0-only
//! The simulator calls the scheduler's callbacks in the order in which this kernel does: the same tasks run here and in
//! the model, and what was called is compared word by word. Nothing is said of times.

mod recorder;
mod tasks;
mod words;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use recorder::Recorder;
use tasks::{Program, Situation, Task, Threads};
use words::{Call, Words};

use super::machine::nr_cpus;
use super::shared::beside_the_scheduler;
use crate::length;
use crate::process::repository;
use crate::tier::skip;

/// The model's CPUs react at once, or as emulated ones do on a host that has more to do: what it does then is known too.
const REACH_US: [u64; 2] = [2, 1000];
const LAB_MS: u64 = 500;
/// How long the model runs, which takes less time: what is rare is found too.
const MODEL_MS: u64 = 2000;
/// So many words of a hundred may be strange to the other one, or a few where there are few: those of the kernel's own
/// threads of a class above.
const STRANGE: f64 = 5.0;
const A_FEW: u64 = 3;
/// The most frequent word of one is at least so frequent in the other, in percent. How often each is found is a matter
/// of time where a slice may end or somebody wake first.
const FREQUENT: f64 = 5.0;
const FEWEST_WORDS: u64 = 5;
/// Until it is learned how long tasks run and sleep.
const WARM_UP_MS: u64 = 200;

const LOOP: Program = Program::Loop;

fn task(name: &'static str, program: Program) -> Task {
    Task {
        name,
        class: None,
        cpus: None,
        real_time: false,
        program,
    }
}

fn periodic(name: &'static str, run_us: u64, sleep_us: u64) -> Task {
    task(name, Program::Periodic { run_us, sleep_us })
}

fn of_class(class: &'static str, task: Task) -> Task {
    Task {
        class: Some(class),
        ..task
    }
}

fn beside_loops(mut tasks: Vec<Task>, count: usize) -> Vec<Task> {
    tasks.extend((0..count).map(|_| task("loop", LOOP)));
    tasks
}

fn pair() -> Vec<Task> {
    let one = |partner, ahead| {
        let program = Program::Pair {
            partner,
            work_us: 300,
            ahead,
        };
        task("pair", program)
    };
    vec![one(1, 1), one(0, 0)]
}

fn situations() -> Vec<Situation> {
    let launcher = || of_class("launch", periodic("launcher", 500, 2000));
    let handoff = of_class("handoff", periodic("handoff", 300, 3000));
    let sleeper = || periodic("sleeper", 300, 3000);
    let pinned = Task {
        cpus: Some(vec![0]),
        ..periodic("pinned", 300, 3000)
    };
    let real_time = Task {
        cpus: Some(vec![0]),
        real_time: true,
        ..periodic("real-time", 300, 5000)
    };
    let long = || periodic("long sleeper", 6000, 3000);
    let all = [
        ("a launcher alone", vec![launcher()]),
        ("a launcher", beside_loops(vec![launcher()], 2)),
        ("handoff", beside_loops(vec![handoff], 2)),
        ("two loops", beside_loops(vec![], 2)),
        ("three loops", beside_loops(vec![], 3)),
        ("a pair alone", pair()),
        ("a pair and a sleeper", [pair(), vec![sleeper()]].concat()),
        ("a sleeper alone", vec![sleeper()]),
        ("a sleeper", beside_loops(vec![sleeper()], 2)),
        ("a pinned one", beside_loops(vec![pinned], 2)),
        (
            "a real-time one",
            [beside_loops(vec![], 3), vec![real_time]].concat(),
        ),
        (
            "two that run for long",
            beside_loops(vec![long(), long()], 2),
        ),
    ];
    let situation = |(name, tasks)| Situation {
        name,
        machine: "2",
        hz: 250,
        ms: WARM_UP_MS + LAB_MS,
        seed: 1,
        reach_us: REACH_US[0],
        tasks,
    };
    all.into_iter().map(situation).collect()
}

/// What the model calls in each of them.
fn simulated(situations: &[Situation]) -> Vec<Vec<Call>> {
    let mut simulator = Command::new(repository().join("target/release/gpuaware-sim"))
        .arg("callbacks")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gpuaware-sim: make build");
    let json = serde_json::to_vec(situations).unwrap();
    simulator.stdin.take().unwrap().write_all(&json).unwrap();
    let output = simulator.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let calls = text.trim_end().split("\n\n");
    calls
        .map(|calls| calls.lines().filter_map(parse).collect())
        .collect()
}

/// A line of the simulator, unless it is of before tasks are as they are to be.
fn parse(line: &str) -> Option<Call> {
    let parts: Vec<&str> = line.split(' ').collect();
    let at_us: u64 = parts[1].parse().unwrap();
    (at_us > WARM_UP_MS * 1000).then(|| Call {
        callback: parts[0].to_owned(),
        cpu: parts[2].parse().unwrap(),
        task: parts[3].parse().unwrap(),
        flags: parts[4].parse().unwrap(),
    })
}

/// What this kernel calls, and for which threads.
fn recorded(recorder: &Recorder, situation: &Situation) -> (Vec<Call>, Vec<i64>) {
    let threads = Threads::start(&situation.tasks);
    std::thread::sleep(Duration::from_millis(WARM_UP_MS));
    recorder.take();
    std::thread::sleep(Duration::from_millis(situation.ms - WARM_UP_MS));
    (recorder.take(), threads.tids.clone())
}

/// By situation, the words of the tasks of each name that the scheduler knows, and of all CPUs.
type Found = Vec<Vec<(&'static str, Words)>>;

fn words(calls: &[Call], situation: &Situation, ids: &[i64]) -> Vec<(&'static str, Words)> {
    let mut all: Vec<(&'static str, Words)> = Vec::new();
    let mut add = |name, words| match all.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => Words::add(known, &words),
        None => all.push((name, words)),
    };
    let all_tasks = situation.tasks.iter().zip(ids);
    for (task, &id) in all_tasks.filter(|(task, _)| !task.real_time) {
        add(task.name, Words::of_task(calls, id));
    }
    for cpu in 0..nr_cpus() {
        add("CPUs", Words::of_cpu(calls, cpu));
    }
    all
}

/// All words of all situations.
fn together(found: &Found) -> Words {
    let mut all = Words::default();
    let words = found.iter().flatten();
    words.for_each(|(_, words)| all.add(words));
    all
}

/// The model's, first with CPUs that react at once.
fn words_of_the_model(situations: &[Situation]) -> Found {
    let with = |reach_us| {
        let with = move |situation: &Situation| Situation {
            reach_us,
            ms: WARM_UP_MS + MODEL_MS,
            ..situation.clone()
        };
        situations.iter().map(with)
    };
    let all: Vec<Situation> = REACH_US.into_iter().flat_map(with).collect();
    let calls = simulated(&all);
    let of = |(calls, situation): (&Vec<Call>, &Situation)| {
        let ids: Vec<i64> = (0..situation.tasks.len() as i64).collect();
        words(calls, situation, &ids)
    };
    calls.iter().zip(&all).map(of).collect()
}

/// This kernel's.
fn words_of_the_lab(situations: &[Situation]) -> Found {
    let recorder = Recorder::start();
    let of = |situation| {
        let (calls, tids) = recorded(&recorder, situation);
        words(&calls, situation, &tids)
    };
    situations.iter().map(of).collect()
}

/// Prints both, the most frequent words of the kernel first; `!` is one that the other one never has.
fn print(heading: &str, [lab, model]: [&Words; 2], [by_lab, by_model]: [&Words; 2]) {
    println!(
        "\n{heading}: {} words in the lab, {} in the model; who ran went on {} and {} times",
        lab.total(),
        model.total(),
        lab.goes_on,
        model.goes_on
    );
    let of_lab = lab.by_frequency();
    let others = model.by_frequency().into_iter();
    let others = others.filter(|word| !of_lab.contains(word));
    for word in of_lab.iter().copied().chain(others) {
        let known = by_lab.has(word) && by_model.has(word);
        let sign = if known { ' ' } else { '!' };
        let percent = |words: &Words| words.percent(word);
        println!("{:6.1} {:6.1} {sign} {word}", percent(lab), percent(model));
    }
}

/// What is wrong with one of them, seen from the other one.
fn wrong(of: &Words, other: &Words, by_other: &Words) -> Option<String> {
    let total = of.total();
    let strange = of.unknown_to(by_other);
    if total < FEWEST_WORDS || strange > A_FEW.max((total as f64 * STRANGE / 100.0) as u64) {
        return Some(format!("{strange} of {total} words are strange"));
    }
    let most = *of.by_frequency().first()?;
    (other.percent(most) < FREQUENT).then(|| format!("rare there: {most}"))
}

/// Is this kernel the one that the model follows? Others call a little differently.
fn is_modelled() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("osrelease");
    release.starts_with("6.18.")
}

#[test]
#[ignore = "runs in the lab: make test"]
fn the_simulator_calls_callbacks_in_the_kernels_order() {
    beside_the_scheduler("", |_| {
        if !length::is_full() {
            return skip(
                "with a compiler and a simulator in the guest it takes too long: make test-full",
            );
        }
        if !is_modelled() {
            return skip("tier vm needs Linux 6.18, which the simulator follows");
        }
        let situations = situations();
        let model = words_of_the_model(&situations);
        let lab = words_of_the_lab(&situations);
        let by = [&together(&lab), &together(&model)];
        let mut differ = Vec::new();
        for (at, situation) in situations.iter().enumerate() {
            for ((subject, lab), (_, model)) in lab[at].iter().zip(&model[at]) {
                let heading = format!("{}: {subject}", situation.name);
                print(&heading, [lab, model], by);
                let of_lab = wrong(lab, model, by[1]).map(|text| format!("lab, {text}"));
                let of_model = wrong(model, lab, by[0]).map(|text| format!("model, {text}"));
                let both = of_lab.into_iter().chain(of_model);
                differ.extend(both.map(|text| format!("{heading}: {text}")));
            }
        }
        let go_on = by.map(|words| words.goes_on > 0);
        assert_eq!(go_on, [true; 2], "without stopping and running");
        assert!(differ.is_empty(), "{differ:#?}");
    });
}
