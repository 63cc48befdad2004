// SPDX-License-Identifier: GPL-2.0-only
//! What the BPF side takes from a policy as plain numbers. Pure.

use std::time::Duration;

use crate::bpf::gpuaware::types;
use crate::bpf::intf;
use crate::policy::{Policy, Smt};

/// The window over which the guard counts, as in `bpf/guard.bpf.h`.
const GUARD_WINDOW: Duration = Duration::from_millis(100);
/// Budget beyond the share that was asked for: a launcher that uses exactly that share, such as one
/// that spins on one of two CPUs, is not to be cut at every jitter of the clock.
const GUARD_SLACK: f64 = 0.01;
/// Longest slice of background on a preferred CPU: a launcher may be about to come.
const LENT_SLICE: Duration = Duration::from_millis(1);

/// The tunables for `policy` on a machine with `nr_cpus` online CPUs. `auto_lend` says what who waits by `sched_yield()`
/// lends where the policy leaves it to the machine.
pub fn tunables(policy: &Policy, nr_cpus: usize, auto_lend: Duration) -> types::gpuaware_tunables {
    let ns = |duration: Duration| duration.as_nanos() as u64;
    let background = policy.background.slice;
    let turn_interval_ns = (ns(background) as f64 / policy.background.min_share) as u64;
    types::gpuaware_tunables {
        launch_slice_ns: ns(policy.launch.slice)
            .min(longest_launch_slice(turn_interval_ns, ns(background))),
        handoff_slice_ns: ns(policy.handoff.slice),
        background_slice_ns: ns(background),
        lent_slice_ns: ns(background.min(LENT_SLICE)),
        turn_interval_ns,
        hold_cap_ns: ns(policy.preferred.hold.cap),
        lend_yields_ns: ns(policy.preferred.lend_yields.unwrap_or(auto_lend)),
        guard_budget_ns: guard_budget_ns(policy.guard.max_share, nr_cpus),
        hold_us_per_s: hold_us_per_s(policy.preferred.hold.share, nr_cpus),
        lend: u32::from(policy.preferred.lend),
        whole_core: u32::from(policy.preferred.smt == Smt::WholeCore),
        turn_factor: (f64::from(intf::GPUAWARE_TURN_UNIT) / policy.background.min_share).round()
            as u32,
    }
}

/// Background has its turns when a launcher's slice ends: one in each interval, though slices end at ticks.
fn longest_launch_slice(turn_interval_ns: u64, background_slice_ns: u64) -> u64 {
    turn_interval_ns.saturating_sub(background_slice_ns) / 2
}

/// What holds may waste on all CPUs.
fn hold_us_per_s(share: f64, nr_cpus: usize) -> u32 {
    if share >= 1.0 {
        return intf::GPUAWARE_HOLD_UNBOUNDED;
    }
    (share * nr_cpus as f64 * 1e6) as u32
}

/// What launch and handoff may use of a window on all CPUs; 0: there is no limit.
fn guard_budget_ns(max_share: f64, nr_cpus: usize) -> u64 {
    if max_share >= 1.0 {
        return 0;
    }
    (GUARD_WINDOW.as_nanos() as f64 * nr_cpus as f64 * (max_share + GUARD_SLACK)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::AUTO_LEND;

    fn of(text: &str) -> types::gpuaware_tunables {
        tunables(&Policy::parse(text).unwrap(), 4, AUTO_LEND)
    }

    #[test]
    fn shares_become_intervals_and_budgets() {
        let tunables = of("[class.background]\nslice_us = 2000\nmin_share = \"10%\"\n\
                           [guard]\nmax_share = \"30%\"\n");
        assert_eq!(tunables.turn_interval_ns, 20_000_000);
        assert_eq!(tunables.turn_factor, 10 * intf::GPUAWARE_TURN_UNIT);
        let thirds = of("[class.background]\nmin_share = \"30%\"\n");
        assert_eq!(thirds.turn_factor, 3413);
        assert_eq!(of("").launch_slice_ns, 20_000_000);
        let half = of("[class.background]\nmin_share = \"50%\"\n");
        assert_eq!(half.launch_slice_ns, 2_000_000);
        assert_eq!(tunables.guard_budget_ns, 124_000_000);
        assert_eq!(of("[guard]\nmax_share = \"100%\"\n").guard_budget_ns, 0);
    }

    #[test]
    fn holds_have_a_budget_unless_the_policy_names_a_length() {
        assert_eq!(of("").hold_us_per_s, 240_000);
        let named = of("[preferred]\nhold_us = 500\n");
        assert_eq!(named.hold_us_per_s, intf::GPUAWARE_HOLD_UNBOUNDED);
        assert_eq!(named.hold_cap_ns, 500_000);
    }

    #[test]
    fn launchers_have_their_cores_unless_the_policy_shares_them() {
        assert_eq!(of("").whole_core, 1);
        assert_eq!(of("[preferred]\nsmt = \"shared\"\n").whole_core, 0);
    }

    #[test]
    fn who_waits_by_yields_lends_as_the_machine_has_it_unless_the_policy_says_how_long() {
        assert_eq!(of("").lend_yields_ns, 100_000);
        let auto = of("[preferred]\nlend_yields_us = \"auto\"\n");
        assert_eq!(auto.lend_yields_ns, 100_000);
        assert_eq!(of("[preferred]\nlend_yields_us = 0\n").lend_yields_ns, 0);
        let named = of("[preferred]\nlend_yields_us = 200\n");
        assert_eq!(named.lend_yields_ns, 200_000);
    }

    #[test]
    fn a_lent_slice_is_never_longer_than_backgrounds_own() {
        assert_eq!(of("").lent_slice_ns, 1_000_000);
        let short = of("[class.background]\nslice_us = 200\n");
        assert_eq!(short.lent_slice_ns, 200_000);
    }
}
