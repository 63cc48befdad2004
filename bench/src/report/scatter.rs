// SPDX-License-Identifier: GPL-2.0-only
//! The headline picture: speed against the neighbours' work as a share of what is possible, one panel a workload, as
//! inline SVG.

use std::fmt::Write;

use super::labels::{Frame, LABEL_STEP, LETTER, Taken, place};
use super::model::Report;
use super::table::escape;
use crate::record::neighbour::{Kind, Neighbour};
use crate::study::Row;
use gpuaware_stats::Estimate;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 48.0;
/// Percent between two lines of the grid, where that many lines or fewer do.
const STEP: f64 = 20.0;
const LINES: f64 = 12.0;
/// Where names may stand: over the grid a little, and up to the right edge.
const NAMES: Frame = Frame {
    left: LEFT,
    top: TOP - 12.0,
    right: WIDTH,
    bottom: HEIGHT - BOTTOM,
};

/// What 100 % is on the two axes: the best references that the rows have.
struct References {
    /// Of the work, what the launcher leaves possible; else what is done under the baseline.
    possible: bool,
    /// Of tokens/s, this arm's beside the same neighbour; else each arm's own when quiet.
    reserved: Option<String>,
}

/// Where figures lie on the picture.
struct Axes {
    x: Scale,
    y: Scale,
    /// Where nothing more is possible.
    limit: bool,
}

/// Percent on one axis.
struct Scale {
    least: f64,
    most: f64,
    step: f64,
}

struct Point<'a> {
    row: &'a Row,
    colour: usize,
    work: Estimate,
    speed: Estimate,
}

impl References {
    fn of(report: &Report, rows: &[&Row]) -> Self {
        let any = |of: fn(&Row) -> Option<Estimate>| rows.iter().any(|row| of(row).is_some());
        let reserved = report.plan.matrix.reserved_arm();
        Self {
            possible: any(|row| row.work_of_possible),
            reserved: reserved
                .filter(|_| any(|row| row.over_isolcpus))
                .map(str::to_owned),
        }
    }

    fn point<'a>(&self, report: &Report, row: &'a Row) -> Option<Point<'a>> {
        let work = if self.possible {
            row.work_of_possible
        } else {
            row.work_mean
        };
        let speed = match self.reserved {
            Some(_) => row.over_isolcpus,
            None => row.over_own_quiet,
        };
        Some(Point {
            row,
            colour: super::look::colour(report, &row.arm),
            work: work?.scaled(100.0),
            speed: speed?.scaled(100.0),
        })
    }

    fn x_name(&self, baseline: &str) -> String {
        if self.possible {
            "neighbours' work, % of what the launcher leaves possible".to_owned()
        } else {
            format!("neighbours' work, % of that under {baseline}; what is possible is not known")
        }
    }

    fn y_name(&self, unit: &str) -> String {
        match &self.reserved {
            Some(reserved) => format!("{unit}, % of {reserved}'s"),
            None => format!("{unit}, % of own quiet"),
        }
    }
}

impl Scale {
    /// Of all intervals, 100 and a little air: an interval that is cut short would say more than is known.
    fn of<'a>(estimates: impl Iterator<Item = &'a Estimate>) -> Self {
        let ends = |e: &Estimate| e.interval.unwrap_or([e.value; 2]);
        let (least, most) = estimates.fold((100.0, 100.0), |(least, most): (f64, f64), e| {
            let [low, high] = ends(e);
            (least.min(e.value).min(low), most.max(e.value).max(high))
        });
        Self::between(least, most)
    }

    fn between(least: f64, most: f64) -> Self {
        // Of two boots an interval may reach to a thousand times the value.
        let mut step = STEP;
        for factor in [2.5, 2.0, 2.0].into_iter().cycle() {
            if (most - least) / step <= LINES || !step.is_finite() {
                break;
            }
            step *= factor;
        }
        Self {
            least: ((least - 5.0) / step).floor().max(0.0) * step,
            most: ((most + 4.0) / 10.0).ceil() * 10.0,
            step,
        }
    }

    /// From 0, the least, to 1, the most.
    fn at(&self, value: f64) -> f64 {
        ((value - self.least) / (self.most - self.least)).clamp(0.0, 1.0)
    }

    fn steps(&self) -> impl Iterator<Item = f64> {
        let &Self { least, most, step } = self;
        let lines = ((most - least) / step) as u32;
        (0..=lines).map(move |line| least + step * f64::from(line))
    }
}

