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
/// The height of a name, and the mean width of its letters.
const LABEL_STEP: f64 = 14.0;
const LETTER: f64 = 6.7;

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
    labels(&mut svg, report, &axes, &points);
    svg + "</svg>\n"
}

/// The panel as a file of its own, for a README: with the page's colours, on its own ground.
pub fn standalone(report: &Report, workload: &str) -> String {
    let panel = panel(report, workload);
    if panel.is_empty() {
        return panel;
    }
    let style = super::html::STYLE;
    panel
        .replacen(
            "<svg ",
            &format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" "),
            1,
        )
        .replacen(
            ">\n",
            &format!(">\n<style>{style}</style>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"var(--card)\"/>\n"),
            1,
        )
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

/// A rectangle that is taken: left, top, right, bottom.
type Taken = [f64; 4];

fn overlap(a: &Taken, b: &Taken) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

/// Names beside the points, each at the nearest place that no point and no other name takes.
fn labels(svg: &mut String, report: &Report, axes: &Axes, points: &[Point]) {
    let mut taken: Vec<Taken> = points
        .iter()
        .map(|point| {
            let (x, y) = (axes.x(point.idle.value), axes.y(point.share.value));
            [x - 7.0, y - 7.0, x + 7.0, y + 7.0]
        })
        .collect();
    let mut order: Vec<&Point> = points.iter().collect();
    order.sort_by(|a, b| axes.y(a.share.value).total_cmp(&axes.y(b.share.value)));
    for point in order {
        let (x, y) = (axes.x(point.idle.value), axes.y(point.share.value));
        let text = format!("{}, {}", point.row.arm, point.row.neighbour);
        // The subject's name is bold, thus wider.
        let bold = point.row.arm == report.plan.matrix.subject;
        let letter = if bold { LETTER * 1.15 } else { LETTER };
        let place = place(x, y, text.len() as f64 * letter, &taken);
        taken.push(place);
        let middle = f64::midpoint(place[1], place[3]);
        if (middle - y).abs() > LABEL_STEP {
            let near = if place[0] > x {
                place[0] - 2.0
            } else {
                place[2] + 2.0
            };
            let _ = writeln!(
                svg,
                "<line class=\"leader\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{near:.1}\" y2=\"{middle:.1}\"/>"
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"label t{}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            point.colour,
            place[0],
            middle + 4.0,
            escape(&text)
        );
    }
}

/// The free place nearest to a point for a text of that width: beside it, then further up and down.
fn place(x: f64, y: f64, width: f64, taken: &[Taken]) -> Taken {
    let at = |left: f64, middle: f64| -> Taken {
        [
            left,
            middle - LABEL_STEP / 2.0,
            left + width,
            middle + LABEL_STEP / 2.0,
        ]
    };
    let inside =
        |r: &Taken| r[0] >= LEFT && r[2] <= WIDTH && r[1] >= 0.0 && r[3] <= HEIGHT - BOTTOM;
    let free = |r: &Taken| inside(r) && !taken.iter().any(|other| overlap(r, other));
    (0..24)
        .flat_map(|step| {
            // 0, 1 down, 1 up, 2 down, 2 up, in half steps
            let away = f64::from((step + 1) / 2) * LABEL_STEP / 2.0;
            let middle = if step % 2 == 1 { y + away } else { y - away };
            [at(x + 11.0, middle), at(x - 11.0 - width, middle)]
        })
        .find(free)
        .unwrap_or_else(|| at(x + 11.0, y))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lie_neither_on_points_nor_on_one_another() {
        let (x, y) = (100.0, 50.0);
        let point = [93.0, 43.0, 107.0, 57.0];
        let first = place(x, y, 80.0, &[point]);
        let second = place(x, y, 80.0, &[point, first]);
        assert_eq!(first[0], 111.0);
        assert!(
            !overlap(&first, &second) && !overlap(&point, &second),
            "{first:?} {second:?}"
        );
    }

    #[test]
    fn draws_a_point_for_every_measured_noisy_row() {
        let report = super::super::samples::report();
        let svg = panel(&report, "qwen3");
        assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
        assert_eq!(svg.matches("class=\"label").count(), 3);
        assert_eq!(panel(&report, "eager"), "");
        let file = standalone(&report, "qwen3");
        assert!(
            file.starts_with("<svg xmlns=") && file.contains("<style>"),
            "{file}"
        );
        assert_eq!(standalone(&report, "eager"), "");
    }
}
