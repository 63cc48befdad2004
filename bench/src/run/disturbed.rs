// SPDX-License-Identifier: GPL-2.0-only
//! Whether the machine disturbed a cell, and whether the cell is measured again. Pure. It does not see
//! results: repeating cells for their results would bias them.

use std::collections::BTreeMap;

use crate::record::neighbour::Neighbour;
use crate::record::{Cell, Load, Surroundings};
use gpuaware_stats::median;

/// Other processes may keep this many CPUs busy, or this share of all where there are many.
const OUTSIDE_CPUS: f64 = 0.1;
const OUTSIDE_SHARE: f64 = 0.02;
/// The hypervisor may keep this share of all CPUs' time.
const STEAL_SHARE: f64 = 0.02;
/// The CPUs' limits of frequency may fall by this much: a rounding of the driver's.
const CLOCK_FALL: f64 = 0.01;
/// Work that a slow machine takes longer for.
#[derive(Debug)]
struct Work {
    name: &'static str,
    took: fn(&Load) -> Option<f64>,
    /// Above this multiple of what it usually takes the cell is disturbed.
    most: f64,
}

const WORK: [Work; 2] = [
    Work {
        name: "a piece of work",
        took: |load| load.piece_us,
        most: 1.1,
    },
    // What the run itself does counts too.
    Work {
        name: "loads from memory",
        took: |load| load.loads_us,
        most: 1.15,
    },
];
/// So many cells show what is usual.
const USUAL_CELLS: usize = 5;

/// A cell is measured at most this many times more.
const EXTRA_A_CELL: usize = 2;
/// Of all cells of a run, at most this share is measured again.
const EXTRA_A_RUN: f64 = 0.2;
/// Short runs may repeat this many all the same.
const EXTRA_AT_LEAST: usize = 4;

/// What disturbed a cell; empty: nothing.
pub fn reasons(surroundings: &Surroundings) -> Vec<String> {
    let machines = [
        ("the host", &surroundings.host),
        ("this machine", &surroundings.here),
    ];
    machines
        .into_iter()
        .filter_map(|(name, load)| Some((name, load.as_ref()?)))
        .flat_map(|(name, load)| reasons_on(name, load))
        .collect()
}

fn reasons_on(machine: &str, load: &Load) -> Vec<String> {
    let mut reasons = Vec::new();
    let all = load.cpus as f64;
    if load.outside_cpus > OUTSIDE_CPUS.max(OUTSIDE_SHARE * all) {
        reasons.push(format!(
            "other processes kept {:.2} of {all} CPUs of {machine} busy",
            load.outside_cpus
        ));
    }
    if load.steal_cpus > STEAL_SHARE * all {
        reasons.push(format!(
            "{:.1} % of the CPU time of {machine} was stolen by its hypervisor",
            load.steal_cpus / all * 100.0
        ));
    }
    if load.throttles > 0 {
        reasons.push(format!(
            "the CPUs of {machine} throttled {} times because of heat",
            load.throttles
        ));
    }
    if let Some(limit) = load.clock_limit.filter(|limit| *limit < 1.0 - CLOCK_FALL) {
        reasons.push(format!(
            "the frequency limit of {machine} fell to {:.0} %",
            limit * 100.0
        ));
    }
    reasons
}

/// How fast the host usually was beside each neighbour: idle CPUs may have a higher clock, and a core's other thread
/// to themselves.
#[derive(Debug, Default)]
pub struct Usual {
    /// In the order of `WORK`.
    took: [BTreeMap<Neighbour, f64>; WORK.len()],
}

impl Usual {
    /// In these cells; neighbours with too few are left out.
    pub fn of(cells: &[Cell]) -> Self {
        Self {
            took: WORK.map(|work| usual(cells, &work)),
        }
    }

    /// By what the host was slower than usual in a cell, and by how much.
    pub fn slowdown(&self, neighbour: Neighbour, surroundings: &Surroundings) -> Option<String> {
        let host = surroundings.host.as_ref()?;
        WORK.iter().zip(&self.took).find_map(|(work, usual)| {
            let ratio = (work.took)(host)? / usual.get(&neighbour)?;
            (ratio > work.most).then(|| {
                format!(
                    "{} took the host {:.0} % more CPU time than in other cells",
                    work.name,
                    (ratio - 1.0) * 100.0
                )
            })
        })
    }
}

/// What `work` took in most cells beside each neighbour that has enough of them.
fn usual(cells: &[Cell], work: &Work) -> BTreeMap<Neighbour, f64> {
    let mut seen: BTreeMap<Neighbour, Vec<f64>> = BTreeMap::new();
    for cell in cells {
        let measurement = cell.measurement.as_ref();
        let host = measurement.and_then(|m| m.surroundings.host.as_ref());
        if let Some(took) = host.and_then(work.took) {
            seen.entry(cell.key.neighbour).or_default().push(took);
        }
    }
    let enough = seen
        .into_iter()
        .filter(|(_, cells)| cells.len() >= USUAL_CELLS);
    enough
        .filter_map(|(neighbour, cells)| Some((neighbour, median(&cells)?)))
        .collect()
}

/// How many cells may still be measured again.
#[derive(Debug)]
pub struct Budget {
    left: usize,
}

