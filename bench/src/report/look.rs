// SPDX-License-Identifier: GPL-2.0-only
//! How pages and pictures look: the style sheet, and the colour of every arm.

use super::model::Report;

pub const STYLE: &str = include_str!("page.css");
const COLOURS: usize = 10;
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
