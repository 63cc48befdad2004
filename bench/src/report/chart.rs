// SPDX-License-Identifier: GPL-2.0-only
//! Lines along an axis, with intervals, as inline SVG.

use std::fmt::Write;

use super::labels::{LABEL_STEP, LETTER};
use super::table::escape;
use gpuaware_stats::Estimate;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 46.0;
/// Lines of the grid.
const STEPS: f64 = 5.0;

/// What the horizontal axis says, and the values that are named on it, in order.
#[derive(Debug)]
pub struct Axis<'a> {
    pub label: &'a str,
    pub values: &'a [f64],
}

/// Values along the axis, at least one.
#[derive(Debug)]
pub struct Line<'a> {
    pub name: &'a str,
    pub colour: usize,
    pub points: Vec<(f64, Estimate)>,
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
    fn new(axis: &Axis, lines: &[Line]) -> Self {
        let longest = lines.iter().map(|line| line.name.chars().count()).max();
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
            low: axis.values.first().copied().unwrap_or_default(),
            high: axis.values.last().copied().unwrap_or_default(),
            step,
            top: step * STEPS,
        }
    }

    fn x(&self, value: f64) -> f64 {
        let width = (self.high - self.low).max(f64::MIN_POSITIVE);
        LEFT + (value - self.low) / width * (self.right - LEFT)
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

/// `what` is the vertical axis, which begins at 0.
pub fn chart(axis: &Axis, what: &str, lines: &[Line]) -> String {
    let frame = Frame::new(axis, lines);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} by {}\">\n",
        escape(what),
        escape(axis.label)
    );
    axes(&mut svg, &frame, axis, what);
    for line in lines {
        draw(&mut svg, &frame, line);
    }
    names(&mut svg, &frame, lines);
    svg + "</svg>\n"
}

fn axes(svg: &mut String, frame: &Frame, axis: &Axis, what: &str) {
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
    for &value in axis.values {
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
        escape(axis.label),
        TOP - 6.0,
        escape(what)
    );
}

fn draw(svg: &mut String, frame: &Frame, line: &Line) {
    let colour = line.colour;
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
fn names(svg: &mut String, frame: &Frame, lines: &[Line]) {
    let mut ends: Vec<(f64, &Line)> = lines
        .iter()
        .filter_map(|line| Some((frame.y(line.points.last()?.1.value), line)))
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    // From the lowest upwards, so that none falls out at the bottom; then down from the top.
    let mut limit = HEIGHT - BOTTOM;
    for (y, _) in ends.iter_mut().rev() {
        *y = y.min(limit);
        limit = *y - LABEL_STEP;
    }
    let mut limit = TOP;
    for (y, line) in ends {
        let y = y.max(limit);
        limit = y + LABEL_STEP;
        let _ = writeln!(
            svg,
            "<text class=\"label t{}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            line.colour,
            frame.right + 10.0,
            y + 4.0,
            escape(line.name)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, values: [f64; 2]) -> Line<'_> {
        let points = [0.0, 100.0].into_iter().zip(values);
        let estimate = |value: f64| Estimate::new(value, Some([value * 0.9, value * 1.1]));
        Line {
            name,
            colour: 1,
            points: points.map(|(x, value)| (x, estimate(value))).collect(),
        }
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
        let lines = ["a", "b", "c"].map(|name| line(name, [100.0, 98.0]));
        let axis = Axis {
            label: "x",
            values: &[0.0, 50.0, 100.0],
        };
        let svg = chart(&axis, "y", &lines);
        let labels = svg.lines().filter(|line| line.contains("class=\"label"));
        let height = |line: &str| -> f64 {
            let (_, rest) = line.split_once(" y=\"").unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let mut heights: Vec<f64> = labels.map(height).collect();
        assert_eq!(heights.len(), 3);
        heights.sort_by(f64::total_cmp);
        assert!(
            heights
                .windows(2)
                .all(|pair| pair[1] - pair[0] > LABEL_STEP - 0.2),
            "{heights:?}"
        );
    }

    #[test]
    fn a_single_value_has_its_place() {
        let axis = Axis {
            label: "x",
            values: &[7.0],
        };
        let mut only = line("a", [1.0, 1.0]);
        only.points.truncate(1);
        only.points[0].0 = 7.0;
        assert!(!chart(&axis, "y", &[only]).contains("NaN"));
    }
}
