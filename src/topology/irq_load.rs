// SPDX-License-Identifier: GPL-2.0-only
//! How much of each CPU goes to interrupts, and when that is too much. Pure: samples and time are
//! arguments.
//!
//! The load is an EWMA of interrupt nanoseconds, hard and soft, per nanosecond of wall time. A CPU
//! becomes *heavy* as soon as its load reaches the upper threshold, and is heavy no more when it has
//! stayed below the lower one for a while: leaving late costs a launcher its tail, coming back
//! early costs it two moves.

use std::collections::BTreeMap;
use std::time::Duration;

/// A CPU that was heavy has to come down to this part of the threshold.
const LEAVE_PART: f64 = 0.6;

/// Thresholds and times.
#[derive(Debug, Clone, PartialEq)]
pub struct IrqRules {
    /// Load at which a CPU becomes heavy, percent.
    pub enter_percent: f64,
    /// Load below which it starts to recover, percent.
    pub leave_percent: f64,
    /// How long it has to stay below that.
    pub dwell: Duration,
    /// Time constant of the average.
    pub smoothing: Duration,
}

impl IrqRules {
    /// Rules for the policy's `irq.heavy_percent`. A load of one and a quarter times the threshold is
    /// found out in 3 s.
    pub fn new(heavy_percent: f64) -> Self {
        Self {
            enter_percent: heavy_percent,
            leave_percent: heavy_percent * LEAVE_PART,
            dwell: Duration::from_secs(10),
            smoothing: Duration::from_secs(2),
        }
    }
}

/// Interrupt time of one CPU since some fixed moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IrqTime {
    /// In hard interrupts.
    pub hard_ns: u64,
    /// In soft interrupts, without the hard ones that interrupt them.
    pub soft_ns: u64,
}

impl IrqTime {
    fn total_ns(self) -> u64 {
        self.hard_ns.saturating_add(self.soft_ns)
    }
}

/// What interrupts take from one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct IrqVerdict {
    /// Smoothed share of its time, percent.
    pub load_percent: f64,
    /// Too much for a launcher.
    pub heavy: bool,
}

/// The verdicts on all CPUs that were sampled.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IrqVerdicts(BTreeMap<u32, IrqVerdict>);

impl IrqVerdicts {
    /// The verdict on `cpu`; `None`: never sampled.
    pub fn of(&self, cpu: u32) -> Option<IrqVerdict> {
        self.0.get(&cpu).copied()
    }

    /// Do interrupts take too much of `cpu`? Not as far as is known, if it was never sampled.
    pub fn is_heavy(&self, cpu: u32) -> bool {
        self.of(cpu).is_some_and(|verdict| verdict.heavy)
    }
}

impl FromIterator<(u32, IrqVerdict)> for IrqVerdicts {
    fn from_iter<T: IntoIterator<Item = (u32, IrqVerdict)>>(verdicts: T) -> Self {
        Self(verdicts.into_iter().collect())
    }
}

/// Follows the interrupt load of every CPU.
#[derive(Debug, Clone)]
pub struct IrqLoad {
    rules: IrqRules,
    cpus: BTreeMap<u32, CpuLoad>,
}

#[derive(Debug, Clone)]
struct CpuLoad {
    at: Duration,
    time: IrqTime,
    /// Share of wall time; `None` until there are two samples.
    load: Option<f64>,
    /// When the load was last too high to recover; `None`: not heavy.
    heavy_until: Option<Duration>,
}

impl IrqLoad {
    /// Nothing sampled yet.
    pub fn new(rules: IrqRules) -> Self {
        Self {
            rules,
            cpus: BTreeMap::new(),
        }
    }

    /// Judges by other rules from the next sample on.
    pub fn set_rules(&mut self, rules: IrqRules) {
        self.rules = rules;
    }

    /// Takes a sample of all online CPUs at `now`, on any clock that does not go backwards. CPUs that
    /// are missing went offline and are forgotten.
    pub fn observe(&mut self, now: Duration, times: impl IntoIterator<Item = (u32, IrqTime)>) {
        let mut before = std::mem::take(&mut self.cpus);
        for (cpu, time) in times {
            let load = match before.remove(&cpu) {
                Some(mut load) => {
                    load.advance(&self.rules, now, time);
                    load
                }
                None => CpuLoad {
                    at: now,
                    time,
                    load: None,
                    heavy_until: None,
                },
            };
            self.cpus.insert(cpu, load);
        }
    }

    /// The verdicts as of the last sample.
    pub fn verdicts(&self) -> IrqVerdicts {
        let verdict = |load: &CpuLoad| {
            Some(IrqVerdict {
                load_percent: load.load? * 100.0,
                heavy: load.heavy_until.is_some(),
            })
        };
        self.cpus
            .iter()
            .filter_map(|(&cpu, load)| Some((cpu, verdict(load)?)))
            .collect()
    }
}

