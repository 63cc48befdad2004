// SPDX-License-Identifier: GPL-2.0-only
//! What needs a larger machine, which all tests of this folder share: eight CPUs, two hardware threads a core, two NUMA nodes
//! and a GPU on the first of them (`tier::large`).

mod llcs;
mod numa;
mod pins;
mod smt;

use super::irq_load::{DROWNING, leaves_and_returns};
use super::machine::Scheduler;
use crate::{length, tier};

#[test]
#[ignore = "runs in the lab: make test"]
fn a_cpu_under_an_interrupt_storm_leaves_the_preferred_set_and_returns() {
    tier::in_large_lab(|| {
        if !length::is_full() {
            return tier::skip(
                "as vm::irq_load on two CPUs, host::topology on many: make test-full",
            );
        }
        let scheduler = Scheduler::with_policy(DROWNING);
        leaves_and_returns();
        scheduler.stop();
    });
}
