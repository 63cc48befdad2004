// SPDX-License-Identifier: GPL-2.0-only
//! Which affinities were changed, from what, and what to change next. Pure: it is shown what
//! `/proc/irq` says and answers with what to write there.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use nix::libc::EIO;

use crate::policy::cpuset::CpuSet;

/// What has an affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Interrupts that do not exist yet start with this one.
    Default,
    Irq(u32),
}

/// One affinity as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub target: Target,
    /// Who handles the interrupt, separated by ", "; empty: nobody, for the moment or for good.
    pub name: String,
    /// CPUs that it may go to, and the one or ones that it really goes to.
    pub affinity: CpuSet,
    pub effective: CpuSet,
}

/// An affinity that this program has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub original: CpuSet,
    /// What was written, the newest last. More than one while a write is under way: whoever reads
    /// this after a kill cannot know whether it came through.
    pub ours: Vec<CpuSet>,
}

/// Why an affinity is not touched although it has preferred CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftAlone {
    /// The kernel never moves it: per-CPU interrupts and those that a driver manages.
    Immovable,
    /// The kernel could not move it this time, for instance for want of a free vector there.
    Failed,
    /// Somebody else has set it after us.
    TakenOver,
}

/// What is known of one affinity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    pub name: String,
    pub change: Option<Change>,
    pub left_alone: Option<LeftAlone>,
    /// It was said that the interrupt has not moved yet.
    pub late: bool,
}

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    pub preferred: CpuSet,
    pub online: CpuSet,
}

/// One affinity to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub target: Target,
    pub name: String,
    pub to: CpuSet,
}

/// What to do now, and whom to tell of.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub writes: Vec<Write>,
    pub taken_over: Vec<String>,
    pub late: Vec<String>,
}

/// Every affinity that was seen, and what became of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    pub known: BTreeMap<Target, Known>,
    pub wish: Wish,
}

impl Ledger {
    /// Decides what to write so that `seen` fits `wish`, and notes the intent: save the ledger
    /// before the writes and [`settle`](Self::settle) each afterwards.
    pub fn plan(&mut self, seen: &[Line], wish: &Wish) -> Plan {
        let anew = self.wish != *wish;
        if anew {
            self.wish = wish.clone();
            self.consider_anew();
        }
        self.known
            .retain(|target, _| seen.iter().any(|line| line.target == *target));
        let default = self.default_change().cloned();
        let mut plan = Plan::default();
        for line in seen.iter().filter(|line| !line.is_unhandled()) {
            let known = self.known.entry(line.target).or_default();
            if known.is_of(line) {
                known.name.clone_from(&line.name);
            } else {
                *known = Known {
                    name: line.name.clone(),
                    change: default
                        .as_ref()
                        .and_then(|default| line.born_under(default)),
                    ..Known::default()
                };
            }
            if known.is_taken_over(line) {
                known.change = None;
                // CPU hotplug changes affinities too: not everything is somebody's will.
                if !anew {
                    known.left_alone = Some(LeftAlone::TakenOver);
                    plan.taken_over.push(line.to_string());
                }
            }
            known.plan(line, wish, &mut plan);
        }
        plan
    }

    /// Notes what came of a planned write: what the kernel says the affinity is now (`None`: it
    /// has vanished), or why it refused.
    pub fn settle(&mut self, target: Target, outcome: io::Result<Option<CpuSet>>) {
        let Some(known) = self.known.get_mut(&target) else {
            return;
        };
        match outcome {
            Ok(Some(now)) => {
                known.change = known
                    .change
                    .take()
                    .filter(|change| change.original != now)
                    .map(|change| Change {
                        ours: vec![now],
                        ..change
                    });
            }
            Ok(None) => drop(self.known.remove(&target)),
            Err(error) => {
                let never = error.raw_os_error() == Some(EIO)
                    || error.kind() == io::ErrorKind::PermissionDenied;
                known.left_alone = Some(if never {
                    LeftAlone::Immovable
                } else {
                    LeftAlone::Failed
                });
                known.change = known.change.take().and_then(Change::without_the_last);
            }
        }
    }

    /// What to write so that everything is as it was before us. What somebody else has set after
    /// us stays theirs.
    pub fn restoration(&self, seen: &[Line]) -> Vec<Write> {
        let original = |line: &Line| {
            let known = self.known.get(&line.target);
            // The driver that is gone for the moment comes back to what it finds.
            let is_its = |known: &&Known| line.is_unhandled() || known.is_of(line);
            let change = match known.filter(is_its) {
                Some(known) => known.change.clone(),
                None if line.is_unhandled() => None,
                None => line.born_under(self.default_change()?),
            }?;
            let differs = change.original != line.affinity;
            (change.is_ours(&line.affinity) && differs).then_some(change.original)
        };
        seen.iter()
            .filter_map(|line| Some(line.write(original(line)?)))
            .collect()
    }

