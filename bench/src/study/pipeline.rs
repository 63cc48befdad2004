// SPDX-License-Identifier: GPL-2.0-only
//! What a pipeline says of its parts: how long items wait at each hand-over, how long stages and servers take.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cells::{Cells, Rounds};
use super::course::{self, Moment};
use crate::record::neighbour::Neighbour;
use crate::record::{Measurement, Pipeline, Times};
use gpuaware_stats::{Estimate, Scale};

/// One arm beside one neighbour, all rounds together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Parts {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    pub offered: u64,
    pub failed: u64,
    pub unfinished: u64,
    /// In the graph's order.
    pub hand_overs: Vec<HandOver>,
    #[serde(default)]
    pub stages: Vec<StageTimes>,
    /// Of each stage that calls a server, by name.
    pub calls: BTreeMap<String, PartTimes>,
    #[serde(default)]
    pub objectives: Vec<Missed>,
    #[serde(default)]
    pub end_to_end: PartTimes,
    /// Loads that missed the last-level cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_misses_an_item: Option<Estimate>,
    /// Why they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_misses_error: Option<String>,
    /// Latency request by request, where arrivals change on the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub course: Vec<Moment>,
}

/// Share of the requests that did not keep an objective: too late, failed, or never there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Missed {
    pub ms: f64,
    pub share: Option<Estimate>,
}

/// How long items wait from being ready until being taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandOver {
    pub from: String,
    pub to: String,
    /// From the arrival of the request until being ready.
    pub before: PartTimes,
    pub delay: PartTimes,
    /// Of copying the message, which follows.
    #[serde(default)]
    pub transfer: PartTimes,
}

/// What a stage does with a batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StageTimes {
    pub name: String,
    pub service: PartTimes,
    /// Median of the items in one.
    pub batch: Option<Estimate>,
}

/// Means over boots of what each cell found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PartTimes {
    pub mean_ms: Option<Estimate>,
    /// Absent where a cell has fewer than 459 samples.
    pub p99_ms: Option<Estimate>,
}

impl Parts {
    /// The hand-over to whoever calls a server.
    pub fn call(&self) -> Option<&HandOver> {
        let mut hand_overs = self.hand_overs.iter();
        hand_overs.find(|hand_over| self.calls.contains_key(&hand_over.to))
    }
}

pub(super) fn parts(cells: &Cells) -> Vec<Parts> {
    cells
        .each_row()
        .filter_map(|(workload, neighbour, arm)| row(cells, workload, neighbour, arm))
        .collect()
}

fn row(cells: &Cells, workload: &str, neighbour: Neighbour, arm: &str) -> Option<Parts> {
    let rounds = cells.rounds(workload, neighbour, arm);
    let all: Vec<&Pipeline> = rounds.values().filter_map(|m| pipeline(m)).collect();
    // All cells of a workload have the same graph.
    let first = all.first()?;
    let hand_overs = first
        .edges
        .iter()
        .enumerate()
        .map(|(place, edge)| HandOver {
            from: edge.from.clone(),
            to: edge.to.clone(),
            before: times(cells, &rounds, |p| Some(&p.edges.get(place)?.age_ms)),
            delay: times(cells, &rounds, |p| Some(&p.edges.get(place)?.delay_ms)),
            transfer: times(cells, &rounds, |p| p.edges.get(place)?.transfer_ms.as_ref()),
        });
    let calling = (first.stages.iter()).filter(|(_, stage)| stage.rpc_ms.count > 0);
    let calls = calling.map(|(name, _)| {
        let rpc = times(cells, &rounds, |p| Some(&p.stages.get(name)?.rpc_ms));
        (name.clone(), rpc)
    });
    let objectives = first.slo.iter().enumerate().map(|(place, objective)| {
        let shares = rounds
            .iter()
            .filter_map(|(round, m)| Some((*round, pipeline(m)?.slo.get(place)?.miss_rate?)));
        let share = cells.mean(shares, Scale::Plain);
        Missed {
            ms: objective.ms,
            share: share.map(|share| share.within(0.0, 1.0)),
        }
    });
    let sum = |of: fn(&Pipeline) -> u64| all.iter().copied().map(of).sum();
    Some(Parts {
        workload: workload.to_owned(),
        neighbour,
        arm: arm.to_owned(),
        offered: sum(|p| p.offered),
        failed: sum(|p| p.failed),
        unfinished: sum(|p| p.unfinished),
        hand_overs: hand_overs.collect(),
        stages: stages(cells, &rounds, first),
        calls: calls.collect(),
        objectives: objectives.collect(),
        end_to_end: times(cells, &rounds, |p| p.end_to_end_ms.as_deref()),
        llc_misses_an_item: figure(cells, &rounds, Scale::Plain, llc_misses_an_item),
        llc_misses_error: all.iter().find_map(|p| p.llc_load_misses_error.clone()),
        course: if first.has_phases() {
            course::course(cells, &rounds)
        } else {
            Vec::new()
        },
    })
}

fn llc_misses_an_item(p: &Pipeline) -> Option<f64> {
    let items = p.items_per_s * p.seconds;
    (items > 0.0).then_some(p.llc_load_misses? as f64 / items)
}

