// SPDX-License-Identifier: GPL-2.0-only
//! Pictures of one file as inline SVG: how long launch intervals are, and what happened when.

use std::fmt::Write;

use super::words::{count, short, time_us};
use crate::analyze::figures::{Busiest, Stretch};
use crate::analyze::spread::BINS_PER_DECADE;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 40.0;

fn open(label: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">\n")
}

fn y_of(share: f64) -> f64 {
    HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
}

fn tick_y(svg: &mut String, share: f64, text: &str) {
    let y = y_of(share);
    let right = WIDTH - RIGHT;
    let _ = writeln!(
        svg,
        "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
        LEFT - 6.0,
        y + 4.0
    );
}

fn tick_x(svg: &mut String, x: f64, text: &str) {
    let _ = writeln!(
        svg,
        "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
        HEIGHT - BOTTOM + 16.0
    );
}

fn legend(svg: &mut String, entries: &[(usize, &str)]) {
    let mut x = LEFT;
    for (colour, text) in entries {
        let _ = writeln!(
            svg,
            "<rect class=\"bar c{colour}\" x=\"{x:.1}\" y=\"5\" width=\"10\" height=\"10\" rx=\"2\"/><text class=\"tick\" x=\"{:.1}\" y=\"14\">{text}</text>",
            x + 15.0
        );
        x += 40.0 + 6.6 * text.chars().count() as f64;
    }
}

/// Intervals of both groups, both axes logarithmic; empty without a pair.
pub fn intervals(busiest: &Busiest) -> String {
    let groups = [
        (2, &busiest.pairs.bins_without, "no context switch"),
        (1, &busiest.pairs.bins_with, "with one"),
    ];
    let bins = || groups.iter().flat_map(|(_, bins, _)| bins.iter());
    let (Some(first), Some(last)) = (
        bins().map(|&(bin, _)| bin).min(),
        bins().map(|&(bin, _)| bin).max(),
    ) else {
        return String::new();
    };
    let decade = BINS_PER_DECADE as i32;
    let first = first.div_euclid(decade) * decade;
    let last = (last.div_euclid(decade) + 1) * decade;
    let most = bins().map(|&(_, pairs)| pairs).max().unwrap_or(1) as f64;
    let decades = most.log10().ceil().max(1.0);
    // One pair is a visible sliver.
    let share = |pairs: f64| (pairs.log10() + 0.15) / (decades + 0.15);
    let step = (WIDTH - LEFT - RIGHT) / f64::from(last - first);
    let x_of = |bin: i32| LEFT + f64::from(bin - first) * step;
    let mut svg = open("launch intervals by length, with and without a context switch");
    legend(&mut svg, &groups.map(|(colour, _, name)| (colour, name)));
    for power in 0..=decades as i32 {
        let pairs = 10_f64.powi(power);
        tick_y(&mut svg, share(pairs), &count(pairs as u64));
    }
    for bin in (first..=last).step_by(decade as usize) {
        let us = 10_f64.powi(bin / decade) / 1e3;
        let text = if us < 1.0 {
            format!("{} ns", short(us * 1e3))
        } else {
            time_us(us).replacen(".0", "", 1)
        };
        tick_x(&mut svg, x_of(bin), &text);
    }
    for (at, (colour, bins, name)) in groups.iter().enumerate() {
        for &(bin, pairs) in *bins {
            let y = y_of(share(pairs as f64));
            let _ = writeln!(
                svg,
                "<rect class=\"bar c{colour}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{} pairs {name}, from {}</title></rect>",
                x_of(bin) + at as f64 * step / 2.0,
                (step / 2.0 - 0.5).max(0.8),
                y_of(0.0) - y,
                count(pairs),
                time_us(10_f64.powf(f64::from(bin) / BINS_PER_DECADE) / 1e3)
            );
        }
    }
    axis(&mut svg, "from one launch to the next");
    svg + "</svg>\n"
}

fn axis(svg: &mut String, text: &str) {
    let _ = writeln!(
        svg,
        "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 6.0
    );
}

