// SPDX-License-Identifier: GPL-2.0-only
//! The headline picture: isolation against waste, one panel a workload, as inline SVG.

use std::fmt::Write;

use super::Report;
use super::table::escape;
use crate::neighbour::Neighbour;
use crate::study::Row;
use crate::study::stats::Estimate;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 48.0;
/// Labels keep this much room from one another.
const LABEL_STEP: f64 = 14.0;

/// Where figures lie on the picture.
struct Axes {
    x_max: f64,
    y_max: f64,
}

struct Point<'a> {
    row: &'a Row,
    colour: usize,
    idle: Estimate,
    share: Estimate,
}

impl Axes {
    fn x(&self, value: f64) -> f64 {
        LEFT + value.clamp(0.0, self.x_max) / self.x_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value.clamp(0.0, self.y_max) / self.y_max * (HEIGHT - TOP - BOTTOM)
    }
}

/// One panel; empty where no noisy cell has been measured.
pub fn panel(report: &Report, workload: &str) -> String {
    let points: Vec<Point> = report
        .summary
        .rows
        .iter()
        .filter(|row| row.workload == workload && row.neighbour != Neighbour::None)
        .filter_map(|row| {
            Some(Point {
                row,
                colour: super::html::colour(report, &row.arm),
                idle: row.idle_percent?,
                share: row.share_of_clean?.scaled(100.0),
            })
        })
        .collect();
    if points.is_empty() {
        return String::new();
    }
    let farthest = |figure: fn(&Point) -> f64| points.iter().map(figure).fold(0.0, f64::max);
    let axes = Axes {
        x_max: (farthest(|point| point.idle.value) * 1.25 / 10.0)
            .ceil()
            .max(1.0)
            * 10.0,
        y_max: (farthest(|point| point.share.value).max(100.0) * 1.06 / 10.0).ceil() * 10.0,
    };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}: share of clean tokens/s against idle CPU\">\n",
        escape(workload)
    );
    grid(&mut svg, &axes);
    for point in &points {
        draw_point(&mut svg, &axes, point);
    }
    labels(&mut svg, &axes, &points);
    svg + "</svg>\n"
}

fn grid(svg: &mut String, axes: &Axes) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let y_step = if axes.y_max > 60.0 { 20.0 } else { 10.0 };
    let mut value = 0.0;
    while value <= axes.y_max {
        let y = axes.y(value);
        let class = if value == 100.0 { "full" } else { "grid" };
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT - 8.0,
            y + 4.0
        );
        value += y_step;
    }
    let x_step = axes.x_max / 5.0;
    for step in 0..=5 {
        let value = x_step * f64::from(step);
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value}</text>",
            axes.x(value),
            bottom + 18.0
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">waste: CPU idle beside runnable work, %</text>\
         <text class=\"axis\" transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">isolation: share of clean tokens/s, %</text>",
        f64::midpoint(LEFT, right),
        HEIGHT - 8.0,
        f64::midpoint(TOP, bottom)
    );
}

fn draw_point(svg: &mut String, axes: &Axes, point: &Point) {
    let (x, y) = (axes.x(point.idle.value), axes.y(point.share.value));
    let colour = point.colour;
    if let Some([low, high]) = point.idle.interval {
        let _ = writeln!(
            svg,
            "<line class=\"whisker c{colour}\" x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>",
            axes.x(low),
            axes.x(high)
        );
    }
    if let Some([low, high]) = point.share.interval {
        let _ = writeln!(
            svg,
            "<line class=\"whisker c{colour}\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>",
            axes.y(low),
            axes.y(high)
        );
    }
    let title = format!(
        "<title>{} beside {}: {:.1} % of clean, {:.1} % idle</title>",
        escape(&point.row.arm),
        point.row.neighbour,
        point.share.value,
        point.idle.value
    );
    let _ = match point.row.neighbour {
        Neighbour::Heavy => writeln!(
            svg,
            "<rect class=\"dot c{colour}\" x=\"{:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" transform=\"rotate(45 {x:.1} {y:.1})\">{title}</rect>",
            x - 5.0,
            y - 5.0
        ),
        _ => writeln!(
            svg,
            "<circle class=\"dot c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\">{title}</circle>"
        ),
    };
}

/// Names beside the points, moved apart where they would lie on one another.
fn labels(svg: &mut String, axes: &Axes, points: &[Point]) {
    let mut order: Vec<&Point> = points.iter().collect();
    order.sort_by(|a, b| axes.y(a.share.value).total_cmp(&axes.y(b.share.value)));
    let mut placed: Vec<(f64, f64)> = Vec::new();
    for point in order {
        let (x, y) = (axes.x(point.idle.value), axes.y(point.share.value));
        let text = format!("{}, {}", point.row.arm, point.row.neighbour);
        let width = text.len() as f64 * 6.6;
        let to_left = x + 14.0 + width > WIDTH - RIGHT;
        let label_x = if to_left { x - 14.0 } else { x + 14.0 };
        let start = if to_left { label_x - width } else { label_x };
        let mut label_y = y;
        for &(other_start, other_y) in &placed {
            let beside = (start - other_start).abs() < 130.0;
            if beside && label_y - other_y < LABEL_STEP {
                label_y = other_y + LABEL_STEP;
            }
        }
        placed.push((start, label_y));
        if label_y - y > 4.0 {
            let near = if to_left {
                label_x + 3.0
            } else {
                label_x - 3.0
            };
            let _ = writeln!(
                svg,
                "<line class=\"leader\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{near:.1}\" y2=\"{label_y:.1}\"/>"
            );
        }
        let anchor = if to_left { "end" } else { "start" };
        let _ = writeln!(
            svg,
            "<text class=\"label t{}\" x=\"{label_x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            point.colour,
            label_y + 4.0,
            escape(&text)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_a_point_for_every_measured_noisy_row() {
        let report = super::super::samples::report();
        let svg = panel(&report, "qwen3");
        assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
        assert_eq!(svg.matches("class=\"label").count(), 3);
        assert_eq!(panel(&report, "eager"), "");
    }
}
