// SPDX-License-Identifier: GPL-2.0-only
//! One cell: neighbours up and working, the workload's measured window, everything checked at its
//! end, everything gone afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use serde::Deserialize;

use crate::arm::Arm;
use crate::bpf;
use crate::lab::hostload;
use crate::load::Sample;
use crate::matrix::{Trace, Workload};
use crate::neighbour;
use crate::process::Supervised;
use crate::procstat::Snapshot;
use crate::record::neighbour::{Neighbour, StressNg};
use crate::record::{BpfCost, MarksSeen, Measurement, Surroundings, WorkloadReport};
use crate::run::scheduler::{Attached, KernelsOwn};
use crate::tracer::{Recorder, Tracer};
use crate::workload::{self, Standing};

const MARKS_TIMEOUT: Duration = Duration::from_secs(10);

/// What a cell needs to know.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    pub arm: &'a Arm,
    pub workload: &'a Workload,
    pub neighbour: Neighbour,
    pub seconds: f64,
    pub round: u32,
    pub target_dir: &'a Path,
    /// The CPUs that arms may use for the launcher.
    pub preferred: &'a str,
    /// Takes the programs' output; in memory if possible.
    pub scratch: &'a Path,
    pub disk: Option<&'a Path>,
    pub stress_ng: &'a StressNg,
    pub bpf_stats: bool,
}

/// Where the time of a cell went.
#[derive(Debug)]
pub struct Phases {
    last: Instant,
    ms: BTreeMap<String, u64>,
}

impl Phases {
    pub fn begin() -> Self {
        Self {
            last: Instant::now(),
            ms: BTreeMap::new(),
        }
    }

    /// The time since the last phase ended belongs to `phase`.
    pub fn end_of(&mut self, phase: &str) {
        let now = Instant::now();
        self.ms.insert(
            phase.to_owned(),
            now.duration_since(self.last).as_millis() as u64,
        );
        self.last = now;
    }

    pub fn into_ms(self) -> BTreeMap<String, u64> {
        self.ms
    }
}

/// Measures one cell. Whatever was started is gone when this returns, also with an error, but a server that stands:
/// that is started before the neighbours, and gone after an error.
pub fn measure(
    settings: &Settings,
    scheduler: Option<&mut Attached>,
    standing: &mut Option<Standing>,
    phases: &mut Phases,
) -> Result<Measurement> {
    let mut scheduler = scheduler;
    if let Some(attached) = scheduler.as_deref_mut() {
        attached.check()?;
    }
    let Settings {
        workload,
        seconds,
        round,
        ..
    } = *settings;
    let place = workload::Place {
        target: settings.target_dir,
        preferred: settings.preferred,
    };
    let found = standing.take();
    let server = workload::stand(workload, &settings.arm.workload, place, found)?;
    phases.end_of("server_start");
    let kernels_own = scheduler.is_none().then(KernelsOwn::begin).transpose()?;
    let mut neighbours = neighbour::Running::start(
        settings.neighbour,
        &settings.arm.neighbours,
        neighbour::Place {
            scratch: settings.scratch,
            disk: settings.disk,
            preferred: settings.preferred,
            stress_ng: settings.stress_ng,
        },
    )?;
    phases.end_of("neighbours_start");
    let cost = match scheduler.as_deref() {
        Some(attached) if settings.bpf_stats => Some(Cost::begin(attached.pid())?),
        _ => None,
    };

    let mut how = settings.arm.workload.clone();
    let tracer = workload
        .trace
        .and_then(|mode| Tracer::new(mode, settings.scratch));
    if let Some(tracer) = &tracer {
        how.prefix.splice(0..0, tracer.words(place.target));
    }
    // Not within the measured window: reading all of /proc would be felt there.
    let theirs = workload::running_already(workload);
    let before = Counters::take(&theirs);
    let mut running = workload::Running::start(workload, &how, seconds, round, place, server)?;
    running.wait_until_measuring()?;
    let begin = Snapshot::take()?;
    neighbours.window_begins()?;
    let recorder = (workload.trace == Some(Trace::Profile))
        .then(|| Recorder::begin(place.target, settings.scratch, seconds))
        .transpose()?;
    phases.end_of("workload_start");

    running.wait_until_measured(seconds)?;
    let end = Snapshot::take()?;
    let surroundings = before.until_now(&theirs);
    let bpf = cost.map(Cost::end).transpose()?;
    let profile = recorder.map(Recorder::end).transpose()?;
    phases.end_of("measure");

    let neighbours = neighbours.finish()?;
    // Now, when nothing is measured any more and the threads are still there.
    let threads = running.threads();
    let answer = ask_for_marks(settings)?;
    let (workload, server) = running.report()?;
    *standing = server;
    let trace = tracer.map(|tracer| tracer.found(&workload)).transpose()?;
    if let Some(kernels_own) = kernels_own {
        kernels_own.check()?;
    }
    let scheduler = match scheduler {
        Some(attached) => Some(attached.check()?.clone()),
        None => None,
    };
    let marks = answer
        .filter(|_| !workload.has_nobody_to_find())
        .map(|answer| judge(&answer.json, &workload, answer.asked_ns))
        .transpose()?;
    phases.end_of("stop");
    Ok(Measurement {
        workload,
        cpu: begin.until(&end),
        neighbours,
        threads,
        scheduler,
        marks,
        bpf,
        trace,
        profile,
        surroundings,
    })
}

