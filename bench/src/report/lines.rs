// SPDX-License-Identifier: GPL-2.0-only
//! A figure along a swept parameter: a line an arm, with intervals, as inline SVG.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::labels::{LABEL_STEP, LETTER};
use super::model::Report;
use super::table::escape;
use crate::matrix::Sweep;
use crate::record::neighbour::Neighbour;
use crate::stats::Estimate;
use crate::study::Row;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 46.0;
/// Lines of the grid.
const STEPS: f64 = 5.0;

/// An arm's values along the axis.
struct Line<'a> {
    arm: &'a str,
    points: Vec<(f64, Estimate)>,
}

/// Where the parameter's and the figure's axis lie; the latter begins at 0.
struct Frame {
    right: f64,
    low: f64,
    high: f64,
    step: f64,
    top: f64,
}

impl Frame {
    fn new(sweep: &Sweep, lines: &[Line]) -> Self {
        let longest = lines.iter().map(|line| line.arm.chars().count()).max();
        let largest = lines.iter().flat_map(|line| &line.points);
        let largest = largest.map(|(_, figure)| {
            let high = figure.interval.map_or(figure.value, |[_, high]| high);
            // An interval of few boots can be many times as high as its figure.
            high.min(figure.value * 2.0)
        });
        let largest = largest.fold(0.0, f64::max);
        // Nobody misses an objective: an axis there must be.
        let largest = if largest > 0.0 { largest } else { 1.0 };
        let step = round_up(largest / STEPS);
        Self {
            right: WIDTH - LETTER * longest.unwrap_or(0) as f64 - 20.0,
            low: sweep.values.first().copied().unwrap_or_default(),
            high: sweep.values.last().copied().unwrap_or_default(),
            step,
            top: step * STEPS,
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (value - self.low) / (self.high - self.low) * (self.right - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value / self.top).clamp(0.0, 1.0);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let decade = 10.0_f64.powf(value.log10().floor());
    let mut steps = [1.0, 2.0, 5.0].into_iter();
    // What was a round number before it was divided is not the next one.
    let step = steps.find(|step| step * decade >= value * (1.0 - 1e-9));
    step.unwrap_or(10.0) * decade
}

/// A picture, and what it shows.
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
    let callers = callers(report, &names);
    for &neighbour in &report.plan.matrix.neighbours {
        let mut draw = |what: &str, of: &dyn Fn(&Row) -> Option<Estimate>| {
            let lines = lines(report, sweep, &names, neighbour, of);
            if !lines.is_empty() {
                all.push(Picture {
                    heading: format!("{workload} beside {neighbour}: {what}"),
                    svg: chart(report, sweep, what, &lines),
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
        arm,
        points: (sweep.values.iter().zip(names))
            .filter_map(|(&value, name)| point(arm, value, name))
            .collect(),
    });
    lines.filter(|line| !line.points.is_empty()).collect()
}

fn chart(report: &Report, sweep: &Sweep, what: &str, lines: &[Line]) -> String {
    let frame = Frame::new(sweep, lines);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} by {}\">\n",
        escape(what),
        escape(&sweep.label)
    );
    axes(&mut svg, &frame, sweep, what);
    for line in lines {
        draw(&mut svg, report, &frame, line);
    }
    names(&mut svg, report, &frame, lines);
    svg + "</svg>\n"
}

fn axes(svg: &mut String, frame: &Frame, sweep: &Sweep, what: &str) {
    for step in 0..=STEPS as u32 {
        let value = f64::from(step) * frame.step;
        let y = frame.y(value);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            frame.right,
            LEFT - 8.0,
            y + 4.0,
            // Multiples of a tenth come with a last digit of dust.
            (value * 1e6).round() / 1e6
        );
    }
    let mut last = f64::NEG_INFINITY;
    for &value in &sweep.values {
        let (x, text) = (frame.x(value), value.to_string());
        // Where values lie close together one name stands for them.
        let half = text.len() as f64 * LETTER / 2.0 + 3.0;
        if x - half > last {
            last = x + half;
            let _ = writeln!(
                svg,
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                HEIGHT - BOTTOM + 17.0
            );
        }
    }
    let _ = writeln!(
        svg,
        "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text class=\"axis\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>",
        f64::midpoint(LEFT, frame.right),
        HEIGHT - 8.0,
        escape(&sweep.label),
        TOP - 6.0,
        escape(what)
    );
}

fn draw(svg: &mut String, report: &Report, frame: &Frame, line: &Line) {
    let colour = super::look::colour(report, line.arm);
    let points: Vec<String> = line
        .points
        .iter()
        .map(|(value, figure)| format!("{:.1},{:.1}", frame.x(*value), frame.y(figure.value)))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline class=\"curve s{colour}\" points=\"{}\"/>",
        points.join(" ")
    );
    for (value, figure) in &line.points {
        let (x, y) = (frame.x(*value), frame.y(figure.value));
        if let Some([low, high]) = figure.interval {
            let _ = writeln!(
                svg,
                "<path class=\"whisker s{colour}\" d=\"M{x:.1} {:.1}V{:.1}\"/>",
                frame.y(low),
                frame.y(high)
            );
        }
        let _ = writeln!(
            svg,
            "<circle class=\"dot c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"
        );
    }
}

/// Beside the last points, in their order, none on another.
fn names(svg: &mut String, report: &Report, frame: &Frame, lines: &[Line]) {
    let mut ends: Vec<(f64, &str)> = lines
        .iter()
        .filter_map(|line| Some((frame.y(line.points.last()?.1.value), line.arm)))
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    // From the lowest upwards, so that none falls out at the bottom; then down from the top.
    let mut limit = HEIGHT - BOTTOM;
    for (y, _) in ends.iter_mut().rev() {
        *y = y.min(limit);
        limit = *y - LABEL_STEP;
    }
    let mut limit = TOP;
    for (y, arm) in ends {
        let y = y.max(limit);
        limit = y + LABEL_STEP;
        let _ = writeln!(
            svg,
            "<text class=\"label t{}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            super::look::colour(report, arm),
            frame.right + 10.0,
            y + 4.0,
            escape(arm)
        );
    }
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

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, expected) in [
            (0.2, 0.2),
            (0.21, 0.5),
            (3.0, 5.0),
            (7.0, 10.0),
            (100.0, 100.0),
        ] {
            assert!((round_up(value) / expected - 1.0).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn names_do_not_lie_on_one_another() {
        let svg = &pictures(&report(), &sweep())[0].svg;
        let labels = svg.lines().filter(|line| line.contains("class=\"label"));
        let mut heights: Vec<f64> = labels
            .map(|line| {
                line.split("y=\"")
                    .nth(1)
                    .unwrap()
                    .split('"')
                    .next()
                    .unwrap()
            })
            .map(|y| y.parse().unwrap())
            .collect();
        heights.sort_by(f64::total_cmp);
        assert!(
            heights
                .windows(2)
                .all(|pair| pair[1] - pair[0] > LABEL_STEP - 0.2),
            "{heights:?}"
        );
    }
}
