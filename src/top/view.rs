// SPDX-License-Identifier: GPL-2.0-only
//! What two samples come to: rates, latencies, events. Pure: time is an argument.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::identify::Class;
use crate::sched::stats::{ClassMetrics, Metrics};

use super::sample::{Sample, Thread};

/// Events that are remembered.
const MAX_EVENTS: usize = 200;
/// Wakeups in bucket n took less than 2^(n + 10) ns.
const FIRST_BUCKET_LOG2_NS: usize = 10;

/// All that the screen shows.
#[derive(Debug, Default)]
pub struct View {
    /// The last sample's.
    pub metrics: Metrics,
    /// Launch, handoff, background.
    pub classes: Vec<ClassRates>,
    /// Those that have a class, launchers first.
    pub threads: Vec<ThreadRates>,
    /// The latest first.
    pub events: VecDeque<Event>,
    at: Duration,
    before: Option<Sample>,
}

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Since the start of top.
    pub at: Duration,
    /// What.
    pub text: String,
}

/// A class in the time between two samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClassRates {
    pub name: &'static str,
    pub runnable: u64,
    pub running: u64,
    /// CPUs' worth of time, on preferred and on other CPUs.
    pub cpus_preferred: f64,
    pub cpus_other: f64,
    /// From wakeup to run: no longer than this; `None`: nobody woke.
    pub p50: Option<Duration>,
    pub p99: Option<Duration>,
    /// Since the load.
    pub worst: Duration,
    /// Times a second that it took a CPU, and that it lost one.
    pub preempts: f64,
    pub preempted: f64,
}

/// A thread in the time between two samples.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadRates {
    pub thread: Thread,
    /// Part of the time that it ran, and that it waited for a CPU; percent.
    pub run_percent: f64,
    pub wait_percent: f64,
    /// Wait before each run, on average; `None`: it did not run.
    pub wait: Option<Duration>,
}

impl View {
    /// Takes a sample at `now`, which does not go backwards.
    pub fn take(&mut self, now: Duration, mut sample: Sample) {
        let elapsed = now.saturating_sub(self.at);
        self.at = now;
        sample
            .threads
            .sort_by_key(|thread| (order(thread.class), thread.tid));
        let before = self.before.take();
        if let Some(before) = &before {
            for text in events(before, &sample) {
                self.events.push_front(Event { at: now, text });
            }
            self.events.truncate(MAX_EVENTS);
        }
        // Of the first sample nothing is known but sums.
        let elapsed = before.as_ref().map_or(Duration::ZERO, |_| elapsed);
        let before = before.unwrap_or_default();
        self.classes = ["launch", "handoff", "background"]
            .map(|name| class_rates(name, &before.metrics, &sample.metrics, elapsed))
            .into();
        self.threads = thread_rates(&before.threads, &sample.threads, elapsed);
        self.metrics = sample.metrics.clone();
        self.before = Some(sample);
    }
}

fn order(class: Class) -> u8 {
    match class {
        Class::Launch => 0,
        Class::Handoff => 1,
        Class::Background => 2,
    }
}

/// A count per second; nothing before there are two samples.
fn per_second(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() {
        return 0.0;
    }
    count as f64 / elapsed.as_secs_f64()
}

fn class_rates(
    name: &'static str,
    before: &Metrics,
    now: &Metrics,
    elapsed: Duration,
) -> ClassRates {
    let (before, now) = (before.class(name), now.class(name));
    // A scheduler that was loaded anew counts from zero.
    let rate = |value: fn(&ClassMetrics) -> u64| {
        per_second(value(&now).saturating_sub(value(&before)), elapsed)
    };
    let waits: Vec<u64> = (now.wakeup_waits.iter().enumerate())
        .map(|(n, count)| count.saturating_sub(before.wakeup_waits.get(n).copied().unwrap_or(0)))
        .collect();
    ClassRates {
        name,
        runnable: now.runnable,
        running: now.running,
        cpus_preferred: rate(|class| class.run_preferred_us) / 1e6,
        cpus_other: rate(|class| class.run_other_us) / 1e6,
        p50: quantile(&waits, 0.5),
        p99: quantile(&waits, 0.99),
        worst: Duration::from_micros(now.worst_wait_us),
        preempts: rate(|class| class.preempts),
        preempted: rate(|class| class.preempted),
    }
}

/// The upper bound of the bucket in which this part of the waits is complete.
fn quantile(waits: &[u64], part: f64) -> Option<Duration> {
    let all: u64 = waits.iter().sum();
    let wanted = (all as f64 * part).ceil() as u64;
    let mut sum = 0;
    let bucket = waits.iter().position(|count| {
        sum += count;
        all > 0 && sum >= wanted
    })?;
    Some(Duration::from_nanos(1 << (bucket + FIRST_BUCKET_LOG2_NS)))
}

fn thread_rates(before: &[Thread], now: &[Thread], elapsed: Duration) -> Vec<ThreadRates> {
    let before: BTreeMap<i32, &Thread> = before.iter().map(|it| (it.tid, it)).collect();
    let rates = now.iter().map(|thread| {
        let then = before.get(&thread.tid).map(|it| it.times);
        let times = then.map(|then| {
            let run_ns = thread.times.run_ns.saturating_sub(then.run_ns);
            let wait_ns = thread.times.wait_ns.saturating_sub(then.wait_ns);
            (run_ns, wait_ns, thread.times.runs.saturating_sub(then.runs))
        });
        let (run_ns, wait_ns, runs) = times.unwrap_or_default();
        ThreadRates {
            thread: thread.clone(),
            run_percent: per_second(run_ns, elapsed) / 1e7,
            wait_percent: per_second(wait_ns, elapsed) / 1e7,
            wait: wait_ns.checked_div(runs).map(Duration::from_nanos),
        }
    });
    rates.collect()
}

