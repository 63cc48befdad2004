// SPDX-License-Identifier: GPL-2.0-only
//! Calls of callbacks, cut into words that say how a task came to its CPU and left it, and how a CPU went from one task
//! to the next; counted.

use std::collections::BTreeMap;

const ENQ_WAKEUP: u64 = 1;
const ENQ_REENQ: u64 = 1 << 40;
const ENQ_LAST: u64 = 1 << 41;
const DEQ_SLEEP: u64 = 1;

/// While a CPU searches for somebody who waits, the other one takes him: the task that ran is enqueued, nobody is found,
/// and the CPU goes idle for a moment. In the model nothing happens during a callback.
const OF_A_RACE: &str = "enqueue(last)";

/// A call, of this kernel or of the model.
#[derive(Debug, Clone)]
pub struct Call {
    pub callback: String,
    pub cpu: usize,
    /// A thread, or a task of the model; -1: none.
    pub task: i64,
    pub flags: u64,
}

impl Call {
    /// What order is about: the callback, and of its flags what the scheduler looks at. Ticks are the clock's.
    fn name(&self) -> Option<&'static str> {
        let is = |flag: u64| self.flags & flag != 0;
        Some(match self.callback.as_str() {
            "select_cpu" => "select_cpu",
            "runnable" if is(ENQ_WAKEUP) => "runnable",
            "runnable" => "runnable(not woken)",
            "enqueue" if is(ENQ_REENQ) => "enqueue(taken back)",
            "enqueue" if is(ENQ_LAST) => "enqueue(last)",
            "enqueue" if is(ENQ_WAKEUP) => "enqueue(woken)",
            "enqueue" => "enqueue",
            "dispatch" => "dispatch",
            "running" => "running",
            "stopping" if is(1) => "stopping(runnable)",
            "stopping" => "stopping",
            "quiescent" if is(DEQ_SLEEP) => "quiescent",
            "quiescent" => "quiescent(not asleep)",
            "yield" | "yield_cpu" => "yield",
            "update_idle" if is(1) => "idle",
            "update_idle" => "busy",
            "cpu_release" => "cpu_release",
            _ => return None,
        })
    }

    /// Those of the CPU's own way from task to task; wakeups happen to be called on it.
    fn is_of_switch(name: &str) -> bool {
        !matches!(
            name,
            "select_cpu" | "runnable" | "runnable(not woken)" | "enqueue(woken)"
        )
    }
}

