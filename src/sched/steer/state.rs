// SPDX-License-Identifier: GPL-2.0-only
//! What of the ledger has to be restored should this process be killed, as the state file has it.

use serde::{Deserialize, Serialize};

use super::ledger::{Change, Known, Ledger, Target};
use crate::policy::cpuset::CpuSet;

/// One entry of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Affinity {
    /// Absent: the default for new interrupts.
    #[serde(skip_serializing_if = "Option::is_none")]
    irq: Option<u32>,
    name: String,
    /// Absent: seen, but not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<ChangeEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeEntry {
    original: CpuSet,
    ours: Vec<CpuSet>,
}

/// What is written.
pub fn entries(ledger: &Ledger) -> Vec<Affinity> {
    let entry = |(&target, known): (&Target, &Known)| Affinity {
        irq: match target {
            Target::Default => None,
            Target::Irq(irq) => Some(irq),
        },
        name: known.name.clone(),
        change: known.change.as_ref().map(|change| ChangeEntry {
            original: change.original.clone(),
            ours: change.ours.clone(),
        }),
    };
    ledger.known.iter().map(entry).collect()
}

/// What was read.
pub fn ledger(entries: Vec<Affinity>) -> Ledger {
    let known = |entry: Affinity| {
        let known = Known {
            name: entry.name,
            change: entry.change.map(|change| Change {
                original: change.original,
                ours: change.ours,
            }),
            ..Known::default()
        };
        (entry.irq.map_or(Target::Default, Target::Irq), known)
    };
    Ledger {
        known: entries.into_iter().map(known).collect(),
        ..Ledger::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let change = Change {
            original: CpuSet::new([0, 1, 2, 3]),
            ours: vec![CpuSet::new([0, 1]), CpuSet::new([0])],
        };
        let known = |change| Known {
            name: "eth0-rx-0".to_owned(),
            change,
            ..Known::default()
        };
        let known = [
            (Target::Default, known(Some(change.clone()))),
            (Target::Irq(24), known(Some(change))),
            (Target::Irq(25), known(None)),
        ];
        let written = Ledger {
            known: known.into(),
            ..Ledger::default()
        };
        let text = serde_json::to_string(&entries(&written)).unwrap();
        assert_eq!(ledger(serde_json::from_str(&text).unwrap()), written);
    }
}
