// SPDX-License-Identifier: GPL-2.0-only
//! Groups of CPUs in FastFlow's affinity syntax: `[0:8:2, 1]`, `even[0:8:2], odd[1:8:2]`,
//! `tag[0:4]rr`. An entry is START, START:COUNT or START:COUNT:STRIDE; `rr` gives each thread one
//! CPU of the group in turn, without it all threads share the group.

use std::fmt;
use std::str::FromStr;

use super::cpuset::{CpuListError, CpuSet, MAX_CPU};

/// What threads that are pinned to a group get of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// All its CPUs.
    Shared,
    /// One CPU each, in turn, in the order of the group.
    RoundRobin,
}

/// CPUs in the order in which they were written, and how threads are assigned to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuGroup {
    cpus: Vec<u32>,
    assignment: Assignment,
}

/// Why a text is no group of CPUs.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AffinityError {
    /// Not in brackets, and not a Linux list either.
    #[error(transparent)]
    List(#[from] CpuListError),
    /// A count or a stride without brackets.
    #[error("{text:?} is FastFlow syntax without its brackets: write \"[{text}]\"")]
    Brackets {
        /// The whole text.
        text: String,
    },
    /// An opening bracket without its end, or the other way round.
    #[error(
        "unbalanced brackets in {text:?}: expected [START:COUNT:STRIDE, …], such as [0:8:2, 1]"
    )]
    Unbalanced {
        /// The whole text.
        text: String,
    },
    /// An entry that is none.
    #[error("entry {entry:?} of {text:?}: expected START, START:COUNT or START:COUNT:STRIDE{hint}")]
    Entry {
        /// The entry.
        entry: String,
        /// The whole text.
        text: String,
        /// What was probably meant.
        hint: String,
    },
    /// A count or a stride of zero.
    #[error("entry {entry:?} of {text:?}: count and stride are at least 1")]
    Zero {
        /// The entry.
        entry: String,
        /// The whole text.
        text: String,
    },
    /// A CPU that no machine has.
    #[error("entry {entry:?} of {text:?} goes beyond the largest supported CPU, {MAX_CPU}")]
    TooLarge {
        /// The entry.
        entry: String,
        /// The whole text.
        text: String,
    },
    /// One CPU, two places in the order.
    #[error("CPU {cpu} is twice in {text:?}")]
    Twice {
        /// The CPU.
        cpu: u32,
        /// The whole text.
        text: String,
    },
    /// Something other than `rr` after the brackets.
    #[error(
        "{found:?} after the brackets of {text:?}: expected nothing or rr (one CPU a thread, in turn)"
    )]
    Assignment {
        /// What stands there.
        found: String,
        /// The whole text.
        text: String,
    },
    /// A group without a label where each needs one.
    #[error("a group of {text:?} has no label: expected LABEL[START:COUNT:STRIDE]")]
    NoLabel {
        /// The whole text.
        text: String,
    },
    /// A label where the key is the label.
    #[error(
        "label {label:?} in {text:?}: this key names one group already; several groups in one \
         text go under cpusets.ff_affinity"
    )]
    Label {
        /// The label.
        label: String,
        /// The whole text.
        text: String,
    },
}

impl CpuGroup {
    /// The CPUs as a set.
    pub fn set(&self) -> CpuSet {
        CpuSet::new(self.cpus.iter().copied())
    }

    /// The CPUs in order.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// How threads are assigned.
    pub fn assignment(&self) -> Assignment {
        self.assignment
    }

    /// What the thread with number `turn`, from 0, gets.
    pub fn share_of(&self, turn: usize) -> CpuSet {
        match self.assignment {
            Assignment::Shared => self.set(),
            Assignment::RoundRobin => CpuSet::new([self.cpus[turn % self.cpus.len()]]),
        }
    }

    /// Parses what follows a label: brackets, and `rr` or nothing.
    fn in_brackets(group: &str, text: &str) -> Result<Self, AffinityError> {
        let unbalanced = || AffinityError::Unbalanced {
            text: text.to_owned(),
        };
        let (entries, assignment) = group
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
            .ok_or_else(unbalanced)?;
        if entries.contains('[') {
            return Err(unbalanced());
        }
        let assignment = match assignment.trim() {
            "" => Assignment::Shared,
            "rr" => Assignment::RoundRobin,
            found => {
                return Err(AffinityError::Assignment {
                    found: found.to_owned(),
                    text: text.to_owned(),
                });
            }
        };
        let mut cpus = Vec::new();
        for entry in entries.split(',') {
            for cpu in expand(entry.trim(), text)? {
                if cpus.contains(&cpu) {
                    let text = text.to_owned();
                    return Err(AffinityError::Twice { cpu, text });
                }
                cpus.push(cpu);
            }
        }
        Ok(Self { cpus, assignment })
    }
}

