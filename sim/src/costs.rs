// SPDX-License-Identifier: GPL-2.0-only
//! What a decision costs on machines of different sizes, and which functions grow with them: the same load for each
//! CPU, counted by `meter.rs`, set side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::Write as _;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::machine::Machine;
use crate::meter::{Count, Counts, Group};
use crate::native::Scheduler;
use crate::program::Program;
use crate::scenario::{Scenario, TaskSpec, Workload, add_kthreads};
use crate::setup::Class;
use crate::simulation::Simulation;

/// What a callback costs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Basic blocks, of a scheduler that counts them: the same on every host.
    Blocks,
    /// Nanoseconds of this host without those of the kernel's functions, which are a model here. Of so many runs, what
    /// each callback cost in the one where it cost least.
    Nanoseconds { runs: usize },
}

/// How much there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Launchers and handoff beside tasks that mostly sleep.
    Quiet,
    /// The same beside a busy loop for each CPU and ten times as many wakeups.
    Saturated,
}

/// On a machine of one size.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub nr_cpus: usize,
    pub length_ns: u64,
    pub counts: Counts,
}

/// More than that from the smallest machine to the largest is said.
pub const GROWS: f64 = 1.2;
/// What is a smaller part than this of all that is done for somebody is not.
const SMALL_SHARE: f64 = 0.01;
const KINDS: [Group; 3] = [Group::Launch, Group::Handoff, Group::Background];

/// Cores of two threads, `per_llc` CPUs a cache, a node for each 64 CPUs.
fn machine(nr_cpus: usize, per_llc: usize) -> Result<Machine> {
    ensure!(
        per_llc > 0,
        "--per-llc: expected at least 1 CPU a cache, got 0"
    );
    let nodes = (nr_cpus / 64).max(1);
    Machine::generate([nr_cpus, (nr_cpus / per_llc).max(1), nodes, 2], 0)
}

/// As much for each CPU, whatever the machine.
fn scenario(nr_cpus: usize, per_llc: usize, load: Load, length_ns: u64) -> Result<Scenario> {
    let machine = machine(nr_cpus, per_llc)?;
    let mut scenario = Scenario::named(Workload::Quiet, machine, Scheduler::Gpuaware, length_ns, 1);
    // What they are to be counted as is no part of the load.
    scenario.costs.callback_ns.fill(0);
    let sleep_ns = match load {
        Load::Quiet => 2_000_000,
        Load::Saturated => 200_000,
    };
    let periodic = |sleep_ns| Program::Periodic {
        run_ns: 50_000,
        sleep_ns,
        runs: 0,
    };
    for _ in 0..nr_cpus.div_ceil(16) {
        scenario.tasks.push(TaskSpec {
            class: Some(Class::Handoff),
            ..TaskSpec::new("handoff", periodic(1_000_000))
        });
    }
    let io = TaskSpec::new("io", periodic(sleep_ns));
    scenario.tasks.extend(vec![io; nr_cpus / 2]);
    if load == Load::Saturated {
        let busy = TaskSpec::new("loop", Program::Loop);
        scenario.tasks.extend(vec![busy; nr_cpus]);
    }
    add_kthreads(&mut scenario.tasks, nr_cpus);
    Ok(scenario)
}

/// Runs `load` for so long on machines of these sizes, with scx_gpuaware as `object` has it.
pub fn measure(
    object: &[u8],
    unit: Unit,
    sizes: &[usize],
    per_llc: usize,
    load: Load,
    length_ns: u64,
) -> Result<Vec<Measured>> {
    let run = |nr_cpus: usize| {
        let scenario = scenario(nr_cpus, per_llc, load, length_ns)?;
        let mut simulation = Simulation::with_object(scenario, object)?;
        if let Unit::Nanoseconds { .. } = unit {
            simulation.time_callbacks();
        }
        let outcome = simulation.run()?;
        if let Some(failure) = outcome.failure {
            return Err(failure).with_context(|| format!("{load:?}, {nr_cpus} CPUs"));
        }
        outcome
            .counts
            .context("this scheduler's blocks are not counted")
    };
    let all = || {
        sizes
            .iter()
            .map(|&nr_cpus| run(nr_cpus))
            .collect::<Result<Vec<Counts>>>()
    };
    let mut counts = all()?;
    if let Unit::Nanoseconds { runs } = unit {
        // One size after the other: whatever slows the host down slows all of them down.
        for _ in 1..runs {
            let again = all()?;
            let both = counts.into_iter().zip(&again);
            counts = both.map(|(one, other)| one.least(other)).collect();
        }
    }
    let measured = sizes.iter().zip(counts);
    Ok(measured
        .map(|(&nr_cpus, counts)| Measured {
            nr_cpus,
            length_ns,
            counts,
        })
        .collect())
}

