// SPDX-License-Identifier: GPL-2.0-only
//! What the CPUs did between two looks at /proc/stat.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::record::CpuWindow;

/// USER_HZ, the unit of /proc/stat: 100 on every architecture that sched_ext runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// One look at /proc/stat.
#[derive(Debug, Clone)]
pub struct Snapshot {
    at: Instant,
    counters: Counters,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Counters {
    cpus: Vec<CpuTicks>,
    interrupts: u64,
    context_switches: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuTicks {
    /// Idle and waiting for I/O: nobody ran.
    idle: u64,
    irq: u64,
    softirq: u64,
}

impl Snapshot {
    pub fn take() -> Result<Self> {
        let at = Instant::now();
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let counters = parse(&text).context("/proc/stat has no CPUs")?;
        Ok(Self { at, counters })
    }

    /// What happened from `self` until `end`. Idle time is set against the clock and not against
    /// the other columns, which are sampled at ticks while idle time is exact.
    pub fn until(&self, end: &Self) -> CpuWindow {
        let seconds = end.at.duration_since(self.at).as_secs_f64().max(1e-6);
        window(&self.counters, &end.counters, seconds)
    }
}

fn parse(text: &str) -> Option<Counters> {
    let mut cpus = Vec::new();
    let mut interrupts = 0;
    let mut context_switches = 0;
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        let name = fields.next()?;
        let mut values = fields.map_while(|field| field.parse::<u64>().ok());
        if name.starts_with("cpu") && name != "cpu" {
            let columns: Vec<u64> = values.collect();
            let [_user, _nice, _system, idle, iowait, irq, softirq, ..] = columns[..] else {
                return None;
            };
            cpus.push(CpuTicks {
                idle: idle + iowait,
                irq,
                softirq,
            });
        } else if name == "intr" {
            interrupts = values.next()?;
        } else if name == "ctxt" {
            context_switches = values.next()?;
        }
    }
    (!cpus.is_empty()).then_some(Counters {
        cpus,
        interrupts,
        context_switches,
    })
}

fn window(begin: &Counters, end: &Counters, seconds: f64) -> CpuWindow {
    let percent = |column: fn(&CpuTicks) -> u64| -> Vec<f64> {
        begin
            .cpus
            .iter()
            .zip(&end.cpus)
            .map(|(before, after)| {
                // Idle time can step back a tick when iowait is folded in.
                let ticks = column(after).saturating_sub(column(before));
                (ticks as f64 / TICKS_PER_SECOND / seconds * 100.0).min(100.0)
            })
            .collect()
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let idle = percent(|cpu| cpu.idle);
    CpuWindow {
        seconds,
        idle_percent: mean(&idle),
        idle_percent_per_cpu: idle,
        softirq_percent: mean(&percent(|cpu| cpu.softirq)),
        irq_percent: mean(&percent(|cpu| cpu.irq)),
        interrupts: end.interrupts.saturating_sub(begin.interrupts),
        context_switches: end.context_switches.saturating_sub(begin.context_switches),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(idle0: u64, idle1: u64) -> Counters {
        parse(&format!(
            "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 5 0 7 {idle0} 10 0 30 0 0 0\ncpu1 5 0 7 {idle1} 0 2 0 0 0 0\nintr 900 1 2\nctxt 77\n"
        ))
        .unwrap()
    }

    #[test]
    fn idle_is_a_share_of_the_clock() {
        let begin = counters(100, 100);
        let end = counters(300, 150);
        // 2 s and 0.5 s idle of 4 s: 50 % and 12.5 %, together 31.25 %.
        let window = window(&begin, &end, 4.0);
        assert_eq!(window.idle_percent_per_cpu, [50.0, 12.5]);
        assert_eq!(window.idle_percent, 31.25);
        assert_eq!(window.interrupts, 0);
    }

    #[test]
    fn reads_this_machine() {
        let begin = Snapshot::take().unwrap();
        let window = begin.until(&Snapshot::take().unwrap());
        assert!((0.0..=100.0).contains(&window.idle_percent));
    }
}
