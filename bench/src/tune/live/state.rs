// SPDX-License-Identifier: GPL-2.0-only
//! How far a tuning beside production has come, kept in its folder after every window: whatever ends it, it can go on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::slo::Metric;
use crate::datafile::DataError;
use crate::procstat::ProcessStat;
use crate::record;
use crate::tune::candidate::Candidate;
use crate::tune::folder::{LIVE, TuneDir};

/// Each candidate has a window in each, and the policy in force the first and the last one.
pub const ROUNDS: u32 = 5;
/// The name of the policy in force: none of the candidates has it.
pub const OLD: &str = "old";

/// What the user asks for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Live {
    /// The workload: its end is the end.
    pub pid: u32,
    pub policy: PathBuf,
    pub socket: PathBuf,
    pub metric: Metric,
    pub slo_worse: f64,
    pub slo_for: Duration,
}

/// All that such a tuning needs to go on. Written after every window.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    pub schema: u32,
    pub live: Live,
    /// The policy in force.
    pub old: String,
    pub window: Duration,
    pub candidates: Vec<Candidate>,
    /// Candidates that are not tried any more, and why.
    pub given_up: BTreeMap<String, String>,
    pub windows: Vec<Window>,
}

/// One window: the policy's name, the round, the median of the metric, and when it ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Window {
    pub policy: String,
    pub round: u32,
    pub metric: f64,
    /// Since 1970.
    pub ended_s: f64,
}

impl Live {
    pub fn expect_alive(&self) -> Result<(), DataError> {
        match is_alive(self.pid) {
            true => Ok(()),
            false => Err(DataError::Usage(format!(
                "--attach: no process {}",
                self.pid
            ))),
        }
    }
}

/// A zombie does no work.
pub fn is_alive(pid: u32) -> bool {
    ProcessStat::of(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

impl State {
    pub fn write(&self, dir: &TuneDir) -> Result<()> {
        record::write_json(&dir.root.join(LIVE), self)
    }

    pub fn add(&mut self, policy: &str, round: u32, metric: f64, dir: &TuneDir) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.push(policy, round, metric, now.unwrap_or_default().as_secs_f64());
        self.write(dir)
    }

    pub fn push(&mut self, policy: &str, round: u32, metric: f64, ended_s: f64) {
        self.windows.push(Window {
            policy: policy.to_owned(),
            round,
            metric,
            ended_s,
        });
    }

    pub fn give_up(&mut self, name: &str, why: &str, dir: &TuneDir) -> Result<()> {
        self.given_up.insert(name.to_owned(), why.to_owned());
        self.write(dir)
    }

    pub fn metric(&self, policy: &str, round: u32) -> Option<f64> {
        let is_meant = |one: &&Window| one.policy == policy && one.round == round;
        self.windows.iter().find(is_meant).map(|one| one.metric)
    }

    /// What the policy in force had when `policy` had its window in a round: between its first and its last window
    /// there, in proportion. The load of a production host drifts.
    pub fn old_beside(&self, policy: &str, round: u32) -> Option<f64> {
        let windows: Vec<&Window> = self.of(round).collect();
        let own = windows.iter().find(|one| one.policy == policy)?;
        let [first, .., last] = windows.as_slice() else {
            return None;
        };
        if first.policy != OLD || last.policy != OLD {
            return None;
        }
        let length = last.ended_s - first.ended_s;
        let part = (own.ended_s - first.ended_s) / length.max(f64::MIN_POSITIVE);
        Some((first.metric.ln() * (1.0 - part) + last.metric.ln() * part).exp())
    }

    fn of(&self, round: u32) -> impl Iterator<Item = &Window> {
        self.windows.iter().filter(move |one| one.round == round)
    }

    /// Those that are still tried.
    pub fn tried(&self) -> impl Iterator<Item = &Candidate> {
        let is_tried = |one: &&Candidate| !self.given_up.contains_key(&one.name);
        self.candidates.iter().filter(is_tried)
    }

    /// The first one that is not complete.
    pub fn next_round(&self) -> u32 {
        let is_complete = |round: &u32| {
            let has = |policy: &str| self.metric(policy, *round).is_some();
            let old = self.of(*round).filter(|one| one.policy == OLD);
            old.count() == 2 && self.tried().all(|one| has(&one.name))
        };
        (1..=ROUNDS).take_while(is_complete).count() as u32 + 1
    }
}

#[cfg(test)]
pub mod samples {
    use super::*;

    pub fn state(names: &[&str]) -> State {
        State {
            schema: record::SCHEMA,
            live: Live {
                pid: 1,
                policy: "policy.toml".into(),
                socket: "stats".into(),
                metric: Metric::Command("echo 1".to_owned()),
                slo_worse: 0.1,
                slo_for: Duration::from_secs(5),
            },
            old: String::new(),
            window: Duration::from_secs(1),
            candidates: names
                .iter()
                .map(|name| Candidate::new(name, "w", ""))
                .collect(),
            given_up: BTreeMap::new(),
            windows: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_was_cut_off_is_measured_again_and_a_complete_one_is_not() {
        let mut state = samples::state(&["a", "b"]);
        assert_eq!(state.next_round(), 1);
        for policy in [OLD, "a"] {
            state.push(policy, 1, 1.0, 1.0);
        }
        assert_eq!(state.next_round(), 1);
        state.push("b", 1, 1.0, 2.0);
        assert_eq!(state.next_round(), 1);
        state.push(OLD, 1, 1.0, 3.0);
        assert_eq!(state.next_round(), 2);
        for policy in [OLD, "a", OLD] {
            state.push(policy, 2, 1.0, 4.0);
        }
        state.given_up.insert("b".to_owned(), "refused".to_owned());
        assert_eq!(state.next_round(), 3);
        let text = serde_json::to_string(&state).unwrap();
        let back: State = serde_json::from_str(&text).unwrap();
        assert_eq!(back.next_round(), 3);
    }
}
