// SPDX-License-Identifier: GPL-2.0-only
//! CPU masks as `default_smp_affinity` has them: hexadecimal words of 32 CPUs, highest first. Pure.

use crate::policy::cpuset::{CpuSet, MAX_CPU};

const WORD_BITS: u32 = 32;

/// The set that a mask such as `ff,00000003` stands for. `None`: it is not a mask.
pub fn parse(mask: &str) -> Option<CpuSet> {
    let mut cpus = Vec::new();
    for (index, word) in mask.trim().rsplit(',').enumerate() {
        let bits = u32::from_str_radix(word, 16).ok()?;
        let first = u32::try_from(index).ok()? * WORD_BITS;
        cpus.extend(
            (0..WORD_BITS)
                .filter(|bit| bits >> bit & 1 == 1)
                .map(|bit| first + bit),
        );
    }
    Some(CpuSet::new(cpus)).filter(|cpus| cpus.iter().all(|cpu| cpu <= MAX_CPU))
}

/// The mask of `cpus`.
pub fn format(cpus: &CpuSet) -> String {
    let words = cpus.iter().last().unwrap_or(0) / WORD_BITS + 1;
    let word = |index: u32| {
        let bits = (0..WORD_BITS).filter(|bit| cpus.contains(index * WORD_BITS + bit));
        bits.fold(0_u32, |word, bit| word | 1 << bit)
    };
    let words = (0..words).rev().map(|index| format!("{:08x}", word(index)));
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_prints() {
        assert_eq!(parse("3\n"), Some(CpuSet::new([0, 1])));
        assert_eq!(parse("ff,00000003\n"), "0-1,32-39".parse().ok());
        assert_eq!(parse("3,00000000,00000000"), Some(CpuSet::new([64, 65])));
        assert_eq!(parse("0"), Some(CpuSet::default()));
        assert_eq!(parse(""), None);
        assert_eq!(parse("0-3"), None);
    }

    #[test]
    fn writes_what_the_kernel_reads() {
        for (list, mask) in [("0-1", "00000003"), ("31-32", "00000001,80000000")] {
            let cpus = list.parse().unwrap();
            assert_eq!(format(&cpus), mask);
            assert_eq!(parse(mask), Some(cpus));
        }
        assert_eq!(format(&CpuSet::default()), "00000000");
    }
}
