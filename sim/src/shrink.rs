// SPDX-License-Identifier: GPL-2.0-only
//! Which parts of a scenario a failure needs. A part is a task, a change, a real-time task or an interrupt; they are
//! numbered in this order. A task that is no part of it any more is there and never begins, so that the others keep
//! their numbers.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use anyhow::{Result, ensure};

use crate::scenario::Scenario;
use crate::simulation::Simulation;
use crate::state::Failure;

/// Later than any end.
const NEVER_NS: u64 = u64::MAX / 4;
/// A scenario of a hundred parts takes a few hundred.
const MOST_RUNS: usize = 5_000;

/// Numbers of parts: `0,3-5`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts(Vec<RangeInclusive<usize>>);

impl Parts {
    /// Of ascending numbers.
    pub fn of(numbers: &[usize]) -> Self {
        let mut ranges: Vec<RangeInclusive<usize>> = Vec::new();
        for &number in numbers {
            match ranges.last_mut() {
                Some(last) if last.end() + 1 == number => *last = *last.start()..=number,
                _ => ranges.push(number..=number),
            }
        }
        Self(ranges)
    }

    /// # Errors
    /// `scenario` has not so many parts.
    pub fn check(&self, scenario: &Scenario) -> Result<()> {
        let (count, last) = (
            nr_parts(scenario),
            self.0.iter().map(|range| *range.end()).max(),
        );
        ensure!(
            last.is_none_or(|last| last < count),
            "--parts {self}: expected numbers below {count}, as many parts as the scenario has"
        );
        Ok(())
    }

    fn has(&self, number: usize) -> bool {
        self.0.iter().any(|range| range.contains(&number))
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match range.start() == range.end() {
                true => write!(f, "{comma}{}", range.start())?,
                false => write!(f, "{comma}{}-{}", range.start(), range.end())?,
            }
        }
        Ok(())
    }
}

impl FromStr for Parts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then_some(first..=last)
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        let wrong = || format!("{text:?}: expected numbers and ranges, such as 0,3-5");
        ranges.map(Self).ok_or_else(wrong)
    }
}

/// How many parts `scenario` has.
pub fn nr_parts(scenario: &Scenario) -> usize {
    scenario.tasks.len() + scenario.changes.len() + scenario.above.len() + scenario.interrupts.len()
}

/// `scenario` with `parts` only.
pub fn only(scenario: &Scenario, parts: &Parts) -> Scenario {
    let mut kept = scenario.clone();
    let mut numbers = 0..;
    let mut is_kept = || numbers.next().is_some_and(|number| parts.has(number));
    for task in &mut kept.tasks {
        if !is_kept() {
            task.start_ns = NEVER_NS;
        }
    }
    kept.changes.retain(|_| is_kept());
    kept.above.retain(|_| is_kept());
    kept.interrupts.retain(|_| is_kept());
    kept
}

/// What a failure is about, without numbers and names.
fn kind(failure: &Failure) -> Vec<&str> {
    let words = failure.text.split(' ');
    words
        .filter(|word| !word.contains(|char: char| char.is_ascii_digit()))
        .collect()
}

/// The parts of `scenario` that its failure needs, and the failure that they have: without any one of them it does not
/// come, unless [`MOST_RUNS`] were too few. `None`: it does not fail. `object` is the scheduler.
///
/// # Errors
/// The scheduler cannot be loaded.
pub fn shrink(scenario: &Scenario, object: &[u8]) -> Result<Option<(Parts, Failure)>> {
    let mut runs = 0;
    let mut fails = |parts: &[usize]| -> Result<Option<Failure>> {
        runs += 1;
        if runs > MOST_RUNS {
            return Ok(None);
        }
        let kept = only(scenario, &Parts::of(parts));
        Ok(Simulation::with_object(kept, object)?.run()?.failure)
    };
    let mut parts: Vec<usize> = (0..nr_parts(scenario)).collect();
    let Some(mut failure) = fails(&parts)? else {
        return Ok(None);
    };
    let mut size = parts.len().div_ceil(2).max(1);
    loop {
        let (mut at, mut is_smaller) = (0, false);
        while at < parts.len() {
            let end = (at + size).min(parts.len());
            let rest = [&parts[..at], &parts[end..]].concat();
            match fails(&rest)? {
                Some(found) if kind(&found) == kind(&failure) => {
                    (parts, failure, is_smaller) = (rest, found, true);
                }
                _ => at = end,
            }
        }
        if size == 1 && !is_smaller {
            return Ok(Some((Parts::of(&parts), failure)));
        }
        size = size.div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_as_they_are_written() {
        for text in ["0", "0,3-5", "2-3,7"] {
            assert_eq!(text.parse::<Parts>().unwrap().to_string(), text);
        }
        assert_eq!(Parts::of(&[0, 3, 4, 5, 9]).to_string(), "0,3-5,9");
        for text in ["", "a", "3-1", "1,,2", "-1"] {
            assert!(text.parse::<Parts>().is_err(), "{text}");
        }
    }

    #[test]
    fn all_parts_are_the_whole_and_each_is_one_thing_less() {
        let scenario = Scenario::random(7).with_changes().with_real_time();
        let count = nr_parts(&scenario);
        let all: Vec<usize> = (0..count).collect();
        assert_eq!(only(&scenario, &Parts::of(&all)), scenario);
        Parts::of(&all).check(&scenario).unwrap();
        let error = Parts::of(&[0, count]).check(&scenario).unwrap_err();
        assert!(
            error.to_string().contains(&format!("below {count}")),
            "{error}"
        );
        let size = |scenario: &Scenario| {
            let tasks = scenario.tasks.iter();
            let begin = tasks.filter(|task| task.start_ns < NEVER_NS).count();
            begin + nr_parts(scenario) - scenario.tasks.len()
        };
        for left_out in 0..count {
            let rest: Vec<usize> = (0..count).filter(|&part| part != left_out).collect();
            assert_eq!(size(&only(&scenario, &Parts::of(&rest))), count - 1);
        }
    }
}
