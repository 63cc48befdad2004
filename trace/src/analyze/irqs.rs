// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts: how often, how long, which. Entries and exits of cuda_sched_trace are paired anew,
//! because its durations are wrong where one interrupt is nested in another.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::event::{Irq, IrqKind, Name, Names};
use super::ratios;

/// Interrupts of one CPU that are open at once: hard on soft, and a few to spare.
const MAX_NESTED: usize = 8;
const MAX_CPUS: usize = 8192;
const MAX_SOURCES: usize = 4096;

#[derive(Debug)]
struct Open {
    kind: IrqKind,
    number: u32,
    since_ns: i64,
    nested_ns: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Source {
    entries: u64,
    exits: u64,
    reported_ns: u64,
    self_ns: u64,
    max_ns: u64,
}

/// Interrupts, while they come in.
#[derive(Debug, Default)]
pub struct Irqs {
    open: HashMap<u32, Vec<Open>>,
    sources: BTreeMap<Irq, Source>,
    unpaired: u64,
}

impl Irqs {
    /// One began.
    pub fn enter(&mut self, cpu: u32, time_ns: i64, irq: Irq) {
        self.source(irq).entries += 1;
        if self.open.len() >= MAX_CPUS && !self.open.contains_key(&cpu) {
            return;
        }
        let open = self.open.entry(cpu).or_default();
        if open.len() >= MAX_NESTED {
            self.unpaired += open.len() as u64;
            open.clear();
        }
        open.push(Open {
            kind: irq.kind,
            number: irq.number,
            since_ns: time_ns,
            nested_ns: 0,
        });
    }

    /// One ended. Gives the time it took without others that were nested in it; `self_ns` is what
    /// the trace says about that.
    pub fn exit(
        &mut self,
        cpu: u32,
        time_ns: i64,
        irq: Irq,
        duration_ns: u64,
        self_ns: Option<u64>,
    ) -> u64 {
        let known = self_ns.is_some();
        let self_ns = self_ns.or_else(|| self.close(cpu, time_ns, irq));
        // Its entry was dropped: all there is to go by.
        let self_ns = self_ns.unwrap_or(duration_ns);
        let source = self.source(irq);
        source.entries += u64::from(known);
        source.exits += 1;
        source.reported_ns += duration_ns;
        source.self_ns += self_ns;
        source.max_ns = source.max_ns.max(duration_ns);
        self_ns
    }

    fn close(&mut self, cpu: u32, time_ns: i64, irq: Irq) -> Option<u64> {
        let open = self.open.get_mut(&cpu);
        let found = open.as_ref().and_then(|open| {
            open.iter()
                .rposition(|one| one.kind == irq.kind && one.number == irq.number)
        });
        let (Some(open), Some(at)) = (open, found) else {
            self.unpaired += 1;
            return None;
        };
        self.unpaired += (open.len() - at - 1) as u64;
        open.truncate(at + 1);
        let one = open.pop()?;
        let total_ns = time_ns.abs_diff(one.since_ns);
        if let Some(outer) = open.last_mut() {
            outer.nested_ns += total_ns;
        }
        Some(total_ns.saturating_sub(one.nested_ns))
    }

    fn source(&mut self, irq: Irq) -> &mut Source {
        let irq = if self.sources.len() < MAX_SOURCES || self.sources.contains_key(&irq) {
            irq
        } else {
            Irq {
                kind: irq.kind,
                number: u32::MAX,
                name: Name::default(),
            }
        };
        self.sources.entry(irq).or_default()
    }

    /// Another run begins: what is open ends nowhere.
    pub fn restart(&mut self) {
        self.unpaired += self
            .open
            .values()
            .map(|open| open.len() as u64)
            .sum::<u64>();
        self.open.clear();
    }

    /// Entries without an exit, and exits without an entry.
    pub fn unpaired(&self) -> u64 {
        self.unpaired
    }

