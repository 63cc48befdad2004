// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's masks of idle CPUs and idle cores, and how it picks from them (kernel/sched/ext_idle.c).

use crate::abi::{CpuMask, PICK_IDLE_CORE, WAKE_SYNC};
use crate::machine::Machine;

/// Who wakes, for [`IdleMasks::select`].
#[derive(Debug, Clone, Copy)]
pub struct Waker {
    pub cpu: usize,
    pub wake_flags: u64,
    /// Nothing waits in its CPU's local queue.
    pub has_empty_queue: bool,
}

/// Which CPUs are idle, as the kernel tells schedulers.
#[derive(Debug)]
pub struct IdleMasks {
    pub cpus: CpuMask,
    /// Threads of cores that are idle as a whole.
    pub cores: CpuMask,
    siblings: Vec<CpuMask>,
    llcs: Vec<CpuMask>,
    nodes: Vec<CpuMask>,
    has_smt: bool,
    /// Picks go round the machine, from where each CPU's last one was.
    last_picks: Vec<usize>,
}

impl IdleMasks {
    /// All CPUs of `machine`, idle.
    pub fn new(machine: &Machine) -> Self {
        let nr_nodes = machine.cpus.iter().map(|cpu| cpu.node + 1).max();
        let with = |is_in: &dyn Fn(usize) -> bool| {
            CpuMask::of((0..machine.nr_cpus()).filter(|&cpu| is_in(cpu)))
        };
        let llc_of = |cpu: usize| machine.cpus[cpu].llc;
        let node_of = |cpu: usize| machine.cpus[cpu].node;
        Self {
            cpus: with(&|_| true),
            cores: with(&|_| true),
            siblings: machine
                .cpus
                .iter()
                .map(|cpu| CpuMask::of(cpu.core.iter().copied()))
                .collect(),
            llcs: (0..machine.nr_cpus())
                .map(|cpu| with(&|other| llc_of(other) == llc_of(cpu)))
                .collect(),
            nodes: if nr_nodes > Some(1) {
                (0..machine.nr_cpus())
                    .map(|cpu| with(&|other| node_of(other) == node_of(cpu)))
                    .collect()
            } else {
                Vec::new()
            },
            has_smt: machine.has_smt(),
            last_picks: vec![0; machine.nr_cpus()],
        }
    }

    /// `cpu` becomes idle, or busy.
    pub fn set(&self, cpu: usize, idle: bool) {
        self.cpus.assign(cpu, idle);
        if !self.has_smt {
            return;
        }
        let core = &self.siblings[cpu];
        if !idle || core.is_subset_of(&self.cpus) {
            core.cpus()
                .for_each(|thread| self.cores.assign(thread, idle));
        }
    }

    /// Takes `cpu` out of the masks. Was it idle?
    pub fn test_and_clear(&self, cpu: usize) -> bool {
        if self.has_smt {
            let core = self.siblings[cpu].cpus();
            core.for_each(|thread| self.cores.assign(thread, false));
        }
        let was_idle = self.cpus.has(cpu);
        self.cpus.assign(cpu, false);
        was_idle
    }

    fn distribute(&mut self, of_cores: bool, allowed: &CpuMask, by: usize) -> Option<usize> {
        let mask = if of_cores { &self.cores } else { &self.cpus };
        let found = mask.find_wrapping(allowed, self.last_picks[by] + 1)?;
        self.last_picks[by] = found;
        Some(found)
    }

    /// Takes an idle CPU of `allowed`, of an idle core if there is one, for code that runs on CPU `by`.
    pub fn pick(&mut self, allowed: &CpuMask, flags: u64, by: usize) -> Option<usize> {
        loop {
            let core = self
                .has_smt
                .then(|| self.distribute(true, allowed, by))
                .flatten();
            let found = match core {
                None if self.has_smt && flags & PICK_IDLE_CORE != 0 => return None,
                None => self.distribute(false, allowed, by)?,
                Some(found) => found,
            };
            if self.test_and_clear(found) {
                return Some(found);
            }
        }
    }

    /// `scx_bpf_select_cpu_dfl()`: an idle CPU near `prev_cpu` or the waker.
    pub fn select(&mut self, prev_cpu: usize, allowed: &CpuMask, waker: Waker) -> Option<usize> {
        if waker.wake_flags & WAKE_SYNC != 0 {
            let shares_cache = self.llcs[waker.cpu].has(prev_cpu);
            if shares_cache && allowed.has(prev_cpu) && self.test_and_clear(prev_cpu) {
                return Some(prev_cpu);
            }
            let none_idle = self.cpus.bits.iter().all(|word| word.get() == 0);
            if waker.has_empty_queue && !none_idle && allowed.has(waker.cpu) {
                return Some(waker.cpu);
            }
        }
        let whole_cores: &[u64] = if self.has_smt {
            &[PICK_IDLE_CORE, 0]
        } else {
            &[0]
        };
        for &flags in whole_cores {
            let is_good = if flags == 0 { &self.cpus } else { &self.cores };
            if allowed.has(prev_cpu) && is_good.has(prev_cpu) && self.test_and_clear(prev_cpu) {
                return Some(prev_cpu);
            }
            for near in [true, false] {
                let Some(mask) = self.neighbours(prev_cpu, near) else {
                    continue;
                };
                let both = mask.and(allowed);
                if let Some(found) = self.pick(&both, flags, waker.cpu) {
                    return Some(found);
                }
            }
            if let Some(found) = self.pick(allowed, flags, waker.cpu) {
                return Some(found);
            }
        }
        None
    }

    /// The CPUs that share `cpu`'s cache, or its node.
    fn neighbours(&self, cpu: usize, near: bool) -> Option<&CpuMask> {
        if near {
            self.llcs.get(cpu)
        } else {
            self.nodes.get(cpu)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masks(shape: &str) -> (IdleMasks, CpuMask) {
        let machine = Machine::parse(shape).unwrap();
        let all = CpuMask::of(0..machine.nr_cpus());
        (IdleMasks::new(&machine), all)
    }

    #[test]
    fn picks_go_round_and_each_is_taken() {
        let (mut idle, all) = masks("4");
        let picks: Vec<_> = (0..5).map(|_| idle.pick(&all, 0, 0)).collect();
        assert_eq!(picks, [Some(1), Some(2), Some(3), Some(0), None]);
    }

    #[test]
    fn idle_cores_come_before_threads_of_busy_ones() {
        let (mut idle, all) = masks("4x1x1x2");
        idle.set(2, false);
        assert_eq!(idle.pick(&all, 0, 0), Some(1));
        assert_eq!(idle.pick(&all, PICK_IDLE_CORE, 0), None);
        assert_eq!(idle.pick(&all, 0, 0), Some(3));
        idle.set(1, true);
        assert!(!idle.cores.has(1), "its sibling was taken");
    }

    #[test]
    fn the_default_choice_is_the_previous_cpu_then_its_cache() {
        let (mut idle, all) = masks("8x2");
        let waker = Waker {
            cpu: 0,
            wake_flags: 0,
            has_empty_queue: false,
        };
        assert_eq!(idle.select(5, &all, waker), Some(5));
        let next = idle.select(5, &all, waker).unwrap();
        assert!((4..8).contains(&next), "{next}");
    }
}
