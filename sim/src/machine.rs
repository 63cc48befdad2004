// SPDX-License-Identifier: GPL-2.0-only
//! The machine that is modelled: CPUs, cores, last-level caches and nodes, generated here, or read in `sysfs` and
//! `profiled`. Of devices, the nodes of GPUs. No clock speeds.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use crate::abi::MAX_CPUS;

/// Last-level caches that the scheduler has room for: `GPUAWARE_MAX_LLCS`.
const MAX_LLCS: usize = 128;
/// GPUs that a generated machine may have: more than any has.
const MAX_GPUS: usize = 1024;

/// A logical CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineCpu {
    pub llc: usize,
    pub node: usize,
    /// All threads of its core, itself among them.
    pub core: Vec<usize>,
}

/// CPUs by number, from 0 without a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub cpus: Vec<MachineCpu>,
    pub nr_llcs: usize,
    /// The node of each GPU.
    pub gpus: Vec<usize>,
}

impl Machine {
    /// `cpus` in `llcs` caches of the same size on `nodes`, `threads` a core, and `gpus` spread over the nodes.
    /// The threads of a core have numbers that are half the machine apart, as on most x86 servers.
    pub fn generate([cpus, llcs, nodes, threads]: [usize; 4], gpus: usize) -> Result<Self> {
        ensure!(
            cpus > 0 && llcs > 0 && nodes > 0 && threads > 0,
            "a machine has CPUs, caches, nodes and threads: at least 1 each"
        );
        // Before there are any: a typing error must not fill memory.
        check_size(cpus, llcs)?;
        ensure!(gpus <= MAX_GPUS, "{gpus} GPUs: at most {MAX_GPUS}");
        let whole = llcs.checked_mul(threads);
        ensure!(
            whole.is_some_and(|whole| cpus.is_multiple_of(whole)) && llcs.is_multiple_of(nodes),
            "{cpus} CPUs do not divide into {llcs} caches of whole cores of {threads}, on {nodes} nodes"
        );
        let cores = cpus / threads;
        let per_llc = cores / llcs;
        let cpu = |cpu: usize| {
            let core = cpu % cores;
            let llc = core / per_llc;
            MachineCpu {
                llc,
                node: llc / (llcs / nodes),
                core: (0..threads).map(|thread| core + thread * cores).collect(),
            }
        };
        Self {
            cpus: (0..cpus).map(cpu).collect(),
            nr_llcs: llcs,
            gpus: (0..gpus).map(|gpu| gpu * nodes / gpus).collect(),
        }
        .checked()
    }

    /// `CPUS[xLLCS[xNODES[xTHREADS[xGPUS]]]]`, such as `128x8x2x2x8`.
    pub fn parse(shape: &str) -> Result<Self> {
        let expected = "expected CPUS[xLLCS[xNODES[xTHREADS[xGPUS]]]], such as 128x8x2x2x8";
        let numbers: Vec<usize> = shape
            .split('x')
            .map(|number| number.parse())
            .collect::<Result<_, _>>()
            .with_context(|| format!("{shape}: {expected}"))?;
        let at = |index: usize| numbers.get(index).copied().unwrap_or(1);
        ensure!(numbers.len() <= 5, "{shape}: {expected}");
        let gpus = numbers.get(4).copied().unwrap_or(0);
        Self::generate([at(0), at(1), at(2), at(3)], gpus).with_context(|| shape.to_owned())
    }

    pub(crate) fn checked(self) -> Result<Self> {
        check_size(self.cpus.len(), self.nr_llcs)?;
        Ok(self)
    }

    pub fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Does any core have more than one thread?
    pub fn nr_cores(&self) -> usize {
        let cpus = self.cpus.iter().enumerate();
        cpus.filter(|(at, cpu)| cpu.core.first() == Some(at))
            .count()
    }

    pub fn nr_nodes(&self) -> usize {
        let nodes: BTreeSet<usize> = self.cpus.iter().map(|cpu| cpu.node).collect();
        nodes.len()
    }