impl Axes {
    fn x(&self, percent: f64) -> f64 {
        LEFT + self.x.at(percent) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, percent: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.at(percent) * (HEIGHT - TOP - BOTTOM)
    }

    fn place(&self, point: &Point) -> (f64, f64) {
        (self.x(point.work.value), self.y(point.speed.value))
    }
}

/// One panel; empty where no noisy cell has been measured.
pub fn panel(report: &Report, workload: &str) -> String {
    let rows: Vec<&Row> = report
        .summary
        .rows
        .iter()
        .filter(|row| row.workload == workload && row.neighbour != Neighbour::None)
        .collect();
    let references = References::of(report, &rows);
    let points: Vec<Point> = rows
        .into_iter()
        .filter_map(|row| references.point(report, row))
        .collect();
    if points.is_empty() {
        return String::new();
    }
    let axes = Axes {
        x: Scale::of(points.iter().map(|point| &point.work)),
        y: Scale::of(points.iter().map(|point| &point.speed)),
        limit: references.possible,
    };
    let x_name = references.x_name(&report.plan.matrix.baseline);
    let y_name = references.y_name(report.unit(workload));
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}: {} against {}\">\n",
        escape(workload),
        escape(&y_name),
        escape(&x_name)
    );
    grid(&mut svg, &axes, &x_name, &y_name);
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

/// The panel as a file of its own, for a README.
pub fn standalone(report: &Report, workload: &str) -> String {
    super::look::standalone(&panel(report, workload))
}