/// A number on each machine, and what it grows by.
fn row(text: &mut String, name: &str, numbers: &[f64]) {
    let _ = write!(text, "{name:<34}");
    for number in numbers {
        let _ = write!(text, " {number:>8.1}");
    }
    let growth = growth(numbers);
    let mark = if growth > GROWS { " grows" } else { "" };
    let _ = writeln!(text, " {growth:>6.2}{mark}");
}

/// From the first to the last. What is less than one hardly ever happens, and counts as one.
pub fn growth(numbers: &[f64]) -> f64 {
    match numbers {
        [first, .., last] => last.max(1.0) / first.max(1.0),
        _ => 1.0,
    }
}

fn heading(text: &mut String, load: Load, measured: &[Measured]) {
    let _ = write!(text, "{:<34}", format!("{load:?}"));
    for on in measured {
        let _ = write!(text, " {:>8}", on.nr_cpus);
    }
    let _ = writeln!(text, " {:>6}", "growth");
}

/// What is spent for each time that somebody gets a CPU, by callback; then calls of the kernel's functions for the
/// same, and how often the busiest queue is locked.
pub fn table(load: Load, measured: &[Measured]) -> String {
    let mut text = String::new();
    heading(&mut text, load, measured);
    for group in KINDS {
        let per_turn = |name: Option<&str>| -> Vec<f64> {
            let of = |on: &Measured| on.counts.per_turn(group, name);
            measured.iter().map(of).collect()
        };
        row(&mut text, group.name(), &per_turn(None));
        for name in callbacks(measured, group) {
            let cost = per_turn(Some(name));
            if cost.iter().any(|&cost| cost > 1.0) {
                row(&mut text, &format!("  {name}"), &cost);
            }
        }
    }
    let numbers = |of: &dyn Fn(&Counts) -> u64| -> Vec<f64> {
        let share = |on: &Measured| of(&on.counts) as f64 / on.counts.all_turns().max(1) as f64;
        measured.iter().map(share).collect()
    };
    let calls = numbers(&|counts| counts.kfuncs.values().sum());
    row(&mut text, "calls of kernel functions", &calls);
    let mut names: Vec<&str> = measured
        .iter()
        .flat_map(|on| on.counts.kfuncs.keys().copied())
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let of = numbers(&|counts| counts.kfuncs.get(name).copied().unwrap_or(0));
        if of.iter().any(|&share| share > 0.1) {
            row(&mut text, &format!("  {name}"), &of);
        }
    }
    let walked = numbers(&|counts| counts.walked);
    row(&mut text, "queued tasks that the kernel sees", &walked);
    let locks = measured.iter().map(|on| {
        let busiest = on.counts.locks.iter().filter(|(dsq, _)| **dsq >> 62 != 3);
        let busiest = busiest.map(|(_, locks)| *locks).max().unwrap_or(0);
        busiest as f64 / (on.length_ns as f64 / 1e6)
    });
    let locks: Vec<f64> = locks.collect();
    row(&mut text, "locks of the busiest queue a ms", &locks);
    text
}

/// What a call of each callback costs, whomever it is for.
pub fn per_call(load: Load, measured: &[Measured]) -> String {
    let mut text = String::new();
    heading(&mut text, load, measured);
    let all = measured.iter().flat_map(|on| on.counts.callbacks.keys());
    let names: BTreeSet<&str> = all.map(|(_, name)| *name).collect();
    for name in names {
        let of = |on: &Measured| {
            let ours = on
                .counts
                .callbacks
                .iter()
                .filter(|((_, callback), _)| *callback == name);
            ours.map(|(_, count)| *count).sum::<Count>().per_call()
        };
        let costs: Vec<f64> = measured.iter().map(of).collect();
        row(&mut text, &format!("  {name}"), &costs);
    }
    text
}

/// Those that were called for `group`.
fn callbacks(measured: &[Measured], group: Group) -> Vec<&'static str> {
    let keys = measured.iter().flat_map(|on| on.counts.callbacks.keys());
    let mut names: Vec<&str> = keys
        .filter(|(of, _)| *of == group)
        .map(|(_, name)| *name)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The scheduler's functions that grow, for each whom they work for: with those that they call and that are compiled
