// SPDX-License-Identifier: GPL-2.0-only
//! CPUs that are online, those that a thread may use, CPU lists as Linux writes them ("0-3,8"), and the CPUs that the arms may use for the launcher.

use std::collections::BTreeSet;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The CPUs that are online. Not those that this process may use: on a boot with isolated CPUs
/// these are fewer.
pub fn online() -> BTreeSet<usize> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    parse_list(&list).unwrap_or_else(|_| first(1))
}

/// Those of a machine that numbers them from 0 on, as the lab does.
pub fn first(count: usize) -> BTreeSet<usize> {
    (0..count).collect()
}

/// The CPUs that a thread may use; 0: the calling one.
pub fn allowed(thread: Pid) -> nix::Result<Vec<usize>> {
    let set = sched_getaffinity(thread)?;
    let is_in = |&cpu: &usize| set.is_set(cpu).unwrap_or(false);
    Ok((0..CpuSet::count()).filter(is_in).collect())
}

/// Lets a thread use these CPUs only.
pub fn allow(thread: Pid, cpus: &[usize]) -> nix::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu)?;
    }
    sched_setaffinity(thread, &set)
}

/// Parses a Linux CPU list; an empty list is an error.
pub fn parse_list(text: &str) -> Result<BTreeSet<usize>, String> {
    let bad = || format!("expected a list of CPUs such as \"1\" or \"4-7,12\", got {text:?}");
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| bad())?;
        let last: usize = last.trim().parse().map_err(|_| bad())?;
        // The bound keeps a typing error from filling memory; Linux stops at 8192 as well.
        if first > last || last >= 8192 {
            return Err(bad());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// Writes a CPU list as Linux does.
pub fn format_list(cpus: &BTreeSet<usize>) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    parts.join(",")
}

/// "auto" or a list, as it is written.
pub fn list_or_auto(text: &str) -> Result<String, String> {
    if text != "auto" {
        parse_list(text).map_err(|error| format!("\"auto\" or: {error}"))?;
    }
    Ok(text.to_owned())
}

/// The CPUs of a machine without those that are in `list`, as a list.
pub fn others(list: &str, online: &BTreeSet<usize>) -> String {
    let taken = parse_list(list).unwrap_or_default();
    format_list(&(online - &taken))
}

/// Writes a CPU mask as /proc and /sys take it: hexadecimal words of 32 CPUs, the last ones first.
pub fn format_mask(cpus: &BTreeSet<usize>) -> String {
    let words = cpus.last().map_or(1, |last| last / 32 + 1);
    let word = |at: usize| {
        let inside = cpus.iter().filter(|&&cpu| cpu / 32 == at);
        inside.fold(0_u32, |word, cpu| word | 1 << (cpu % 32))
    };
    let texts: Vec<String> = (0..words)
        .rev()
        .map(|at| format!("{:08x}", word(at)))
        .collect();
    texts.join(",")
}

/// The last quarter of the machine, at least one CPU, never the first, which takes most interrupts.
pub fn preferred(online: &BTreeSet<usize>) -> Option<BTreeSet<usize>> {
    if online.len() < 2 {
        return None;
    }
    let count = (online.len() / 4).max(1);
    Some(online.iter().rev().take(count).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_the_last_quarter_but_never_the_first_cpu() {
        let list = |online| preferred(&first(online)).map(|cpus| format_list(&cpus));
        assert_eq!(list(1), None);
        assert_eq!(list(2).as_deref(), Some("1"));
        assert_eq!(list(4).as_deref(), Some("3"));
        assert_eq!(list(8).as_deref(), Some("6-7"));
        assert_eq!(list(32).as_deref(), Some("24-31"));
    }

    #[test]
    fn numbers_may_have_holes() {
        let online = parse_list("0-3,8-11").unwrap();
        assert_eq!(format_list(&preferred(&online).unwrap()), "10-11");
        assert_eq!(others("10-11", &online), "0-3,8-9");
        let online = parse_list("0,2,4,6").unwrap();
        assert_eq!(format_list(&preferred(&online).unwrap()), "6");
        assert_eq!(others("6", &online), "0,2,4");
    }

    #[test]
    fn masks_are_words_of_32() {
        let mask = |list| format_mask(&parse_list(list).unwrap());
        assert_eq!(mask("1"), "00000002");
        assert_eq!(mask("0,33-34"), "00000006,00000001");
    }

    #[test]
    fn reads_and_writes_lists() {
        let cpus = parse_list("0-2,4, 6-7").unwrap();
        assert_eq!(format_list(&cpus), "0-2,4,6-7");
        for bad in ["", "a", "3-1", "1,,2", "99999"] {
            assert!(parse_list(bad).is_err(), "{bad}");
        }
    }
}
