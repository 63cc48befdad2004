// SPDX-License-Identifier: GPL-2.0-only
//! How pages and pictures look: the style sheet, and the colour of every arm.

use super::model::Report;

pub const STYLE: &str = include_str!("page.css");
pub const COLOURS: usize = 10;
/// The subject's colour, which no other arm gets.
const SUBJECT_COLOUR: usize = 3;

/// The number of an arm's colour; the same in all pictures.
pub fn colour(report: &Report, arm: &str) -> usize {
    if arm == report.plan.matrix.subject {
        return SUBJECT_COLOUR;
    }
    let others = report
        .plan
        .matrix
        .arms
        .iter()
        .filter(|name| **name != report.plan.matrix.subject);
    let at = others.take_while(|name| *name != arm).count() % (COLOURS - 1);
    if at >= SUBJECT_COLOUR { at + 1 } else { at }
}

/// A picture of a page as a file of its own: with the page's colours, on its own ground. Nothing stays nothing.
pub fn standalone(svg: &str) -> String {
    let size = svg.strip_prefix("<svg viewBox=\"0 0 ").and_then(|rest| {
        let (size, _) = rest.split_once('"')?;
        size.split_once(' ')
    });
    let Some((width, height)) = size else {
        return String::new();
    };
    let size = format!("width=\"{width}\" height=\"{height}\"");
    svg.replacen(
        "<svg ",
        &format!("<svg xmlns=\"http://www.w3.org/2000/svg\" {size} "),
        1,
    )
    .replacen(
        ">\n",
        &format!(">\n<style>{STYLE}</style>\n<rect {size} fill=\"var(--card)\"/>\n"),
        1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_arm_shares_the_subjects_colour() {
        let report = super::super::samples::report();
        assert_eq!(colour(&report, "gpuaware"), SUBJECT_COLOUR);
        assert_eq!(colour(&report, "eevdf"), 0);
        assert_eq!(colour(&report, "isolcpus"), 1);
    }
}
