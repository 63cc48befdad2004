// SPDX-License-Identifier: GPL-2.0-only
//! What a run has for itself as long as it measures: its folder, the programs, and the machine that it changes.

use std::path::Path;

use anyhow::Result;

use super::preflight;
use crate::claim::{Claim, claim};
use crate::plan::{Plan, Where};

/// One run at a time in a folder: another would take the drafts of the first for those of a killed one.
const TAKEN: &str =
    "expected a folder that no run works in: wait for the one that does, or choose another with -o";
/// One run at a time of what was built in a folder: two measure each other, whichever folders they write to.
const BUSY: &str = "expected programs that no other run measures with: wait for that run's end";
/// One run at a time that changes the machine: two undo each other's cgroups, interrupts and switches, also where each
/// has a build of its own.
const CHANGED: &str =
    "expected a machine that no other run changes (--on host): wait for that run's end";
/// What is claimed stands for all that arms and neighbours change. Every machine has it.
const MACHINE: &str = "/sys/kernel";

pub fn folder(root: &Path) -> Result<Claim> {
    claim(root, TAKEN)
}

/// What a run needs to be the only one that measures. Simulated time is nobody's but one's own.
pub fn of_the_machine(plan: &Plan, target: &Path) -> Result<Vec<Claim>> {
    claims_of(plan, target, Path::new(MACHINE))
}

fn claims_of(plan: &Plan, target: &Path, machine: &Path) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    if plan.on != Where::Sim {
        claims.push(claim(target, BUSY)?);
    }
    if plan.on == Where::Host && preflight::changes_the_machine(plan) {
        claims.push(claim(machine, CHANGED)?);
    }
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples;

    #[test]
    fn two_builds_do_not_change_one_machine_at_once() {
        let folders = [(); 4].map(|()| tempfile::tempdir().unwrap());
        let [first, second, third, machine] = folders.each_ref().map(tempfile::TempDir::path);
        let of_the_machine = |plan: &Plan, target: &Path| claims_of(plan, target, machine);
        let mut plan = samples::plan();
        plan.on = Where::Host;
        plan.arms.clear();
        plan.matrix.neighbours.clear();
        let quiet = of_the_machine(&plan, first).unwrap();
        plan.matrix.bpf_stats = true;
        let changing = of_the_machine(&plan, second).unwrap();
        let refused = of_the_machine(&plan, third).unwrap_err().to_string();
        assert!(refused.contains(CHANGED), "{refused}");
        drop(changing);
        let refused = of_the_machine(&plan, first).unwrap_err().to_string();
        assert!(refused.contains(BUSY), "{refused}");
        drop(quiet);
        of_the_machine(&plan, first).unwrap();
    }
}