/// into them.
pub fn growing(load: Load, measured: &[Measured], names: &Names) -> String {
    let mut text = String::new();
    heading(&mut text, load, measured);
    for group in [Group::Launch, Group::Handoff, Group::Background, Group::Cpu] {
        let by_function: Vec<_> = measured
            .iter()
            .map(|on| names.per_turn(&on.counts, group))
            .collect();
        let Some(last) = by_function.last() else {
            continue;
        };
        let most = last
            .values()
            .fold(0.0, |most: f64, &blocks| most.max(blocks));
        let mut rows: Vec<(f64, &str, Vec<f64>)> = Vec::new();
        for name in last.keys() {
            let of = |on: &BTreeMap<String, f64>| on.get(name).copied().unwrap_or(0.0);
            let numbers: Vec<f64> = by_function.iter().map(of).collect();
            let added = numbers[numbers.len() - 1] - numbers[0];
            if growth(&numbers) > GROWS && added > SMALL_SHARE * most {
                rows.push((added, name, numbers));
            }
        }
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        if !rows.is_empty() {
            let _ = writeln!(text, "{}", group.name());
        }
        for (_, name, numbers) in &rows {
            row(&mut text, &format!("  {name}"), numbers);
        }
    }
    text
}

/// Which functions an address of the object is in, as binutils tells.
#[derive(Debug)]
pub struct Names(BTreeMap<u64, Vec<String>>);