/// The CPUs of START:COUNT:STRIDE.
fn expand(entry: &str, text: &str) -> Result<impl Iterator<Item = u32>, AffinityError> {
    let (entry_text, text) = (|| entry.to_owned(), || text.to_owned());
    let bad = |hint: String| AffinityError::Entry {
        entry: entry_text(),
        text: text(),
        hint,
    };
    let hint = || match entry.parse::<CpuSet>().ok().as_ref() {
        Some(list) if entry.contains('-') => {
            let first = list.iter().next().unwrap_or_default();
            format!(
                "; ranges are START:COUNT here: write {first}:{}",
                list.len()
            )
        }
        _ => String::new(),
    };
    let mut numbers = Vec::new();
    for number in entry.split(':') {
        let digits = number.trim();
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        match digits.parse::<u32>() {
            Ok(number) if plain => numbers.push(number),
            _ => return Err(bad(hint())),
        }
    }
    let (start, count, stride) = match numbers[..] {
        [start] => (start, 1, 1),
        [start, count] => (start, count, 1),
        [start, count, stride] => (start, count, stride),
        _ => return Err(bad(String::new())),
    };
    if count == 0 || stride == 0 {
        let (entry, text) = (entry_text(), text());
        return Err(AffinityError::Zero { entry, text });
    }
    let last = u64::from(start) + u64::from(count - 1) * u64::from(stride);
    if last > u64::from(MAX_CPU) {
        let (entry, text) = (entry_text(), text());
        return Err(AffinityError::TooLarge { entry, text });
    }
    Ok((0..count).map(move |index| start + index * stride))
}

impl FromStr for CpuGroup {
    type Err = AffinityError;

    /// Parses one group: a Linux list, or FastFlow syntax without a label.
    fn from_str(text: &str) -> Result<Self, AffinityError> {
        let trimmed = text.trim();
        if let Some(at) = trimmed.find(['[', ']']) {
            let (label, group) = trimmed.split_at(at);
            if !label.trim().is_empty() && group.starts_with('[') {
                let (label, text) = (label.trim().to_owned(), text.to_owned());
                return Err(AffinityError::Label { label, text });
            }
            return Self::in_brackets(group, text);
        }
        if trimmed.contains(':') {
            let text = trimmed.to_owned();
            return Err(AffinityError::Brackets { text });
        }
        let list: CpuSet = trimmed.parse()?;
        Ok(Self {
            cpus: list.iter().collect(),
            assignment: Assignment::Shared,
        })
    }
}

impl fmt::Display for CpuGroup {
    /// A Linux list where threads share the CPUs; FastFlow syntax where the order counts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.assignment == Assignment::Shared {
            return self.set().fmt(f);
        }
        f.write_str("[")?;
        let mut rest = &self.cpus[..];
        let mut separator = "";
        while let [start, ..] = *rest {
            let (count, stride) = longest_run(rest);
            match (count, stride) {
                (1, _) => write!(f, "{separator}{start}")?,
                (_, 1) => write!(f, "{separator}{start}:{count}")?,
                _ => write!(f, "{separator}{start}:{count}:{stride}")?,
            }
            rest = &rest[count..];
            separator = ", ";
        }
        f.write_str("]rr")
    }
}

/// Length and stride of the ascending run that `cpus` begins with; two CPUs are a run only if they
/// are neighbours.
fn longest_run(cpus: &[u32]) -> (usize, u32) {
    let stride = match *cpus {
        [first, second, ..] if second > first => second - first,
        _ => return (1, 1),
    };
    let count = 1 + cpus
        .windows(2)
        .take_while(|pair| pair[1].checked_sub(pair[0]) == Some(stride))
        .count();
    if count == 2 && stride > 1 {
        return (1, 1);
    }
    (count, stride)
}

/// Parses several labelled groups, as in FastFlow's environment variable `FF_AFFINITY`.
///
/// # Errors
/// [`AffinityError`]. Labels are not looked at.
pub fn labelled_groups(text: &str) -> Result<Vec<(String, CpuGroup)>, AffinityError> {
    let mut groups = Vec::new();
    for group in split_outside_brackets(text) {
        let group = group.trim();
        let Some(at) = group.find(['[', ']']) else {
            let text = text.to_owned();
            return Err(AffinityError::Unbalanced { text });
        };
        let (label, brackets) = group.split_at(at);
        let cpus = CpuGroup::in_brackets(brackets, text)?;
        let label = label.trim();
        if label.is_empty() {
            let text = text.to_owned();
            return Err(AffinityError::NoLabel { text });
        }
        groups.push((label.to_owned(), cpus));
    }
    Ok(groups)
}

