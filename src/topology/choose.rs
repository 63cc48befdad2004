// SPDX-License-Identifier: GPL-2.0-only
//! Which CPUs launchers and handoff threads prefer, and why. Pure: reads no file and no clock.
//!
//! CPUs are taken in units: whole cores, or single CPUs if cores may be shared. One unit serves one
//! thread that is runnable. The *home* set holds the best units for the demand; it forgets nothing
//! without need and is what the caller hands back next time. While a unit of it is IRQ-heavy,
//! another one stands in for it, so a storm that is over leaves no trace.

use std::collections::BTreeMap;

use crate::policy::cpuset::CpuSet;
use crate::policy::{Max, Policy, Smt};

use super::Topology;
use super::demand::Demand;
use super::explain::{self, Picked};
use super::irq_load::IrqVerdicts;
use super::pci::Devices;
use super::score::Grader;
use super::units::{Company, MOST_FOR_NODE_SPREAD, Unit, units};

pub use super::explain::{Choice, Row};

/// A unit of the home set is exchanged for one that is better by more than this: half the price of
/// CPU 0, more than the small flaws, and no less than what spreading over nodes can cost.
const CLEARLY_BETTER: f64 = MOST_FOR_NODE_SPREAD;

/// What the policy says about preferred CPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct PreferredRules {
    /// Named by the operator: used as they are.
    pub cpus: Option<CpuSet>,
    /// Upper bound, a part counts of [`Topology::allowed`]; one core is always chosen.
    pub max: Max,
    /// Whole cores or single threads.
    pub smt: Smt,
    /// Stay away from IRQ-heavy CPUs.
    pub irq_avoid: bool,
    /// When a CPU is heavy, percent of its time; for [`super::irq_load::IrqRules`].
    pub irq_heavy_percent: f64,
}

impl From<&Policy> for PreferredRules {
    fn from(policy: &Policy) -> Self {
        Self {
            cpus: policy.preferred.cpus.clone(),
            max: policy.preferred.max,
            smt: policy.preferred.smt,
            irq_avoid: policy.irq.avoid,
            irq_heavy_percent: policy.irq.heavy_percent,
        }
    }
}

impl Default for PreferredRules {
    fn default() -> Self {
        Self::from(&Policy::default())
    }
}

/// Chooses the preferred CPUs among [`Topology::allowed`].
///
/// `demand` is the recent peak, see [`super::demand::RecentDemand`]; `previous` is the home set of the
/// last choice, of which CPUs that are gone do not matter.
pub fn choose(
    topology: &Topology,
    devices: &Devices,
    irq: &IrqVerdicts,
    demand: Demand,
    rules: &PreferredRules,
    previous: Option<&CpuSet>,
) -> Choice {
    let whole_cores = rules.smt == Smt::WholeCore;
    let heed = rules.irq_avoid.then_some(irq);
    let grader = Grader::new(topology, devices, heed, whole_cores);
    if let Some(named) = &rules.cpus {
        return explain::named(topology, &grader, named);
    }
    let chooser = Chooser {
        units: units(topology, &grader, whole_cores),
        budget: rules.max.cpus(topology.allowed.len()),
        wanted: demand.threads().max(1) as usize,
    };
    let (home, limited) = chooser.home(previous);
    let stand_ins = chooser.stand_ins(&home);
    Picked {
        topology,
        grader: &grader,
        units: &chooser.units,
        wanted: chooser.wanted,
        home,
        stand_ins,
        limited,
    }
    .choice()
}

/// Chooses among units; they go by their index.
struct Chooser {
    units: Vec<Unit>,
    /// CPUs that may be taken, beyond the first unit.
    budget: usize,
    /// Units that the demand asks for.
    wanted: usize,
}

impl Chooser {
    /// The home set, and whether it is smaller than the demand.
    fn home(&self, previous: Option<&CpuSet>) -> (Vec<usize>, bool) {
        let mut home = self.kept(previous);
        while home.len() > 1 && (home.len() > self.wanted || self.cpus_of(&home) > self.budget) {
            self.drop_worst(&mut home);
        }
        while home.len() < self.wanted {
            let room = self.budget.saturating_sub(self.cpus_of(&home));
            let fits = |unit: &Unit| home.is_empty() || unit.cpus.len() <= room;
            match self.best(&home, &home, Unit::worth_now, fits) {
                Some((best, _)) => home.push(best),
                None => break,
            }
        }
        self.exchange(&mut home);
        let limited = home.len() < self.wanted;
        (home, limited)
    }