impl Budget {
    /// For a run of `cells` of which `spent` have been repeated already.
    pub fn new(cells: usize, spent: usize) -> Self {
        let all = ((cells as f64 * EXTRA_A_RUN) as usize).max(EXTRA_AT_LEAST);
        Self {
            left: all.saturating_sub(spent),
        }
    }

    /// Whether a disturbed cell that was measured again `extra` times already is once more; takes it
    /// from the budget.
    pub fn again(&mut self, reasons: &[String], extra: usize) -> bool {
        let again = !reasons.is_empty() && extra < EXTRA_A_CELL && self.left > 0;
        self.left -= usize::from(again);
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::samples;

    fn quiet(cpus: u64) -> Load {
        Load {
            seconds: 2.5,
            cpus,
            outside_cpus: 0.0,
            steal_cpus: 0.0,
            throttles: 0,
            clock_limit: Some(1.0),
            piece_us: None,
            loads_us: None,
        }
    }

    fn on_host(load: Load) -> Vec<String> {
        reasons(&Surroundings {
            here: Some(quiet(2)),
            host: Some(load),
        })
    }

    #[test]
    fn a_quiet_machine_disturbs_nothing() {
        assert!(on_host(quiet(2)).is_empty());
        // What cannot be known is no reason to measure again.
        assert!(reasons(&Surroundings::default()).is_empty());
        let hum = Load {
            outside_cpus: 0.09,
            steal_cpus: 0.03,
            clock_limit: None,
            ..quiet(2)
        };
        assert!(on_host(hum).is_empty());
    }

    #[test]
    fn each_disturbance_is_named() {
        let load = Load {
            outside_cpus: 0.8,
            steal_cpus: 0.1,
            throttles: 3,
            clock_limit: Some(0.6),
            ..quiet(2)
        };
        assert_eq!(
            on_host(load),
            [
                "other processes kept 0.80 of 2 CPUs of the host busy",
                "5.0 % of the CPU time of the host was stolen by its hypervisor",
                "the CPUs of the host throttled 3 times because of heat",
                "the frequency limit of the host fell to 60 %",
            ]
        );
    }

    /// How long the pieces took in a cell.
    fn cell(neighbour: Neighbour, piece_us: Option<f64>, loads_us: Option<f64>) -> Cell {
        let mut cell = samples::cell(1, "eevdf", neighbour, 100.0);
        let measurement = cell.measurement.as_mut().unwrap();
        measurement.surroundings.host = Some(Load {
            piece_us,
            loads_us,
            ..quiet(2)
        });
        cell
    }

    #[test]
    fn a_cell_in_which_the_host_was_slow_is_known_by_the_others() {
        let slowdown = |cells: &[Cell], neighbour, piece_us, loads_us| {
            let cell = cell(neighbour, piece_us, loads_us);
            Usual::of(cells).slowdown(neighbour, &cell.measurement.unwrap().surroundings)
        };
        let heavy = [35.0, 36.0, 37.0, 38.0, 50.0]
            .map(|us| cell(Neighbour::Heavy, Some(us), Some(2.0 * us)));
        let heavily = |piece_us, loads_us| slowdown(&heavy, Neighbour::Heavy, piece_us, loads_us);
        assert_eq!(heavily(Some(40.5), Some(84.0)), None);
        assert_eq!(
            heavily(Some(44.4), None).as_deref(),
            Some("a piece of work took the host 20 % more CPU time than in other cells")
        );
        assert_eq!(
            heavily(Some(37.0), Some(111.0)).as_deref(),
            Some("loads from memory took the host 50 % more CPU time than in other cells")
        );
        // A neighbour with no cells, or with too few.
        let slow = Some(999.0);
        assert_eq!(heavily(None, None), None);
        assert_eq!(slowdown(&heavy, Neighbour::None, slow, slow), None);
        assert_eq!(slowdown(&heavy[1..], Neighbour::Heavy, slow, slow), None);
        let unknown = [0; 9].map(|_| cell(Neighbour::Heavy, None, None));
        assert_eq!(slowdown(&unknown, Neighbour::Heavy, slow, slow), None);
    }

    #[test]
    fn a_large_machine_may_hum_louder() {
        let load = |cpus| Load {
            outside_cpus: 1.0,
            ..quiet(cpus)
        };
        assert!(on_host(load(64)).is_empty());
        assert_eq!(on_host(load(8)).len(), 1);
    }

    #[test]
    fn a_cell_is_repeated_twice_and_a_run_not_for_ever() {
        let disturbed = ["noise".to_owned()];
        let mut budget = Budget::new(100, 0);
        assert!(!budget.again(&[], 0), "nothing disturbed it");
        assert!(budget.again(&disturbed, 0) && budget.again(&disturbed, 1));
        assert!(!budget.again(&disturbed, 2), "thrice is enough");
        assert_eq!((0..50).filter(|_| budget.again(&disturbed, 0)).count(), 18);
        // What an earlier part of the run has spent counts; a short run may repeat some.
        assert!(!Budget::new(100, 20).again(&disturbed, 0));
        assert!(Budget::new(5, 3).again(&disturbed, 0));
    }
}
