// SPDX-License-Identifier: GPL-2.0-only
//! The headline picture: isolation against waste, one panel a workload, as inline SVG.

use std::fmt::Write;

use super::model::Report;
use super::table::escape;
use crate::record::neighbour::{Kind, Neighbour};
use crate::stats::Estimate;
use crate::study::Row;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 48.0;
/// Percent between two lines of the grid.
const Y_STEP: f64 = 20.0;
/// The height of a name, and the mean width of its letters.
const LABEL_STEP: f64 = 14.0;
const LETTER: f64 = 6.7;

/// Where figures lie on the picture.
struct Axes {
    x_max: f64,
    y_min: f64,
    y_max: f64,
}

struct Point<'a> {
    row: &'a Row,
    colour: usize,
    idle: Estimate,
    share: Estimate,
}

impl Axes {
    fn of(points: &[Point]) -> Self {
        let shares = || points.iter().map(|point| point.share.value);
        let idle = points.iter().map(|point| point.idle.value);
        let most = shares().fold(100.0, f64::max);
        let least = shares().fold(100.0, f64::min);
        Self {
            x_max: (idle.fold(0.0, f64::max) * 1.25 / 10.0).ceil().max(1.0) * 10.0,
            y_min: ((least - 5.0) / Y_STEP).floor().max(0.0) * Y_STEP,
            y_max: (most * 1.06 / 10.0).ceil() * 10.0,
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + value.clamp(0.0, self.x_max) / self.x_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let from_bottom = (value.max(self.y_min) - self.y_min) / (self.y_max - self.y_min);
        HEIGHT - BOTTOM - from_bottom.min(1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn place(&self, point: &Point) -> (f64, f64) {
        (self.x(point.idle.value), self.y(point.share.value))
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
                colour: super::look::colour(report, &row.arm),
                idle: row.idle_percent?,
                share: row.share_of_clean?.scaled(100.0),
            })
        })
        .collect();
    if points.is_empty() {
        return String::new();
    }
    let axes = Axes::of(&points);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}: share of clean tokens/s against idle CPU\">\n",
        escape(workload)
    );
    grid(&mut svg, &axes);
    legend(&mut svg, &report.plan.matrix.neighbours, &points);
    for arm in &report.plan.matrix.arms {
        thread(&mut svg, &axes, &points, arm);
    }
    // The subject's points lie on top.
    let subject = |point: &&Point| point.row.arm == report.plan.matrix.subject;
    let others = points.iter().filter(|point| !subject(point));
    for point in others.chain(points.iter().filter(subject)) {
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
    let style = super::look::STYLE;
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
    let mut value = axes.y_min;
    while value <= axes.y_max {
        let y = axes.y(value);
        let class = if value == 100.0 { "full" } else { "grid" };
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT - 8.0,
            y + 4.0
        );
        value += Y_STEP;
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
        "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">waste: CPU time left idle, %</text>\
         <text class=\"axis\" transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">isolation: share of clean tokens/s, %</text>",
        f64::midpoint(LEFT, right),
        HEIGHT - 8.0,
        f64::midpoint(TOP, bottom)
    );
}

/// Which mark stands for which neighbour.
fn legend(svg: &mut String, neighbours: &[Neighbour], points: &[Point]) {
    let mut x = LEFT + 6.0;
    for &neighbour in neighbours {
        if points.iter().any(|point| point.row.neighbour == neighbour) {
            let _ = writeln!(
                svg,
                "<path class=\"key\" d=\"{}\"/><text class=\"tick\" x=\"{:.1}\" y=\"14\">{neighbour}</text>",
                mark(neighbour, x, 10.0),
                x + 11.0
            );
            x += 34.0 + LETTER * neighbour.name().len() as f64;
        }
    }
}

/// The outline of a neighbour's mark, some 12 wide.
fn mark(neighbour: Neighbour, x: f64, y: f64) -> String {
    match neighbour {
        Neighbour::Heavy => format!("M{x:.1} {:.1}l7 7l-7 7l-7 -7z", y - 7.0),
        Neighbour::Network => format!("M{x:.1} {:.1}l6.5 11h-13z", y - 6.5),
        Neighbour::Disk => format!("M{:.1} {:.1}h10v10h-10z", x - 5.0, y - 5.0),
        Neighbour::Irq => format!("M{x:.1} {:.1}l6.5 -11h-13z", y + 6.5),
        Neighbour::Hackbench => {
            format!("M{:.1} {:.1}h4v4h4v4h-4v4h-4v-4h-4v-4h4z", x - 2.0, y - 6.0)
        }
        Neighbour::Memory => format!("M{:.1} {:.1}h14v7h-14z", x - 7.0, y - 3.5),
        Neighbour::Cpu | Neighbour::None => {
            format!("M{:.1} {y:.1}a6 6 0 1 0 12 0a6 6 0 1 0 -12 0z", x - 6.0)
        }
    }
}

/// A faint line through an arm's points: its name stands at one of them.
fn thread(svg: &mut String, axes: &Axes, points: &[Point], arm: &str) {
    let mine: Vec<&Point> = points.iter().filter(|p| p.row.arm == arm).collect();
    if let [first, _, ..] = mine[..] {
        let places = mine.iter().map(|point| axes.place(point));
        let path: Vec<String> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline class=\"thread s{}\" points=\"{}\"/>",
            first.colour,
            path.join(" ")
        );
    }
}

