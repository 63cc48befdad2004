// SPDX-License-Identifier: GPL-2.0-only
//! `scx_gpuaware trace` around a workload or beside it, started as anybody would start it, and what it found.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::matrix::Trace;
use crate::process::Supervised;
use crate::record::{Launchers, SoftIrqs, TraceSeen, WorkloadReport};

/// What begins the first and the last line of our CSV.
const HEADER: &str = "# scx_gpuaware trace ";
const END: &str = "# end ";
/// After the window's end: it may have begun late.
const RECORDER_ENDS: Duration = Duration::from_secs(60);
/// More than the last line has: the tracer keeps as much free below its size limit.
const END_BYTES: u64 = 4096;

#[derive(Debug)]
pub struct Tracer {
    mode: Trace,
    flags: &'static [&'static str],
    file: PathBuf,
}

/// `scx_gpuaware trace --record-profile` beside a workload.
#[derive(Debug)]
pub struct Recorder {
    file: PathBuf,
    log: PathBuf,
    process: Supervised,
}

impl Recorder {
    /// Records half of the `seconds` of a window: starting takes it some of them. `scratch` takes its files.
    pub fn begin(target: &Path, scratch: &Path, seconds: f64) -> Result<Self> {
        let (file, log) = (scratch.join("profile.json"), scratch.join("profile.log"));
        let mut command = Command::new(program(target));
        command.args(["trace", "--record-profile"]).arg(&file);
        command.args(["--duration", &(seconds / 2.0).to_string()]);
        let said = File::create(&log).context("cannot create a file for the recorder")?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Self {
            process: Supervised::spawn("the recorder", command.stderr(said))?,
            file,
            log,
        })
    }

    /// What it recorded.
    pub fn end(mut self) -> Result<serde_json::Value> {
        let status = self.process.wait_until(Instant::now() + RECORDER_ENDS)?;
        if !status.success() {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            bail!("the recorder ended with {status}: {}", said.trim());
        }
        let profile = fs::read(&self.file).context("the recorder wrote nothing")?;
        fs::remove_file(&self.file).context("cannot remove the recorder's file")?;
        serde_json::from_slice(&profile).context("the recorder wrote no JSON")
    }
}

fn program(target: &Path) -> PathBuf {
    target.join("release/scx_gpuaware")
}

/// The summary, as far as it is read here.
#[derive(Deserialize)]
struct Summary {
    header: Header,
    end: End,
    threads: Vec<Thread>,
    interrupts: Vec<Interrupt>,
}

#[derive(Deserialize)]
struct Interrupt {
    kind: String,
    name: String,
    #[serde(flatten)]
    its: SoftIrqs,
}

#[derive(Deserialize)]
struct Header {
    start_ns: u64,
}

#[derive(Deserialize)]
struct End {
    end_ns: u64,
    counted: BTreeMap<String, u64>,
    lost: BTreeMap<String, u64>,
    missed: u64,
    missed_by: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Thread {
    tid: i64,
    traced_ns: u64,
    counters: Launchers,
}

impl Tracer {
    /// `scratch` takes its file. `None`: nothing stands before the workload in that mode.
    pub fn new(mode: Trace, scratch: &Path) -> Option<Self> {
        let flags: &[&str] = match mode {
            Trace::Summary => &["--format", "json"],
            Trace::Events => &["--format", "csv"],
            Trace::AllLaunches => &["--format", "csv", "--all-launches"],
            Trace::Profile => return None,
        };
        let file = scratch.join("trace.out");
        Some(Self { mode, flags, file })
    }

    /// What stands before the workload's command.
    pub fn words(&self, target: &Path) -> Vec<String> {
        let program = program(target).display().to_string();
        let mut words = vec![program, "trace".to_owned()];
        words.extend(self.flags.iter().map(|&flag| flag.to_owned()));
        words.extend(["-o".to_owned(), self.file.display().to_string()]);
        words.push("--".to_owned());
        words
    }

