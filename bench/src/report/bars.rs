// SPDX-License-Identifier: GPL-2.0-only
//! What each arm keeps of its own quiet tokens/s beside each neighbour: a bar an arm, with its interval, as inline SVG.

use std::fmt::Write;

use super::model::Report;
use super::table::escape;
use crate::record::neighbour::Neighbour;
use crate::study::Row;

const WIDTH: f64 = 520.0;
/// The least width of the names, and the mean width of their letters.
const NAME: f64 = 110.0;
const LETTER: f64 = 6.7;
const VALUE: f64 = 120.0;
const BAR: f64 = 18.0;
const STEP: f64 = 26.0;

/// Where the bars begin, and how long 100 % is.
struct Frame {
    name: f64,
    scale: f64,
}

/// Bars of one workload beside one neighbour; empty where nothing has been measured.
pub fn chart(report: &Report, workload: &str, neighbour: Neighbour) -> String {
    let rows: Vec<&Row> = report
        .summary
        .rows
        .iter()
        .filter(|row| row.workload == workload && row.neighbour == neighbour)
        .collect();
    let shares = rows.iter().filter_map(|row| row.over_own_quiet);
    let largest = shares
        .map(|share| {
            share
                .interval
                .map_or(share.value, |[_, high]| high.max(share.value))
        })
        .fold(f64::NAN, f64::max);
    if largest.is_nan() {
        return String::new();
    }
    let longest = rows.iter().map(|row| row.arm.chars().count()).max();
    let name = NAME.max(LETTER * longest.unwrap_or(0) as f64 + 16.0);
    let frame = Frame {
        name,
        scale: (WIDTH - name - VALUE) / largest.max(1.0),
    };
    let height = STEP * rows.len() as f64 + 6.0;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}, {neighbour}: share of own quiet tokens/s by arm\">\n",
        escape(workload)
    );
    // Below the figures, which it would strike out.
    let full = frame.name + frame.scale;
    let _ = writeln!(
        svg,
        "<line class=\"full\" x1=\"{full:.1}\" y1=\"0\" x2=\"{full:.1}\" y2=\"{height}\"/>"
    );
    for (at, row) in rows.iter().enumerate() {
        bar(&mut svg, report, row, STEP * at as f64 + 4.0, &frame);
    }
    svg + "</svg>\n"
}

fn bar(svg: &mut String, report: &Report, row: &Row, y: f64, frame: &Frame) {
    let &Frame { name, scale } = frame;
    let colour = super::look::colour(report, &row.arm);
    let baseline = y + BAR / 2.0 + 4.0;
    let strong = if row.arm == report.plan.matrix.subject {
        " strong"
    } else {
        ""
    };
    let _ = writeln!(
        svg,
        "<text class=\"label{strong}\" x=\"{:.1}\" y=\"{baseline:.1}\" text-anchor=\"end\">{}</text>",
        name - 8.0,
        escape(&row.arm)
    );
    let Some(share) = row.over_own_quiet else {
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{baseline:.1}\">not measured</text>",
            name + 6.0
        );
        return;
    };
    let width = (share.value * scale).max(0.5);
    let _ = writeln!(
        svg,
        "<rect class=\"bar c{colour}\" x=\"{name:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\"/>"
    );
    let mut end = name + width;
    if let Some([low, high]) = share.interval {
        let (from, to, middle) = (name + low * scale, name + high * scale, y + BAR / 2.0);
        end = end.max(to);
        let _ = writeln!(
            svg,
            "<path class=\"error\" d=\"M{from:.1} {middle:.1}H{to:.1}M{from:.1} {:.1}v8M{to:.1} {:.1}v8\"/>",
            middle - 4.0,
            middle - 4.0
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"value{strong}\" x=\"{:.1}\" y=\"{baseline:.1}\">{:.1} %</text>",
        end + 10.0,
        share.value * 100.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_a_bar_for_every_arm_and_says_what_is_missing() {
        let mut report = super::super::samples::report();
        let svg = chart(&report, "qwen3", Neighbour::Cpu);
        assert_eq!(svg.matches("class=\"bar").count(), 3, "{svg}");
        assert!(svg.contains("98.0 %"), "{svg}");
        report
            .summary
            .rows
            .iter_mut()
            .filter(|row| row.arm == "isolcpus")
            .for_each(|row| row.over_own_quiet = None);
        assert!(chart(&report, "qwen3", Neighbour::Cpu).contains("not measured"));
        assert_eq!(chart(&report, "qwen3", Neighbour::Heavy), "");
    }
}