    pub fn has_smt(&self) -> bool {
        self.cpus.iter().any(|cpu| cpu.core.len() > 1)
    }

    /// Whole cores from the last one down, `most` CPUs at most but at least a core; of the nodes of GPUs in turn, if
    /// there are any. Not the choice that scx_gpuaware makes, which knows interrupts too: a scenario that cares names
    /// them.
    pub fn default_preferred(&self, most: usize) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        for core in self.cores_near_gpus() {
            if found.is_empty() || found.len() + core.len() <= most {
                found.extend(core);
            }
        }
        found
    }

    /// Cores from the last one down, of the nodes of the GPUs in turn, then the others.
    pub fn cores_near_gpus(&self) -> Vec<&[usize]> {
        let first_of = |&cpu: &usize| self.cpus[cpu].core.first() == Some(&cpu);
        let mut left: Vec<usize> = (0..self.nr_cpus()).filter(first_of).collect();
        let mut found = Vec::new();
        let mut in_turn = self.gpus.iter().cycle();
        let mut misses = 0;
        while misses < self.gpus.len() {
            let Some(&node) = in_turn.next() else {
                break;
            };
            match left.iter().rposition(|&cpu| self.cpus[cpu].node == node) {
                Some(at) => {
                    misses = 0;
                    found.push(left.remove(at));
                }
                None => misses += 1,
            }
        }
        found.extend(left.into_iter().rev());
        found.iter().map(|&cpu| &*self.cpus[cpu].core).collect()
    }
}

/// Whether the scheduler has room for such a machine.
fn check_size(cpus: usize, llcs: usize) -> Result<()> {
    ensure!(
        cpus <= MAX_CPUS && llcs <= MAX_LLCS,
        "{cpus} CPUs and {llcs} caches: at most {MAX_CPUS} and {MAX_LLCS}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_machine_has_the_shape_that_was_asked_for() {
        let machine = Machine::parse("16x4x2x2").unwrap();
        assert_eq!((machine.nr_cpus(), machine.nr_llcs), (16, 4));
        assert_eq!(machine.cpus[3].core, [3, 11]);
        assert_eq!(machine.cpus[11].core, [3, 11]);
        assert_eq!((machine.cpus[3].llc, machine.cpus[3].node), (1, 0));
        assert_eq!((machine.cpus[15].llc, machine.cpus[15].node), (3, 1));
        assert!(machine.has_smt());
    }

    #[test]
    fn a_shape_that_does_not_divide_is_refused() {
        for shape in [
            "",
            "0",
            "6x4",
            "8x2x4",
            "8x1x1x3",
            "4x1x1x1x1x1",
            "2048",
            "four",
            "8x2x3",
            "18446744073709551616",
        ] {
            assert!(Machine::parse(shape).is_err(), "{shape}");
        }
    }

    #[test]
    fn a_machine_that_is_too_large_is_refused_before_it_is_made() {
        let most = usize::MAX;
        for (shape, limit) in [
            (format!("{most}"), "at most 1024 and 128"),
            (format!("{most}x2x2x2x8"), "at most 1024 and 128"),
            (format!("8x{most}"), "at most 1024 and 128"),
            (format!("8x2x{most}"), "do not divide"),
            (format!("8x2x2x{most}"), "do not divide"),
            (format!("8x1x1x1x{most}"), "GPUs: at most 1024"),
        ] {
            let error = format!("{:#}", Machine::parse(&shape).unwrap_err());
            assert!(error.contains(limit), "{shape}: {error}");
        }
    }

    #[test]
    fn whole_cores_are_preferred_from_the_last_one_down() {
        let machine = Machine::parse("8x1x1x2").unwrap();
        assert_eq!(machine.default_preferred(4), [3, 7, 2, 6]);
        assert_eq!(machine.default_preferred(1), [3, 7]);
        let with_gpus = Machine::parse("8x2x2x1x2").unwrap();
        assert_eq!(with_gpus.gpus, [0, 1]);
        assert_eq!(with_gpus.default_preferred(3), [3, 7, 2]);
    }
}
