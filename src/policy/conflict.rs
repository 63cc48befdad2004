// SPDX-License-Identifier: GPL-2.0-only
//! Rules that contradict each other, and rules that another one leaves nothing to.

use std::ops::Range;

use super::report::Report;
use super::rule::Rule;
use super::terms::Owner;

/// The rules of a policy in their order of precedence: launch, handoff, background; and pins.
#[derive(Default)]
pub struct Conflicts {
    rules: Vec<(Owner, Rule, Range<usize>)>,
}

impl Conflicts {
    /// Adds a rule, after all that come before it.
    pub fn add(&mut self, owner: Owner, rule: Rule, span: Range<usize>) {
        self.rules.push((owner, rule, span));
    }

    /// Reports each rule that an earlier one contradicts or covers, once.
    pub fn report(&self, report: &mut Report<'_>) {
        for (index, (owner, rule, span)) in self.rules.iter().enumerate() {
            let of_same_kind = |other: Owner| (other == Owner::Pin) == (*owner == Owner::Pin);
            let first = self.rules[..index]
                .iter()
                .find(|(other, earlier, _)| of_same_kind(*other) && earlier.covers(rule));
            let Some((other, earlier, place)) = first else {
                continue;
            };
            let line = report.line(place);
            if earlier != rule {
                let problem = format!(
                    "unreachable: {earlier} of {} (line {line}) comes first and matches all of it",
                    other.key()
                );
                report.warning(span.clone(), problem);
            } else if other == owner && *owner != Owner::Pin {
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
