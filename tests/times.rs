// SPDX-License-Identifier: GPL-2.0-only
//! How long the other tests took. `make test` runs this last, with all that they have printed in the file
//! `GPUAWARE_TIMES`. A slow test fails nothing, as the machine may have been busy: it is said loudly.

use std::collections::BTreeMap;

use crate::{length, tier};

/// A test above this needs a reason.
const LIMIT_S: f64 = 20.0;
const SHOWN: usize = 10;

/// Five to ten seconds on two quiet cores.
const IDLE: &str = "its guest has what other tests leave of the CPUs";
/// Tests of the gate that are above it, and why.
const REASONS: [(&str, &str); 22] = [
    (
        "host::lab::ends_the_machine_at_the_time_limit",
        "the limit is twenty seconds, so that a busy machine boots within it",
    ),
    (
        "host::lab::starts_again_where_the_emulation_made_the_guest_panic",
        "four guests boot, one after the other",
    ),
    (
        "host::simulated::ten_thousand_random_scenarios_hold",
        "a minute on two cores: what is seldom is found in many scenarios only",
    ),
    (
        "host::tune::a_better_candidate_is_recommended_on_top_of_the_policy_in_force_and_not_installed",
        "a tuning to its end: fifteen windows of two seconds",
    ),
    (
        "host::tune::a_candidate_that_breaks_the_rail_is_given_up_and_the_old_policy_stays",
        "the rail is broken for as long as it takes to give up",
    ),
    (
        "host::tune::the_old_policy_is_back_when_a_neighbour_comes_while_a_candidate_is_tried",
        "the neighbour comes in the middle of windows of two seconds",
    ),
    (
        "host::tune::the_old_policy_is_back_after_ctrl_c_and_after_a_kill_and_it_goes_on",
        "two tunings side by side, each begun twice: ten windows of two seconds",
    ),
    (
        "host::tune::the_old_policy_is_back_when_the_workload_ends_and_it_goes_on_beside_the_next_one",
        "a tuning that is begun twice: ten windows of two seconds",
    ),
    (
        "root::crash::a_disk_that_is_full_under_the_lab_is_the_reason_of_a_cell",
        "two guests boot, and measure",
    ),
    (
        "root::crash::llm_server_that_dies_is_the_reason_of_its_cell",
        "it takes turns with the one whose two guests boot",
    ),
    (
        "root::trust::one_user_with_many_libraries_leaves_room_for_others_and_has_what_is_passed_over_later",
        "two hundred libraries are probed, one after the other",
    ),
    (
        "vm::bench::a_run_is_refused_under_another_scheduler_and_a_cell_fails_under_one",
        "the scheduler is loaded twice, and four runs begin",
    ),
    (
        "vm::everything::everything_at_once_starves_nobody",
        "ten seconds of everything, beside which the test takes its time",
    ),
    (
        "vm::killed::kill_9_puts_packet_steering_and_isolated_cpus_back",
        IDLE,
    ),
    (
        "vm::large::numa::restarts_after_many_cpus_go_and_come_back",
        "the scheduler starts anew for CPUs that go and come",
    ),
    (
        "vm::large::pins::threads_work_where_the_strategies_of_windflow_say",
        "six strategies, each until it holds for two seconds",
    ),
    (
        "vm::metrics::sightings_that_do_not_count_are_counted_once",
        IDLE,
    ),
    (
        "vm::observed::wakers_of_launchers_and_clients_are_handoff_and_expire",
        IDLE,
    ),
    (
        "vm::package::installs_runs_upgrades_and_leaves_nothing_behind",
        "a dozen starts of the service under a systemd of its own",
    ),
    (
        "vm::reload::a_reload_forgets_nobody_and_pins_nobody_anew",
        IDLE,
    ),
    (
        "vm::sharing::cgroup_weights_are_hierarchical",
        "three windows, of which a stop of the host's disturbs one",
    ),
    ("vm::top::top_fits_every_terminal_and_gives_it_back", IDLE),
];

