// SPDX-License-Identifier: GPL-2.0-only
//! Tuning beside production: every change goes through the scheduler's own reload, a metric of the user's guards it, and
//! the old policy is in force at the end, whatever ends it. Recommends; installs nothing.

mod scheduler;
pub mod slo;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::candidate::Candidate;
use super::folder::LIVE;
use crate::datafile::DataError;
use crate::procstat::ProcessStat;
use crate::replace::put;
use crate::study::FALSE_RATE;
use crate::words::in_words;
use crate::{interrupt, record};
use gpuaware_stats::{self as stats, Difference, Estimate, Scale, TAIL_MARGIN, discoveries};
use scheduler::Scheduler;
use slo::{Metric, Rail};

const ROUNDS: u32 = 5;
/// Shorter windows see a few answers only.
const MIN_WINDOW: Duration = Duration::from_secs(1);
/// After a change nothing is measured for so long; the rail watches already.
const SETTLE: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(100);

/// What the user asks for.
#[derive(Debug)]
pub struct Live {
    /// The workload: its end is the end.
    pub pid: u32,
    pub policy: PathBuf,
    pub socket: PathBuf,
    pub metric: Metric,
    pub slo_worse: f64,
    pub slo_for: Duration,
    pub budget: Duration,
}

/// One window: the policy's name, the round, and the median of the metric.
#[derive(Debug, Clone, Serialize)]
struct Window {
    policy: String,
    round: u32,
    metric: f64,
}

enum End {
    Measured(f64),
    /// The rail broke.
    Broken(f64),
    Stopped(&'static str),
}

/// What came of a candidate.
#[derive(Debug)]
struct Tried<'c> {
    candidate: &'c Candidate,
    /// Why it was given up.
    given_up: Option<String>,
    /// The metric over the old policy's, less is better.
    ratio: Option<Estimate>,
    better: bool,
}

impl<'c> Tried<'c> {
    fn not_yet(candidate: &'c Candidate) -> Self {
        Self {
            candidate,
            given_up: None,
            ratio: None,
            better: false,
        }
    }
}