    /// What it found of the workload that has ended. Its file is gone afterwards: the events of a cell
    /// are some hundred megabytes, perhaps in memory.
    pub fn found(self, workload: &WorkloadReport) -> Result<TraceSeen> {
        let found = self
            .read(workload)
            .with_context(|| format!("the tracer's file {}", self.file.display()));
        fs::remove_file(&self.file).context("cannot remove the tracer's file")?;
        found
    }

    fn read(&self, workload: &WorkloadReport) -> Result<TraceSeen> {
        let mut file = File::open(&self.file)?;
        let bytes = file.metadata()?.len();
        if self.mode == Trace::Summary {
            let summary: Summary = serde_json::from_reader(BufReader::new(file))?;
            let launchers = launchers(&summary.threads, workload)?;
            let mut seen = seen(&summary.header, &summary.end, bytes, launchers);
            let soft = summary.interrupts.into_iter();
            let soft = soft.filter(|interrupt| interrupt.kind == "soft_irq");
            seen.soft_irqs = soft.map(|soft| (soft.name, soft.its)).collect();
            return Ok(seen);
        }
        let mut head = String::new();
        BufReader::new(&file).read_line(&mut head)?;
        let header = head.strip_prefix(HEADER).context("has no header")?;
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(bytes.saturating_sub(END_BYTES)))?;
        file.read_to_end(&mut tail)?;
        // It may begin within a character.
        let tail = String::from_utf8_lossy(&tail);
        let last = tail.lines().last().unwrap_or_default();
        let end = last
            .strip_prefix(END)
            .context("has no end: the tracer was cut short")?;
        Ok(seen(
            &serde_json::from_str(header)?,
            &serde_json::from_str(end)?,
            bytes,
            None,
        ))
    }
}

fn seen(header: &Header, end: &End, bytes: u64, launchers: Option<Launchers>) -> TraceSeen {
    TraceSeen {
        seconds: end.end_ns.saturating_sub(header.start_ns) as f64 / 1e9,
        counted: end.counted.values().sum(),
        lost: end.lost.values().sum(),
        missed: end.missed,
        missed_by: end.missed_by.clone(),
        bytes,
        launchers,
        soft_irqs: BTreeMap::new(),
    }
}

