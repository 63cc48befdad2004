// SPDX-License-Identifier: GPL-2.0-only
//! Rules that contradict each other, rules that another one leaves nothing to, and rules that let everybody in.

use std::ops::Range;

use super::report::Report;
use super::rule::Rule;

/// Who a list of rules is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// `class.launch`
    Launch,
    /// `class.handoff`
    Handoff,
    /// `class.background`
    Background,
    /// `[[pin]]`
    Pin,
}

/// A rule and where it is written.
pub struct Placed {
    pub owner: Owner,
    pub rule: Rule,
    pub span: Range<usize>,
}

impl Placed {
    /// What is judged first: cgroups alone, then what else the operator knows, then what threads are seen
    /// doing; `identify::rules` does it. Pins are judged in their own order.
    fn tier(&self) -> u8 {
        match &self.rule {
            rule if self.owner == Owner::Pin || rule.only_cgroup().is_some() => 0,
            rule if !rule.needs_watching() => 1,
            _ => 2,
        }
    }
}

/// The rules of a policy in the order of their classes: launch, handoff, background; and pins.
#[derive(Default)]
pub struct Conflicts {
    rules: Vec<Placed>,
}

impl Conflicts {
    /// Adds a rule, after all that come before it.
    pub fn add(&mut self, owner: Owner, rule: Rule, span: Range<usize>) {
        self.rules.push(Placed { owner, rule, span });
    }

    /// All of them.
    pub fn rules(&self) -> &[Placed] {
        &self.rules
    }

    /// Warns of rules that give launch or handoff by names alone: any user can choose a name, and `guard.trust_uids` is
    /// not asked.
    pub fn warn_of_names(&self, report: &mut Report<'_>) {
        let gives = |placed: &&Placed| matches!(placed.owner, Owner::Launch | Owner::Handoff);
        for placed in self.rules.iter().filter(gives) {
            if placed.rule.only_names() {
                let problem = "every user can call a thread of his so, and guard.trust_uids does not ask whose it \
                               is: add a cgroup that only you can put processes into, such as cgroup = \
                               \"system.slice/**\", or an exe that begins with its folder";
                report.warning(placed.span.clone(), problem.to_owned());
            }
        }
    }

    /// Reports each rule that an earlier one contradicts or covers, once.
    pub fn report(&self, report: &mut Report<'_>) {
        let mut judged: Vec<_> = self.rules.iter().collect();
        judged.sort_by_key(|placed| placed.tier());
        for (index, Placed { owner, rule, span }) in judged.iter().enumerate() {
            let of_same_kind = |other: Owner| (other == Owner::Pin) == (*owner == Owner::Pin);
            let first = judged[..index]
                .iter()
                .find(|earlier| of_same_kind(earlier.owner) && earlier.rule.covers(rule));
            let Some(first) = first else {
                continue;
            };
            let (other, line) = (first.owner, report.line(&first.span));
            if first.rule != *rule {
                let problem = format!(
                    "unreachable: {} of {} (line {line}) comes first and matches all of it",
                    first.rule,
                    other.key()
                );
                report.warning(span.clone(), problem);
            } else if other == *owner && other != Owner::Pin {
                report.warning(span.clone(), format!("the same rule as on line {line}"));
            } else {
                let problem = format!(
                    "contradicts {}, which has the same rule on line {line}: a thread is in one place",
                    other.key()
                );
                report.error(span.clone(), problem);
            }
        }
    }
}

impl Owner {
    fn key(self) -> &'static str {
        match self {
            Self::Launch => "class.launch.match",
            Self::Handoff => "class.handoff.match",
            Self::Background => "class.background.match",
            Self::Pin => "[[pin]]",
        }
    }
}
