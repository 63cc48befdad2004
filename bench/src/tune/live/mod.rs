// SPDX-License-Identifier: GPL-2.0-only
//! Tuning beside production: every change goes through the scheduler's own reload, a metric of the user's guards it, and
//! the old policy is in force at the end, whatever ends it. Recommends; installs nothing.

mod scheduler;
pub mod slo;
mod state;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::candidate::Candidate;
use super::folder::{LIVE, TuneDir};
use crate::datafile::DataError;
use crate::replace::put;
use crate::study::FALSE_RATE;
use crate::words::in_words;
use crate::{interrupt, record};
use gpuaware_stats::{self as stats, Difference, Estimate, Scale, TAIL_MARGIN, discoveries};
use scheduler::Scheduler;
use slo::Rail;
pub use state::{Live, OLD};
use state::{ROUNDS, State, is_alive};

/// Shorter windows see a few answers only.
const MIN_WINDOW: Duration = Duration::from_secs(1);
/// After a change nothing is measured for so long; the rail watches already.
const SETTLE: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(100);

enum End {
    Measured(f64),
    /// The rail broke, or nobody answered under a candidate, twice: why it is not tried any more.
    GivenUp(String),
    Stopped(&'static str),
}

/// What came of a candidate.
#[derive(Debug)]
struct Tried<'s> {
    candidate: &'s Candidate,
    /// Why it was given up.
    given_up: Option<&'s str>,
    /// The metric over the old policy's, less is better.
    ratio: Option<Estimate>,
    better: bool,
}

/// Tries the candidates; each is on top of the policy in force.
pub fn tune(
    live: Live,
    candidates: Vec<Candidate>,
    budget: Duration,
    dir: &TuneDir,
) -> Result<ExitCode> {
    live.expect_alive()?;
    let window = window(budget, candidates.len(), live.slo_for)?;
    let scheduler = Scheduler::attach(&live.policy, &live.socket)?;
    let policy = std::path::absolute(&live.policy).context("--policy")?;
    let state = State {
        schema: record::SCHEMA,
        old: scheduler.old().to_owned(),
        live: Live { policy, ..live },
        window,
        candidates,
        given_up: BTreeMap::new(),
        windows: Vec::new(),
    };
    go_on(state, &scheduler, dir)
}

/// Goes on beside process `pid`. What was measured counts, but for the round that was cut off: within a round policies
/// are compared at one time.
pub fn resume(dir: &TuneDir, pid: u32) -> Result<ExitCode> {
    let mut state: State = record::read_json(&dir.root.join(LIVE))?;
    state.live.pid = pid;
    state.live.expect_alive()?;
    let scheduler = Scheduler::attach(&state.live.policy, &state.live.socket)?;
    if scheduler.old() != state.old {
        return Err(DataError::Usage(format!(
            "--resume: expected {} as it was when the tuning began, as its candidates are on top of that: begin a new one",
            state.live.policy.display()
        ))
        .into());
    }
    let round = state.next_round();
    state.windows.retain(|one| one.round < round);
    go_on(state, &scheduler, dir)
}