/// The machines' counters at one moment. What cannot be read is not known, which fails no cell.
struct Counters {
    here: Option<Sample>,
    host: Option<Sample>,
}

impl Counters {
    /// `theirs` are the workload's processes that run anyway.
    fn take(theirs: &[u32]) -> Self {
        Self {
            here: Sample::take_beside(theirs).ok(),
            host: hostload::read(),
        }
    }

    fn until_now(&self, theirs: &[u32]) -> Surroundings {
        let now = Self::take(theirs);
        let between =
            |begin: &Option<Sample>, end: &Option<Sample>| begin.as_ref()?.until(end.as_ref()?);
        Surroundings {
            here: between(&self.here, &now.here),
            host: between(&self.host, &now.host),
        }
    }
}

/// What the scheduler's BPF programs cost between two readings.
struct Cost {
    pid: u32,
    began: Instant,
    before: bpf::Programs,
}

impl Cost {
    fn begin(pid: u32) -> Result<Self> {
        Ok(Self {
            pid,
            before: bpf::programs_of(pid)?,
            began: Instant::now(),
        })
    }

    fn end(self) -> Result<BpfCost> {
        let seconds = self.began.elapsed().as_secs_f64();
        let programs = bpf::between(&self.before, &bpf::programs_of(self.pid)?);
        Ok(BpfCost { seconds, programs })
    }
}

/// Which threads the scheduler says that it protects, and when it was asked.
struct Answer {
    json: String,
    asked_ns: u64,
}

#[derive(Deserialize)]
struct Mark {
    tid: i64,
    #[serde(default)]
    tgid: Option<i64>,
    class: String,
    /// Since the thread was marked.
    age_ms: f64,
}

fn ask_for_marks(settings: &Settings) -> Result<Option<Answer>> {
    let scheduler = settings.arm.scheduler.as_ref();
    let command = scheduler.and_then(|scheduler| scheduler.marks.as_deref());
    let Some([program, args @ ..]) = command else {
        return Ok(None);
    };
    let path = |name| settings.scratch.join(name);
    let file = |name| fs::File::create(path(name)).context("cannot create a file for the marks");
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(file("marks.json")?)
        .stderr(file("marks.log")?);
    let asked_ns = monotonic_ns()?;
    let mut process = Supervised::spawn("marks", &mut command)?;
    let status = process.wait_until(Instant::now() + MARKS_TIMEOUT)?;
    if !status.success() {
        let log = fs::read_to_string(path("marks.log")).unwrap_or_default();
        anyhow::bail!("asking for the marks failed ({status}): {}", log.trim());
    }
    let json = fs::read_to_string(path("marks.json")).context("cannot read the marks")?;
    Ok(Some(Answer { json, asked_ns }))
}

/// Whether every thread that is to be found is marked, and how long the slowest mark took.
fn judge(marks_json: &str, workload: &WorkloadReport, asked_ns: u64) -> Result<MarksSeen> {
    let value: serde_json::Value =
        serde_json::from_str(marks_json).context("the marks are not JSON")?;
    let marks: Vec<Mark> = serde_json::from_value(value.clone())
        .context("the marks are not what the contract says")?;
    let (class, threads) = workload.threads_to_find();
    let delays: Vec<Option<f64>> = threads
        .iter()
        .map(|thread| {
            let mark = marks
                .iter()
                .find(|mark| mark.tid == thread.tid && mark.class == class)?;
            let since_launch_ms =
                asked_ns.saturating_sub(thread.first_launch_monotonic_ns) as f64 / 1e6;
            // The question was put a moment before it was answered: a delay is never negative.
            Some((since_launch_ms - mark.age_ms).max(0.0))
        })
        .collect();
    if delays.is_empty() && !workload.server_pids().is_empty() {
        let is_its = |mark: &Mark| {
            let tgid = mark.tgid.unwrap_or(mark.tid);
            mark.class == "launch" && workload.server_pids().contains(&tgid)
        };
        let launchers = workload.server_launchers();
        let is_marked = |tid: &i64| marks.iter().any(|mark| is_its(mark) && mark.tid == *tid);
        return Ok(MarksSeen {
            marked: match launchers {
                // Who launches, it does not say.
                [] => marks.iter().any(is_its),
                known => known.iter().all(is_marked),
            },
            // It may have launched before the scheduler came.
            delay_ms: None,
            marks: value,
        });
    }
    let marked = !delays.is_empty() && delays.iter().all(Option::is_some);
    let delay_ms = marked.then(|| delays.iter().flatten().copied().fold(0.0, f64::max));
    Ok(MarksSeen {
        marked,
        delay_ms,
        marks: value,
    })
}

