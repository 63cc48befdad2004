// SPDX-License-Identifier: GPL-2.0-only
//! How quiet the machine was: what is known of anything else that it did.

use super::format::SHOWN;
use super::model::Report;
use crate::record::neighbour::Neighbour;
use crate::study::{DisturbedCell, Summary};

/// If the hypervisor keeps more than this share of the CPU time, in percent, tails show it: of ten seconds on two CPUs
/// that is 60 ms, several p99s of a server.
const STOLEN_PERCENT: f64 = 0.3;
/// A minute's load on the host above which something else ran just before the run, or still did.
const BUSY_LOAD: f64 = 0.7;

pub fn sentences(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = load(report).into_iter().collect();
    let Summary {
        disturbed,
        watched,
        rows,
        ..
    } = &report.summary;
    // Nothing disturbs a simulated machine.
    let measured = report.plan.machine.is_none() && rows.iter().any(|row| row.rounds > 0);
    if measured && !watched {
        lines.push(
            "Whether the machine did something else during the cells was not looked at: the run is older than that."
                .to_owned(),
        );
    } else if measured && disturbed.is_empty() {
        lines.push("No cell was disturbed by anything else on the machine.".to_owned());
    }
    lines.extend(stolen(&report.summary));
    lines.extend(disturbances(disturbed));
    lines
}

/// Where the hypervisor took the CPUs away beside some neighbour, and beside which most.
fn stolen(summary: &Summary) -> Option<String> {
    let shares = &summary.stolen_percent;
    let (neighbour, most) = shares
        .iter()
        .max_by(|one, other| one.1.total_cmp(other.1))?;
    let least = shares.values().copied().fold(*most, f64::min);
    let place = match neighbour {
        Neighbour::None => "quiet cell".to_owned(),
        noisy => format!("cell beside {noisy}"),
    };
    (*most > STOLEN_PERCENT).then(|| {
        format!(
            "The hypervisor kept {most:.1} % of the host's CPU time in the median {place}, and {least:.1} % where it \
             kept least. Whoever runs stands still meanwhile: tails there hold that too, under every arm."
        )
    })
}

/// The host's load in the minute before the run.
fn load(report: &Report) -> Option<String> {
    let load = report.host.get("load average")?;
    let minute: f64 = load.split_whitespace().next()?.parse().ok()?;
    (minute > BUSY_LOAD).then(|| {
        format!(
            "The machine was busy in the minute before the run: load average {minute} on {} CPUs.",
            report.host.get("cpus").map_or("unknown", String::as_str)
        )
    })
}

/// Cells that the machine disturbed: how many were measured again, and which stayed so.
fn disturbances(cells: &[DisturbedCell]) -> Vec<String> {
    let mut lines = Vec::new();
    let again = cells.iter().filter(|cell| cell.discarded > 0).count();
    if again > 0 {
        let times: usize = cells.iter().map(|cell| cell.discarded).sum();
        lines.push(format!(
            "Measured again because the machine did something else as well: {again} cells, {times} times; what was discarded is in their files."
        ));
    }
    let left: Vec<&DisturbedCell> = cells
        .iter()
        .filter(|cell| !cell.reasons.is_empty())
        .collect();
    for cell in left.iter().take(SHOWN) {
        lines.push(format!(
            "Disturbed: {} {} {} round {}: {}.",
            cell.arm,
            cell.neighbour,
            cell.workload,
            cell.round,
            cell.reasons.join("; ")
        ));
    }
    if left.len() > SHOWN {
        lines.push(format!("Disturbed: {} more cells.", left.len() - SHOWN));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;

    #[test]
    fn disturbed_cells_are_named() {
        let cell = |round, reasons: &[&str], discarded| DisturbedCell {
            workload: "qwen3".into(),
            neighbour: Neighbour::Cpu,
            arm: "eevdf".into(),
            round,
            reasons: reasons.iter().map(|&r| r.to_owned()).collect(),
            discarded,
        };
        let lines = disturbances(&[cell(1, &[], 1), cell(2, &["heat", "steal"], 2)]);
        assert_eq!(
            lines,
            [
                "Measured again because the machine did something else as well: 2 cells, 3 times; what was discarded is in their files.",
                "Disturbed: eevdf cpu qwen3 round 2: heat; steal.",
            ]
        );
    }

    #[test]
    fn what_the_hypervisor_kept_is_said_where_tails_show_it() {
        let mut summary = samples::report().summary;
        summary.stolen_percent = [(Neighbour::None, 0.03), (Neighbour::Heavy, 0.2)].into();
        assert_eq!(stolen(&summary), None);
        summary.stolen_percent.insert(Neighbour::Heavy, 1.24);
        let said = stolen(&summary).unwrap();
        assert!(
            said.starts_with("The hypervisor kept 1.2 % of the host's CPU time in the median cell beside heavy, and 0.0 %"),
            "{said}"
        );
    }

    #[test]
    fn says_whether_anybody_looked_and_how_busy_the_machine_was() {
        let mut report = samples::report();
        assert!(!report.summary.watched);
        assert!(
            sentences(&report)[0].ends_with("was not looked at: the run is older than that."),
            "{:?}",
            sentences(&report)
        );
        report.summary.watched = true;
        let facts = [("load average", "2.01 1.5 1.0 1/112 1999"), ("cpus", "2")];
        let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned()));
        report.host.extend(facts);
        assert_eq!(
            sentences(&report),
            [
                "The machine was busy in the minute before the run: load average 2.01 on 2 CPUs.",
                "No cell was disturbed by anything else on the machine.",
            ]
        );
        let idle = "0.69 1.5 1.0 1/112 1999".to_owned();
        report.host.insert("load average".to_owned(), idle);
        assert_eq!(sentences(&report).len(), 1);
    }
}