/// Seconds of each test, from what libtest prints with `--report-time`; the longest of one that ran more than once.
fn times(log: &str) -> BTreeMap<&str, f64> {
    let mut times = BTreeMap::new();
    let mut name = None;
    for line in log.lines() {
        // What a test prints past libtest stands between its name and its time.
        let begins = line.split_once("test ").map(|(_, rest)| rest);
        name = begins
            .and_then(|rest| Some(rest.split_once(" ... ")?.0))
            .or(name);
        let ends = line
            .strip_suffix("s>")
            .and_then(|rest| rest.rsplit_once('<'));
        let seconds = ends.and_then(|(_, seconds)| seconds.parse::<f64>().ok());
        if let Some(seconds) = seconds
            && let Some(name) = name.take()
        {
            let longest = times.entry(name).or_insert(seconds);
            *longest = longest.max(seconds);
        }
    }
    times
}

/// The slowest of `times`, and those above `limit_s` that have no reason.
fn report(times: &BTreeMap<&str, f64>, reasons: &[(&str, &str)], limit_s: f64) -> String {
    let mut slowest: Vec<_> = times
        .iter()
        .map(|(name, seconds)| (*name, *seconds))
        .collect();
    slowest.sort_by(|one, other| other.1.total_cmp(&one.1));
    let reason_of = |name: &str| reasons.iter().find(|reason| reason.0 == name);
    let shown = slowest.iter().take(SHOWN).map(|(name, seconds)| {
        let reason = reason_of(name).map_or(String::new(), |(_, why)| format!(": {why}"));
        format!("{seconds:7.1} s  {name}{reason}\n")
    });
    let unexplained = slowest
        .iter()
        .filter(|(name, seconds)| *seconds > limit_s && reason_of(name).is_none())
        .map(|(name, seconds)| {
            format!("SLOW {name}: {seconds:.1} s, above {limit_s} s without a reason in tests/times.rs\n")
        });
    shown.chain(unexplained).collect()
}

#[test]
fn times_are_told_from_what_tests_print() {
    let log = "running 3 tests\ntest vm::one ... lab: 7 <s>\nok <12.500s>\ntest two - should panic ... ok <0.010s>\n\
               test three ... ignored, by hand\ntest vm::one ... FAILED <30.000s>\ntest result: FAILED. 2 passed\n";
    let times = times(log);
    assert_eq!(
        times,
        BTreeMap::from([("vm::one", 30.0), ("two - should panic", 0.01)])
    );
    let slow = report(&times, &[], LIMIT_S);
    assert!(slow.contains("SLOW vm::one: 30.0 s"), "{slow}");
    let reason = report(&times, &[("vm::one", "it waits")], LIMIT_S);
    assert!(
        !reason.contains("SLOW") && reason.contains("vm::one: it waits"),
        "{reason}"
    );
}

#[test]
#[ignore = "the end of make test: looks at what the other tests took"]
fn slow_tests_have_a_reason() {
    let Some(path) = std::env::var_os("GPUAWARE_TIMES") else {
        return tier::skip("GPUAWARE_TIMES names no file: make test does");
    };
    let log = std::fs::read(path).expect("what the tests have printed");
    let log = String::from_utf8_lossy(&log);
    let times = times(&log);
    let sum: f64 = times.values().sum();
    println!(
        "\nthe slowest of {} tests, {sum:.0} s together:",
        times.len()
    );
    // The reasons are those of the gate.
    let limit_s = length::of(LIMIT_S, f64::INFINITY);
    print!("{}", report(&times, &REASONS, limit_s));
    for tier in ["host::", "root::", "vm::"] {
        let ran = times.keys().any(|name| name.starts_with(tier));
        assert!(ran, "no test of tier {tier} among {} tests", times.len());
    }
    for (name, why) in REASONS {
        assert!(
            times.contains_key(name),
            "{name} did not run, and is slow: {why}"
        );
    }
}