impl Names {
    /// Of all addresses in `object` that `measured` has.
    pub fn find<'a>(object: &[u8], measured: impl Iterator<Item = &'a Measured>) -> Result<Self> {
        let places = measured.flat_map(|on| on.counts.places.keys());
        let mut places: Vec<u64> = places.map(|(_, place)| *place).collect();
        places.sort_unstable();
        places.dedup();
        let mut file = tempfile::NamedTempFile::new().context("making a file for the object")?;
        file.write_all(object).context("writing the object")?;
        // The address that a call returns to may be another function's already.
        let addresses = places.iter().map(|place| format!("{:#x}", place - 1));
        let output = Command::new("addr2line")
            .args(["-a", "-f", "-i", "-e"])
            .arg(file.path())
            .args(addresses)
            .output()
            .context("addr2line, of binutils, names functions")?;
        ensure!(output.status.success(), "addr2line: {}", output.status);
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(Self(Self::parse(&text, &places)))
    }

    /// An address, then a function and a place in the source for each that it is in, from the innermost out.
    fn parse(text: &str, places: &[u64]) -> BTreeMap<u64, Vec<String>> {
        let mut found: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let (mut at, mut function) = (0, None);
        for line in text.lines() {
            if line.starts_with("0x") {
                at += 1;
                function = None;
            } else if let Some(name) = function.take() {
                // What the shim does in the kernel's place has no name of the scheduler's.
                if let Some(place) = places.get(at - 1).filter(|_| !line.contains("shim/")) {
                    found.entry(*place).or_default().push(name);
                }
            } else {
                function = Some(line.to_owned());
            }
        }
        found
    }

    /// Blocks by function, with what is compiled into it, for each turn of `group`; of [`Group::Cpu`], of anybody.
    fn per_turn(&self, counts: &Counts, group: Group) -> BTreeMap<String, f64> {
        let turns = match group {
            Group::Cpu => counts.all_turns(),
            _ => counts.turns.get(&group).copied().unwrap_or(0),
        };
        let mut by_function = BTreeMap::new();
        let ours = counts.places.iter().filter(|((of, _), _)| *of == group);
        for ((_, place), hits) in ours {
            let mut functions = self.0.get(place).cloned().unwrap_or_default();
            functions.sort_unstable();
            functions.dedup();
            for function in functions {
                *by_function.entry(function).or_default() += *hits as f64 / turns.max(1) as f64;
            }
        }
        by_function
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::METERED;

    #[test]
    fn caches_without_cpus_are_refused() {
        let error = machine(8, 0).unwrap_err().to_string();
        assert!(error.starts_with("--per-llc: expected"), "{error}");
        assert_eq!(machine(8, 8).unwrap().nr_llcs, 1);
    }

    #[test]
    fn functions_are_read_from_the_innermost_out_without_the_shims() {
        let text = "0x0000000000000010\nsim_map_lookup\n/a/sim/shim/sim/maps.h:50\ncpu_ctx\n/a/bpf/task.bpf.h:7\n\
                    gpuaware_tick\n/a/bpf/gpuaware.bpf.c:9\n0x0000000000000020\ncpu_after\n/a/bpf/background.bpf.h:1\n";
        let found = Names::parse(text, &[0x11, 0x21]);
        assert_eq!(found[&0x11], ["cpu_ctx", "gpuaware_tick"]);
        assert_eq!(found[&0x21], ["cpu_after"]);
    }

    #[test]
    fn growth_is_from_the_first_to_the_last() {
        assert_eq!(growth(&[2.0, 9.0, 3.0]), 1.5);
        assert_eq!(growth(&[0.0, 0.5]), 1.0);
    }

    /// Callbacks whose cost is known to grow with the machine: docs/simulator.md. No more than so much.
    const KNOWN: [&str; 4] = ["dispatch", "update_idle", "select_cpu", "enqueue"];
    const KNOWN_GROWS: f64 = 2.1;

    /// Blocks a call, if there were enough to tell.
    fn per_call(measured: &Measured, callback: (Group, &'static str)) -> Option<f64> {
        let count = measured.counts.callbacks.get(&callback)?;
        (count.calls >= 20).then(|| count.per_call())
    }

    #[test]
    fn no_callback_grows_with_the_machine_but_those_that_are_known_to() {
        let mut seen = 0;
        for load in [Load::Quiet, Load::Saturated] {
            let measured = measure(METERED, Unit::Blocks, &[8, 512], 8, load, 60_000_000).unwrap();
            for callback in measured[1].counts.callbacks.keys() {
                let calls = [0, 1].map(|at| per_call(&measured[at], *callback));
                let [Some(small), Some(large)] = calls else {
                    continue;
                };
                seen += 1;
                let is_known = KNOWN.contains(&callback.1);
                let most = if is_known { KNOWN_GROWS } else { GROWS };
                let holds = growth(&[small, large]) <= most;
                assert!(holds, "{load:?} {callback:?}: {small} to {large}");
            }
        }
        assert!(seen > 30, "{seen}");
    }

    #[test]
    fn the_same_run_enters_the_same_blocks() {
        let [first, again] =
            [(); 2].map(|()| measure(METERED, Unit::Blocks, &[8], 8, Load::Saturated, 20_000_000));
        assert_eq!(first.unwrap(), again.unwrap());
    }

    /// How long is not asked, but for whom, and that it takes time at all.
    #[test]
    fn callbacks_that_are_timed_are_those_that_are_counted() {
        let object = Scheduler::Gpuaware.object();
        let timed = Unit::Nanoseconds { runs: 2 };
        let measured = [(METERED, Unit::Blocks), (object, timed)].map(|(object, unit)| {
            let measured = measure(object, unit, &[8], 8, Load::Saturated, 20_000_000).unwrap();
            measured.into_iter().next().unwrap().counts
        });
        let calls = |counts: &Counts| -> Vec<_> {
            let calls = counts.callbacks.iter();
            calls
                .map(|(callback, count)| (*callback, count.calls))
                .collect()
        };
        assert_eq!(calls(&measured[0]), calls(&measured[1]));
        assert_eq!(measured[0].turns, measured[1].turns);
        let took: u64 = measured[1].callbacks.values().map(|count| count.cost).sum();
        assert!(took > 0, "callbacks took no time");
    }

    #[test]
    fn of_two_timings_the_shorter_one_counts() {
        let counts = |cost| Counts {
            callbacks: BTreeMap::from([((Group::Launch, "tick"), Count { calls: 3, cost })]),
            ..Counts::default()
        };
        assert_eq!(counts(5).least(&counts(4)), counts(4));
        assert_eq!(counts(4).least(&counts(5)), counts(4));
    }

    #[test]
    fn functions_are_named_with_those_that_are_compiled_into_them() {
        let measured = measure(METERED, Unit::Blocks, &[8], 8, Load::Quiet, 30_000_000).unwrap();
        let names = Names::find(METERED, measured.iter()).unwrap();
        let blocks = names.per_turn(&measured[0].counts, Group::Launch);
        let [outer, inner] = ["gpuaware_select_cpu", "try_cpu"].map(|name| blocks[name]);
        assert!(outer > inner && inner > 0.0, "{blocks:?}");
        // Audits look into the scheduler, and are no part of it.
        assert!(
            !blocks.keys().any(|name| name.starts_with("sim_count")),
            "{blocks:?}"
        );
    }
}
