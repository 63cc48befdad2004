// SPDX-License-Identifier: GPL-2.0-only
//! Strips as one SVG, a panel each over one axis of time; readable on light and dark ground. Pure.

use std::fmt::Write;

use super::model::{Span, Strip, Who};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 16.0;
const LANE: f64 = 26.0;
const GAP: f64 = 6.0;
/// From one panel's top to the next: title, lanes, launches, air.
const TITLE: f64 = 26.0;
const LAUNCHES: f64 = 12.0;
const TOP: f64 = 34.0;
const AXIS: f64 = 40.0;

const STYLE: &str = "\
:root { color-scheme: light dark; --ground: #fff; --ink: #1d2024; --soft: #62676f; --line: #d8d5cd;
  --launcher: #3c8527; --n0: #b9bdc4; --n1: #8fb0e0; --n2: #ddc27c; --other: #a8437f; --lost: #c4321c; }
@media (prefers-color-scheme: dark) { :root { --ground: #15171a; --ink: #e9e8e4; --soft: #a0a5ad; --line: #33373d;
  --launcher: #7cc862; --n0: #565b63; --n1: #3b5f96; --n2: #7d672b; --other: #e086ba; --lost: #ff7a63; } }
text { font: 12px system-ui, -apple-system, \"Segoe UI\", sans-serif; fill: var(--ink); }
.soft { fill: var(--soft); } .title { font-weight: 700; } .axis { stroke: var(--line); } .lane { fill: none; stroke: var(--line); }
.launcher { fill: var(--launcher); } .n0 { fill: var(--n0); } .n1 { fill: var(--n1); } .n2 { fill: var(--n2); }
.other { fill: var(--other); } .lost { fill: var(--lost); } .launch { stroke: var(--launcher); stroke-width: .6; }
";

pub fn draw(strips: &[Strip]) -> String {
    let length = strips.iter().map(|s| s.head.length_us).fold(1.0, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / length;
    let height = TOP + strips.iter().map(panel_height).sum::<f64>() + AXIS;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-label=\"Who runs on each CPU\">\n<style>{STYLE}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"var(--ground)\"/>\n"
    );
    legend(&mut svg);
    let mut top = TOP;
    for strip in strips {
        panel(&mut svg, strip, top, scale);
        top += panel_height(strip);
    }
    axis(&mut svg, top, length, scale);
    svg + "</svg>\n"
}

fn panel_height(strip: &Strip) -> f64 {
    TITLE + f64::from(strip.head.cpus) * (LANE + GAP) + LAUNCHES + 16.0
}

fn legend(svg: &mut String) {
    let mut x = LEFT;
    let neighbours = Who::NEIGHBOURS.iter().enumerate();
    let owners = neighbours.map(|(at, name)| (format!("n{at}"), *name));
    let all = [("launcher".to_owned(), "the launcher")]
        .into_iter()
        .chain(owners)
        .chain([("other".to_owned(), "kernel and others")]);
    for (class, name) in all {
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"9\" width=\"12\" height=\"12\" rx=\"2\"/><text x=\"{}\" y=\"19\">{name}</text>",
            x + 17.0
        );
        x += 34.0 + 7.0 * name.len() as f64;
    }
    let _ = writeln!(
        svg,
        "<path class=\"lost\" d=\"{}\"/><text x=\"{}\" y=\"19\">the launcher is preempted</text>",
        arrow(x + 6.0, 20.0),
        x + 17.0
    );
}

/// A mark that points down to where a CPU is taken away.
fn arrow(x: f64, tip: f64) -> String {
    format!("M{x:.1} {tip:.1}l-5 -9h10z")
}

fn panel(svg: &mut String, strip: &Strip, top: f64, scale: f64) {
    let _ = writeln!(
        svg,
        "<text class=\"title\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>",
        top + 14.0,
        strip.scheduler()
    );
    for cpu in 0..strip.head.cpus {
        let y = top + TITLE + f64::from(cpu) * (LANE + GAP);
        let _ = writeln!(
            svg,
            "<text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">CPU {cpu}</text>\
             <rect class=\"lane\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{LANE}\"/>",
            LEFT - 8.0,
            y + LANE / 2.0 + 4.0,
            strip.head.length_us * scale
        );
        lane(svg, &strip.spans(cpu), y, scale);
    }
    let y = top + TITLE + f64::from(strip.head.cpus) * (LANE + GAP);
    launches(svg, strip, y, scale);
}

/// One CPU: a path for each kind of owner, the launcher's marks on top.
fn lane(svg: &mut String, spans: &[Span], y: f64, scale: f64) {
    let owners = [
        (Who::Neighbour(0), "n0"),
        (Who::Neighbour(1), "n1"),
        (Who::Neighbour(2), "n2"),
        (Who::Other, "other"),
        (Who::Launcher, "launcher"),
    ];
    for (who, class) in owners {
        let mut path = String::new();
        for span in spans.iter().filter(|span| span.who == who) {
            let (from, to) = (LEFT + span.from_us * scale, LEFT + span.to_us * scale);
            let _ = write!(path, "M{from:.1} {y:.1}H{to:.1}v{LANE}H{from:.1}z");
        }
        if !path.is_empty() {
            let _ = writeln!(svg, "<path class=\"{class}\" d=\"{path}\"/>");
        }
    }
    let lost = |span: &&Span| span.who == Who::Launcher && span.preempted;
    for span in spans.iter().filter(lost) {
        let mark = arrow(LEFT + span.to_us * scale, y + 3.0);
        let _ = writeln!(svg, "<path class=\"lost\" d=\"{mark}\"/>");
    }
}

/// A tick for each launch; those that fall on one another are one.
fn launches(svg: &mut String, strip: &Strip, y: f64, scale: f64) {
    let _ = write!(
        svg,
        "<text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">launches</text><path class=\"launch\" d=\"",
        LEFT - 8.0,
        y + LAUNCHES - 1.0
    );
    let mut last = String::new();
    for at in &strip.launches_us {
        let x = format!("{:.1}", LEFT + at * scale);
        if x != last {
            let _ = write!(svg, "M{x} {y:.1}v{LAUNCHES}");
            last = x;
        }
    }
    *svg += "\"/>\n";
}

fn axis(svg: &mut String, y: f64, length_us: f64, scale: f64) {
    let _ = writeln!(
        svg,
        "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>",
        LEFT + length_us * scale
    );
    let steps = (length_us / 5000.0) as u32;
    for step in 0..=steps {
        let x = LEFT + f64::from(step) * 5000.0 * scale;
        let _ = writeln!(
            svg,
            "<line class=\"axis\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>\
             <text class=\"soft\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            y + 4.0,
            y + 18.0,
            step * 5
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">ms</text>",
        LEFT - 8.0,
        y + 18.0
    );
}

#[cfg(test)]
mod tests {
    use super::super::model::samples::strip;
    use super::*;

    #[test]
    fn draws_a_panel_a_strip_with_marks_where_the_launcher_is_preempted() {
        let svg = draw(&[strip(), strip()]);
        assert_eq!(svg.matches("class=\"title\"").count(), 2);
        // One in the legend, one in each panel.
        assert_eq!(svg.matches("class=\"lost\"").count(), 3, "{svg}");
        assert_eq!(svg.matches("class=\"lane\"").count(), 4);
        assert!(svg.contains("prefers-color-scheme: dark"));
        assert!(!svg.contains("NaN"), "{svg}");
    }
}
