// SPDX-License-Identifier: GPL-2.0-only
//! The history of a run as a file of the tracer's formats: for ui.perfetto.dev. Tasks of one name are threads of one
//! process.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use anyhow::Result;
use gpuaware_trace::export::{self, Format};
use gpuaware_trace::schema::{
    Comm, End, EndedBy, Header, Kind, Launches, Name, Reason, Record, VERSION,
};

use crate::dsq::TaskId;
use crate::history::{Recorded, SchedEvent};
use crate::report;
use crate::scenario::{FIRST_PID, Scenario};
use crate::state::START_NS;

/// Writes `history`, of a run of `scenario`.
///
/// # Errors
/// Those of `out`.
pub fn write(
    format: Format,
    out: Box<dyn Write + '_>,
    scenario: &Scenario,
    history: &[Recorded],
) -> Result<()> {
    let header = Header {
        schema: VERSION,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        clock: "simulated".to_owned(),
        start_ns: START_NS,
        start_unix_ns: 0,
        kernel: "gpuaware-sim".to_owned(),
        scheduler: Some(format!("{:?}", scenario.scheduler).to_lowercase()),
        cpus: u32::try_from(scenario.machine.nr_cpus())?,
        target: format!("seed {}, {}", scenario.seed, report::headline(scenario)),
        launches: Launches::All,
    };
    let mut file = export::begin(format, out, &header)?;
    let mut counted: BTreeMap<Kind, u64> = BTreeMap::new();
    let mut last_ns = vec![START_NS; scenario.tasks.len()];
    let tgids = tgids(scenario);
    for recorded in history {
        let since_ns = std::mem::replace(&mut last_ns[recorded.task], recorded.at_ns);
        for record in records(recorded, since_ns) {
            *counted.entry(record.event).or_default() += 1;
            file.record(&Record {
                tid: pid(recorded.task),
                tgid: tgids[recorded.task],
                comm: Comm::new(scenario.tasks[recorded.task].name),
                ..record
            })?;
        }
    }
    file.end(&End {
        ended_by: EndedBy::Duration,
        end_ns: START_NS + scenario.length_ns,
        window_ns: scenario.length_ns,
        windows: 1,
        counted,
        lost: BTreeMap::new(),
        missed: 0,
        missed_by: BTreeMap::new(),
    })
}

fn pid(task: TaskId) -> i32 {
    task as i32 + FIRST_PID
}

/// The PID of the first task of the same name, for each.
fn tgids(scenario: &Scenario) -> Vec<i32> {
    let mut first: HashMap<&str, i32> = HashMap::new();
    let names = scenario.tasks.iter().map(|task| task.name).enumerate();
    names
        .map(|(task, name)| *first.entry(name).or_insert(pid(task)))
        .collect()
}

/// What the tracer would write of it. The last event of that task was at `since_ns`.
fn records(recorded: &Recorded, since_ns: u64) -> Vec<Record> {
    let duration_ns = Some(recorded.at_ns - since_ns);
    let record = |event, reason, state| Record {
        cpu: recorded.cpu as u32,
        reason,
        state,
        duration_ns,
        ..Record::new(recorded.at_ns, event)
    };
    let out = |reason, state| Record {
        sched_class: Some(Name::new("ext")),
        ..record(Kind::SwitchOut, Some(reason), Some(state))
    };
    match recorded.event {
        SchedEvent::Wakeup => vec![record(Kind::Wakeup, None, None)],
        SchedEvent::SwitchIn => vec![Record {
            wait_ns: duration_ns,
            sched_class: Some(Name::new("ext")),
            ..record(Kind::SwitchIn, None, None)
        }],
        SchedEvent::Preempted => vec![out(Reason::Preempted, 'R')],
        SchedEvent::Blocked => vec![out(Reason::Blocked, 'S')],
        SchedEvent::Exited => vec![
            out(Reason::Exited, 'X'),
            record(Kind::ThreadExit, None, None),
        ],
    }
}

#[cfg(test)]
mod tests {
    use gpuaware_trace::schema::Line;

    use super::*;
    use crate::scenario::Workload;
    use crate::simulation::Simulation;

    /// Seconds of running, as the file has them, are those that the kernel charged.
    #[test]
    fn the_file_has_each_tasks_time_on_cpus_and_nobody_twice_on_one() {
        let machine = crate::machine::Machine::parse("4x2x1x2").unwrap();
        let scheduler = crate::native::Scheduler::Gpuaware;
        let mut scenario =
            Scenario::named(Workload::Noisy, machine, scheduler, 50_000_000, 1).with_changes();
        scenario = scenario.with_real_time();
        let mut simulation = Simulation::new(scenario.clone()).unwrap();
        simulation.keep_history();
        let outcome = simulation.run().unwrap();
        assert_eq!(outcome.failure, None);
        let mut text = Vec::new();
        write(
            Format::Ndjson,
            Box::new(&mut text),
            &scenario,
            &outcome.history,
        )
        .unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<Line> = (text.lines())
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let mut on: HashMap<u32, (i32, u64)> = HashMap::new();
        let mut ran: HashMap<i32, u64> = HashMap::new();
        let mut end_ns = 0;
        for line in lines {
            match line {
                Line::Record(record) if record.event == Kind::SwitchIn => {
                    let before = on.insert(record.cpu, (record.tid, record.time_ns));
                    assert_eq!(before, None, "{record:?}");
                }
                Line::Record(record) if record.event == Kind::SwitchOut => {
                    let (tid, since_ns) = on.remove(&record.cpu).unwrap();
                    assert_eq!(tid, record.tid);
                    *ran.entry(tid).or_default() += record.time_ns - since_ns;
                }
                Line::End(end) => end_ns = end.end_ns,
                _ => {}
            }
        }
        for (tid, since_ns) in on.into_values() {
            *ran.entry(tid).or_default() += end_ns - since_ns;
        }
        for (task, of) in outcome.tasks.iter().enumerate() {
            // Who runs at the end was charged at its last tick.
            let ran_ns = ran.get(&pid(task)).copied().unwrap_or(0);
            let uncharged = ran_ns.checked_sub(of.cpu_ns);
            assert!(
                uncharged.is_some_and(|ns| ns <= scenario.costs.tick_ns),
                "{task} {}: {ran_ns}, {}",
                of.name,
                of.cpu_ns
            );
        }
    }
}