/// The threads that the workload says have launched; of a server that says nothing, those that the
/// tracer saw launch in its windows. None: nobody did.
fn launchers(threads: &[Thread], workload: &WorkloadReport) -> Result<Option<Launchers>> {
    let mut found: Vec<&Thread> = Vec::new();
    for launcher in workload.launch_threads() {
        let Some(thread) = threads.iter().find(|thread| thread.tid == launcher.tid) else {
            bail!("lacks the launching thread {}", launcher.tid);
        };
        found.push(thread);
    }
    if found.is_empty() {
        let launch = |thread: &&Thread| thread.counters.all_launches() > 0;
        found = threads.iter().filter(launch).collect();
    }
    let mut sum = Launchers::default();
    for thread in &found {
        sum += Launchers {
            traced_ns: thread.traced_ns,
            ..thread.counters
        };
    }
    Ok((!found.is_empty()).then_some(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(tids: &[i64]) -> WorkloadReport {
        let threads: Vec<_> = tids
            .iter()
            .map(|tid| serde_json::json!({"tid": tid, "first_launch_monotonic_ns": 1}))
            .collect();
        serde_json::from_value(
            serde_json::json!({"workload": "gpu_launch", "tokens": 1, "seconds": 1.0,
            "tokens_per_s": 1.0, "launches": 1, "failures": 0, "token_us": [1.0],
            "context_switches": {"voluntary": 0, "involuntary": 0}, "threads_detail": threads}),
        )
        .unwrap()
    }

    fn found(mode: Trace, text: &str, tids: &[i64]) -> Result<TraceSeen> {
        let dir = tempfile::tempdir().unwrap();
        let tracer = Tracer::new(mode, dir.path()).unwrap();
        let file = tracer.file.clone();
        fs::write(&file, text).unwrap();
        let found = tracer.found(&workload(tids));
        assert!(!file.exists());
        found
    }

    #[test]
    fn stands_before_the_arms_prefix() {
        let tracer = Tracer::new(Trace::AllLaunches, Path::new("/s")).unwrap();
        assert_eq!(
            tracer.words(Path::new("/t")).join(" "),
            "/t/release/scx_gpuaware trace --format csv --all-launches -o /s/trace.out --"
        );
    }

    #[test]
    fn adds_up_the_launching_threads_of_a_summary() {
        let thread = |tid: i64, preempted: u64| {
            serde_json::json!({"tid": tid, "tgid": 1, "traced_ns": 100, "counters": {"on_cpu_ns": 60,
                "preempted_ns": 40, "yielded_ns": 0, "asleep_ns": 0, "wakeup_wait_ns": 0, "unknown_ns": 0,
                "hard_irq_ns": 1, "soft_irq_ns": 2, "vector_irq_ns": 3, "preempted": preempted, "yielded": 1,
                "blocked": 2, "window_switches": 3, "launches": if tid == 9 {0} else {7}, "graph_launches": 0}})
        };
        let text = serde_json::json!({"header": {"start_ns": 1_000_000_000_u64, "cpus": 2},
            "end": {"end_ns": 3_500_000_000_u64, "counted": {"launch": 5, "switch_in": 6}, "lost": {"launch": 2}, "missed": 1,
                "missed_by": {"too_deep": 1}},
            "threads": [thread(7, 10), thread(8, 20), thread(9, 5)],
            "interrupts": [
                {"kind": "soft_irq", "number": 3, "name": "NET_RX", "count": 4, "self_ns": 500, "worst_ns": 200},
                {"kind": "hard_irq", "number": 3, "name": "eth0", "count": 9, "self_ns": 900, "worst_ns": 200}]})
        .to_string();
        let seen = found(Trace::Summary, &text, &[7, 9]).unwrap();
        assert_eq!(
            (seen.seconds, seen.counted, seen.lost, seen.missed),
            (2.5, 11, 2, 1)
        );
        assert_eq!(seen.missed_by["too_deep"], 1);
        let net = SoftIrqs {
            count: 4,
            self_ns: 500,
        };
        assert_eq!(seen.soft_irqs, [("NET_RX".to_owned(), net)].into());
        let launchers = seen.launchers.unwrap();
        assert_eq!((launchers.switches(), launchers.irq_ns()), (21, 12));
        assert_eq!((launchers.traced_ns, launchers.preempted_ns), (200, 80));
        // Nobody is named: threads 7 and 8 were seen to launch.
        let launchers = found(Trace::Summary, &text, &[])
            .unwrap()
            .launchers
            .unwrap();
        assert_eq!((launchers.preempted, launchers.all_launches()), (30, 14));
        let nobody = text.replace("\"launches\":7", "\"launches\":0");
        let seen = found(Trace::Summary, &nobody, &[]).unwrap();
        assert!(seen.launchers.is_none(), "not known is not zero");
        let error = found(Trace::Summary, &text, &[6]).unwrap_err();
        assert!(
            format!("{error:#}").ends_with("lacks the launching thread 6"),
            "{error:#}"
        );
    }

    #[test]
    fn reads_head_and_end_of_events() {
        let head = "# scx_gpuaware trace {\"schema\":1,\"start_ns\":0}\n";
        let rows = "1,launch,0,7\n".repeat(2000);
        let end = "# end {\"ended_by\":\"command\",\"end_ns\":2000000000,\"counted\":{\"launch\":2005},\"lost\":{\"launch\":5},\"missed\":0,\"missed_by\":{}}\n";
        let seen = found(Trace::Events, &format!("{head}{rows}{end}"), &[]).unwrap();
        assert_eq!((seen.seconds, seen.counted, seen.lost), (2.0, 2005, 5));
        assert!(seen.launchers.is_none() && seen.bytes > END_BYTES);
        let error = found(Trace::Events, &format!("{head}{rows}"), &[]).unwrap_err();
        assert!(format!("{error:#}").contains("has no end"), "{error:#}");
    }
}