/// What has changed, in words.
fn events(before: &Sample, now: &Sample) -> Vec<String> {
    let mut found = thread_events(&before.threads, &now.threads);
    let (before, now) = (&before.metrics, &now.metrics);
    if before.preferred_cpus != now.preferred_cpus {
        let (old, new) = (&before.preferred_cpus, &now.preferred_cpus);
        found.push(format!(
            "preferred CPUs {new}, were {old}: {}",
            now.preferred_reason
        ));
    }
    if before.irq_heavy_cpus != now.irq_heavy_cpus {
        found.push(match now.irq_heavy_cpus.as_str() {
            "" => "no CPU is IRQ-heavy any more".to_owned(),
            cpus => format!("IRQ-heavy CPUs: {cpus}"),
        });
    }
    let windows = now.probe_windows.saturating_sub(before.probe_windows);
    if windows > 0 {
        let found_now = now.launchers_found.saturating_sub(before.launchers_found);
        found.push(format!(
            "probes armed {windows} times, {found_now} launchers found"
        ));
    }
    let throttles = now.guard_throttles.saturating_sub(before.guard_throttles);
    if throttles > 0 {
        found.push(format!(
            "guard: launch and handoff put off {throttles} times"
        ));
    }
    if before.policy_generation != now.policy_generation {
        found.push(format!(
            "policy generation {} is in force",
            now.policy_generation
        ));
    }
    if before.policy_refused != now.policy_refused {
        let error = now.policy_error.replace('\n', " ");
        found.push(format!("a policy was refused: {error}"));
    }
    found
}

fn thread_events(before: &[Thread], now: &[Thread]) -> Vec<String> {
    let class_of = |threads: &[Thread], tid| {
        let mut threads = threads.iter();
        threads.find(|it| it.tid == tid).map(|it| it.class)
    };
    let named = |it: &Thread| format!("thread {} ({})", it.tid, it.comm);
    let came = now
        .iter()
        .filter(|it| class_of(before, it.tid) != Some(it.class));
    let came = came.map(|it| format!("{} is {}: {}", named(it), it.class.name(), it.source));
    let gone = before.iter().filter(|it| class_of(now, it.tid).is_none());
    let gone = gone.map(|it| format!("{} is {} no more", named(it), it.class.name()));
    came.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample::Times;
    use super::*;

    fn thread(tid: i32, class: Class) -> Thread {
        Thread {
            tid,
            comm: "python3".to_owned(),
            class,
            source: "uprobe".to_owned(),
            cpu: Some(1),
            times: Times::default(),
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn rates_are_between_two_samples() {
        let mut view = View::default();
        let mut sample = Sample::default();
        let class = ClassMetrics {
            run_preferred_us: 7_000_000,
            wakeup_waits: vec![100, 0, 0],
            ..ClassMetrics::default()
        };
        sample.metrics.classes.insert("launch".to_owned(), class);
        sample.threads.push(thread(5, Class::Launch));
        view.take(SECOND, sample.clone());
        assert_eq!(view.classes[0].cpus_preferred, 0.0);
        assert!(view.events.is_empty());

        let class = sample.metrics.classes.get_mut("launch").unwrap();
        class.run_preferred_us += 1_000_000;
        class.wakeup_waits = vec![150, 0, 50];
        sample.threads[0].times = Times {
            run_ns: 500_000_000,
            wait_ns: 10_000_000,
            runs: 10,
        };
        view.take(3 * SECOND, sample);
        let launch = &view.classes[0];
        assert_eq!(launch.cpus_preferred, 0.5);
        assert_eq!(launch.p50, Some(Duration::from_nanos(1024)));
        assert_eq!(launch.p99, Some(Duration::from_nanos(4096)));
        assert_eq!(view.classes[1].p99, None);
        let thread = &view.threads[0];
        assert_eq!((thread.run_percent, thread.wait_percent), (25.0, 0.5));
        assert_eq!(thread.wait, Some(Duration::from_millis(1)));
    }

    #[test]
    fn changes_are_events_and_the_latest_comes_first() {
        let mut view = View::default();
        let mut sample = Sample::default();
        view.take(SECOND, sample.clone());
        sample.threads.push(thread(5, Class::Launch));
        view.take(2 * SECOND, sample.clone());
        sample.threads.clear();
        sample.metrics.policy_refused = 1;
        sample.metrics.policy_error = "p.toml:1: error\nmore".to_owned();
        view.take(3 * SECOND, sample);
        let texts: Vec<_> = view
            .events
            .iter()
            .map(|event| event.text.as_str())
            .collect();
        assert_eq!(
            texts,
            [
                "a policy was refused: p.toml:1: error more",
                "thread 5 (python3) is launch no more",
                "thread 5 (python3) is launch: uprobe",
            ]
        );
    }

    #[test]
    fn a_scheduler_that_was_loaded_anew_has_no_negative_rates() {
        let mut view = View::default();
        let mut sample = Sample::default();
        let class = ClassMetrics {
            preempts: 9,
            wakeup_waits: vec![9],
            ..ClassMetrics::default()
        };
        sample.metrics.classes.insert("launch".to_owned(), class);
        view.take(SECOND, sample);
        view.take(2 * SECOND, Sample::default());
        assert_eq!((view.classes[0].preempts, view.classes[0].p99), (0.0, None));
    }
}