impl CpuLoad {
    fn advance(&mut self, rules: &IrqRules, now: Duration, time: IrqTime) {
        let elapsed = now.saturating_sub(self.at);
        if elapsed.is_zero() {
            return;
        }
        // Counters start anew when a CPU was offline in between.
        let spent = time.total_ns().checked_sub(self.time.total_ns());
        (self.at, self.time) = (now, time);
        let Some(spent) = spent else { return };
        let sample = (spent as f64 / elapsed.as_nanos() as f64).min(1.0);
        let weight = 1.0 - (-elapsed.as_secs_f64() / rules.smoothing.as_secs_f64()).exp();
        let load = self
            .load
            .map_or(sample, |load| load + weight * (sample - load));
        self.load = Some(load);
        self.judge(rules, now, load * 100.0);
    }

    fn judge(&mut self, rules: &IrqRules, now: Duration, percent: f64) {
        let recovering = percent < rules.leave_percent;
        match self.heavy_until {
            None if percent >= rules.enter_percent => self.heavy_until = Some(now),
            Some(_) if !recovering => self.heavy_until = Some(now),
            Some(until) if now.saturating_sub(until) >= rules.dwell => self.heavy_until = None,
            None | Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// CPU 3, sampled every second, with counters that go on.
    struct Cpu3 {
        load: IrqLoad,
        second: u64,
        time: IrqTime,
    }

    impl Cpu3 {
        fn new() -> Self {
            let mut cpu = Self {
                load: IrqLoad::new(IrqRules::new(5.0)),
                second: 0,
                time: IrqTime::default(),
            };
            cpu.load.observe(Duration::ZERO, [(3, cpu.time)]);
            cpu
        }

        /// `seconds` with `hard_ms` and `soft_ms` of interrupts each.
        fn run(&mut self, seconds: u64, hard_ms: u64, soft_ms: u64) -> IrqVerdict {
            for _ in 0..seconds {
                self.second += 1;
                self.time.hard_ns += hard_ms * MS;
                self.time.soft_ns += soft_ms * MS;
                let now = Duration::from_secs(self.second);
                self.load.observe(now, [(3, self.time)]);
            }
            self.load.verdicts().of(3).unwrap()
        }
    }

    #[test]
    fn hard_and_soft_interrupts_count_together() {
        let verdict = Cpu3::new().run(1, 10, 25);
        assert!((verdict.load_percent - 3.5).abs() < 1e-9, "{verdict:?}");
        assert!(!verdict.heavy);
    }

    #[test]
    fn a_storm_makes_a_quiet_cpu_heavy_within_seconds() {
        let mut cpu = Cpu3::new();
        cpu.run(30, 1, 4);
        assert!(!cpu.run(1, 20, 40).heavy, "one bad second is not a storm");
        assert!(cpu.run(4, 20, 60).heavy);
    }

    #[test]
    fn a_load_between_the_thresholds_changes_nothing() {
        let mut cpu = Cpu3::new();
        assert!(!cpu.run(60, 0, 40).heavy);
        cpu.run(5, 0, 500);
        let verdict = cpu.run(60, 0, 40);
        assert!(verdict.heavy, "4 % is below 5 % but not below 3 %");
    }

    #[test]
    fn a_heavy_cpu_recovers_after_the_dwell_and_not_before() {
        let mut cpu = Cpu3::new();
        cpu.run(5, 0, 200);
        // The average passes 3 % in the fourth calm second; ten calm seconds follow.
        assert!(cpu.run(12, 0, 0).heavy);
        assert!(!cpu.run(3, 0, 0).heavy);
    }

    #[test]
    fn a_relapse_starts_the_dwell_again() {
        let mut cpu = Cpu3::new();
        cpu.run(5, 0, 200);
        cpu.run(12, 0, 0);
        cpu.run(1, 0, 300);
        assert!(cpu.run(10, 0, 0).heavy);
        assert!(!cpu.run(6, 0, 0).heavy);
    }

    #[test]
    fn a_cpu_that_was_offline_starts_anew() {
        let mut cpu = Cpu3::new();
        cpu.run(5, 0, 200);
        cpu.load.observe(Duration::from_secs(6), []);
        assert_eq!(cpu.load.verdicts().of(3), None);
        let time = IrqTime::default();
        cpu.load.observe(Duration::from_secs(7), [(3, time)]);
        cpu.load.observe(Duration::from_secs(8), [(3, time)]);
        assert_eq!(cpu.load.verdicts().of(3), Some(IrqVerdict::default()));
    }

    #[test]
    fn counters_that_step_back_are_no_load() {
        let mut cpu = Cpu3::new();
        cpu.run(3, 10, 10);
        cpu.time = IrqTime::default();
        let verdict = cpu.run(1, 0, 0);
        assert!((verdict.load_percent - 2.0).abs() < 1e-9, "{verdict:?}");
    }

    #[test]
    fn two_samples_at_the_same_moment_are_one() {
        let mut cpu = Cpu3::new();
        cpu.load.observe(Duration::ZERO, [(3, cpu.time)]);
        assert_eq!(cpu.load.verdicts().of(3), None);
    }
}