/// One line of a timeline.
struct Line<'a> {
    colour: usize,
    name: &'a str,
    /// None where the stretch cannot tell.
    of: fn(&Stretch) -> Option<f64>,
}

/// Time lost over time; empty without a stretch.
pub fn lost(timeline: &[Stretch]) -> String {
    lines(
        timeline,
        "time lost, ms of each second",
        &[
            Line {
                colour: 1,
                name: "off the CPU",
                of: |stretch| Some(stretch.off_ms / stretch.length_s),
            },
            Line {
                colour: 4,
                name: "interrupted",
                of: |stretch| Some(stretch.irq_ms / stretch.length_s),
            },
        ],
    )
}

/// Launches over time; empty without a stretch.
pub fn launches(timeline: &[Stretch]) -> String {
    lines(
        timeline,
        "every second",
        &[
            Line {
                colour: 2,
                name: "launches",
                of: |stretch| {
                    let recorded_s = Some(stretch.recorded_s).filter(|&seconds| seconds > 0.0)?;
                    Some(stretch.launches as f64 / recorded_s)
                },
            },
            Line {
                colour: 1,
                name: "switches",
                of: |stretch| Some(stretch.switches as f64 / stretch.length_s),
            },
        ],
    )
}

fn lines(timeline: &[Stretch], unit: &str, lines: &[Line]) -> String {
    let timeline: Vec<&Stretch> = timeline.iter().filter(|one| one.length_s > 0.0).collect();
    let Some(last) = timeline.last() else {
        return String::new();
    };
    let end_s = last.start_s + last.length_s;
    let values = lines
        .iter()
        .flat_map(|line| timeline.iter().filter_map(|stretch| (line.of)(stretch)));
    let most = values.fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    let x_of = |at_s: f64| LEFT + at_s / end_s * (WIDTH - LEFT - RIGHT);
    let mut svg = open(&format!("over time: {unit}"));
    let names: Vec<_> = lines.iter().map(|line| (line.colour, line.name)).collect();
    legend(&mut svg, &names);
    for quarter in 0..=4 {
        let share = f64::from(quarter) / 4.0;
        tick_y(&mut svg, share, &short(most * share));
        tick_x(&mut svg, x_of(end_s * share), &short(end_s * share));
    }
    for line in lines {
        let mut path = String::new();
        let mut gap = true;
        for stretch in &timeline {
            let Some(value) = (line.of)(stretch) else {
                gap = true;
                continue;
            };
            let y = y_of(value / most);
            let (from, to) = (
                x_of(stretch.start_s),
                x_of(stretch.start_s + stretch.length_s),
            );
            let command = if gap { 'M' } else { 'L' };
            gap = false;
            let _ = write!(path, "{command}{from:.1} {y:.1}H{to:.1}");
        }
        let _ = writeln!(svg, "<path class=\"line l{}\" d=\"{path}\"/>", line.colour);
    }
    axis(&mut svg, &format!("seconds; {unit}"));
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_has_a_step_for_each_stretch() {
        let stretch = |start_s, off_ms| Stretch {
            start_s,
            length_s: 0.5,
            launches: 10,
            recorded_s: 0.5,
            switches: 0,
            off_ms,
            irq_ms: 0.0,
        };
        let svg = lost(&[stretch(0.0, 1.0), stretch(0.5, 3.0)]);
        assert_eq!(svg.matches("<path").count(), 2, "{svg}");
        // Half the way along at full height: 3 ms in half a second.
        assert!(
            svg.contains(&format!("L280.0 {:.1}H508.0", y_of(1.0))),
            "{svg}"
        );
        assert_eq!(lost(&[stretch(0.0, 0.0)]), "");
        assert_eq!(lost(&[]), "");
        // Without a window nobody knows of launches: no line there.
        let blind = Stretch {
            recorded_s: 0.0,
            ..stretch(0.5, 1.0)
        };
        let svg = launches(&[stretch(0.0, 1.0), blind, stretch(1.0, 1.0)]);
        let line = svg.lines().find(|line| line.contains("line l2")).unwrap();
        assert_eq!(line.matches('M').count(), 2, "{line}");
    }
}