/// In the order in which items come to them.
fn stages(cells: &Cells, rounds: &Rounds, first: &Pipeline) -> Vec<StageTimes> {
    let mut names: Vec<&str> = Vec::new();
    for edge in &first.edges {
        for name in [&edge.from, &edge.to] {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    let stages = names.into_iter().map(|name| StageTimes {
        name: name.to_owned(),
        service: times(cells, rounds, |p| p.stages.get(name)?.service_ms.as_ref()),
        batch: figure(cells, rounds, Scale::Plain, |p| {
            p.stages.get(name)?.batch_size.as_ref()?.p50
        }),
    });
    stages.collect()
}

fn times(cells: &Cells, rounds: &Rounds, of: impl Fn(&Pipeline) -> Option<&Times>) -> PartTimes {
    PartTimes {
        mean_ms: figure(cells, rounds, Scale::Log, |p| of(p)?.mean),
        p99_ms: figure(cells, rounds, Scale::Log, |p| of(p)?.p99),
    }
}

/// The mean over boots; `None` where a cell has no such figure.
fn figure(
    cells: &Cells,
    rounds: &Rounds,
    scale: Scale,
    of: impl Fn(&Pipeline) -> Option<f64>,
) -> Option<Estimate> {
    let values: Option<Vec<(u32, f64)>> = rounds
        .iter()
        .map(|(round, m)| Some((*round, of(pipeline(m)?)?)))
        .collect();
    cells.mean(values?, scale)
}

fn pipeline(m: &Measurement) -> Option<&Pipeline> {
    m.workload.pipeline()
}

#[cfg(test)]
mod tests {
    use super::super::study;
    use super::*;
    use crate::record::Cell;
    use crate::record::samples::cell;

    /// `mean` ms at the hand-over to the stage that calls a server.
    fn piped(round: u32, mean: f64, p99: Option<f64>) -> Cell {
        let mut cell = cell(round, "gpuaware", Neighbour::None, 100.0);
        let times =
            |count: u64, mean: f64| serde_json::json!({"count": count, "mean": mean, "p99": p99});
        let report = serde_json::json!({"workload": "pipeline", "offered": 10, "completed": 7, "failed": 1,
            "unfinished": 2, "seconds": 1.0, "items_per_s": 7.0, "latency_us": [5], "errors": [],
            "end_to_end_ms": times(9, mean * 10.0),
            "edges": [{"from": "a", "to": "b", "age_ms": times(9, 1.0), "delay_ms": times(9, 1.0)},
                {"from": "b", "to": "c", "age_ms": times(9, 6.0), "delay_ms": times(9, mean), "transfer_ms": times(9, 3.0)}],
            "stages": {"a": {"rpc_ms": {"count": 0, "mean": null, "p99": null}}, "c": {"rpc_ms": times(9, 20.0),
                "service_ms": times(9, 21.0), "batch_size": {"count": 9, "mean": 5.0, "p50": mean, "p99": p99}}},
            "slo": [{"ms": 200.0, "missed": 4, "miss_rate": mean / 10.0}],
            "launches": 0, "launches_in_all": 0, "context_switches": {"voluntary": 0, "involuntary": 0},
            "threads_detail": [], "calling_detail": [{"tid": 7, "first_call_monotonic_ns": 1}]});
        cell.measurement.as_mut().unwrap().workload = serde_json::from_value(report).unwrap();
        cell
    }

    fn value(estimate: Option<Estimate>) -> Option<f64> {
        estimate.map(|estimate| estimate.value)
    }

    #[test]
    fn delays_are_means_over_rounds_hand_over_by_hand_over() {
        let plan = crate::plan::samples::plan();
        let cells = [piped(1, 2.0, Some(9.0)), piped(2, 8.0, Some(9.0))];
        let found = study(&plan, &cells).pipelines;
        assert_eq!(found.len(), 1, "nobody else has a pipeline");
        let parts = &found[0];
        assert_eq!((parts.offered, parts.failed, parts.unfinished), (20, 2, 4));
        let [first, second] = parts.hand_overs.as_slice() else {
            panic!("{parts:?}")
        };
        assert_eq!(value(first.delay.mean_ms), Some(1.0));
        assert_eq!((second.from.as_str(), second.to.as_str()), ("b", "c"));
        assert!((value(second.before.mean_ms).unwrap() - 6.0).abs() < 1e-9);
        let mean = value(second.delay.mean_ms).unwrap();
        assert!((mean - 4.0).abs() < 1e-9, "geometric: {mean}");
        assert_eq!(value(first.transfer.mean_ms), None, "no message");
        assert!((value(second.transfer.mean_ms).unwrap() - 3.0).abs() < 1e-9);
        let [_, b, c] = parts.stages.as_slice() else {
            panic!("{:?}", parts.stages)
        };
        assert_eq!((b.name.as_str(), value(b.batch)), ("b", None));
        assert!((value(c.service.mean_ms).unwrap() - 21.0).abs() < 1e-9);
        assert_eq!(value(c.batch), Some(5.0), "medians of 2 and 8");
        assert!((value(parts.end_to_end.mean_ms).unwrap() - 40.0).abs() < 1e-9);
        assert_eq!(parts.objectives[0].ms, 200.0);
        let missed = value(parts.objectives[0].share).unwrap();
        assert!((missed - 0.5).abs() < 1e-9, "arithmetic: {missed}");
        let callers: Vec<&String> = parts.calls.keys().collect();
        assert_eq!(callers, ["c"]);
    }

    #[test]
    fn a_figure_that_a_round_lacks_is_no_figure() {
        let plan = crate::plan::samples::plan();
        let cells = [piped(1, 2.0, Some(9.0)), piped(2, 8.0, None)];
        let found = study(&plan, &cells).pipelines;
        let delay = &found[0].hand_overs[1].delay;
        assert!(delay.p99_ms.is_none() && delay.mean_ms.is_some());
    }
}
