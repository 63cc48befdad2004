// SPDX-License-Identifier: GPL-2.0-only
//! What the BPF side has counted since the load, put together over CPUs. What it means is `stats`'s
//! business.

use std::mem::size_of;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, ProgramInput};

use crate::bpf::gpuaware::GpuawareSkel;
use crate::bpf::gpuaware::types::{gpuaware_class_stats, gpuaware_stats, gpuaware_waiting};
use crate::bpf::intf;
use crate::policy::cpuset::CpuSet;
use crate::topology::irq_load::IrqTime;

/// What runs on a CPU, as `enum occupant` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// Nothing, or a task of another scheduling class.
    Other,
    /// A kernel thread of this CPU.
    Kthread,
    /// Class BACKGROUND.
    Background,
    /// Class HANDOFF.
    Handoff,
    /// Class LAUNCH.
    Launch,
}

impl Runs {
    fn from_wire(occupant: u32) -> Self {
        // The waker of a launcher has no class of its own.
        let known = [
            Self::Kthread,
            Self::Background,
            Self::Handoff,
            Self::Launch,
            Self::Background,
        ];
        let index = (occupant as usize).checked_sub(1);
        index
            .and_then(|index| known.get(index))
            .copied()
            .unwrap_or(Self::Other)
    }

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Kthread => "kthread",
            Self::Background => "background",
            Self::Handoff => "handoff",
            Self::Launch => "launch",
        }
    }
}

/// Plain integers, as BPF wrote them; short input gives zeros.
fn decode<T: Copy + Default>(bytes: &[u8]) -> T {
    if bytes.len() < size_of::<T>() {
        return T::default();
    }
    // SAFETY: only called with structs of plain integers, valid for any bytes; there are enough of
    // them, and the read tolerates any alignment.
    unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }
}

/// The counters, summed; by `intf::gpuaware_stat`.
pub struct Counts(gpuaware_stats);

impl Counts {
    /// Reads them all at once from map `stats`.
    pub fn read(stats: &impl MapCore) -> Result<Self> {
        let values = stats
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .context("reading the scheduler's counters")?
            .unwrap_or_default();
        let mut sum = gpuaware_stats::default();
        for bytes in values {
            let cpu = decode::<gpuaware_stats>(&bytes);
            for (sum, count) in sum.counts.iter_mut().zip(cpu.counts) {
                *sum += count;
            }
        }
        Ok(Self(sum))
    }

    /// One of them.
    pub fn of(&self, stat: intf::gpuaware_stat) -> u64 {
        self.0.counts.get(stat as usize).copied().unwrap_or(0)
    }
}

/// The counters of a class in map `class_stats`: sums, and the longest wait.
pub fn of_class(class_stats: &impl MapCore, class: u32) -> Result<gpuaware_class_stats> {
    let values = class_stats
        .lookup_percpu(&class.to_ne_bytes(), MapFlags::ANY)
        .context("reading the counters of a class")?
        .unwrap_or_default();
    let cpus = values
        .iter()
        .map(|bytes| decode::<gpuaware_class_stats>(bytes));
    Ok(cpus.fold(gpuaware_class_stats::default(), |sum, cpu| added(sum, &cpu)))
}

fn added(mut sum: gpuaware_class_stats, cpu: &gpuaware_class_stats) -> gpuaware_class_stats {
    sum.run_preferred_ns += cpu.run_preferred_ns;
    sum.run_other_ns += cpu.run_other_ns;
    sum.preempts += cpu.preempts;
    sum.preempted += cpu.preempted;
    if cpu.worst_wait_ns > sum.worst_wait_ns {
        sum.worst_wait_ns = cpu.worst_wait_ns;
        sum.worst_waiter = cpu.worst_waiter;
        sum.worst_waiter_tid = cpu.worst_waiter_tid;
    }
    sum.wakeup_wait_ns += cpu.wakeup_wait_ns;
    for (sum, waits) in sum.wakeup_waits.iter_mut().zip(cpu.wakeup_waits) {
        *sum += waits;
    }
    sum
}

/// Tasks in dispatch queues now.
pub fn waiting(skel: &GpuawareSkel<'_>) -> Result<gpuaware_waiting> {
    skel.progs
        .count_waiting
        .test_run(ProgramInput::default())
        .context("counting the queues")?;
    let bss = skel.maps.bss_data.as_deref();
    Ok(bss.context("the BPF object has no data")?.waiting)
}

/// What runs on each of `cpus` now, by map `cpu_ctxs`.
///
/// # Errors
/// The kernel does not show the map.
pub fn occupants(cpu_ctxs: &impl MapCore, cpus: &CpuSet) -> Result<Vec<(u32, Runs)>> {
    // struct cpu_ctx begins with it.
    by_cpu(cpu_ctxs, cpus, Runs::from_wire).context("reading what runs")
}

