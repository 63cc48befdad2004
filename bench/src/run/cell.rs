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
use crate::matrix::Workload;
use crate::neighbour::{self, Neighbour};
use crate::process::Supervised;
use crate::procstat::Snapshot;
use crate::record::{BpfCost, MarksSeen, Measurement, WorkloadReport};
use crate::run::scheduler::Attached;
use crate::workload;

/// The marks are asked for this long before the measured window ends: the threads must still be
/// there when the program that asks has got its turn beside the noise, which took more than 0.4 s.
const MARKS_BEFORE_END: Duration = Duration::from_millis(1200);
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

/// Measures one cell. Whatever was started is gone when this returns, also with an error.
pub fn measure(
    settings: &Settings,
    scheduler: Option<&mut Attached>,
    phases: &mut Phases,
) -> Result<Measurement> {
    let mut scheduler = scheduler;
    if let Some(attached) = scheduler.as_deref_mut() {
        attached.check()?;
    }
    let mut neighbours = neighbour::Running::start(
        settings.neighbour,
        &settings.arm.neighbours,
        settings.scratch,
        settings.disk,
        settings.preferred,
    )?;
    phases.end_of("neighbours_start");
    let cost = match scheduler.as_deref() {
        Some(attached) if settings.bpf_stats => Some(Cost::begin(attached.pid())?),
        _ => None,
    };

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
    let how = &settings.arm.workload;
    let mut running = workload::Running::start(workload, how, seconds, round, place)?;
    running.wait_until_measuring()?;
    let begin = Snapshot::take()?;
    neighbours.window_begins()?;
    let began = Instant::now();
    phases.end_of("workload_start");

    let mut question = Question::new(settings, began);
    running.wait(seconds, || question.ask_when_due())?;
    let end = Snapshot::take()?;
    let bpf = cost.map(Cost::end).transpose()?;
    phases.end_of("measure");

    let neighbours = neighbours.finish()?;
    let workload = running.report()?;
    let scheduler = match scheduler {
        Some(attached) => Some(attached.check()?.clone()),
        None => None,
    };
    let marks = question.answer(&workload)?;
    phases.end_of("stop");
    Ok(Measurement {
        workload,
        cpu: begin.until(&end),
        neighbours,
        scheduler,
        marks,
        bpf,
    })
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

/// Asks the scheduler once which threads it protects.
struct Question<'a> {
    command: Option<&'a [String]>,
    due: Instant,
    asked: Option<Asked>,
    scratch: &'a Path,
}

struct Asked {
    process: Supervised,
    monotonic_ns: u64,
}

#[derive(Deserialize)]
struct Mark {
    tid: i64,
    class: String,
    /// Since the thread was marked.
    age_ms: f64,
}

impl<'a> Question<'a> {
    fn new(settings: &Settings<'a>, began: Instant) -> Self {
        let scheduler = settings.arm.scheduler.as_ref();
        let window = Duration::from_secs_f64(settings.seconds);
        Self {
            command: scheduler.and_then(|scheduler| scheduler.marks.as_deref()),
            due: began + window.saturating_sub(MARKS_BEFORE_END).max(window / 2),
            asked: None,
            scratch: settings.scratch,
        }
    }

    /// Starts the question without waiting for the answer: the workload's end must not be missed.
    fn ask_when_due(&mut self) -> Result<()> {
        let Some([program, args @ ..]) = self.command else {
            return Ok(());
        };
        if self.asked.is_some() || Instant::now() < self.due {
            return Ok(());
        }
        let file = |name| {
            fs::File::create(self.scratch.join(name)).context("cannot create a file for the marks")
        };
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(file("marks.json")?)
            .stderr(file("marks.log")?);
        let monotonic_ns = monotonic_ns()?;
        let process = Supervised::spawn("marks", &mut command)?;
        self.asked = Some(Asked {
            process,
            monotonic_ns,
        });
        Ok(())
    }

    fn answer(mut self, workload: &WorkloadReport) -> Result<Option<MarksSeen>> {
        if self.command.is_none() {
            return Ok(None);
        }
        let asked = self
            .asked
            .as_mut()
            .context("the cell was over before the marks were asked for")?;
        let status = asked.process.wait_until(Instant::now() + MARKS_TIMEOUT)?;
        let text =
            fs::read_to_string(self.scratch.join("marks.json")).context("cannot read the marks")?;
        if !status.success() {
            let log = fs::read_to_string(self.scratch.join("marks.log")).unwrap_or_default();
            anyhow::bail!("asking for the marks failed ({status}): {}", log.trim());
        }
        judge(&text, workload, asked.monotonic_ns).map(Some)
    }
}

/// Whether every launching thread is marked, and how long the slowest mark took.
fn judge(marks_json: &str, workload: &WorkloadReport, asked_ns: u64) -> Result<MarksSeen> {
    let value: serde_json::Value =
        serde_json::from_str(marks_json).context("the marks are not JSON")?;
    let marks: Vec<Mark> = serde_json::from_value(value.clone())
        .context("the marks are not what the contract says")?;
    let delays: Vec<Option<f64>> = workload
        .launch_threads()
        .iter()
        .map(|thread| {
            let mark = marks
                .iter()
                .find(|mark| mark.tid == thread.tid && mark.class == "launch")?;
            let since_launch_ms =
                asked_ns.saturating_sub(thread.first_launch_monotonic_ns) as f64 / 1e6;
            // The question was put a moment before it was answered: a delay is never negative.
            Some((since_launch_ms - mark.age_ms).max(0.0))
        })
        .collect();
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
