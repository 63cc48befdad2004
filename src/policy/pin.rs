// SPDX-License-Identifier: GPL-2.0-only
//! Threads that stay on given CPUs, and which CPUs the next of them gets.

use super::cpuset::CpuSet;
use super::model::Policy;
use super::rule::ThreadFacts;

/// What a pinned thread was dealt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deal {
    /// Index of [`Policy::pins`].
    pub pin: usize,
    /// Index of [`Policy::groups`].
    group: usize,
    /// The CPUs that it stays on.
    pub cpus: CpuSet,
}

/// Deals CPUs to threads in the order in which they appear. The turn belongs to the group, so
/// that pins with the same label go on where the other stopped, as in FastFlow. It starts anew when the
/// last thread is gone, so that a program that is started again gets the same CPUs.
#[derive(Debug, Clone, Default)]
pub struct Dealer {
    pins: Vec<RoundRobin>,
    groups: Vec<RoundRobin>,
}

/// Who is next, and how many have been served and are still there.
#[derive(Debug, Clone, Copy, Default)]
struct RoundRobin {
    next: usize,
    nr_threads: usize,
}

impl RoundRobin {
    fn take(&mut self) -> usize {
        self.nr_threads += 1;
        self.next += 1;
        self.next - 1
    }

    fn give_back(&mut self) {
        self.nr_threads = self.nr_threads.saturating_sub(1);
        if self.nr_threads == 0 {
            self.next = 0;
        }
    }
}

impl Policy {
    /// The pin of a thread, an index of [`Policy::pins`]: the first that matches it.
    pub fn pin_of(&self, thread: &ThreadFacts<'_>) -> Option<usize> {
        self.pins.iter().position(|pin| {
            let mut rules = pin.rules.iter();
            rules.any(|rule| rule.static_terms_hold(thread))
        })
    }
}

impl Dealer {
    /// A dealer that has dealt nothing yet.
    pub fn new(policy: &Policy) -> Self {
        Self {
            pins: vec![RoundRobin::default(); policy.pins.len()],
            groups: vec![RoundRobin::default(); policy.groups.len()],
        }
    }

    /// The CPUs of a new thread that pin number `pin` of `policy` matches.
    pub fn deal(&mut self, policy: &Policy, pin: usize) -> Deal {
        let groups = &policy.pins[pin].groups;
        let group = groups[self.pins[pin].take() % groups.len()];
        let turn = self.groups[group].take();
        Deal {
            pin,
            group,
            cpus: policy.groups[group].cpus.share_of(turn),
        }
    }

    /// The thread is gone, or is not pinned any more.
    pub fn take_back(&mut self, deal: &Deal) {
        self.pins[deal.pin].give_back();
        self.groups[deal.group].give_back();
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
            let pin = policy.pin_of(&thread)?;
            Some(dealer.deal(&policy, pin).cpus)
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

    #[test]
    fn turns_start_anew_when_the_last_thread_is_gone() {
        let policy = r#"pin = [{ match = { comm = "*" }, cpus = "[0:4]rr" }]"#;
        let policy = Policy::parse(policy).unwrap();
        let mut dealer = Dealer::new(&policy);
        let [first, second] = [dealer.deal(&policy, 0), dealer.deal(&policy, 0)];
        dealer.take_back(&first);
        let third = dealer.deal(&policy, 0);
        assert_eq!(third.cpus, CpuSet::new([2]), "one is left");
        dealer.take_back(&second);
        dealer.take_back(&third);
        assert_eq!(dealer.deal(&policy, 0).cpus, CpuSet::new([0]));
    }
}
