// SPDX-License-Identifier: GPL-2.0-only
//! Runs of the same thing twice, and arms that are alike: what `compare` and the table *Where others beat* must not
//! find. Cells that are alike here are so by construction; docs/bench.md says how to try it with measured ones.

use super::compare::{GATE, Run, Verdict, compare};
use super::dominance::dominance;
use super::overlap::overlap;
use super::simulated::{NEIGHBOURS, plan_of, run};
use super::{FALSE_RATE, cells, study, versus};

/// Whether eevdf's second run is found better or worse than its first, all rows and figures together.
fn finds_something(seed: u64, gate: f64) -> bool {
    let plan = plan_of(5);
    let (a, b) = (run(&plan, 2 * seed), run(&plan, 2 * seed + 1));
    let of = |cells| Run { plan: &plan, cells };
    let arms = ["eevdf".to_owned()];
    let changes = compare(gate, &of(&a), &of(&b), &arms);
    let judged: Vec<_> = changes.iter().filter(|change| change.count > 0).collect();
    assert_eq!(judged.len(), 2 * NEIGHBOURS.len());
    judged.iter().any(|c| c.verdict != Verdict::NoDifference)
}

/// 5 % for the 20 runs together: at 5 % for each, one of them would be expected to find something.
#[test]
fn eevdf_against_eevdf_has_no_verdict_in_20_of_20_runs() {
    let found: Vec<u64> = (0..20)
        .filter(|&seed| finds_something(seed, 0.05 / 20.0))
        .collect();
    assert!(found.is_empty(), "{found:?}");
}

/// At the default gate `compare` errs in 1 % of its runs, at 5 % in as many: of 500, five and 25 are expected, and
/// more than 13 and 43 have a chance below 0.1 %.
#[test]
fn compare_errs_as_seldom_as_its_gate_says() {
    for (gate, most) in [(GATE, 13), (0.05, 43)] {
        let wrong = (100..600)
            .filter(|&seed| finds_something(seed, gate))
            .count();
        assert!(
            wrong <= most,
            "{wrong} of 500 runs found something at {gate}"
        );
    }
}

/// Whether the table *Where others beat* of a run of arms that are alike names anybody.
fn beats_itself(seed: u64, rate: f64) -> bool {
    let plan = plan_of(5);
    let run = run(&plan, seed);
    let measured = cells::measured(&plan, &run);
    let dominance = dominance(&versus::versus(&measured), rate);
    let compared: usize = dominance.iter().map(|row| row.compared).sum();
    // Share, p99, work and idle beside two neighbours, of two arms; share and p99 of eevdf in the quiet.
    assert_eq!(compared, 2 * 2 * 4 + 2);
    dominance
        .iter()
        .any(|row| !row.ahead.is_empty() || row.dominated_by.iter().any(|by| !by.is_empty()))
}

#[test]
fn nobody_beats_itself_in_20_of_20_runs() {
    let found: Vec<u64> = (0..20)
        .filter(|&seed| beats_itself(seed, FALSE_RATE / 20.0))
        .collect();
    assert!(found.is_empty(), "{found:?}");
}

/// Of 500 runs 25 are expected to name somebody, and more than 43 have a chance below 0.1 %.
#[test]
fn the_table_of_who_is_better_errs_as_seldom_as_it_says() {
    let wrong = (1000..1500)
        .filter(|&seed| beats_itself(seed, FALSE_RATE))
        .count();
    assert!(wrong <= 43, "{wrong} of 500 runs named somebody");
}

#[test]
fn of_two_runs_of_the_same_95_percent_of_the_intervals_overlap() {
    let (plan, arms) = (plan_of(5), ["eevdf", "gpuaware"].map(str::to_owned));
    let mut sum = (0, 0);
    for seed in 0..20 {
        let [a, b] = [5000 + 2 * seed, 5001 + 2 * seed].map(|seed| study(&plan, &run(&plan, seed)));
        let found = overlap(&a, &b, &arms);
        // Six rows; tokens/s, share, p50, p99, idle; the baseline's share beside nobody is no figure; work of gpuaware
        // beside two neighbours.
        assert_eq!(found.all, 6 * 5 - 1 + 2);
        sum = (sum.0 + found.overlapping, sum.1 + found.all);
    }
    assert!(sum.0 * 100 >= sum.1 * 95, "{sum:?}");
}
