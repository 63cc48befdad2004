// SPDX-License-Identifier: GPL-2.0-only
//! Bars with names and intervals as inline SVG.

use std::fmt::Write;

use super::table::escape;

const WIDTH: f64 = 520.0;
const NAME: f64 = 170.0;
const VALUE: f64 = 120.0;
const BAR: f64 = 18.0;
const STEP: f64 = 26.0;
const LETTERS: usize = 24;

/// One bar.
pub struct Bar {
    pub name: String,
    pub value: f64,
    pub interval: Option<[f64; 2]>,
    /// The value in words.
    pub text: String,
    pub colour: usize,
}

impl Bar {
    /// One without an interval.
    pub fn new(name: &str, value: f64, text: String, colour: usize) -> Self {
        Self {
            name: name.to_owned(),
            value,
            interval: None,
            text,
            colour,
        }
    }
}

/// All bars on one scale; empty without one.
pub fn chart(label: &str, bars: &[Bar]) -> String {
    let ends = bars.iter().map(|bar| {
        bar.interval
            .map_or(bar.value, |[_, high]| high.max(bar.value))
    });
    let largest = ends.fold(0.0, f64::max);
    if largest <= 0.0 {
        return String::new();
    }
    let scale = (WIDTH - NAME - VALUE) / largest;
    let height = STEP * bars.len() as f64 + 6.0;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escape(label)
    );
    for (at, bar) in bars.iter().enumerate() {
        draw(&mut svg, bar, STEP * at as f64 + 4.0, scale);
    }
    svg + "</svg>\n"
}

fn draw(svg: &mut String, bar: &Bar, y: f64, scale: f64) {
    let middle = y + BAR / 2.0;
    let baseline = middle + 4.0;
    let mut name: String = bar.name.chars().take(LETTERS).collect();
    if name.len() < bar.name.len() {
        name.push('…');
    }
    let width = (bar.value * scale).max(0.5);
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{baseline:.1}\" text-anchor=\"end\">{}<title>{}</title></text>\
         <rect class=\"bar c{}\" x=\"{NAME}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\"/>",
        NAME - 8.0,
        escape(&name),
        escape(&bar.name),
        bar.colour
    );
    let mut end = NAME + width;
    if let Some([low, high]) = bar.interval {
        let (from, to) = (NAME + low * scale, NAME + high * scale);
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
        "<text x=\"{:.1}\" y=\"{baseline:.1}\">{}</text>",
        end + 8.0,
        escape(&bar.text)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_share_a_scale_and_are_escaped() {
        let bar = |name: &str, value, interval| Bar {
            name: name.to_owned(),
            value,
            interval,
            text: format!("{value}"),
            colour: 1,
        };
        let svg = chart(
            "a & b",
            &[bar("x<y", 10.0, None), bar("z", 5.0, Some([4.0, 6.0]))],
        );
        assert!(
            svg.contains("width=\"230.0\"") && svg.contains("width=\"115.0\""),
            "{svg}"
        );
        assert!(svg.contains("x&lt;y") && svg.contains("a &amp; b"), "{svg}");
        assert_eq!(svg.matches("class=\"error\"").count(), 1);
        assert_eq!(chart("none", &[bar("x", 0.0, None)]), "");
    }
}
