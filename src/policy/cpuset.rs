// SPDX-License-Identifier: GPL-2.0-only
//! Sets of CPUs as Linux writes them: `0-3,8,10-11`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Largest CPU number that the scheduler handles, `GPUAWARE_MAX_CPUS - 1` in `bpf/intf.h`.
pub const MAX_CPU: u32 = 1023;

/// A set of CPU numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CpuSet(BTreeSet<u32>);

/// Why a text is not a CPU list.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CpuListError {
    /// Nothing between two commas, or nothing at all.
    #[error("empty entry in CPU list {list:?}: expected numbers and ranges such as 0-3,8")]
    Empty {
        /// The whole list.
        list: String,
    },
    /// Neither a number nor a range.
    #[error("{entry:?} in CPU list {list:?} is neither a CPU number nor a range: expected 0-3,8")]
    NotANumber {
        /// The entry that does not parse.
        entry: String,
        /// The whole list.
        list: String,
    },
    /// A range that ends before it starts.
    #[error("range {entry:?} in CPU list {list:?} runs backwards: write the smaller CPU first")]
    Backwards {
        /// The range.
        entry: String,
        /// The whole list.
        list: String,
    },
    /// A CPU that no machine has.
    #[error("CPU {cpu} in CPU list {list:?} is beyond the largest supported CPU, {MAX_CPU}")]
    TooLarge {
        /// The CPU number.
        cpu: u32,
        /// The whole list.
        list: String,
    },
}

impl CpuSet {
    /// The set of `cpus`.
    pub fn new(cpus: impl IntoIterator<Item = u32>) -> Self {
        Self(cpus.into_iter().collect())
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Is `cpu` in the set?
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// Has it no CPU?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The CPUs of `self` that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// The CPUs that are in both.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }
}

impl From<CpuSet> for String {
    fn from(cpus: CpuSet) -> Self {
        cpus.to_string()
    }
}

impl TryFrom<String> for CpuSet {
    type Error = CpuListError;

    fn try_from(list: String) -> Result<Self, CpuListError> {
        list.parse()
    }
}

impl FromStr for CpuSet {
    type Err = CpuListError;

    /// Parses a Linux CPU list. An empty text is an error: sysfs prints one for "no CPU", and
    /// callers that read sysfs look for it first.
    fn from_str(list: &str) -> Result<Self, CpuListError> {
        let number = |text: &str, entry: &str| {
            let digits = text.trim();
            // A sign is no digit, though `parse` takes one.
            let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            let parsed = plain.then(|| digits.parse::<u32>().ok()).flatten();
            parsed.ok_or_else(|| CpuListError::NotANumber {
                entry: entry.to_owned(),
                list: list.to_owned(),
            })
        };
        let mut cpus = BTreeSet::new();
        for entry in list.trim().split(',').map(str::trim) {
            if entry.is_empty() {
                return Err(CpuListError::Empty {
                    list: list.to_owned(),
                });
            }
            let (first, last) = match entry.split_once('-') {
                Some((first, last)) => (number(first, entry)?, number(last, entry)?),
                None => (number(entry, entry)?, number(entry, entry)?),
            };
            if last < first {
                return Err(CpuListError::Backwards {
                    entry: entry.to_owned(),
                    list: list.to_owned(),
                });
            }
            if last > MAX_CPU {
                return Err(CpuListError::TooLarge {
                    cpu: last,
                    list: list.to_owned(),
                });
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuSet {
    /// Shortest Linux list: neighbours become ranges.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn parses_numbers_and_ranges() {
        assert_eq!(set("0-2,5, 7-7"), CpuSet::new([0, 1, 2, 5, 7]));
        assert_eq!(set("3\n"), CpuSet::new([3]));
    }

    #[test]
    fn prints_the_shortest_list() {
        assert_eq!(set("5,1,0,2,9,8").to_string(), "0-2,5,8-9");
        assert_eq!(CpuSet::default().to_string(), "");
    }

    #[test]
    fn names_the_entry_that_is_wrong() {
        let message = |list: &str| list.parse::<CpuSet>().unwrap_err().to_string();
        assert!(message("1,x").contains("\"x\" in CPU list \"1,x\""));
        assert!(message("3-1").contains("backwards"));
        assert!(message("1,,2").contains("empty entry"));
        assert!(message("").contains("empty entry"));
        assert!(message("-1").contains("neither"));
        assert!(message("+1").contains("neither"));
        assert!(message("0-99999").contains("99999"));
    }

    #[test]
    fn subtracts_and_intersects() {
        assert_eq!(set("0-7").difference(&set("2-3,9")), set("0-1,4-7"));
        assert_eq!(set("0-7").intersection(&set("2-3,9")), set("2-3"));
    }
}
