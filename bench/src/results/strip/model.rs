// SPDX-License-Identifier: GPL-2.0-only
//! A strip: who had which CPU when, and when the launcher launched; as CSV, and what it comes to. Pure.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// How the first line of a kept file begins; a JSON object follows.
const HEAD: &str = "# scx_gpuaware strip ";
/// How the emulated launcher's threads are named.
const LAUNCHER: &str = "launch-";
const NEIGHBOURS: [&str; 3] = ["stress-ng", "iperf3", "fio"];

#[derive(Debug, Clone, PartialEq)]
pub struct Strip {
    pub head: Head,
    /// In order of time; of each CPU the first is at 0.
    pub changes: Vec<Change>,
    pub launches_us: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The sched_ext scheduler that was loaded.
    pub scheduler: Option<String>,
    pub kernel: String,
    pub cpus: u32,
    pub length_us: f64,
    /// Stretches of this length that it was chosen from: its launches are the median.
    pub stretches: usize,
}

/// From then on somebody else has the CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub at_us: f64,
    pub cpu: u32,
    /// Empty: nobody, the CPU is idle.
    pub comm: String,
    /// Why the one before went: `preempted`, `yielded`, `blocked`, `exited`; empty at the start and after idle.
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Idle,
    Launcher,
    /// One of the noisy programs, by its place in [`Who::NEIGHBOURS`].
    Neighbour(usize),
    /// The kernel's own threads, the scheduler's program, the tracer.
    Other,
}

/// Somebody's time on a CPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    pub who: Who,
    pub from_us: f64,
    pub to_us: f64,
    /// It ended because the CPU was taken away.
    pub preempted: bool,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    time_us: f64,
    event: String,
    cpu: Option<u32>,
    comm: String,
    reason: String,
}

impl Who {
    pub const NEIGHBOURS: [&'static str; 3] = NEIGHBOURS;

    pub fn of(comm: &str) -> Self {
        let neighbour = NEIGHBOURS.iter().position(|name| comm.starts_with(name));
        match neighbour {
            _ if comm.is_empty() => Self::Idle,
            _ if comm.starts_with(LAUNCHER) => Self::Launcher,
            Some(at) => Self::Neighbour(at),
            None => Self::Other,
        }
    }
}

impl Strip {
    pub fn parse(text: &str) -> Result<Self> {
        let (head, rest) = text.split_once('\n').context("it is empty")?;
        let head = head.strip_prefix(HEAD);
        let head = head.with_context(|| format!("expected a first line with {HEAD:?}"))?;
        let mut strip = Self {
            head: serde_json::from_str(head).context("line 1")?,
            changes: Vec::new(),
            launches_us: Vec::new(),
        };
        for (index, line) in csv::Reader::from_reader(rest.as_bytes())
            .deserialize()
            .enumerate()
        {
            let line: Line = line?;
            match (line.event.as_str(), line.cpu) {
                ("launch", _) => strip.launches_us.push(line.time_us),
                ("runs", Some(cpu)) => strip.changes.push(Change {
                    at_us: line.time_us,
                    cpu,
                    comm: line.comm,
                    reason: line.reason,
                }),
                _ => bail!("line {}: expected a launch, or runs with a CPU", index + 3),
            }
        }
        Ok(strip)
    }

    pub fn to_csv(&self) -> Result<String> {
        let changes = self.changes.iter().map(|change| Line {
            time_us: change.at_us,
            event: "runs".to_owned(),
            cpu: Some(change.cpu),
            comm: change.comm.clone(),
            reason: change.reason.clone(),
        });
        let launches = self.launches_us.iter().map(|&time_us| Line {
            time_us,
            event: "launch".to_owned(),
            cpu: None,
            comm: String::new(),
            reason: String::new(),
        });
        let mut out = csv::Writer::from_writer(Vec::new());
        for line in changes.chain(launches) {
            out.serialize(line)?;
        }
        let rows = String::from_utf8(out.into_inner()?)?;
        Ok(format!(
            "{HEAD}{}\n{rows}",
            serde_json::to_string(&self.head)?
        ))
    }