/// Interrupt time of each of `cpus` since the load, by map `irq_ctxs`.
///
/// # Errors
/// The kernel does not show the map.
pub fn irq_times(irq_ctxs: &impl MapCore, cpus: &CpuSet) -> Result<Vec<(u32, IrqTime)>> {
    // The map's value begins with struct gpuaware_irq_time: hard, then soft.
    let time = |[hard_ns, soft_ns]: [u64; 2]| IrqTime { hard_ns, soft_ns };
    by_cpu(irq_ctxs, cpus, time).context("reading interrupt times")
}

/// What array `map`, whose index is a CPU, has for each of `cpus`: one question for all of them.
fn by_cpu<B: Copy + Default, T>(
    map: &impl MapCore,
    cpus: &CpuSet,
    value: impl Fn(B) -> T,
) -> Result<Vec<(u32, T)>> {
    let end = cpus.iter().last().map_or(0, |last| last + 1);
    let entries = map.lookup_batch(end.max(1), MapFlags::ANY, MapFlags::ANY)?;
    let entries = entries
        .take(end as usize)
        .map(|(key, bytes)| (decode::<u32>(&key), bytes));
    Ok(entries
        .filter(|(cpu, _)| cpus.contains(*cpu))
        .map(|(cpu, bytes)| (cpu, value(decode(&bytes))))
        .collect())
}

#[cfg(test)]
mod tests {
    use libbpf_rs::{MapHandle, MapType, libbpf_sys};

    use super::*;
    use crate::bpf::gpuaware::types::{cpu_ctx, irq_ctx};

    #[test]
    fn sums_counters_and_keeps_the_longest_wait() {
        let mut cpu = gpuaware_class_stats {
            run_other_ns: 5,
            worst_wait_ns: 7,
            worst_waiter_tid: 42,
            ..gpuaware_class_stats::default()
        };
        cpu.wakeup_waits[3] = 2;
        let twice = added(added(gpuaware_class_stats::default(), &cpu), &cpu);
        assert_eq!((twice.run_other_ns, twice.worst_wait_ns), (10, 7));
        assert_eq!(twice.worst_waiter_tid, 42);
        assert_eq!(twice.wakeup_waits[3], 4);
    }

    #[test]
    fn a_short_value_is_nothing() {
        assert_eq!(decode::<[u64; 2]>(&[1; 9]), [0, 0]);
        assert_eq!(decode::<u64>(&7u64.to_ne_bytes()), 7);
    }

    #[test]
    fn an_unknown_occupant_is_no_class_of_ours() {
        assert_eq!(Runs::from_wire(4), Runs::Launch);
        assert_eq!(Runs::from_wire(0), Runs::Other);
        assert_eq!(Runs::from_wire(99), Runs::Other);
    }

    /// A map of ours without the scheduler, which this kernel may not have.
    fn map<V>(kind: MapType, max_entries: u32) -> MapHandle {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let name = None::<&str>;
        MapHandle::create(kind, name, 4, size_of::<V>() as u32, max_entries, &options).unwrap()
    }

    /// What a scrape asks the maps of the scheduler; the one question that is missing is a program
    /// of its own, which counts the queues.
    #[test]
    #[ignore = "measures, as root: docs/decisions/scrape-cost.md"]
    fn time_of_a_scrape_in_maps() {
        const SCRAPES: u32 = 1000;
        const MAX_CPUS: u32 = intf::gpuaware_limits_GPUAWARE_MAX_CPUS;
        let stats = map::<gpuaware_stats>(MapType::PercpuArray, 1);
        let classes = [1, 2, 3];
        let class_stats = map::<gpuaware_class_stats>(MapType::PercpuArray, 4);
        let cpu_ctxs = map::<cpu_ctx>(MapType::Array, MAX_CPUS);
        let irq_ctxs = map::<irq_ctx>(MapType::Array, MAX_CPUS);
        for nr_cpus in [2, 128, 512] {
            let cpus = CpuSet::new(0..nr_cpus);
            let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
            let now = || std::time::Duration::from(nix::time::clock_gettime(clock).unwrap());
            let start = now();
            for _ in 0..SCRAPES {
                Counts::read(&stats).unwrap();
                for class in classes {
                    of_class(&class_stats, class).unwrap();
                }
                assert_eq!(occupants(&cpu_ctxs, &cpus).unwrap().len(), cpus.len());
                assert_eq!(irq_times(&irq_ctxs, &cpus).unwrap().len(), cpus.len());
            }
            let possible = libbpf_rs::num_possible_cpus().unwrap();
            let each = (now() - start) / SCRAPES;
            eprintln!("{nr_cpus} CPUs, counters of {possible}: {each:?}");
        }
    }
}
