// SPDX-License-Identifier: GPL-2.0-only
//! What the tracer found of the launching threads, and what it costs: a traced workload against the
//! same one untraced, beside the same neighbour, under the same arm, in the same round.

use serde::{Deserialize, Serialize};

use super::cells::Cells;
use crate::record::neighbour::Neighbour;
use crate::record::{Launchers, Measurement, TraceSeen};
use gpuaware_stats::{self as stats, Estimate, Scale};

/// The launching threads of one row, from the program's start to its end.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TracedRow {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    /// Switches off and on in 1,000 launches: the tracer's switches over the program's own count of
    /// launches, both from its start on; both as the tracer's windows have them where the program
    /// does not count. The studies' figure: an off and an on are two.
    pub sched_per_1000: Option<Estimate>,
    /// Interrupts on top of the threads in 1,000 launches; absent where the program counts no launches.
    #[serde(default)]
    pub soft_irqs_per_1000: Option<Estimate>,
    #[serde(default)]
    pub hard_irqs_per_1000: Option<Estimate>,
    /// In the tracer's windows: pairs of launches with a switch in between, percent of all, and the mean time between
    /// the two, with and without one.
    #[serde(default)]
    pub pairs_switched_percent: Option<Estimate>,
    #[serde(default)]
    pub pair_calm_us: Option<Estimate>,
    #[serde(default)]
    pub pair_switched_us: Option<Estimate>,
    /// Launches of a burst, as far as a window has it, and the bursts with a switch inside, percent of all.
    #[serde(default)]
    pub burst_launches: Option<Estimate>,
    #[serde(default)]
    pub bursts_switched_percent: Option<Estimate>,
    /// Shares of the threads' time, percent; interrupts are on top of them.
    pub on_cpu_percent: Option<Estimate>,
    pub preempted_percent: Option<Estimate>,
    pub yielded_percent: Option<Estimate>,
    pub waiting_percent: Option<Estimate>,
    pub asleep_percent: Option<Estimate>,
    pub irq_percent: Option<Estimate>,
    /// Of all rounds together.
    pub lost: u64,
}

/// Ratios of a traced row over the same untraced; below 1 tokens/s are lost.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TracerCost {
    pub workload: String,
    pub untraced: String,
    pub neighbour: Neighbour,
    pub arm: String,
    pub tokens_per_s: Option<Estimate>,
    pub token_p50: Option<Estimate>,
    /// Absent as well when either side has too few tokens.
    pub token_p99: Option<Estimate>,
    pub events_per_s: Option<Estimate>,
    pub mib_per_s: Option<Estimate>,
    /// Of all rounds together.
    pub counted: u64,
    pub lost: u64,
}

fn lost(traces: &[&TraceSeen]) -> u64 {
    traces.iter().map(|trace| trace.lost + trace.missed).sum()
}

/// Traced cells of a summary.
pub(super) fn rows(cells: &Cells) -> Vec<TracedRow> {
    let rows = cells.each_row();
    rows.filter_map(|(workload, neighbour, arm)| row(cells, workload, neighbour, arm))
        .collect()
}

/// One cell: its round, what it measured, and what the tracer found.
type Seen<'a> = (u32, &'a Measurement, &'a TraceSeen, &'a Launchers);

fn row(cells: &Cells, workload: &str, neighbour: Neighbour, arm: &str) -> Option<TracedRow> {
    let rounds = cells.rounds(workload, neighbour, arm);
    let seen = rounds.iter().filter_map(|(round, m)| {
        let trace = m.trace.as_ref()?;
        Some((*round, *m, trace, trace.launchers.as_ref()?))
    });
    let seen: Vec<Seen> = seen.collect();
    let share = |part: &dyn Fn(&Launchers) -> u64| {
        let of = |l: &Launchers| part(l) as f64 * 100.0 / l.traced_ns.max(1) as f64;
        let percent = mean(cells, &seen, |(.., l)| Some(of(l)));
        percent.map(|percent| percent.within(0.0, f64::INFINITY))
    };
    let irqs = |count: &dyn Fn(&Launchers) -> u64| {
        mean(cells, &seen, |(_, m, _, l)| {
            over(count(l) * 1000, m.workload.launches_in_all()?)
        })
    };
    let pairs = |of: &dyn Fn(&Launchers) -> Option<f64>| mean(cells, &seen, |(.., l)| of(l));
    let per_1000 = (seen.iter())
        .filter_map(|(round, m, _, launchers)| Some((*round, sched_per_1000(m, launchers)?)));
    (!seen.is_empty()).then(|| TracedRow {
        workload: workload.to_owned(),
        neighbour,
        arm: arm.to_owned(),
        sched_per_1000: cells.mean(per_1000, Scale::Log),
        soft_irqs_per_1000: irqs(&|l| l.soft_irqs),
        hard_irqs_per_1000: irqs(&|l| l.hard_irqs),
        pairs_switched_percent: pairs(&|l| {
            let all = l.intervals_calm + l.intervals_disturbed;
            over(l.intervals_disturbed * 100, all)
        }),
        pair_calm_us: pairs(&|l| over(l.intervals_calm_ns, l.intervals_calm * 1000)),
        pair_switched_us: pairs(&|l| over(l.intervals_disturbed_ns, l.intervals_disturbed * 1000)),
        burst_launches: pairs(&|l| over(l.burst_launches, l.bursts)),
        bursts_switched_percent: pairs(&|l| over(l.bursts_disturbed * 100, l.bursts)),
        on_cpu_percent: share(&|l| l.on_cpu_ns),
        preempted_percent: share(&|l| l.preempted_ns),
        yielded_percent: share(&|l| l.yielded_ns),
        waiting_percent: share(&|l| l.wakeup_wait_ns),
        asleep_percent: share(&|l| l.asleep_ns),
        irq_percent: share(&Launchers::irq_ns),
        lost: lost(&seen.iter().map(|(.., trace, _)| *trace).collect::<Vec<_>>()),
    })
}

