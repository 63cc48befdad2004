// SPDX-License-Identifier: GPL-2.0-only
//! Figures along a swept parameter, and along the requests of a run whose arrivals change: a line an arm.

use std::collections::BTreeSet;

use super::chart::{Axis, Line, chart};
use super::look::colour;
use super::model::Report;
use crate::matrix::Sweep;
use crate::record::neighbour::Neighbour;
use crate::study::Row;
use gpuaware_stats::Estimate;

/// A picture, and what it shows.
#[derive(Debug, Clone)]
pub struct Picture {
    pub heading: String,
    pub svg: String,
}

/// All of a sweep that was measured; those beside one neighbour stand together.
pub fn pictures(report: &Report, sweep: &Sweep) -> Vec<Picture> {
    let workloads = sweep.workloads.iter();
    workloads
        .flat_map(|workload| along(report, sweep, workload))
        .collect()
}

fn along(report: &Report, sweep: &Sweep, workload: &str) -> Vec<Picture> {
    let mut all = Vec::new();
    let names: Vec<String> = sweep
        .values
        .iter()
        .map(|&value| Sweep::name(workload, value))
        .collect();
    let unit = names.first().map_or("", |name| report.unit(name));
    let axis = Axis {
        label: &sweep.label,
        values: &sweep.values,
    };
    let callers = callers(report, &names);
    for &neighbour in &report.plan.matrix.neighbours {
        let mut draw = |what: &str, of: &dyn Fn(&Row) -> Option<Estimate>| {
            let lines = lines(report, sweep, &names, neighbour, of);
            if !lines.is_empty() {
                all.push(Picture {
                    heading: format!("{workload} beside {neighbour}: {what}"),
                    svg: chart(&axis, what, &lines),
                });
            }
        };
        draw(unit, &|row| row.tokens_per_s);
        draw("median latency, ms", &|row| row.token_p50_ms);
        draw("p99 latency, ms", &|row| row.token_p99_ms);
        for (place, ms) in objectives(report, &names).into_iter().enumerate() {
            let share = |row: &Row| report.parts(row)?.objectives.get(place)?.share;
            draw(&format!("over {ms} ms, %"), &|row| {
                share(row).map(|share| share.scaled(100.0))
            });
        }
        for stage in &callers {
            let what = format!("hand-over to {stage}, mean delay, ms");
            draw(&what, &|row| delay_to(report, row, stage));
        }
    }
    all
}

/// The same for all values of a sweep, in ms.
fn objectives(report: &Report, names: &[String]) -> Vec<f64> {
    let mut parts = report.summary.pipelines.iter();
    let parts = parts.find(|parts| names.contains(&parts.workload));
    let objectives = parts.map(|parts| parts.objectives.iter().map(|objective| objective.ms));
    objectives.into_iter().flatten().collect()
}

/// Stages that call a server.
fn callers<'a>(report: &'a Report, names: &[String]) -> BTreeSet<&'a str> {
    let parts = report.summary.pipelines.iter();
    let parts = parts.filter(|parts| names.contains(&parts.workload));
    parts
        .flat_map(|parts| parts.calls.keys().map(String::as_str))
        .collect()
}

fn delay_to(report: &Report, row: &Row, stage: &str) -> Option<Estimate> {
    let mut hand_overs = report.parts(row)?.hand_overs.iter();
    hand_overs.find(|h| h.to == stage)?.delay.mean_ms
}

/// `names` are the workloads of the sweep's values.
fn lines<'a>(
    report: &'a Report,
    sweep: &Sweep,
    names: &[String],
    neighbour: Neighbour,
    of: &dyn Fn(&Row) -> Option<Estimate>,
) -> Vec<Line<'a>> {
    let point = |arm: &str, value: f64, name: &String| {
        let mut rows = report.summary.rows.iter();
        let row = rows.find(|row| {
            (&row.workload, row.neighbour, row.arm.as_str()) == (name, neighbour, arm)
        })?;
        Some((value, of(row)?))
    };
    let arms = report.plan.matrix.arms.iter();
    let lines = arms.map(|arm| Line {
        name: arm,
        colour: colour(report, arm),
        points: (sweep.values.iter().zip(names))
            .filter_map(|(&value, name)| point(arm, value, name))
            .collect(),
    });
    lines.filter(|line| !line.points.is_empty()).collect()
}

/// Of every workload whose arrivals change on the way: the slowest of some requests that follow one another.
pub fn courses(report: &Report) -> Vec<Picture> {
    let matrix = &report.plan.matrix;
    let workloads = matrix.workloads.iter();
    let pairs = workloads.flat_map(|workload| {
        let beside = matrix.neighbours.iter();
        beside.map(move |&neighbour| (workload.name.as_str(), neighbour))
    });
    pairs
        .filter_map(|(workload, neighbour)| course(report, workload, neighbour))
        .collect()
}

fn course(report: &Report, workload: &str, neighbour: Neighbour) -> Option<Picture> {
    let all = report.summary.pipelines.iter();
    let rows =
        all.filter(|parts| (parts.workload.as_str(), parts.neighbour) == (workload, neighbour));
    let lines = rows.map(|parts| Line {
        name: &parts.arm,
        colour: colour(report, &parts.arm),
        points: (parts.course.iter())
            .map(|moment| (moment.request as f64, moment.max_ms))
            .collect(),
    });
    let lines: Vec<Line> = lines.filter(|line| !line.points.is_empty()).collect();
    let requests = lines.iter().flat_map(|line| &line.points);
    let mut requests: Vec<f64> = requests.map(|(request, _)| *request).collect();
    requests.sort_by(f64::total_cmp);
    requests.dedup();
    let what = "latency of the slowest, ms";
    let axis = Axis {
        label: "number of the request",
        values: &requests,
    };
    (!lines.is_empty()).then(|| Picture {
        heading: format!("{workload} beside {neighbour}: {what}"),
        svg: chart(&axis, what, &lines),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;

    fn sweep() -> Sweep {
        Sweep {
            workloads: vec!["p".to_owned()],
            set: vec!["x".to_owned()],
            values: vec![0.0, 50.0, 100.0],
            label: "stress, µs".to_owned(),
        }
    }

    /// The sample's rows as those of two of three values.
    fn report() -> Report {
        let mut report = samples::report();
        let mut rows = report.summary.rows.clone();
        report
            .summary
            .rows
            .iter_mut()
            .for_each(|row| row.workload = "p-0".to_owned());
        rows.iter_mut()
            .for_each(|row| row.workload = "p-100".to_owned());
        report.summary.rows.extend(rows);
        report
    }

    #[test]
    fn each_arm_is_a_line_through_what_was_measured() {
        let pictures = pictures(&report(), &sweep());
        let beside: Vec<&str> = pictures.iter().map(|p| p.heading.as_str()).collect();
        assert!(beside.contains(&"p beside cpu: tokens/s"), "{beside:?}");
        let speed = pictures
            .iter()
            .find(|p| p.heading == "p beside cpu: tokens/s");
        let svg = &speed.unwrap().svg;
        assert_eq!(svg.matches("<polyline").count(), 3, "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3 * 2);
        assert_eq!(svg.matches("<path class=\"whisker").count(), 3 * 2);
        assert!(svg.contains("stress, µs") && svg.contains(">50</text>"));
    }
}
