// SPDX-License-Identifier: GPL-2.0-only
//! How fast each CPU is beside the others, and which are efficiency cores.

use std::path::Path;

use serde::Serialize;

use crate::policy::cpuset::CpuSet;

use super::sysfs;

/// Capacity of the fastest CPU, as Linux scales it.
pub const FULL: u32 = 1024;

/// Cores of one kind differ too: those that boost highest are up to a tenth faster than the rest
/// of their kind. Efficiency cores are a quarter slower or more.
const EFFICIENCY_BELOW: f64 = 0.85;
/// Maximum frequencies of cores of one kind differ more: those of a favoured core and the others, or of two
/// chiplets, by up to a sixth.
const EFFICIENCY_BELOW_HERTZ: f64 = 0.80;
/// Slower than the last of the fastest fifth: one core that boosts far above all others makes these
/// no efficiency cores.
const FASTEST_ONE_IN: usize = 5;

/// Which kind of core a CPU belongs to. On a machine with one kind every core is a performance core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// P-core, big core.
    Performance,
    /// E-core, little core.
    Efficiency,
}

/// Capacity in 1/1024 of the fastest, and kind, of each of `cpus` in order.
///
/// The kernel's own `cpu_capacity` counts if it tells CPUs apart; x86 with SMT leaves it at 1024
/// for all, and then the frequencies count. Where the kernel names the efficiency cores, its word counts.
pub fn read(root: &Path, cpus: &CpuSet) -> Vec<(u32, Kind)> {
    let dir = root.join("devices/system/cpu");
    let (capacities, below) = [
        ("cpu_capacity", EFFICIENCY_BELOW),
        ("cpufreq/cpuinfo_max_freq", EFFICIENCY_BELOW_HERTZ),
        ("cpufreq/base_frequency", EFFICIENCY_BELOW_HERTZ),
    ]
    .iter()
    .filter_map(|&(file, below)| Some((relative(&dir, cpus, file)?, below)))
    .find(|(capacities, _)| capacities.iter().any(|&capacity| capacity != FULL))
    .unwrap_or_else(|| (vec![FULL; cpus.len()], EFFICIENCY_BELOW));
    let slow: Vec<bool> = match named_efficiency_cores(root) {
        Some(named) => cpus.iter().map(|cpu| named.contains(cpu)).collect(),
        None => far_below_the_fastest(&capacities, below),
    };
    let kinds = slow.into_iter().map(|slow| match slow {
        true => Kind::Efficiency,
        false => Kind::Performance,
    });
    capacities.into_iter().zip(kinds).collect()
}

fn far_below_the_fastest(capacities: &[u32], below: f64) -> Vec<bool> {
    let mut sorted = capacities.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let fast = sorted.get(capacities.len() / FASTEST_ONE_IN);
    let limit = below * f64::from(fast.copied().unwrap_or(FULL));
    let slow = capacities.iter().map(|&own| f64::from(own) < limit);
    slow.collect()
}

/// The numbers that `file` holds for each CPU, scaled so that the largest is [`FULL`]; `None` if a
/// CPU has none.
fn relative(dir: &Path, cpus: &CpuSet, file: &str) -> Option<Vec<u32>> {
    let values: Vec<u64> = cpus
        .iter()
        .map(|cpu| sysfs::number(&dir.join(format!("cpu{cpu}/{file}"))))
        .collect::<Option<_>>()?;
    let largest = values.iter().copied().max().filter(|&value| value > 0)?;
    let scale = |value: u64| (value * u64::from(FULL) / largest) as u32;
    Some(values.into_iter().map(scale).collect())
}

/// The efficiency cores by the name of their performance counters (`cpu_atom`) or of their type,
/// as hybrid Intel parts have them. An empty list is as good as none.
fn named_efficiency_cores(root: &Path) -> Option<CpuSet> {
    let types = root.join("devices/system/cpu/types");
    let by_type = sysfs::entries(&types)
        .into_iter()
        .filter(|name| name.starts_with("intel_atom"))
        .map(|name| types.join(name).join("cpulist"));
    std::iter::once(root.join("devices/cpu_atom/cpus"))
        .chain(by_type)
        .filter_map(|file| sysfs::list(&file).ok())
        .find(|cpus| !cpus.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow_below(below: f64, capacities: &[(usize, u32)]) -> usize {
        let all: Vec<u32> = capacities
            .iter()
            .flat_map(|&(count, capacity)| std::iter::repeat_n(capacity, count))
            .collect();
        let slow = far_below_the_fastest(&all, below);
        slow.into_iter().filter(|&slow| slow).count()
    }

    fn slow(capacities: &[(usize, u32)]) -> usize {
        slow_below(EFFICIENCY_BELOW, capacities)
    }

    #[test]
    fn one_core_that_boosts_far_above_the_others_makes_them_no_efficiency_cores() {
        // 6.0 GHz and 5.0 GHz: one core of eight, and one with two threads of sixteen.
        assert_eq!(slow(&[(1, 1024), (7, 853)]), 0);
        assert_eq!(slow(&[(2, 1024), (30, 853)]), 0);
        // By frequencies: one of four, with one thread or two; one of two chiplets.
        let by_hertz = |capacities: &[(usize, u32)]| slow_below(EFFICIENCY_BELOW_HERTZ, capacities);
        assert_eq!(by_hertz(&[(1, 1024), (3, 853)]), 0);
        assert_eq!(by_hertz(&[(2, 1024), (6, 853)]), 0);
        assert_eq!(by_hertz(&[(16, 1024), (16, 840)]), 0);
        assert_eq!(by_hertz(&[(8, 1024), (8, 660)]), 8, "dense cores");
    }

    #[test]
    fn few_performance_cores_beside_many_others_are_told_apart() {
        assert_eq!(slow(&[(2, 1024), (6, 400)]), 6);
        // Two with two threads each, and eight without; one, three and four of three kinds.
        assert_eq!(slow(&[(4, 1024), (8, 700)]), 8);
        assert_eq!(slow(&[(1, 1024), (3, 900), (4, 300)]), 4);
        assert_eq!(slow(&[(8, 1024)]), 0);
        assert_eq!(slow(&[]), 0);
    }
}