    /// One row a source, the longest total first.
    pub fn breakdown(&self, names: &Names) -> Vec<IrqRow> {
        let total = |kind| -> u64 {
            let of_kind = self.sources.iter().filter(|(irq, _)| irq.kind == kind);
            of_kind.map(|(_, source)| source.exits).sum()
        };
        let mut rows: Vec<IrqRow> = self
            .sources
            .iter()
            .map(|(irq, source)| IrqRow {
                kind: irq.kind,
                number: irq.number,
                name: names.text(irq.name).to_owned(),
                count: source.exits,
                total_us: source.reported_ns as f64 / 1e3,
                mean_us: (source.exits > 0)
                    .then(|| source.reported_ns as f64 / source.exits as f64 / 1e3),
                max_us: source.max_ns as f64 / 1e3,
                count_percent: ratios::percent(source.exits as f64, total(irq.kind) as f64),
                self_us: source.self_ns as f64 / 1e3,
            })
            .collect();
        rows.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
        rows
    }
}

/// One interrupt source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IrqRow {
    /// Of which kind.
    pub kind: IrqKind,
    /// Interrupt number or vector.
    pub number: u32,
    /// Name of the handler or the vector.
    pub name: String,
    /// Interrupts that ended.
    pub count: u64,
    /// Their durations as the trace says.
    pub total_us: f64,
    /// The same for one.
    pub mean_us: Option<f64>,
    /// The longest.
    pub max_us: f64,
    /// Share of all interrupts of this kind.
    pub count_percent: Option<f64>,
    /// Their durations without what was nested in them.
    pub self_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn irq(kind: IrqKind, number: u32) -> Irq {
        Irq {
            kind,
            number,
            name: Name::default(),
        }
    }

    #[test]
    fn a_nested_interrupt_is_counted_once() {
        let (soft, hard) = (irq(IrqKind::Soft, 3), irq(IrqKind::Hard, 17));
        let mut irqs = Irqs::default();
        irqs.enter(0, 1000, soft);
        irqs.enter(0, 4000, hard);
        // Another CPU is another stack.
        irqs.enter(1, 4500, soft);
        assert_eq!(irqs.exit(0, 6000, hard, 2000, None), 2000);
        // cuda_sched_trace says 5000: it forgot when the soft interrupt began.
        assert_eq!(irqs.exit(0, 9000, soft, 5000, None), 6000);
        assert_eq!(irqs.exit(1, 5000, soft, 500, None), 500);
        assert_eq!(irqs.unpaired(), 0);
        let rows = irqs.breakdown(&Names::default());
        assert_eq!(
            (rows[0].count, rows[0].total_us, rows[0].self_us),
            (2, 5.5, 6.5)
        );
        assert_eq!(rows[0].mean_us, Some(2.75));
    }

    #[test]
    fn dropped_entries_and_exits_are_noticed() {
        let (soft, hard) = (irq(IrqKind::Soft, 3), irq(IrqKind::Hard, 17));
        let mut irqs = Irqs::default();
        assert_eq!(irqs.exit(0, 100, soft, 70, None), 70);
        irqs.enter(0, 1000, soft);
        irqs.enter(0, 1100, hard);
        assert_eq!(irqs.exit(0, 1500, soft, 500, None), 500);
        irqs.enter(0, 2000, soft);
        irqs.restart();
        assert_eq!(irqs.unpaired(), 3);
    }

    #[test]
    fn memory_is_bounded() {
        let mut irqs = Irqs::default();
        for at in 0..3 * MAX_CPUS as u32 {
            irqs.enter(at, 1, irq(IrqKind::Hard, at));
            irqs.enter(0, 1, irq(IrqKind::Hard, at));
        }
        assert!(irqs.open.len() <= MAX_CPUS);
        assert!(irqs.sources.len() <= MAX_SOURCES + 1);
        assert!(irqs.open[&0].len() <= MAX_NESTED);
    }
}