fn go_on(mut state: State, scheduler: &Scheduler, dir: &TuneDir) -> Result<ExitCode> {
    state.write(dir)?;
    let stopped = rounds(&mut state, scheduler, dir);
    // First of all.
    scheduler.restore()?;
    let stopped = stopped?;
    let tried = judge(&state);
    let (verdict, best) = verdict(&tried);
    let policy = best.map_or_else(
        || Ok(state.old.clone()),
        |tried| on_top(&state.old, tried.candidate),
    )?;
    let file = dir.root.join("policy.toml");
    put(&file, evidence(&state.live, &verdict, &tried, &policy))?;
    println!("{verdict}\nThe old policy is in force.\n{}", file.display());
    if let Some(why) = stopped {
        eprintln!(
            "gpuaware-bench: stopped before the last round: {why}; go on with: gpuaware-bench tune --attach PID --resume {}",
            dir.root.display()
        );
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

/// As long as the budget allows, for each candidate in each round, and twice for the policy in force. The rail can break
/// within it.
fn window(budget: Duration, candidates: usize, slo_for: Duration) -> Result<Duration> {
    let turns = ROUNDS * (candidates as u32 + 2);
    let window = (budget / turns).saturating_sub(SETTLE);
    let shortest = MIN_WINDOW.max(slo_for);
    if candidates == 0 || window < shortest {
        let least = (shortest + SETTLE) * turns;
        return Err(DataError::Usage(format!(
            "--budget: expected at least {} for {candidates} candidates in {ROUNDS} rounds, each for longer than --slo-for, \
             got {}",
            in_words(least),
            in_words(budget)
        ))
        .into());
    }
    Ok(window)
}

/// `Some`: why it ended early.
fn rounds(state: &mut State, scheduler: &Scheduler, dir: &TuneDir) -> Result<Option<&'static str>> {
    let window = state.window;
    for round in state.next_round()..=ROUNDS {
        eprintln!(
            "round {round} of {ROUNDS}: {} a policy",
            in_words(window + SETTLE)
        );
        let usual = match measure_old(state, round, dir)? {
            Ok(metric) => metric,
            Err(why) => return Ok(Some(why)),
        };
        let mut order: Vec<Candidate> = state.tried().cloned().collect();
        order.shuffle(&mut Pcg64Mcg::seed_from_u64(round.into()));
        for candidate in order {
            let name = &candidate.name;
            if !scheduler.put(&on_top(&state.old, &candidate)?)? {
                scheduler.restore()?;
                state.give_up(name, "the scheduler refuses it", dir)?;
                continue;
            }
            let end = measure(&state.live, window, Some(usual));
            scheduler.restore()?;
            match end? {
                End::Measured(metric) => {
                    eprintln!("{name}: {metric:.3}, the old policy has {usual:.3}");
                    state.add(name, round, metric, dir)?;
                }
                End::GivenUp(why) => {
                    eprintln!("{name}: given up: {why}");
                    state.give_up(name, &why, dir)?;
                }
                End::Stopped(why) => return Ok(Some(why)),
            }
        }
        scheduler.put(scheduler.old())?;
        if let Err(why) = measure_old(state, round, dir)? {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

/// A window of the policy in force; or why it was stopped.
fn measure_old(state: &mut State, round: u32, dir: &TuneDir) -> Result<Result<f64, &'static str>> {
    match measure(&state.live, state.window, None)? {
        End::Measured(metric) => {
            state.add(OLD, round, metric, dir)?;
            Ok(Ok(metric))
        }
        End::Stopped(why) => Ok(Err(why)),
        End::GivenUp(_) => bail!("a rail without a limit broke"),
    }
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
        // Of a candidate that leaves nobody time to answer, that says enough.
        let asked = live.metric.ask(&stop).or_else(|_| live.metric.ask(&stop));
        let value = match asked {
            Ok(Some(value)) => value,
            Ok(None) => continue,
            Err(error) if rail.is_some() => return Ok(End::GivenUp(format!("{error:#}"))),
            Err(error) => return Err(error),
        };
        let at = began.elapsed();
        let is_broken = rail.as_mut().is_some_and(|rail| rail.is_broken(value, at));
        if let Some(usual) = usual.filter(|_| is_broken) {
            return Ok(End::GivenUp(format!(
                "the metric was {value:.3}, {usual:.3} before: the old policy is back"
            )));
        }
        if at >= SETTLE {
            values.push(value);
        }
        std::thread::sleep(BETWEEN);
    }
    Ok(End::Measured(stats::median(&values).unwrap_or(f64::NAN)))
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

/// Not yet compared with others.
fn came_of<'s>(state: &'s State, candidate: &'s Candidate) -> Tried<'s> {
    let ratio = |round: u32| {
        let tried = state.metric(&candidate.name, round)?;
        Some((round, tried / state.old_beside(&candidate.name, round)?))
    };
    let ratios: Vec<(u32, f64)> = (1..=ROUNDS).filter_map(ratio).collect();
    let ratio = stats::over_boots(&ratios, Scale::Log);
    Tried {
        candidate,
        given_up: state.given_up.get(&candidate.name).map(String::as_str),
        ratio: ratio.filter(|_| ratios.len() == ROUNDS as usize),
        better: false,
    }
}

/// Each round's ratio counts once.
fn judge(state: &State) -> Vec<Tried<'_>> {
    let mut all: Vec<Tried> = state
        .candidates
        .iter()
        .map(|one| came_of(state, one))
        .collect();
    let p = |one: &Tried| {
        one.ratio
            .and_then(|ratio| ratio.p_below(1.0))
            .unwrap_or(1.0)
    };
    let p_values: Vec<f64> = all.iter().map(p).collect();
    for (one, found) in all.iter_mut().zip(discoveries(&p_values, FALSE_RATE)) {
        one.better = found && one.given_up.is_none();
    }
    all
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
    use super::state::samples;
    use super::*;

    #[test]
    fn a_candidate_is_better_when_every_round_says_so() {
        let names = ["good", "same"];
        let mut state = samples::state(&names);
        for round in 1..=ROUNDS {
            let drift = 1.0 + 0.1 * f64::from(round);
            let wobble = if round % 2 == 0 { 1.01 } else { 0.99 };
            for (at, (policy, metric)) in [
                ("old", 10.0),
                ("good", 8.0 * wobble),
                ("same", 10.0 * wobble),
                ("old", 10.0),
            ]
            .into_iter()
            .enumerate()
            {
                state.push(policy, round, metric * drift, at as f64);
            }
        }
        let best = |state: &State| {
            let tried = judge(state);
            verdict(&tried).1.map(|best| best.candidate.name.clone())
        };
        assert_eq!(best(&state).unwrap(), "good");
        let why = "the rail broke".to_owned();
        state.given_up.insert("good".to_owned(), why);
        assert!(best(&state).is_none());
        state.windows.retain(|one| one.round < ROUNDS);
        state.given_up.clear();
        let too_few = judge(&state);
        assert!(too_few.iter().all(|one| one.ratio.is_none()));
    }

    #[test]
    fn a_load_that_drifts_makes_no_candidate_better() {
        let names = ["a", "b", "c", "d"];
        let mut state = samples::state(&names);
        // Between b and c somebody else took his time, and was given up.
        let ends = [
            (OLD, 0.0),
            ("a", 1.0),
            ("b", 2.0),
            ("c", 5.0),
            ("d", 6.0),
            (OLD, 7.0),
        ];
        for round in 1..=ROUNDS {
            for (policy, end) in ends {
                let at = f64::from(round) * 10.0 + end;
                state.push(policy, round, 10.0 * 0.98f64.powf(at), at);
            }
        }
        assert!(judge(&state).iter().all(|tried| {
            let ratio = tried.ratio.unwrap();
            (ratio.value - 1.0).abs() < 1e-9
        }));
    }

    #[test]
    fn a_budget_has_a_window_for_each_policy_in_each_round_in_which_the_rail_can_break() {
        let second = Duration::from_secs(1);
        assert_eq!(
            window(Duration::from_secs(120), 4, second).unwrap(),
            Duration::from_secs(3)
        );
        for (slo_for, least) in [(second, "1 min"), (Duration::from_secs(5), "3 min")] {
            let error = window(Duration::from_secs(40), 4, slo_for)
                .unwrap_err()
                .to_string();
            let expected = format!("--budget: expected at least {least} ");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