fn monotonic_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("cannot read the clock")?;
    Ok(now.tv_sec().cast_unsigned() * 1_000_000_000 + now.tv_nsec().cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(tids: &[i64]) -> WorkloadReport {
        let threads: Vec<String> = tids
            .iter()
            .map(|tid| format!(r#"{{"tid":{tid},"first_launch_monotonic_ns":1000000000}}"#))
            .collect();
        serde_json::from_str(&format!(
            r#"{{"workload":"gpu_launch","tokens":1,"seconds":1,"tokens_per_s":1,"launches":1,"failures":0,"token_us":[1],
            "context_switches":{{"voluntary":0,"involuntary":0}},"threads_detail":[{}]}}"#,
            threads.join(",")
        ))
        .unwrap()
    }

    #[test]
    fn the_slowest_mark_counts() {
        let marks = r#"[{"tid":7,"tgid":7,"comm":"a","class":"launch","source":"uprobe","age_ms":1990},
            {"tid":8,"class":"launch","age_ms":1700.5},{"tid":9,"class":"handoff","age_ms":1}]"#;
        let seen = judge(marks, &report(&[7, 8]), 3_000_000_000).unwrap();
        assert!(seen.marked);
        assert_eq!(seen.delay_ms, Some(299.5));
    }

    /// Of a genuine server with the processes 5 and 6.
    fn served(launchers: &[i64]) -> WorkloadReport {
        serde_json::from_value(serde_json::json!({
            "workload": "llm_serving",
            "client": {"offered": 0, "completed": 0, "failed": 0, "good": null, "ttfts": [], "tpots": [],
                "e2els": [], "itls": [], "errors": []},
            "server": {"launches": 0, "context_switches": {"voluntary": 1, "involuntary": 0},
                "threads_detail": [], "pids": [5, 6], "launchers": launchers}}))
        .unwrap()
    }

    #[test]
    fn of_a_genuine_server_any_marked_thread_counts() {
        let served = served(&[]);
        let marks =
            |tgid, class| format!(r#"[{{"tid":9,"tgid":{tgid},"class":"{class}","age_ms":5}}]"#);
        assert!(judge(&marks(6, "launch"), &served, 1).unwrap().marked);
        assert!(!judge(&marks(7, "launch"), &served, 1).unwrap().marked);
        assert!(!judge(&marks(6, "handoff"), &served, 1).unwrap().marked);
    }

    #[test]
    fn of_a_server_that_says_who_launches_those_count() {
        let served = served(&[8, 9]);
        let mark = |tid| format!(r#"{{"tid":{tid},"tgid":6,"class":"launch","age_ms":5}}"#);
        let both = format!("[{},{}]", mark(8), mark(9));
        assert!(judge(&both, &served, 1).unwrap().marked);
        let another = format!("[{},{}]", mark(8), mark(7));
        assert!(!judge(&another, &served, 1).unwrap().marked);
    }

    #[test]
    fn of_a_pipeline_that_launches_nothing_the_callers_are_handoff() {
        let report: WorkloadReport = serde_json::from_value(serde_json::json!({
            "workload": "pipeline", "offered": 1, "completed": 1, "failed": 0, "unfinished": 0, "seconds": 1.0,
            "items_per_s": 1.0, "latency_us": [5], "errors": [], "launches": 0, "launches_in_all": 0,
            "context_switches": {"voluntary": 0, "involuntary": 0}, "threads_detail": [],
            "calling_detail": [{"tid": 7, "first_call_monotonic_ns": 1}]}))
        .unwrap();
        assert!(!report.has_nobody_to_find());
        let marks = |class: &str| format!(r#"[{{"tid":7,"class":"{class}","age_ms":5}}]"#);
        assert!(judge(&marks("handoff"), &report, 1).unwrap().marked);
        assert!(!judge(&marks("launch"), &report, 1).unwrap().marked);
    }

    #[test]
    fn one_unmarked_thread_is_enough_to_say_so() {
        let marks =
            r#"[{"tid":7,"class":"launch","age_ms":10},{"tid":9,"class":"handoff","age_ms":1}]"#;
        let seen = judge(marks, &report(&[7, 9]), 3_000_000_000).unwrap();
        assert!(!seen.marked);
        assert_eq!(seen.delay_ms, None);
        assert!(!judge("[]", &report(&[]), 1).unwrap().marked);
        assert!(judge("{}", &report(&[]), 1).is_err());
    }
}