    /// The spans of one CPU, those that follow each other with the same owner as one.
    pub fn spans(&self, cpu: u32) -> Vec<Span> {
        let changes: Vec<&Change> = self.changes.iter().filter(|c| c.cpu == cpu).collect();
        let mut spans: Vec<Span> = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            let next = changes.get(at + 1);
            let span = Span {
                who: Who::of(&change.comm),
                from_us: change.at_us,
                to_us: next.map_or(self.head.length_us, |next| next.at_us),
                preempted: next.is_some_and(|next| next.reason == "preempted"),
            };
            match spans.last_mut() {
                Some(last) if last.who == span.who => {
                    last.to_us = span.to_us;
                    last.preempted = span.preempted;
                }
                _ => spans.push(span),
            }
        }
        spans
    }

    fn launcher(&self) -> impl Iterator<Item = Span> + '_ {
        let spans = (0..self.head.cpus).flat_map(|cpu| self.spans(cpu));
        spans.filter(|span| span.who == Who::Launcher)
    }

    pub fn scheduler(&self) -> &str {
        match &self.head.scheduler {
            None => "EEVDF",
            Some(ops) if ops.starts_with("gpuaware") => "scx_gpuaware",
            Some(ops) => ops,
        }
    }

    /// "under EEVDF the launcher has a CPU for 12.0 of 40 ms, is preempted 5 times and launches 380 kernels".
    pub fn in_words(&self) -> String {
        // An empty sum is -0.
        let ran = self
            .launcher()
            .fold(0.0, |ran, span| ran + span.to_us - span.from_us);
        let times = match self.launcher().filter(|span| span.preempted).count() {
            0 => "is never preempted".to_owned(),
            1 => "is preempted once".to_owned(),
            times => format!("is preempted {times} times"),
        };
        format!(
            "under {} the launcher has a CPU for {:.1} of {:.0} ms, {times} and launches {} kernels",
            self.scheduler(),
            ran / 1e3,
            self.head.length_us / 1e3,
            self.launches_us.len()
        )
    }
}

#[cfg(test)]
pub mod samples {
    use super::*;

    /// 10 ms on two CPUs: on CPU 1 the launcher runs from 1 to 3 ms and is preempted, and from 7 to 9 ms and sleeps.
    pub fn strip() -> Strip {
        let change = |at_us, cpu, comm: &str, reason: &str| Change {
            at_us,
            cpu,
            comm: comm.to_owned(),
            reason: reason.to_owned(),
        };
        Strip {
            head: Head {
                scheduler: None,
                kernel: "6.18".to_owned(),
                cpus: 2,
                length_us: 10_000.0,
                stretches: 3,
            },
            changes: vec![
                change(0.0, 0, "stress-ng-cpu", ""),
                change(0.0, 1, "iperf3", ""),
                change(1000.0, 1, "launch-0", "blocked"),
                change(3000.0, 1, "fio", "preempted"),
                change(7000.0, 1, "launch-0", "blocked"),
                change(9000.0, 1, "", "blocked"),
            ],
            launches_us: vec![1100.0, 2000.5, 8000.0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_as_it_was_written() {
        let strip = samples::strip();
        let text = strip.to_csv().unwrap();
        assert_eq!(Strip::parse(&text).unwrap(), strip);
        assert!(Strip::parse(&text.replace("runs", "ran")).is_err());
        assert!(Strip::parse("time_us\n").is_err());
    }

    #[test]
    fn counts_the_launchers_time_and_its_preemptions() {
        assert_eq!(
            samples::strip().in_words(),
            "under EEVDF the launcher has a CPU for 4.0 of 10 ms, is preempted once and launches 3 kernels"
        );
    }

    #[test]
    fn one_who_follows_itself_has_one_span() {
        let mut strip = samples::strip();
        strip.changes[3].comm = "launch-0".to_owned();
        let spans = strip.spans(1);
        let owners: Vec<Who> = spans.iter().map(|span| span.who).collect();
        assert_eq!(owners, [Who::Neighbour(1), Who::Launcher, Who::Idle]);
        assert_eq!((spans[1].from_us, spans[1].to_us), (1000.0, 9000.0));
        assert!(!spans[1].preempted, "it came back at once");
    }
}
