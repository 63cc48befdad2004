// SPDX-License-Identifier: GPL-2.0-only
//! Threads that stay on given CPUs, and which CPUs the next of them gets.

use super::Policy;
use super::affinity::{Assignment, CpuGroup};
use super::cpuset::CpuSet;
use super::rule::{Rule, ThreadFacts};

/// A group of CPUs that pins and `preferred.cpus` use.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedGroup {
    /// Its label; `None`: written where it is used.
    pub label: Option<String>,
    /// Its CPUs.
    pub cpus: CpuGroup,
}

/// `[[pin]]`
#[derive(Debug, Clone, PartialEq)]
pub struct Pin {
    /// Whom: any rule suffices.
    pub rules: Vec<Rule>,
    /// Where: indices of [`Policy::groups`], which threads take in turn.
    pub groups: Vec<usize>,
}

/// Deals CPUs to threads in the order in which they appear. The turn belongs to the group, so
/// that pins with the same label go on where the other stopped, as in FastFlow.
#[derive(Debug, Clone)]
pub struct Dealer {
    next_group: Vec<usize>,
    next_cpu: Vec<usize>,
}

impl Dealer {
    /// A dealer that has dealt nothing yet.
    pub fn new(policy: &Policy) -> Self {
        Self {
            next_group: vec![0; policy.pins.len()],
            next_cpu: vec![0; policy.groups.len()],
        }
    }

    /// The CPUs of a new thread: `None` if no pin matches it.
    pub fn deal(&mut self, policy: &Policy, thread: &ThreadFacts<'_>) -> Option<CpuSet> {
        let index = policy.pins.iter().position(|pin| {
            let mut rules = pin.rules.iter();
            rules.any(|rule| rule.static_terms_hold(thread))
        })?;
        let pin = &policy.pins[index];
        let group = pin.groups[self.next_group[index] % pin.groups.len()];
        self.next_group[index] += 1;
        let cpus = &policy.groups[group].cpus;
        let share = cpus.share_of(self.next_cpu[group]);
        if cpus.assignment() == Assignment::RoundRobin {
            self.next_cpu[group] += 1;
        }
        Some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dealt(policy: &str, threads: &[&str]) -> Vec<String> {
        let policy = Policy::parse(policy).unwrap();
        let mut dealer = Dealer::new(&policy);
        let mut deal = |comm| {
            let thread = ThreadFacts {
                comm,
                ..ThreadFacts::default()
            };
            dealer.deal(&policy, &thread)
        };
        threads
            .iter()
            .map(|comm| deal(comm).map_or_else(|| "-".to_owned(), |cpus| cpus.to_string()))
            .collect()
    }

    #[test]
    fn turns_go_on_across_pins_with_the_same_label() {
        let policy = r#"
            [cpusets]
            ff_affinity = "tag1[0:4:1]rr, tag2[5:4:1]"
            [[pin]]
            match = { comm = "source*" }
            cpus = "tag1"
            [[pin]]
            match = { comm = "sink*" }
            cpus = "tag1"
            [[pin]]
            match = [{ comm = "flatmap*" }, { comm = "aggreg*" }]
            cpus = "tag2"
        "#;
        let threads = ["source0", "source1", "sink0", "sink1", "aggreg0", "other"];
        assert_eq!(dealt(policy, &threads), ["0", "1", "2", "3", "5-8", "-"]);
    }

    #[test]
    fn threads_take_several_groups_in_turn() {
        let policy = r#"
            cpusets = { ff_affinity = "even[0:4:2], odd[1:4:2]" }
            pin = [{ match = { comm = "map*" }, cpus = "odd | even" }]
        "#;
        assert_eq!(
            dealt(policy, &["map0", "map1", "map2"]),
            ["1,3,5,7", "0,2,4,6", "1,3,5,7"]
        );
    }
}