    /// Is there anything to restore?
    pub fn has_changes(&self) -> bool {
        self.known.values().any(|known| known.change.is_some())
    }

    /// Number of interrupts that are kept away from preferred CPUs.
    pub fn nr_steered(&self) -> usize {
        self.count(|known| known.change.is_some())
    }

    /// Number of interrupts that may come to preferred CPUs because they are left alone.
    pub fn nr_left_alone(&self) -> usize {
        self.count(|known| known.left_alone.is_some())
    }

    fn count(&self, mut which: impl FnMut(&Known) -> bool) -> usize {
        let irqs = self
            .known
            .iter()
            .filter(|(target, _)| **target != Target::Default);
        irqs.filter(|(_, known)| which(known)).count()
    }

    fn consider_anew(&mut self) {
        for known in self.known.values_mut() {
            known.left_alone = known.left_alone.filter(|why| *why == LeftAlone::Immovable);
            known.late = false;
        }
    }

    fn default_change(&self) -> Option<&Change> {
        self.known.get(&Target::Default)?.change.as_ref()
    }
}

impl Known {
    /// Is it still the same device's? Others may share its interrupt by now.
    fn is_of(&self, line: &Line) -> bool {
        let shares = |name: &str| line.name.split(", ").any(|other| other == name);
        self.name == line.name || self.name.split(", ").any(shares)
    }

    fn is_taken_over(&self, line: &Line) -> bool {
        self.change
            .as_ref()
            .is_some_and(|change| !change.is_ours(&line.affinity))
    }

    fn plan(&mut self, line: &Line, wish: &Wish, plan: &mut Plan) {
        if self.left_alone.is_some() {
            return;
        }
        let original = self.change.as_ref().map_or(&line.affinity, |c| &c.original);
        let to = wish.away(original);
        if to != line.affinity {
            let change = self.change.get_or_insert_with(|| Change {
                original: line.affinity.clone(),
                ours: Vec::new(),
            });
            change.ours.push(to.clone());
            plan.writes.push(line.write(to));
        } else if self.change.is_some() && !self.late && overlap(&line.effective, &wish.preferred) {
            self.late = true;
            plan.late.push(line.to_string());
        }
    }
}

impl Change {
    fn is_ours(&self, affinity: &CpuSet) -> bool {
        self.ours.contains(affinity)
    }

    fn without_the_last(mut self) -> Option<Self> {
        self.ours.pop();
        (!self.ours.is_empty()).then_some(self)
    }
}

impl Wish {
    /// Where an interrupt belongs that may go to `original` by right: to the part of it that is
    /// online and not preferred, else to any such CPU, else it stays.
    fn away(&self, original: &CpuSet) -> CpuSet {
        if !overlap(original, &self.preferred) {
            return original.clone();
        }
        let elsewhere = self.online.difference(&self.preferred);
        let own = CpuSet::new(elsewhere.iter().filter(|&cpu| original.contains(cpu)));
        [own, elsewhere]
            .into_iter()
            .find(|cpus| !cpus.is_empty())
            .unwrap_or_else(|| original.clone())
    }
}

impl Line {
    fn is_unhandled(&self) -> bool {
        self.target != Target::Default && self.name.is_empty()
    }

    /// An interrupt that appeared while the default was ours, and has it, would have got the
    /// original one without us.
    fn born_under(&self, default: &Change) -> Option<Change> {
        let born = self.target != Target::Default && default.ours.last() == Some(&self.affinity);
        born.then(|| Change {
            original: default.original.clone(),
            ours: vec![self.affinity.clone()],
        })
    }

    fn write(&self, to: CpuSet) -> Write {
        Write {
            target: self.target,
            name: self.name.clone(),
            to,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(self.target, &self.name, f)
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(self.target, &self.name, f)
    }
}

fn display(target: Target, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match target {
        Target::Default => f.write_str("the default for new ones"),
        Target::Irq(irq) => write!(f, "{irq} ({name})"),
    }
}

fn overlap(a: &CpuSet, b: &CpuSet) -> bool {
    a.iter().any(|cpu| b.contains(cpu))
}

#[cfg(test)]
mod tests;