fn split_outside_brackets(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.split(move |char| {
        match char {
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
        char == ',' && !inside
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(text: &str) -> CpuGroup {
        text.parse().unwrap()
    }

    fn refusal(text: &str) -> String {
        text.parse::<CpuGroup>().unwrap_err().to_string()
    }

    #[test]
    fn expands_start_count_stride_in_the_order_written() {
        let cpus = group("[0:8:2, 1]");
        assert_eq!(cpus.cpus(), [0, 2, 4, 6, 8, 10, 12, 14, 1]);
        assert_eq!(cpus.assignment(), Assignment::Shared);
        assert_eq!(group("[4:4]rr").cpus(), [4, 5, 6, 7]);
        assert_eq!(group(" [ 7 , 3 ] rr ").cpus(), [7, 3]);
        assert_eq!(group("8-10,2").cpus(), [2, 8, 9, 10]);
    }

    #[test]
    fn parses_the_labelled_examples_of_fastflow() {
        let groups = labelled_groups("even[0:8:2], odd[1:8:2]").unwrap();
        assert_eq!(groups[0].0, "even");
        assert_eq!(groups[0].1.cpus(), [0, 2, 4, 6, 8, 10, 12, 14]);
        assert_eq!(groups[1].1.cpus(), [1, 3, 5, 7, 9, 11, 13, 15]);
        let groups = labelled_groups("tag1[0:4:1]rr, tag2[5:4:1]").unwrap();
        assert_eq!(groups[0].1.assignment(), Assignment::RoundRobin);
        assert_eq!(groups[1].1, group("5-8"));
    }

    #[test]
    fn deals_one_cpu_a_thread_in_turn_or_the_whole_group() {
        let turns = group("[0:2]rr");
        let dealt: Vec<_> = (0..3)
            .map(|turn| turns.share_of(turn).to_string())
            .collect();
        assert_eq!(dealt, ["0", "1", "0"]);
        assert_eq!(group("[5:4]").share_of(3).to_string(), "5-8");
    }

    #[test]
    fn prints_the_shortest_text_that_means_the_same() {
        for (text, printed) in [
            ("[0:8:2, 1]", "0-2,4,6,8,10,12,14"),
            ("[0:8:2, 1]rr", "[0:8:2, 1]rr"),
            ("[3,4]rr", "[3:2]rr"),
            ("[3,9,4,5]rr", "[3, 9, 4:2]rr"),
            ("[9,8,7]rr", "[9, 8, 7]rr"),
        ] {
            assert_eq!(group(text).to_string(), printed);
            assert_eq!(group(printed).set(), group(text).set());
        }
    }

    #[test]
    fn says_what_is_wrong_with_a_group() {
        assert!(refusal("0:8:2").contains("write \"[0:8:2]\""));
        assert!(refusal("[0-3]").contains("write 0:4"));
        assert!(refusal("[0:4").contains("unbalanced"));
        assert!(refusal("0:4]").contains("unbalanced"));
        assert!(refusal("[[0]]").contains("unbalanced"));
        assert!(refusal("[0:0]").contains("at least 1"));
        assert!(refusal("[0:4:0]").contains("at least 1"));
        assert!(refusal("[]").contains("entry \"\""));
        assert!(refusal("[0:1:2:3]").contains("START:COUNT:STRIDE"));
        assert!(refusal("[1000:100]").contains("1023"));
        assert!(refusal("[4294967295:4294967295:4294967295]").contains("1023"));
        assert!(refusal("[0:4, 2]").contains("CPU 2 is twice"));
        assert!(refusal("[0:4]fifo").contains("rr"));
        assert!(refusal("even[0:4]").contains("cpusets.ff_affinity"));
        assert!(refusal("1,x").contains("\"x\""));
    }

    #[test]
    fn several_groups_need_labels() {
        let refusal = |text: &str| labelled_groups(text).unwrap_err().to_string();
        assert!(refusal("[0:4], b[4:4]").contains("no label"));
        assert!(refusal("even").contains("unbalanced"));
        assert!(refusal("").contains("unbalanced"));
        assert!(refusal("a[0:4]b[4:4]").contains("rr"));
    }
}