fn grid(svg: &mut String, axes: &Axes, x_name: &str, y_name: &str) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for value in axes.y.steps() {
        let y = axes.y(value);
        let class = if value == 100.0 { "full" } else { "grid" };
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }
    for value in axes.x.steps() {
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value}</text>",
            axes.x(value),
            bottom + 18.0
        );
    }
    if axes.limit {
        let x = axes.x(100.0);
        let _ = writeln!(
            svg,
            "<line class=\"limit\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">possible</text>",
            x - 5.0,
            bottom - 6.0
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text class=\"axis\" transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(LEFT, right),
        HEIGHT - 8.0,
        escape(x_name),
        f64::midpoint(TOP, bottom),
        escape(y_name)
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
        Neighbour::Cpu | Neighbour::Recorded | Neighbour::None => {
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
    if let Some([low, high]) = point.work.interval {
        let _ = writeln!(
            svg,
            "<line class=\"whisker c{colour}\" x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>",
            axes.x(low),
            axes.x(high)
        );
    }
    if let Some([low, high]) = point.speed.interval {
        let _ = writeln!(
            svg,
            "<line class=\"whisker c{colour}\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>",
            axes.y(low),
            axes.y(high)
        );
    }
    // Of neighbours that sleep CPU time is not the only limit.
    let neighbour = point.row.neighbour;
    let runnable = neighbour.kinds().contains(&Kind::StressNg);
    let _ = writeln!(
        svg,
        "<path class=\"dot{} c{colour}\" d=\"{}\"><title>{} beside {neighbour}: speed {:.1} %, work {:.0} %</title></path>",
        if runnable { "" } else { " hollow" },
        mark(neighbour, x, y),
        escape(&point.row.arm),
        point.speed.value,
        point.work.value
    );
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
        let ((x, y), place) = place(&NAMES, &places, arm.chars().count() as f64 * letter, &taken);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::samples::cell;
    use crate::report::samples;
    use crate::study::samples::{with_launcher_cpus, with_work};
    use crate::study::study;

    #[test]
    fn the_limit_is_where_the_launcher_leaves_no_more() {
        let mut report = samples::report();
        // 1.5 CPUs are left under EEVDF, 1.2 under gpuaware: with 80 % of the work it stands on the line, with 60 % at
        // three quarters of it.
        let panel_with = |report: &mut Report, work: f64| {
            let cells: Vec<_> = (1..=3)
                .flat_map(|round| {
                    [("eevdf", 0.5, 100.0), ("gpuaware", 0.8, work)].map(|(arm, cpus, rate)| {
                        let cell = cell(round, arm, Neighbour::Cpu, 100.0);
                        with_work(with_launcher_cpus(cell, cpus), &[(Kind::StressNg, rate)])
                    })
                })
                .chain((1..=3).map(|round| cell(round, "gpuaware", Neighbour::None, 100.0)))
                .collect();
            report.summary = study(&report.plan, &cells);
            panel(report, "qwen3")
        };
        let at = |svg: &str, what: &str| -> f64 {
            let (_, rest) = svg.split_once(what).unwrap();
            rest.split(['"', ' ']).next().unwrap().parse().unwrap()
        };
        let svg = panel_with(&mut report, 80.0);
        let limit = at(&svg, "<line class=\"limit\" x1=\"");
        // From 80 to 110 %: two thirds of the way.
        let width = WIDTH - LEFT - RIGHT;
        assert!((limit - (LEFT + width * 2.0 / 3.0)).abs() < 0.06, "{limit}");
        let point = |svg: &str| at(svg, "c3\" d=\"M") + 6.0;
        assert!((point(&svg) - limit).abs() < 0.11, "{svg}");
        // From 60 to 110 %.
        let svg = panel_with(&mut report, 60.0);
        assert!(
            (point(&svg) - (LEFT + width * 15.0 / 50.0)).abs() < 0.11,
            "{svg}"
        );
        assert!((at(&svg, "<line class=\"limit\" x1=\"") - (LEFT + width * 0.8)).abs() < 0.06);
        assert!(svg.contains("tokens/s, % of own quiet"), "nobody reserves");
    }

    #[test]
    fn without_the_limit_the_work_is_that_under_the_baseline() {
        let mut report = samples::report();
        assert!(panel(&report, "qwen3").contains("tokens/s, % of isolcpus's"));
        for row in &mut report.summary.rows {
            row.work_of_possible = None;
        }
        let svg = panel(&report, "qwen3");
        assert!(
            !svg.contains("class=\"limit\"") && svg.contains("% of that under eevdf"),
            "{svg}"
        );
    }

    #[test]
    fn draws_a_point_for_every_measured_noisy_row_and_names_each_arm_once() {
        let report = samples::report();
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
    fn an_interval_without_bounds_has_few_lines_and_100_is_one_of_them() {
        for most in [130.0, 340.0, 900.0, 1e7] {
            let scale = Scale::between(50.0, most);
            let lines: Vec<f64> = scale.steps().collect();
            assert!((5..=15).contains(&lines.len()), "{most}: {lines:?}");
            assert!(most > 1000.0 || lines.contains(&100.0), "{most}: {lines:?}");
        }
    }

    #[test]
    fn neighbours_that_sleep_have_hollow_marks() {
        let mut report = samples::report();
        let rows = report.summary.rows.iter_mut();
        rows.filter(|row| row.neighbour == Neighbour::Cpu)
            .for_each(|row| row.neighbour = Neighbour::Disk);
        report.plan.matrix.neighbours = vec![Neighbour::Disk];
        let svg = panel(&report, "qwen3");
        assert_eq!(svg.matches("class=\"dot hollow c").count(), 3, "{svg}");
    }
}
