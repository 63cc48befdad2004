// SPDX-License-Identifier: GPL-2.0-only
//! Softirqs on top of the traced threads, by kind.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::cells::Cells;
use super::traced::over;
use crate::record::neighbour::Neighbour;
use crate::record::{SoftIrqs, TraceSeen};
use gpuaware_stats::{Estimate, Scale};

/// Those of one kind in one row.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SoftIrqRow {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    /// As the kernel names it: `NET_RX`.
    pub kind: String,
    /// In a second of tracing.
    pub per_s: Option<Estimate>,
    /// How long one takes, without what is nested in it.
    pub mean_us: Option<Estimate>,
    /// Of the time of all kinds, percent.
    pub time_percent: Option<Estimate>,
}

/// Of all rows whose cells were traced into summaries.
pub(super) fn rows(cells: &Cells) -> Vec<SoftIrqRow> {
    let rows = cells.each_row();
    rows.flat_map(|(workload, neighbour, arm)| of_row(cells, workload, neighbour, arm))
        .collect()
}

/// What takes most time first.
fn of_row(cells: &Cells, workload: &str, neighbour: Neighbour, arm: &str) -> Vec<SoftIrqRow> {
    let rounds = cells.rounds(workload, neighbour, arm);
    let seen = rounds
        .iter()
        .filter_map(|(round, m)| Some((*round, m.trace.as_ref()?)));
    let seen: Vec<(u32, &TraceSeen)> = seen.collect();
    let kinds: BTreeSet<&str> = (seen.iter())
        .flat_map(|(_, trace)| trace.soft_irqs.keys().map(String::as_str))
        .collect();
    let row = |kind: &str| {
        let mean = |figure: &dyn Fn(&TraceSeen, SoftIrqs) -> Option<f64>| {
            let values = seen.iter().filter_map(|(round, trace)| {
                let its = trace.soft_irqs.get(kind).copied().unwrap_or_default();
                Some((*round, figure(trace, its)?))
            });
            cells.mean(values, Scale::Plain)
        };
        SoftIrqRow {
            workload: workload.to_owned(),
            neighbour,
            arm: arm.to_owned(),
            kind: kind.to_owned(),
            per_s: mean(&|trace, its| {
                (trace.seconds > 0.0).then(|| its.count as f64 / trace.seconds)
            }),
            mean_us: mean(&|_, its| over(its.self_ns, its.count * 1000)),
            time_percent: mean(&|trace, its| {
                let all: u64 = trace.soft_irqs.values().map(|its| its.self_ns).sum();
                over(its.self_ns * 100, all)
            }),
        }
    };
    let mut rows: Vec<SoftIrqRow> = kinds.into_iter().map(row).collect();
    let share = |row: &SoftIrqRow| row.time_percent.map_or(0.0, |percent| percent.value);
    rows.sort_by(|one, other| share(other).total_cmp(&share(one)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Trace;
    use crate::plan::samples::plan;
    use crate::record::samples;
    use crate::study::study;

    #[test]
    fn each_kind_has_its_part_of_the_time() {
        let mut plan = plan();
        plan.matrix.workloads[0].trace = Some(Trace::Summary);
        let cells = (1..=2).map(|round| {
            let mut cell = samples::cell(round, "eevdf", Neighbour::Cpu, 100.0);
            let of = |count, self_ns| SoftIrqs { count, self_ns };
            let mut soft_irqs = vec![("TIMER".to_owned(), of(10, 20_000))];
            if round == 2 {
                soft_irqs.push(("NET_RX".to_owned(), of(30, 60_000)));
            }
            cell.measurement.as_mut().unwrap().trace = Some(TraceSeen {
                seconds: 2.0,
                soft_irqs: soft_irqs.into_iter().collect(),
                ..TraceSeen::default()
            });
            cell
        });
        let rows = study(&plan, &cells.collect::<Vec<_>>()).soft_irqs;
        let figures = |row: &SoftIrqRow| {
            let value = |estimate: Option<Estimate>| estimate.unwrap().value;
            let mean_us = value(row.mean_us);
            (
                row.kind.clone(),
                value(row.per_s),
                mean_us,
                value(row.time_percent),
            )
        };
        // NET_RX: none of 0 and 30 in 2 s, none and three quarters of the time.
        assert_eq!(
            rows.iter().map(figures).collect::<Vec<_>>(),
            [
                ("TIMER".to_owned(), 5.0, 2.0, 62.5),
                ("NET_RX".to_owned(), 7.5, 2.0, 37.5)
            ]
        );
    }
}
