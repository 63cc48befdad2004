// SPDX-License-Identifier: GPL-2.0-only
//! The course of a run whose arrivals change on the way: the latency of its requests in the order of their arrival.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cells::{Cells, Rounds};
use crate::record::Pipeline;
use gpuaware_stats::Estimate;

/// Points that a run is shown in.
const MOMENTS: u64 = 24;

/// Some requests that follow one another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// The number of the first.
    pub request: u64,
    /// Of the slowest of them: a stall is of few.
    pub max_ms: Estimate,
}

pub(super) fn course(cells: &Cells, rounds: &Rounds) -> Vec<Moment> {
    let all: Vec<(u32, &Pipeline)> = rounds
        .iter()
        .filter_map(|(round, m)| Some((*round, m.workload.pipeline()?)))
        .collect();
    let requests = || all.iter().flat_map(|(_, p)| &p.latency_request);
    let (Some(&low), Some(&high)) = (requests().min(), requests().max()) else {
        return Vec::new();
    };
    let width = (high - low + 1).div_ceil(MOMENTS);
    let mut moments: BTreeMap<u64, BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
    for (round, pipeline) in &all {
        for (request, us) in pipeline.latency_request.iter().zip(&pipeline.latency_us) {
            let rounds = moments.entry((request - low) / width).or_default();
            rounds.entry(*round).or_default().push(us / 1e3);
        }
    }
    let moments = moments.into_iter().filter_map(|(place, rounds)| {
        Some(Moment {
            request: low + place * width,
            max_ms: cells.percentile(&rounds, 100.0)?,
        })
    });
    moments.collect()
}

#[cfg(test)]
mod tests {
    use super::super::study;
    use crate::record::Cell;
    use crate::record::neighbour::Neighbour;
    use crate::record::samples::cell;

    /// Requests 100 to 339; from the 220th on they take ten times as long.
    fn surge(round: u32, phases: &serde_json::Value) -> Cell {
        let mut cell = cell(round, "gpuaware", Neighbour::None, 100.0);
        let requests: Vec<u64> = (100..340).collect();
        let us: Vec<u64> = requests
            .iter()
            .map(|request| if *request < 220 { 5000 } else { 50_000 })
            .collect();
        let report = serde_json::json!({"workload": "pipeline", "offered": 240, "completed": 240, "failed": 0,
            "unfinished": 0, "seconds": 1.0, "items_per_s": 240.0, "latency_us": us, "latency_request": requests,
            "graph": {"stages": [{"name": "a", "arrive": {"loop": "open", "phases": phases}}, {"name": "b", "arrive": null}]},
            "errors": [], "launches": 0, "launches_in_all": 0,
            "context_switches": {"voluntary": 0, "involuntary": 0}, "threads_detail": []});
        cell.measurement.as_mut().unwrap().workload = serde_json::from_value(report).unwrap();
        cell
    }

    #[test]
    fn a_surge_is_followed_request_by_request() {
        let plan = crate::plan::samples::plan();
        let phases =
            serde_json::json!([{"items": 200, "rate": 70.0}, {"items": null, "rate": 130.0}]);
        let found = study(&plan, &[surge(1, &phases), surge(2, &phases)]).pipelines;
        let course: Vec<(u64, f64)> = found[0]
            .course
            .iter()
            .map(|moment| (moment.request, moment.max_ms.value))
            .collect();
        assert_eq!(course.len(), 24, "{course:?}");
        assert_eq!(course[0].0, 100);
        assert!(course.iter().all(|(request, ms)| {
            let expected = if *request < 220 { 5.0 } else { 50.0 };
            (ms - expected).abs() < 1e-9 || request.abs_diff(220) < 10
        }));
    }

    #[test]
    fn where_arrivals_stay_the_same_there_is_no_course() {
        let plan = crate::plan::samples::plan();
        let steady = serde_json::json!([{"items": null, "rate": 70.0}]);
        let found = study(&plan, &[surge(1, &steady)]).pipelines;
        assert!(found[0].course.is_empty());
    }
}