    /// The units of the previous set that are still whole.
    fn kept(&self, previous: Option<&CpuSet>) -> Vec<usize> {
        let Some(previous) = previous else {
            return Vec::new();
        };
        let whole = |unit: &Unit| unit.cpus.iter().all(|cpu| previous.contains(cpu));
        (0..self.units.len())
            .filter(|&index| whole(&self.units[index]))
            .collect()
    }

    /// Among equals the last goes, which is nearest to CPU 0.
    fn drop_worst(&self, home: &mut Vec<usize>) {
        let company = Company::of(&self.units, home);
        let worth = |position: usize| {
            let unit = &self.units[home[position]];
            unit.worth_now() - company.price_of_member(unit)
        };
        let worst = (0..home.len())
            .map(|position| (position, worth(position)))
            .reduce(|worst, next| if next.1 <= worst.1 { next } else { worst });
        if let Some((position, _)) = worst {
            home.remove(position);
        }
    }

    /// Exchanges units for others that are clearly better for good. Every exchange gains, so there
    /// is an end; the bound is for rounding.
    fn exchange(&self, home: &mut [usize]) {
        for _ in 0..self.units.len() {
            let Some((position, better)) = self.best_exchange(home) else {
                return;
            };
            home[position] = better;
        }
    }

    fn best_exchange(&self, home: &[usize]) -> Option<(usize, usize)> {
        (0..home.len())
            .filter_map(|position| {
                let rest = without(home, position);
                let unit = &self.units[home[position]];
                let room = self.room_beside(&rest, unit);
                let fits = |other: &Unit| !other.is_heavy() && other.cpus.len() <= room;
                let (best, worth) = self.best(home, &rest, Unit::worth_for_good, fits)?;
                let company = Company::of(&self.units, &rest);
                let gain = worth - (unit.worth_for_good() - company.price(unit));
                (gain > CLEARLY_BETTER).then_some((position, best, gain))
            })
            .max_by(|a, b| a.2.total_cmp(&b.2))
            .map(|(position, best, _)| (position, best))
    }

    /// Who stands in for whom: for each IRQ-heavy unit of the home set, the best unit that is not
    /// heavy. A unit that is better in spite of its interrupts keeps its place.
    fn stand_ins(&self, home: &[usize]) -> BTreeMap<usize, usize> {
        let mut stand_ins = BTreeMap::new();
        for &heavy in home.iter().filter(|&&unit| self.units[unit].is_heavy()) {
            let unit = &self.units[heavy];
            let taken: Vec<usize> = home.iter().chain(stand_ins.values()).copied().collect();
            let replaced = |it: &usize| *it == heavy || stand_ins.contains_key(it);
            let used: Vec<usize> = taken.iter().copied().filter(|it| !replaced(it)).collect();
            let room = self.room_beside(&used, unit);
            let fits = |other: &Unit| {
                !other.is_heavy() && other.score > unit.score && other.cpus.len() <= room
            };
            if let Some((best, _)) = self.best(&taken, &used, Unit::worth_now, fits) {
                stand_ins.insert(heavy, best);
            }
        }
        stand_ins
    }

    /// The best unit that is not in `taken` and fits, and its worth in the company of `used`. Among
    /// equals the first, which is farthest from CPU 0.
    fn best(
        &self,
        taken: &[usize],
        used: &[usize],
        worth: fn(&Unit) -> f64,
        fits: impl Fn(&Unit) -> bool,
    ) -> Option<(usize, f64)> {
        let company = Company::of(&self.units, used);
        (0..self.units.len())
            .filter(|index| !taken.contains(index) && fits(&self.units[*index]))
            .map(|index| {
                let unit = &self.units[index];
                (index, worth(unit) - company.price(unit))
            })
            .reduce(|best, next| if next.1 > best.1 { next } else { best })
    }

    /// CPUs that a unit in the place of `unit` may have.
    fn room_beside(&self, rest: &[usize], unit: &Unit) -> usize {
        let left = self.budget.saturating_sub(self.cpus_of(rest));
        // The first unit is beyond the budget, whatever its size.
        let any = if rest.is_empty() { usize::MAX } else { 0 };
        left.max(unit.cpus.len()).max(any)
    }

    fn cpus_of(&self, chosen: &[usize]) -> usize {
        chosen.iter().map(|&unit| self.units[unit].cpus.len()).sum()
    }
}

fn without(list: &[usize], position: usize) -> Vec<usize> {
    let mut rest = list.to_vec();
    rest.remove(position);
    rest
}