fn draw_point(svg: &mut String, axes: &Axes, point: &Point) {
    let (x, y) = axes.place(point);
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
    // Neighbours that sleep leave CPUs idle under every arm.
    let neighbour = point.row.neighbour;
    let runnable = neighbour.kinds().contains(&Kind::StressNg);
    let _ = writeln!(
        svg,
        "<path class=\"dot{} c{colour}\" d=\"{}\"><title>{} beside {neighbour}: {:.1} % of clean, {:.1} % idle</title></path>",
        if runnable { "" } else { " hollow" },
        mark(neighbour, x, y),
        escape(&point.row.arm),
        point.share.value,
        point.idle.value
    );
}

/// A rectangle that is taken: left, top, right, bottom.
type Taken = [f64; 4];

fn overlap(a: &Taken, b: &Taken) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

/// Each arm's name beside one of its points, at the nearest place that no point and no other name takes.
fn labels(svg: &mut String, report: &Report, axes: &Axes, points: &[Point]) {
    let mut taken: Vec<Taken> = points
        .iter()
        .map(|point| {
            let (x, y) = axes.place(point);
            [x - 7.0, y - 7.0, x + 7.0, y + 7.0]
        })
        .collect();
    let subject = &report.plan.matrix.subject;
    // The subject chooses first.
    let mut arms: Vec<&String> = report.plan.matrix.arms.iter().collect();
    arms.sort_by_key(|arm| *arm != subject);
    for arm in arms {
        let mine: Vec<&Point> = points.iter().filter(|p| p.row.arm == *arm).collect();
        let Some(first) = mine.first() else { continue };
        // The subject's name is bold, thus wider.
        let letter = if arm == subject {
            LETTER * 1.25
        } else {
            LETTER
        };
        let places: Vec<(f64, f64)> = mine.iter().map(|point| axes.place(point)).collect();
        let ((x, y), place) = place(&places, arm.chars().count() as f64 * letter, &taken);
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
            first.colour,
            place[0],
            middle + 4.0,
            escape(arm)
        );
    }
}

/// The free place nearest to one of some points for a text of that width, and which point that is: beside it, then
/// further up and down.
fn place(points: &[(f64, f64)], width: f64, taken: &[Taken]) -> ((f64, f64), Taken) {
    let at = |left: f64, middle: f64| -> Taken {
        [
            left,
            middle - LABEL_STEP / 2.0,
            left + width,
            middle + LABEL_STEP / 2.0,
        ]
    };
    let inside =
        |r: &Taken| r[0] >= LEFT && r[2] <= WIDTH && r[1] >= TOP - 12.0 && r[3] <= HEIGHT - BOTTOM;
    let free = |r: &Taken| inside(r) && !taken.iter().any(|other| overlap(r, other));
    let steps = (2.0 * HEIGHT / (LABEL_STEP / 2.0)) as u32;
    (0..steps)
        .flat_map(|step| {
            // 0, 1 down, 1 up, 2 down, 2 up, in half steps
            let away = f64::from(step.div_ceil(2)) * LABEL_STEP / 2.0;
            points.iter().flat_map(move |&(x, y)| {
                let middle = if step % 2 == 1 { y + away } else { y - away };
                [x + 11.0, x - 11.0 - width].map(|left| ((x, y), at(left, middle)))
            })
        })
        .find(|(_, place)| free(place))
        .unwrap_or_else(|| (points[0], at(points[0].0 + 11.0, points[0].1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lie_neither_on_points_nor_on_one_another() {
        let points = [(100.0, 150.0)];
        let point = [93.0, 143.0, 107.0, 157.0];
        let (_, first) = place(&points, 80.0, &[point]);
        let (_, second) = place(&points, 80.0, &[point, first]);
        assert_eq!(first[0], 111.0);
        assert!(
            !overlap(&first, &second) && !overlap(&point, &second),
            "{first:?} {second:?}"
        );
        // Where the first point is hemmed in, the name goes to the second.
        let wall = [0.0, 0.0, WIDTH, 290.0];
        let (chosen, _) = place(&[(100.0, 150.0), (100.0, 300.0)], 80.0, &[wall]);
        assert_eq!(chosen, (100.0, 300.0));
    }

    #[test]
    fn draws_a_point_for_every_measured_noisy_row_and_names_each_arm_once() {
        let report = super::super::samples::report();
        let svg = panel(&report, "qwen3");
        assert_eq!(svg.matches("<path class=\"dot c").count(), 3, "{svg}");
        assert_eq!(svg.matches("class=\"label").count(), 3);
        assert_eq!(svg.matches("class=\"key\"").count(), 1, "one neighbour");
        assert!(!svg.contains("hollow"), "stress-ng is always runnable");
        assert_eq!(panel(&report, "eager"), "");
        let file = standalone(&report, "qwen3");
        assert!(
            file.starts_with("<svg xmlns=") && file.contains("<style>"),
            "{file}"
        );
        assert_eq!(standalone(&report, "eager"), "");
    }

    #[test]
    fn neighbours_that_sleep_have_hollow_marks() {
        let mut report = super::super::samples::report();
        let rows = report.summary.rows.iter_mut();
        rows.filter(|row| row.neighbour == Neighbour::Cpu)
            .for_each(|row| row.neighbour = Neighbour::Disk);
        report.plan.matrix.neighbours = vec![Neighbour::Disk];
        let svg = panel(&report, "qwen3");
        assert_eq!(svg.matches("class=\"dot hollow c").count(), 3, "{svg}");
    }
}