/// Tries the candidates; each is on top of the policy in force.
pub fn tune(live: &Live, candidates: &[Candidate], output: &Path) -> Result<ExitCode> {
    if !is_alive(live.pid) {
        return Err(DataError::Usage(format!("--attach: no process {}", live.pid)).into());
    }
    let window = window(live.budget, candidates.len())?;
    let scheduler = Scheduler::attach(&live.policy, &live.socket)?;
    let mut tried: Vec<Tried> = candidates.iter().map(Tried::not_yet).collect();
    let mut windows = Vec::new();
    let stopped = rounds(live, &scheduler, window, &mut tried, &mut windows);
    // First of all.
    scheduler.restore()?;
    record::write_json(&output.join(LIVE), &windows)?;
    let stopped = stopped?;
    judge(&windows, &mut tried);
    let (verdict, best) = verdict(&tried);
    let policy = best.map_or_else(
        || Ok(scheduler.old().to_owned()),
        |tried| on_top(scheduler.old(), tried.candidate),
    )?;
    put(
        &output.join("policy.toml"),
        evidence(live, &verdict, &tried, &policy),
    )?;
    println!(
        "{verdict}\nThe old policy is in force.\n{}",
        output.join("policy.toml").display()
    );
    if let Some(why) = stopped {
        eprintln!("gpuaware-bench: stopped before the last round: {why}");
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

/// As long as the budget allows, for each policy in each round.
fn window(budget: Duration, candidates: usize) -> Result<Duration> {
    let turns = ROUNDS * (candidates as u32 + 1);
    let window = (budget / turns).saturating_sub(SETTLE);
    if candidates == 0 || window < MIN_WINDOW {
        let least = (MIN_WINDOW + SETTLE) * turns;
        return Err(DataError::Usage(format!(
            "--budget: expected at least {} for {candidates} candidates in {ROUNDS} rounds, got {}",
            in_words(least),
            in_words(budget)
        ))
        .into());
    }
    Ok(window)
}

/// `Some`: why it ended early.
fn rounds(
    live: &Live,
    scheduler: &Scheduler,
    window: Duration,
    tried: &mut [Tried],
    windows: &mut Vec<Window>,
) -> Result<Option<&'static str>> {
    let mut rng = Pcg64Mcg::seed_from_u64(u64::from(live.pid));
    for round in 1..=ROUNDS {
        eprintln!(
            "round {round} of {ROUNDS}: {} a policy",
            in_words(window + SETTLE)
        );
        let usual = match measure(live, window, None)? {
            End::Measured(metric) => metric,
            End::Stopped(why) => return Ok(Some(why)),
            End::Broken(_) => bail!("a rail without a limit broke"),
        };
        windows.push(Window {
            policy: "old".to_owned(),
            round,
            metric: usual,
        });
        let mut order: Vec<usize> = (0..tried.len())
            .filter(|&at| tried[at].given_up.is_none())
            .collect();
        order.shuffle(&mut rng);
        for at in order {
            let name = &tried[at].candidate.name;
            if !scheduler.put(&on_top(scheduler.old(), tried[at].candidate)?)? {
                scheduler.restore()?;
                tried[at].given_up = Some("the scheduler refuses it".to_owned());
                continue;
            }
            let end = measure(live, window, Some(usual));
            scheduler.restore()?;
            match end? {
                End::Measured(metric) => {
                    eprintln!("{name}: {metric:.3}, the old policy has {usual:.3}");
                    windows.push(Window {
                        policy: name.clone(),
                        round,
                        metric,
                    });
                }
                End::Broken(metric) => {
                    let why = format!(
                        "the metric was {metric:.3}, {usual:.3} before: the old policy is back"
                    );
                    eprintln!("{name}: given up: {why}");
                    tried[at].given_up = Some(why);
                }
                End::Stopped(why) => return Ok(Some(why)),
            }
        }
        scheduler.put(scheduler.old())?;
    }
    Ok(None)
}

/// The median of the metric in a window; with `usual` the rail watches.
fn measure(live: &Live, window: Duration, usual: Option<f64>) -> Result<End> {
    let stop = || interrupt::check().is_err() || !is_alive(live.pid);
    let mut rail = usual.map(|usual| Rail::new(usual, live.slo_worse, live.slo_for));
    let began = Instant::now();
    let mut values = Vec::new();
    // One value at least, however slow the command.
    while began.elapsed() < SETTLE + window || values.is_empty() {
        if interrupt::check().is_err() {
            return Ok(End::Stopped("interrupted"));
        }
        if !is_alive(live.pid) {
            return Ok(End::Stopped("the workload has ended"));
        }
        let Some(value) = live.metric.ask(&stop)? else {
            continue;
        };
        let at = began.elapsed();
        if rail.as_mut().is_some_and(|rail| rail.is_broken(value, at)) {
            return Ok(End::Broken(value));
        }
        if at >= SETTLE {
            values.push(value);
        }
        std::thread::sleep(BETWEEN);
    }
    Ok(End::Measured(stats::median(&values).unwrap_or(f64::NAN)))
}

/// A zombie does no work.
fn is_alive(pid: u32) -> bool {
    ProcessStat::of(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// The policy in force with what the candidate sets.
fn on_top(old: &str, candidate: &Candidate) -> Result<String> {
    candidate.on_top_of(old).with_context(|| {
        format!(
            "{}: it and the policy in force make no policy together",
            candidate.name
        )
    })
}

/// Each round's ratio counts once.
fn judge(windows: &[Window], tried: &mut [Tried]) {
    let value = |policy: &str, round: u32| {
        let found = windows
            .iter()
            .find(|one| one.policy == policy && one.round == round);
        found.map(|one| one.metric)
    };
    for one in tried.iter_mut() {
        let ratio = |round: u32| {
            Some((
                round,
                value(&one.candidate.name, round)? / value("old", round)?,
            ))
        };
        let ratios: Vec<(u32, f64)> = (1..=ROUNDS).filter_map(ratio).collect();
        one.ratio =
            stats::over_boots(&ratios, Scale::Log).filter(|_| ratios.len() == ROUNDS as usize);
    }
    let p = |one: &Tried| {
        one.ratio
            .and_then(|ratio| ratio.p_below(1.0))
            .unwrap_or(1.0)
    };
    let p_values: Vec<f64> = tried.iter().map(p).collect();
    for (one, found) in tried.iter_mut().zip(discoveries(&p_values, FALSE_RATE)) {
        one.better = found && one.given_up.is_none();
    }
}

fn verdict<'t, 'c>(tried: &'t [Tried<'c>]) -> (String, Option<&'t Tried<'c>>) {
    let value = |one: &Tried| one.ratio.map_or(f64::INFINITY, |ratio| ratio.value);
    let better = tried.iter().filter(|one| one.better);
    match better.min_by(|a, b| value(a).total_cmp(&value(b))) {
        Some(best) => (
            format!(
                "{} is better than the policy in force.",
                best.candidate.name
            ),
            Some(best),
        ),
        None => (
            "The policy in force is as good: nothing is shown to be better.".to_owned(),
            None,
        ),
    }
}

fn evidence(live: &Live, verdict: &str, tried: &[Tried], policy: &str) -> String {
    let mut text = format!(
        "# Found by gpuaware-bench tune beside process {}, {ROUNDS} rounds.\n# {verdict}\n\
         # The metric over the old policy's, less is better, 95 % interval:\n",
        live.pid
    );
    for one in tried {
        let ratio = crate::report::format::times(one.ratio, true);
        let why = match (&one.given_up, one.ratio) {
            (Some(why), _) => format!("given up: {why}"),
            (None, Some(_)) if one.better => "better".to_owned(),
            (None, Some(ratio)) => match ratio.difference(TAIL_MARGIN) {
                Difference::More => "worse".to_owned(),
                Difference::Less => "no difference shown among all comparisons".to_owned(),
                other => other.to_string(),
            },
            (None, None) => "too few rounds".to_owned(),
        };
        text += &format!("# - {}: {ratio}: {why}\n", one.candidate.name);
    }
    text + policy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_is_better_when_every_round_says_so() {
        let names = ["good", "same"];
        let candidates = names.map(|name| Candidate::new(name, "w", ""));
        let mut tried: Vec<Tried> = candidates.iter().map(Tried::not_yet).collect();
        let mut windows = Vec::new();
        for round in 1..=ROUNDS {
            let drift = 1.0 + 0.1 * f64::from(round);
            let wobble = if round % 2 == 0 { 1.01 } else { 0.99 };
            for (policy, metric) in [
                ("old", 10.0),
                ("good", 8.0 * wobble),
                ("same", 10.0 * wobble),
            ] {
                windows.push(Window {
                    policy: policy.to_owned(),
                    round,
                    metric: metric * drift,
                });
            }
        }
        judge(&windows, &mut tried);
        assert_eq!(verdict(&tried).1.unwrap().candidate.name, "good");
        tried[0].given_up = Some("the rail broke".to_owned());
        judge(&windows, &mut tried);
        assert!(verdict(&tried).1.is_none());
        windows.retain(|one| one.round < ROUNDS);
        tried[0].given_up = None;
        judge(&windows, &mut tried);
        assert!(
            tried.iter().all(|one| one.ratio.is_none()),
            "too few rounds"
        );
    }

    #[test]
    fn a_budget_has_a_window_for_each_policy_in_each_round() {
        assert_eq!(
            window(Duration::from_secs(100), 4).unwrap(),
            Duration::from_secs(3)
        );
        let error = window(Duration::from_secs(40), 4).unwrap_err().to_string();
        assert!(
            error.starts_with("--budget: expected at least 50 s for 4 candidates"),
            "{error}"
        );
    }
}