/// Takes out searches for the next task after which who ran goes on, without `stopping` and `running`, and says how
/// many: a matter of time, as ticks are. Who is enqueued after `stopping` had no time left, and was searched for.
fn without_goes_on(names: &[&'static str]) -> (Vec<&'static str>, u64) {
    let (mut kept, mut taken, mut runs) = (Vec::new(), 0, false);
    for (at, &name) in names.iter().enumerate() {
        runs = match name {
            "running" => true,
            "stopping" | "stopping(runnable)" => false,
            _ => runs,
        };
        let switches = matches!(
            names.get(at + 1..at + 3),
            Some(["stopping(runnable)", "enqueue" | "enqueue(last)"])
        );
        if name == "dispatch" && runs && !switches {
            taken += 1;
        } else {
            kept.push(name);
        }
    }
    (kept, taken)
}

/// How often each word was found.
#[derive(Debug, Clone, Default)]
pub struct Words {
    counts: BTreeMap<String, u64>,
    /// How often who ran went on after a search for the next task.
    pub goes_on: u64,
}

impl Words {
    /// Cuts before each call for which `begins` holds, given the call before it. What repeats at once counts once. First
    /// and last word are incomplete.
    fn cut(names: &[&'static str], begins: impl Fn(&str, &str) -> bool) -> Self {
        let (names, goes_on) = without_goes_on(names);
        let mut words = Vec::new();
        let mut word: Vec<&str> = Vec::new();
        let mut before = "";
        for name in names {
            if begins(before, name) {
                words.push(std::mem::take(&mut word));
            }
            if word.last() != Some(&name) {
                word.push(name);
            }
            before = name;
        }
        let mut counts = BTreeMap::new();
        for word in words.iter().skip(1) {
            *counts.entry(word.join(" ")).or_default() += 1;
        }
        Self { counts, goes_on }
    }

    /// Of a task: from a wakeup, or from when it lost its CPU, until it loses it again or sleeps.
    pub fn of_task(calls: &[Call], task: i64) -> Self {
        let names: Vec<_> = calls
            .iter()
            .filter(|call| call.task == task)
            .filter_map(Call::name)
            .collect();
        Self::cut(&names, |before, name| match name {
            "select_cpu" => true,
            "runnable" | "runnable(not woken)" => before != "select_cpu",
            _ => before == "stopping(runnable)",
        })
    }

    /// Of a CPU: from one task that gets it to the next one.
    pub fn of_cpu(calls: &[Call], cpu: usize) -> Self {
        let names: Vec<_> = calls
            .iter()
            .filter(|call| call.cpu == cpu)
            .filter_map(Call::name)
            .filter(|name| Call::is_of_switch(name))
            .collect();
        Self::cut(&names, |_, name| name == "running")
    }

    pub fn add(&mut self, other: &Self) {
        for (word, count) in &other.counts {
            *self.counts.entry(word.clone()).or_default() += count;
        }
        self.goes_on += other.goes_on;
    }

    pub fn has(&self, word: &str) -> bool {
        self.counts.contains_key(word)
    }

    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Of all words, how many in a hundred are this one?
    pub fn percent(&self, word: &str) -> f64 {
        let count = self.counts.get(word).copied().unwrap_or(0);
        count as f64 * 100.0 / self.total().max(1) as f64
    }

    /// How many words does `other` not have? Those of a race do not count.
    pub fn unknown_to(&self, other: &Self) -> u64 {
        let unknown = self.counts.iter();
        let unknown = unknown.filter(|(word, _)| !other.has(word) && !word.contains(OF_A_RACE));
        unknown.map(|(_, count)| count).sum()
    }

    /// The most frequent one first.
    pub fn by_frequency(&self) -> Vec<&str> {
        let mut words: Vec<_> = self.counts.iter().collect();
        words.sort_by_key(|&(word, count)| (std::cmp::Reverse(count), word));
        words.into_iter().map(|(word, _)| word.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(text: &str) -> Vec<Call> {
        let call = |line: &str| {
            let mut parts = line.split(':');
            let mut next = || parts.next().unwrap_or("0");
            Call {
                callback: next().to_owned(),
                task: next().parse().unwrap(),
                flags: next().parse().unwrap(),
                cpu: 0,
            }
        };
        text.split_whitespace().map(call).collect()
    }

    #[test]
    fn calls_are_cut_where_a_task_wakes_and_where_it_loses_its_cpu() {
        let calls = calls(
            "running:1 stopping:1 select_cpu:1 runnable:1:1 select_cpu:2 running:1 tick:1 dispatch:1 dispatch:1 \
             stopping:1:1 enqueue:1 running:1 stopping:1 quiescent:1:1 runnable:1:1 running:1",
        );
        let words = Words::of_task(&calls, 1);
        assert_eq!(
            words.by_frequency(),
            [
                "enqueue running stopping quiescent",
                "select_cpu runnable running dispatch stopping(runnable)"
            ]
        );
        assert_eq!(words.percent("enqueue running stopping quiescent"), 50.0);
        assert_eq!(words.goes_on, 1);
        let switches = Words::of_cpu(&calls, 0);
        assert_eq!(
            switches.by_frequency(),
            [
                "running dispatch stopping(runnable) enqueue",
                "running stopping",
                "running stopping quiescent"
            ]
        );
        assert_eq!(words.unknown_to(&switches), 2);
        assert_eq!(words.unknown_to(&words), 0);
    }
}
