// SPDX-License-Identifier: GPL-2.0-only
//! What the report says, once, for all its forms: sentences from the study's figures, what the arms are, the machine.

use super::format::{SHOWN, percent};
use super::model::Report;
use crate::record::facts::Facts;
use crate::record::neighbour::Neighbour;
use crate::report::table::{Align, Table};
use crate::study::{Row, Summary};
use gpuaware_stats::{Difference, SPEED_MARGIN};

use Align::Left;

/// The sentence above the tables.
pub fn setting(report: &Report) -> String {
    let matrix = &report.plan.matrix;
    let guest = |name: &str| report.guest.get(name).map_or("unknown", String::as_str);
    let known = |name: &str, words: &str| {
        let fact = report.guest.get(name);
        fact.map(|fact| format!("{words} {fact}"))
    };
    let kernel: Vec<String> = [
        Some(guest("kernel").to_owned()),
        known("HZ", "HZ"),
        known("preemption", "preemption"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let simulated = match &report.plan.machine {
        Some(machine) => format!(
            "Simulated, not measured, on the machine {machine} ({}){}: ",
            guest("machine"),
            if report.plan.native {
                ", callbacks as on a CPU that is not emulated"
            } else {
                ""
            }
        ),
        None => String::new(),
    };
    format!(
        "{simulated}{} rounds of {} s a cell; {} CPUs, launcher's CPUs {}; kernel {}; {}",
        matrix.rounds,
        matrix.seconds,
        report.plan.cpus,
        report.plan.preferred,
        kernel.join(", "),
        guest("virtualisation"),
    )
}

/// What stands beside the tables: overhead, marks, failed cells.
pub fn sentences(report: &Report) -> Vec<String> {
    let Summary {
        overhead,
        marks,
        failed,
        ..
    } = &report.summary;
    let mut lines = Vec::new();
    for overhead in overhead
        .iter()
        .filter(|o| o.arm == report.plan.matrix.subject)
    {
        let verdict = match overhead.ratio.difference(SPEED_MARGIN) {
            Difference::Less => "it costs something".to_owned(),
            Difference::More => "it is faster".to_owned(),
            other => other.to_string(),
        };
        lines.push(format!(
            "Clean, {}: {} reaches {} % of {}'s {}{}: {verdict}.",
            overhead.workload,
            overhead.arm,
            percent(Some(overhead.ratio), 1, true),
            report.plan.matrix.baseline,
            report.unit(&overhead.workload),
            of_reserved_when_quiet(report, &overhead.workload, &overhead.arm),
        ));
    }
    lines.extend(yardsticks(report));
    for marks in marks {
        let delay = match (marks.delay_ms_median, marks.delay_ms_max) {
            (Some(median), Some(max)) => {
                format!(
                    "; from first {} to mark {median:.0} ms in the median, {max:.0} ms at most",
                    if marks.class == "handoff" {
                        "call"
                    } else {
                        "launch"
                    }
                )
            }
            _ => String::new(),
        };
        lines.push(format!(
            "Found by itself, {}: {} marked all {} in {} of {} cells{delay}.",
            marks.workload,
            marks.arm,
            whom(&marks.class),
            marks.marked,
            marks.cells
        ));
    }
    lines.extend(super::dominance::sentences(report));
    lines.extend(super::ticks::sentences(report));
    lines.extend(failures(failed));
    lines.extend(super::quiet::sentences(report));
    lines
}

/// The threads that should have this class.
fn whom(class: &str) -> &'static str {
    match class {
        "handoff" => "threads that call the server as handoff",
        _ => "launching threads",
    }
}

/// Beside the baseline's the speed of the arm that reserves CPUs.
fn of_reserved_when_quiet(report: &Report, workload: &str, arm: &str) -> String {
    let mut rows = report.summary.rows.iter();
    let row = rows
        .find(|row| row.workload == workload && row.arm == arm && row.neighbour == Neighbour::None);
    let over = row.and_then(|row| row.over_isolcpus);
    match (report.plan.matrix.reserved_arm(), over) {
        (Some(reserved), Some(_)) if reserved != arm => {
            format!(", {} % of {reserved}'s", percent(over, 1, true))
        }
        _ => String::new(),
    }
}

/// What the subject keeps beside each neighbour and what it leaves them, by every yardstick.
fn yardsticks(report: &Report) -> Vec<String> {
    let matrix = &report.plan.matrix;
    let rows = report.summary.rows.iter();
    rows.filter(|row| row.arm == matrix.subject && row.neighbour != Neighbour::None)
        .filter_map(|row| {
            let mut speed = Vec::new();
            if row.over_own_quiet.is_some() {
                speed.push(format!(
                    "{} % of its own quiet {}",
                    percent(row.over_own_quiet, 1, true),
                    report.unit(&row.workload)
                ));
            }
            if let (Some(reserved), Some(over)) = (matrix.reserved_arm(), row.over_isolcpus) {
                let over = percent(Some(over), 1, true);
                speed.push(format!("{over} % of {reserved}'s in the same round"));
            }
            (!speed.is_empty()).then(|| {
                format!(
                    "Beside {}, {}: {} has {}{}.",
                    row.neighbour,
                    row.workload,
                    row.arm,
                    speed.join(" and "),
                    work_in_words(row, &matrix.baseline)
                )
            })
        })
        .collect()
}

fn work_in_words(row: &Row, baseline: &str) -> String {
    if row.work_mean.is_none() {
        return String::new();
    }
    let work = percent(row.work_mean, 0, true);
    let possible = match row.possible {
        None => {
            "what is possible is not known, because the launcher's CPU time in the window is not"
                .to_owned()
        }
        possible => format!(
            "{} % is possible with the CPU time that the launcher leaves, so they get {} % of that",
            percent(possible, 0, false),
            percent(row.work_of_possible, 0, true)
        ),
    };
    format!("; the neighbours get {work} % of the work done under {baseline}, {possible}")
}

/// Cells without figures, those with the same reason in one line.
fn failures(failed: &[crate::study::FailedCell]) -> Vec<String> {
    let mut reasons: Vec<(&str, bool, Vec<String>)> = Vec::new();
    for cell in failed {
        let name = format!(
            "{} {} {} round {}",
            cell.arm, cell.neighbour, cell.workload, cell.round
        );
        match reasons
            .iter_mut()
            .find(|(reason, ..)| *reason == cell.reason)
        {
            Some((.., cells)) => cells.push(name),
            None => reasons.push((&cell.reason, cell.cannot_run, vec![name])),
        }
    }
    reasons
        .into_iter()
        .map(|(reason, cannot_run, cells)| {
            let what = if cannot_run { "Not run" } else { "Failed" };
            let more = if cells.len() > SHOWN {
                format!(" and {} more", cells.len() - SHOWN)
            } else {
                String::new()
            };
            let shown: Vec<&str> = cells.iter().take(SHOWN).map(String::as_str).collect();
            format!(
                "{what}, {} of the cells: {reason} ({}{more}).",
                cells.len(),
                shown.join("; ")
            )
        })
        .collect()
}

/// The arms, for the reader who does not know them.
pub fn arms(report: &Report) -> Table {
    let mut table = Table::new(&[("arm", Left), ("what it is", Left), ("version", Left)]);
    for name in &report.plan.matrix.arms {
        let description = report
            .plan
            .arms
            .get(name)
            .map_or("", |arm| arm.description.as_str());
        let version = report.summary.versions.get(name).cloned();
        table.rows.push(vec![
            name.clone(),
            description.to_owned(),
            version.unwrap_or_default(),
        ]);
    }
    table
}

/// Both machines, side by side.
pub fn facts(report: &Report) -> Table {
    let mut table = Table::new(&[
        ("fact", Left),
        ("where the cells ran", Left),
        ("its host", Left),
    ]);
    let mut names: Vec<&String> = report.guest.keys().chain(report.host.keys()).collect();
    names.sort();
    names.dedup();
    let value = |facts: &Facts, name: &String| facts.get(name).cloned().unwrap_or_default();
    for name in names {
        table.rows.push(vec![
            name.clone(),
            value(&report.guest, name),
            value(&report.host, name),
        ]);
    }
    table
}

/// How to read the columns.
pub const LEGEND: &[&str] = &[
    "own quiet %: tokens/s over those of the same arm's quiet cells in the same round. isolcpus % (or another arm's name): over those of the arm whose launcher has CPUs to itself, beside the same neighbour in the same round; that arm may have a boot of its own.",
    "% of clean: tokens/s over those of the baseline's quiet cells in the same round (of an arm with a boot of its own, over its own): an arm that is slower or faster where nothing disturbs shows that here as well.",
    "p50, p99: latency of a token; no p99 below 459 tokens. p99 ×: over that of the same two references. sw/1k: context switches of the launching threads per 1,000 launches.",
    "work %: what the neighbours got done by their own account over what they got done under the baseline, geometric mean of its programs. A launcher that is not held up uses CPU time that the neighbours cannot have, under any scheduler: possible % is the CPUs that the launcher left over those that it left under the baseline. of possible %: work over that, paired by round; what is missing there is what the arm itself cost the neighbours.",
    "idle %: CPU time nobody used in the measured window: waste beside cpu and heavy, whose busy loops would use it, not beside neighbours that sleep.",
    "A server's tok/s is what one stream gets (1 / mean TPOT), its p50 and p99 are of the time between tokens (ITL). TTFT, TPOT in ms as vllm bench serve defines them; ×: p99 over that of the references; good %: requests that kept the objectives, of those offered. The launcher's CPU time is that of all the server's threads.",
    "A pipeline's items/s are requests that came to an end of the graph or are part of a result there, its p50 and p99 from arrival to the end of the graph. a → b: from being ready in stage a until being taken in stage b, waiting for room included; before b: from arrival until being ready for it; calls: until the server has answered; means of all items, then over boots. over n ms %: requests that did not keep this objective of --slo-ms, lost ones too. lost: requests that failed or had no end, of those offered. The launcher's CPU time is that of all the pipeline's threads.",
    "Sched/1K: switches off and on of the launching threads per 1,000 launches, by the tracer. The shares are of these threads' time, warm-up included: preempted, yielded, waiting (woken, or new, and not yet running), asleep; interrupts are on top of whatever ran.",
    "n disturbed: rounds during which the machine did something else as well (other processes, a hypervisor, heat) and which stayed so when measured again.",
    "Figures are means over boots, geometric ones but of shares of time; of p50 and p99, each boot's. [a–b]: 95 % interval, Student's over boots (over rounds where there is one boot, as on a host: it holds for that boot). A ratio is paired by round within a boot, and by boot between arms with boots of their own.",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_with_the_same_reason_share_a_line() {
        let cell = |round| crate::study::FailedCell {
            workload: "qwen3".into(),
            neighbour: Neighbour::Cpu,
            arm: "gpuaware".into(),
            round,
            reason: "no sched_ext".into(),
            cannot_run: true,
        };
        let lines = failures(&[cell(1), cell(2), cell(3), cell(4)]);
        assert_eq!(
            lines,
            [
                "Not run, 4 of the cells: no sched_ext (gpuaware cpu qwen3 round 1; gpuaware cpu qwen3 round 2; gpuaware cpu qwen3 round 3 and 1 more)."
            ]
        );
    }
}
