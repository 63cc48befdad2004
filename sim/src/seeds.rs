// SPDX-License-Identifier: GPL-2.0-only
//! Random scenarios: a few of each kind, and those that have failed. `tests/host/simulated.rs` runs thousands.

use crate::scenario::Scenario;
use crate::tests::held;

#[test]
fn random_scenarios_hold() {
    // The last ones had a task starve, a CPU sleep beside work, and a throttled task starve beside a spinning launcher.
    for seed in (0..40).chain([50, 3335, 100_390]) {
        held(&Scenario::random(seed));
    }
}

#[test]
fn random_scenarios_with_real_time_tasks_hold() {
    // In the last one a task waited beside an idle CPU, once.
    for seed in (0..25).chain([2698]) {
        held(&Scenario::random(seed).with_real_time());
    }
}

#[test]
fn random_scenarios_with_changes_hold() {
    // The last ones failed once, each for a reason of its own: docs/simulator.md.
    for seed in (0..60).chain([186, 477, 768, 849, 2191, 2534, 4010]) {
        held(&Scenario::random(seed).with_changes());
    }
    held(&Scenario::random(101_448).with_real_time().with_changes());
}
