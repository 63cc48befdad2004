// SPDX-License-Identifier: GPL-2.0-only
//! How latencies are distributed: for each arm the share of tokens that took at most so long, as
//! inline SVG. The axis of latencies is logarithmic: tails are what is looked for.

use std::fmt::Write;

use super::model::Report;
use super::table::escape;
use crate::record::neighbour::Neighbour;
use crate::study::Distribution;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

/// The latencies at both ends of the axis, in ms.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn x(&self, ms: f64) -> f64 {
        let along = (ms / self.low).ln() / (self.high / self.low).ln();
        LEFT + along.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }
}

fn y(share: f64) -> f64 {
    HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
}

/// All arms of one workload beside one neighbour; empty where nothing has been measured.
pub fn chart(report: &Report, workload: &str, neighbour: Neighbour) -> String {
    let curves: Vec<&Distribution> = report
        .summary
        .distributions
        .iter()
        .filter(|d| d.workload == workload && d.neighbour == neighbour)
        .collect();
    let all = || curves.iter().flat_map(|d| &d.quantiles_ms).copied();
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    if low <= 0.0 || high <= low {
        return String::new();
    }
    let axis = Axis { low, high };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}, {neighbour}: distribution of latency\">\n",
        escape(workload)
    );
    grid(&mut svg, &axis, report.unit(workload));
    for curve in &curves {
        line(&mut svg, report, &axis, curve);
    }
    for (at, curve) in curves.iter().enumerate() {
        let colour = super::look::colour(report, &curve.arm);
        let _ = writeln!(
            svg,
            "<text class=\"label t{colour}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT - 4.0,
            HEIGHT - BOTTOM - 8.0 - 15.0 * at as f64,
            escape(&curve.arm)
        );
    }
    svg + "</svg>\n"
}

fn grid(svg: &mut String, axis: &Axis, unit: &str) {
    for percent in [0.0, 50.0, 90.0, 100.0] {
        let y = y(percent / 100.0);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{percent}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0
        );
    }
    // 1, 2, 5 in each decade that is shown.
    let mut decade = 10.0_f64.powf(axis.low.log10().floor());
    while decade <= axis.high {
        for ms in [1.0, 2.0, 5.0].map(|step| step * decade) {
            if (axis.low..=axis.high).contains(&ms) {
                let _ = writeln!(
                    svg,
                    "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    axis.x(ms),
                    HEIGHT - BOTTOM + 17.0,
                    // Powers of ten come with a last digit of dust.
                    (ms * 1e6).round() / 1e6
                );
            }
        }
        decade *= 10.0;
    }
    let _ = writeln!(
        svg,
        "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">latency, ms (share of {} at most so long, %)</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 8.0,
        unit.trim_end_matches("/s")
    );
}

fn line(svg: &mut String, report: &Report, axis: &Axis, curve: &Distribution) {
    let steps = curve.quantiles_ms.len().saturating_sub(1).max(1) as f64;
    let points: Vec<String> = curve
        .quantiles_ms
        .iter()
        .enumerate()
        .map(|(at, &ms)| format!("{:.1},{:.1}", axis.x(ms), y(at as f64 / steps)))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline class=\"curve c{}\" points=\"{}\"/>",
        super::look::colour(report, &curve.arm),
        points.join(" ")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_a_curve_for_every_arm_that_was_measured() {
        let report = super::super::samples::report();
        let svg = chart(&report, "qwen3", Neighbour::Cpu);
        assert_eq!(svg.matches("<polyline").count(), 3, "{svg}");
        assert_eq!(chart(&report, "qwen3", Neighbour::Heavy), "");
    }

    #[test]
    fn a_logarithmic_axis_has_its_middle_at_the_geometric_mean() {
        let axis = Axis {
            low: 1.0,
            high: 100.0,
        };
        let middle = f64::midpoint(axis.x(1.0), axis.x(100.0));
        assert!((axis.x(10.0) - middle).abs() < 1e-9);
    }
}
