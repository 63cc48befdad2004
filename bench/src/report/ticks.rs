// SPDX-License-Identifier: GPL-2.0-only
//! Which arms' tokens wait for the kernel's tick, where HZ is low enough to show it.

use super::model::Report;
use crate::study::{Summary, Ticks, ticks};

/// With more ticks a second, waiting for one is no longer than tokens vary by themselves.
const SELDOM_HZ: u32 = 250;
/// So many times what chance would give is waiting for ticks.
const TELLING: f64 = 2.0;

/// How often the tick comes where the cells ran; runs of before do not say.
pub fn hz(report: &Report) -> Option<u32> {
    report.guest.get("HZ")?.parse().ok().filter(|&hz| hz > 0)
}

pub fn sentences(report: &Report) -> Vec<String> {
    let Some(hz) = hz(report).filter(|&hz| hz <= SELDOM_HZ) else {
        return Vec::new();
    };
    let chance = ticks::by_chance(hz);
    let Summary { ticks: rows, .. } = &report.summary;
    let tells = |row: &&Ticks| row.share >= TELLING * chance;
    let percent = |row: &Ticks| format!("{} {:.0} %", row.arm, row.share * 100.0);
    let head = format!(
        "HZ={hz}: the kernel's tick comes every {} ms, and a scheduler that waits for it makes tokens end there.",
        ticks::tick_ms(hz)
    );
    let mut workloads = report.plan.matrix.workloads.iter();
    if workloads.all(|workload| report.unit(&workload.name) == "items/s") {
        return Vec::new();
    }
    let mut lines = vec![head];
    let mut places: Vec<_> = rows
        .iter()
        .map(|row| (&row.workload, row.neighbour))
        .collect();
    places.dedup();
    for (workload, neighbour) in places {
        let here = || {
            let rows = rows.iter();
            rows.filter(move |row| (&row.workload, row.neighbour) == (workload, neighbour))
        };
        let mut waiting: Vec<&Ticks> = here().filter(tells).collect();
        waiting.sort_by(|a, b| b.share.total_cmp(&a.share));
        if waiting.is_empty() {
            continue;
        }
        let subject = &report.plan.matrix.subject;
        let rest = here().find(|row| row.arm == *subject && !tells(row));
        let rest = rest
            .map(|row| format!("; {}", percent(row)))
            .unwrap_or_default();
        let waiting: Vec<String> = waiting.into_iter().map(percent).collect();
        lines.push(format!(
            "Tokens within {:.0} µs of a multiple of the tick ({:.1} % by chance), {workload} beside {neighbour}: {}{rest}.",
            ticks::WITHIN_MS * 1e3,
            chance * 100.0,
            waiting.join(", ")
        ));
    }
    lines.push(match lines.len() {
        1 => "No arm's tokens do.".to_owned(),
        _ => "Speed and latency of these are figures of HZ as much as of the scheduler: with HZ=1000 they would be others."
            .to_owned(),
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::neighbour::Neighbour;
    use crate::report::samples;

    fn report(hz: &str) -> Report {
        let mut report = samples::report();
        report.guest.insert("HZ".to_owned(), hz.to_owned());
        let row = |arm: &str, share| Ticks {
            workload: "qwen3".to_owned(),
            neighbour: Neighbour::Cpu,
            arm: arm.to_owned(),
            share,
        };
        report.summary.ticks = vec![
            row("eevdf", 0.2),
            row("isolcpus", 0.9),
            row("gpuaware", 0.01),
        ];
        report
    }

    #[test]
    fn says_whose_tokens_keep_to_the_tick() {
        let lines = sentences(&report("250"));
        assert!(
            lines[0].starts_with("HZ=250: the kernel's tick comes every 4 ms"),
            "{lines:?}"
        );
        assert_eq!(
            lines[1],
            "Tokens within 150 µs of a multiple of the tick (7.5 % by chance), qwen3 beside cpu: \
             isolcpus 90 %, eevdf 20 %; gpuaware 1 %."
        );
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn says_nothing_where_ticks_are_frequent_or_not_known_and_that_nobody_does() {
        assert!(sentences(&report("1000")).is_empty());
        assert!(sentences(&samples::report()).is_empty());
        let mut nobody = report("250");
        nobody.summary.ticks.clear();
        assert_eq!(sentences(&nobody)[1], "No arm's tokens do.");
    }
}