/// Over boots, of the cells that have such a figure.
fn mean(cells: &Cells, seen: &[Seen], of: impl Fn(&Seen) -> Option<f64>) -> Option<Estimate> {
    let values = seen.iter().filter_map(|cell| Some((cell.0, of(cell)?)));
    cells.mean(values, Scale::Plain)
}

/// `None`: of nothing.
pub(super) fn over(above: u64, below: u64) -> Option<f64> {
    (below > 0).then(|| above as f64 / below as f64)
}

fn sched_per_1000(m: &Measurement, launchers: &Launchers) -> Option<f64> {
    let (switches, launches) = match m.workload.launches_in_all() {
        Some(launches) if launches > 0 => (launchers.switches(), launches),
        _ => (launchers.window_switches, launchers.all_launches()),
    };
    (launches > 0).then(|| (2 * switches) as f64 * 1e3 / launches as f64)
}

/// Every traced workload that is also there untraced.
pub(super) fn costs(cells: &Cells) -> Vec<TracerCost> {
    let workloads = &cells.plan.matrix.workloads;
    let untraced = |name: &str| {
        let traced = workloads.iter().find(|workload| workload.name == name)?;
        workloads
            .iter()
            .find(|other| other.trace.is_none() && other.program == traced.program)
            .filter(|_| traced.trace.is_some())
    };
    cells
        .each_row()
        .filter_map(|(workload, neighbour, arm)| {
            cost(cells, workload, &untraced(workload)?.name, neighbour, arm)
        })
        .collect()
}

fn cost(
    cells: &Cells,
    workload: &str,
    untraced: &str,
    neighbour: Neighbour,
    arm: &str,
) -> Option<TracerCost> {
    let above = cells.rounds(workload, neighbour, arm);
    let below = cells.rounds(untraced, neighbour, arm);
    let pairs = Cells::pairs(&above, &below);
    let traces = above
        .iter()
        .filter_map(|(round, m)| Some((*round, m.trace.as_ref()?)));
    let (rounds, seen): (Vec<u32>, Vec<&TraceSeen>) = traces.unzip();
    let ratio = |figure: &dyn Fn(&Measurement) -> Option<f64>| {
        let values = pairs.iter().filter_map(|(round, (a, b))| {
            let below = figure(b).filter(|below| *below > 0.0)?;
            Some((*round, figure(a)? / below))
        });
        cells.mean(values, Scale::Log)
    };
    let per_s = |figure: &dyn Fn(&TraceSeen) -> f64| {
        let values = rounds.iter().zip(&seen);
        let values = values.map(|(round, seen)| (*round, figure(seen) / seen.seconds));
        cells.mean(values, Scale::Log)
    };
    (!seen.is_empty()).then(|| TracerCost {
        workload: workload.to_owned(),
        untraced: untraced.to_owned(),
        neighbour,
        arm: arm.to_owned(),
        tokens_per_s: ratio(&|m| Some(m.workload.tokens_per_s())),
        token_p50: ratio(&|m| stats::median(&m.workload.token_ms())),
        token_p99: cells.p99_ratio(&pairs, |m| Some(m.workload.token_ms())),
        events_per_s: per_s(&|trace| trace.counted as f64),
        mib_per_s: per_s(&|trace| trace.bytes as f64 / f64::from(1 << 20)),
        counted: seen.iter().map(|trace| trace.counted).sum(),
        lost: lost(&seen),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Trace;
    use crate::plan::samples::plan;
    use crate::record::samples;
    use crate::study::study;

    fn traced(round: u32, tokens_per_s: f64, launchers: Option<Launchers>) -> crate::record::Cell {
        let mut cell = samples::cell(round, "eevdf", Neighbour::Cpu, tokens_per_s);
        cell.key.workload = "traced".to_owned();
        let measurement = cell.measurement.as_mut().unwrap();
        measurement.trace = Some(TraceSeen {
            seconds: 2.0,
            counted: 1000,
            lost: 1,
            missed: 2,
            missed_by: [("too_deep".to_owned(), 2)].into(),
            bytes: 4 << 20,
            launchers,
            ..TraceSeen::default()
        });
        let mut report = serde_json::to_value(&measurement.workload).unwrap();
        report["launches_in_all"] = 4000.into();
        measurement.workload = serde_json::from_value(report).unwrap();
        cell
    }

    #[test]
    fn a_traced_workload_is_set_against_the_same_untraced_in_the_same_round() {
        let mut plan = plan();
        let mut workload = plan.matrix.workloads[0].clone();
        workload.name = "traced".to_owned();
        workload.trace = Some(Trace::Events);
        plan.matrix.workloads.push(workload);
        let cells: Vec<_> = [(1, 100.0, 99.0), (2, 200.0, 196.0), (3, 50.0, 48.5)]
            .into_iter()
            .flat_map(|(round, without, with)| {
                [
                    samples::cell(round, "eevdf", Neighbour::Cpu, without),
                    traced(round, with, None),
                ]
            })
            .collect();
        let summary = study(&plan, &cells);
        let [cost] = &summary.tracer_costs[..] else {
            panic!("one row: {:?}", summary.tracer_costs)
        };
        assert_eq!(
            (cost.workload.as_str(), cost.untraced.as_str()),
            ("traced", "qwen3")
        );
        // Paired: 0.99, 0.98, 0.97.
        let expected = (0.99_f64 * 0.98 * 0.97).cbrt();
        assert!((cost.tokens_per_s.unwrap().value - expected).abs() < 1e-12);
        assert_eq!(cost.events_per_s.unwrap().value, 500.0);
        assert_eq!(cost.mib_per_s.unwrap().value, 2.0);
        assert_eq!((cost.counted, cost.lost), (3000, 9));
        assert!(summary.traced.is_empty(), "events have no summary");
    }

    #[test]
    fn the_split_is_of_the_launching_threads_time() {
        let mut plan = plan();
        plan.matrix.workloads[0].name = "traced".to_owned();
        plan.matrix.workloads[0].trace = Some(Trace::Summary);
        let launchers = Launchers {
            traced_ns: 1000,
            on_cpu_ns: 500,
            preempted_ns: 100,
            wakeup_wait_ns: 150,
            asleep_ns: 250,
            soft_irq_ns: 20,
            soft_irqs: 12,
            intervals_calm: 3,
            intervals_calm_ns: 6000,
            intervals_disturbed: 1,
            intervals_disturbed_ns: 50_000,
            bursts: 5,
            burst_launches: 40,
            bursts_disturbed: 2,
            preempted: 4,
            blocked: 6,
            ..Launchers::default()
        };
        let cells: Vec<_> = (1..=3)
            .map(|round| traced(round, 100.0, Some(launchers)))
            .collect();
        let summary = study(&plan, &cells);
        let [row] = &summary.traced[..] else {
            panic!("one row: {:?}", summary.traced)
        };
        let value = |estimate: Option<Estimate>| estimate.unwrap().value;
        // 10 offs and 10 ons in 4,000 launches.
        assert_eq!(value(row.sched_per_1000), 5.0);
        assert_eq!(value(row.on_cpu_percent), 50.0);
        assert_eq!(value(row.preempted_percent), 10.0);
        assert_eq!(value(row.waiting_percent), 15.0);
        assert_eq!(value(row.asleep_percent), 25.0);
        assert_eq!(value(row.irq_percent), 2.0);
        assert_eq!(value(row.soft_irqs_per_1000), 3.0);
        assert_eq!(value(row.hard_irqs_per_1000), 0.0);
        assert_eq!(value(row.pairs_switched_percent), 25.0);
        assert_eq!(value(row.pair_calm_us), 2.0);
        assert_eq!(value(row.pair_switched_us), 50.0);
        assert_eq!(value(row.burst_launches), 8.0);
        assert_eq!(value(row.bursts_switched_percent), 40.0);
        assert_eq!(row.lost, 9);
        // A server that counts no launches: 3 switches with 1,000 launches in the windows.
        let mut cell = traced(1, 100.0, None);
        let measurement = cell.measurement.as_mut().unwrap();
        let mut report = serde_json::to_value(&measurement.workload).unwrap();
        report["launches_in_all"] = 0.into();
        measurement.workload = serde_json::from_value(report).unwrap();
        let windows = Launchers {
            window_switches: 3,
            graph_launches: 1000,
            ..launchers
        };
        assert_eq!(sched_per_1000(measurement, &windows), Some(6.0));
        assert!(summary.tracer_costs.is_empty(), "nothing untraced");
    }
}
