// SPDX-License-Identifier: GPL-2.0-only
//! Hand-made cells against hand-computed figures.

use super::*;
use crate::plan::samples::plan;
use crate::record::neighbour::Kind;
use crate::record::{Discarded, Load, MarksSeen, Surroundings, WorkloadReport, samples};
use crate::study::samples::with_work;

fn cell(round: u32, arm: &str, neighbour: Neighbour, tokens_per_s: f64) -> Cell {
    samples::cell(round, arm, neighbour, tokens_per_s)
}

fn find<'a>(summary: &'a Summary, arm: &str, neighbour: Neighbour) -> &'a Row {
    summary
        .rows
        .iter()
        .find(|row| row.workload == "qwen3" && row.arm == arm && row.neighbour == neighbour)
        .unwrap()
}

fn value(estimate: Option<Estimate>) -> f64 {
    estimate.unwrap().value
}

#[test]
fn shares_are_paired_by_round_with_their_own_boots_reference() {
    let mut cells = Vec::new();
    for (round, clean, noisy, isolated_clean, isolated) in [
        (1, 100.0, 50.0, 80.0, 80.0),
        (2, 200.0, 120.0, 90.0, 72.0),
        (3, 100.0, 70.0, 100.0, 90.0),
    ] {
        cells.push(cell(round, "eevdf", Neighbour::None, clean));
        cells.push(cell(round, "gpuaware", Neighbour::Cpu, noisy));
        cells.push(cell(round, "isolcpus", Neighbour::None, isolated_clean));
        cells.push(cell(round, "isolcpus", Neighbour::Cpu, isolated));
    }
    let summary = study(&plan(), &cells);
    // Paired: 0.5, 0.6, 0.7.
    let row = find(&summary, "gpuaware", Neighbour::Cpu);
    assert!((value(row.share_of_clean) - 0.21_f64.cbrt()).abs() < 1e-12);
    assert!((value(row.tokens_per_s) - 420_000_f64.cbrt()).abs() < 1e-9);
    assert_eq!(row.rounds, 3);
    // It has no quiet cells of its own; over isolcpus in the same round: 0.625, 1.6667, 0.7778.
    assert!(row.over_own_quiet.is_none() && row.p99_over_own_quiet.is_none());
    let over_isolcpus = (50.0_f64 * 120.0 * 70.0 / (80.0 * 72.0 * 90.0)).cbrt();
    assert!((value(row.over_isolcpus) - over_isolcpus).abs() < 1e-12);
    // Tokens of a round all take the same time.
    assert!((value(row.p99_over_isolcpus) - over_isolcpus.recip()).abs() < 1e-12);
    // Own reference: 1.0, 0.8, 0.9.
    let row = find(&summary, "isolcpus", Neighbour::Cpu);
    assert!((value(row.share_of_clean) - 0.72_f64.cbrt()).abs() < 1e-12);
    assert_eq!(row.share_of_clean, row.over_own_quiet);
    assert!((value(row.over_isolcpus) - 1.0).abs() < 1e-12);
    let versus = summary
        .versus
        .iter()
        .find(|v| v.workload == "qwen3" && v.other == "isolcpus" && v.neighbour == Neighbour::Cpu)
        .unwrap();
    assert!((value(versus.tokens_per_s) - over_isolcpus).abs() < 1e-12);
    assert!(!versus.one_boot && versus.over_own_quiet.is_none());
}

#[test]
fn arms_of_one_boot_are_compared_by_their_tokens_and_others_by_their_own_quiet() {
    let mut cells = Vec::new();
    for round in 1..=3 {
        for (arm, quiet, noisy) in [
            ("eevdf", 100.0, 60.0),
            ("isolcpus", 120.0, 108.0),
            ("gpuaware", 80.0, 75.0),
        ] {
            cells.push(cell(round, arm, Neighbour::None, quiet));
            cells.push(cell(round, arm, Neighbour::Cpu, noisy));
        }
    }
    let summary = study(&plan(), &cells);
    let speed = |other: &str| {
        let mut all = summary.versus.iter();
        let row = all
            .find(|v| v.workload == "qwen3" && v.neighbour == Neighbour::Cpu && v.other == other);
        value(row.unwrap().speed())
    };
    assert!((speed("eevdf") - 75.0 / 60.0).abs() < 1e-12);
    // 0.9375 of its own quiet over 0.9, not 75 over 108.
    assert!((speed("isolcpus") - 0.9375 / 0.9).abs() < 1e-12);
    let row = find(&summary, "gpuaware", Neighbour::Cpu);
    assert!((value(row.share_of_clean) - 0.75).abs() < 1e-12);
    assert!((value(row.over_own_quiet) - 0.9375).abs() < 1e-12);
    assert!((value(row.over_isolcpus) - 75.0 / 108.0).abs() < 1e-12);
    assert!((value(row.p99_over_own_quiet) - 80.0 / 75.0).abs() < 1e-12);
}

#[test]
fn p99_is_refused_below_459_samples() {
    // 200 tokens a round.
    let two: Vec<Cell> = (1..=2)
        .map(|r| cell(r, "eevdf", Neighbour::None, 100.0))
        .collect();
    let summary = study(&plan(), &two);
    let row = find(&summary, "eevdf", Neighbour::None);
    assert_eq!((row.token_samples, row.token_p99_ms), (400, None));
    assert_eq!(value(row.token_p50_ms), 10.0);
    let three: Vec<Cell> = (1..=3)
        .map(|r| cell(r, "eevdf", Neighbour::None, 100.0))
        .collect();
    let summary = study(&plan(), &three);
    assert_eq!(
        value(find(&summary, "eevdf", Neighbour::None).token_p99_ms),
        10.0
    );
}

#[test]
fn p99_takes_459_samples_and_not_one_less() {
    let p99 = |tokens: [usize; 3]| {
        let of_round = |(at, &tokens): (usize, &usize)| {
            let mut cell = cell(at as u32 + 1, "eevdf", Neighbour::None, 100.0);
            let measurement = cell.measurement.as_mut().unwrap();
            let WorkloadReport::GpuLaunch(launch) = &mut measurement.workload else {
                panic!("a sample of another workload");
            };
            launch.token_us.truncate(tokens);
            cell
        };
        let cells: Vec<Cell> = tokens.iter().enumerate().map(of_round).collect();
        let summary = study(&plan(), &cells);
        let row = find(&summary, "eevdf", Neighbour::None);
        (row.token_samples, row.token_p99_ms.is_some())
    };
    assert_eq!(p99([153, 153, 153]), (459, true));
    assert_eq!(p99([153, 153, 152]), (458, false));
}

#[test]
fn work_is_relative_to_the_baseline_by_kind_and_in_the_mean() {
    let kinds = |stress: f64, net: f64, disk: f64| {
        [
            (Kind::StressNg, stress),
            (Kind::Iperf3, net),
            (Kind::Fio, disk),
        ]
    };
    let cells: Vec<Cell> = (1..=3)
        .flat_map(|round| {
            [
                with_work(
                    cell(round, "eevdf", Neighbour::Heavy, 10.0),
                    &kinds(100.0, 50.0, 10.0),
                ),
                with_work(
                    cell(round, "isolcpus", Neighbour::Heavy, 10.0),
                    &kinds(50.0, 50.0, 5.0),
                ),
                with_work(
                    cell(round, "gpuaware", Neighbour::Heavy, 10.0),
                    &kinds(80.0, 100.0, 10.0),
                ),
            ]
        })
        .collect();
    let summary = study(&plan(), &cells);
    let row = find(&summary, "isolcpus", Neighbour::Heavy);
    assert_eq!(row.work[&Kind::StressNg].value, 0.5);
    assert_eq!(row.work[&Kind::Iperf3].value, 1.0);
    // (0.5 x 1 x 0.5)^(1/3)
    assert!((value(row.work_mean) - 0.25_f64.cbrt()).abs() < 1e-12);
    let versus = summary
        .versus
        .iter()
        .find(|v| v.workload == "qwen3" && v.other == "isolcpus" && v.neighbour == Neighbour::Heavy)
        .unwrap();
    // (1.6 x 2 x 2)^(1/3)
    assert!((value(versus.work) - 6.4_f64.cbrt()).abs() < 1e-12);
    assert!(find(&summary, "eevdf", Neighbour::None).work_mean.is_none());
}

#[test]
fn switches_are_counted_per_1000_launches() {
    let summary = study(&plan(), &[cell(1, "eevdf", Neighbour::None, 100.0)]);
    // 220 switches in 2000 launches.
    let row = find(&summary, "eevdf", Neighbour::None);
    assert_eq!(value(row.switches_per_1000_launches), 110.0);
    assert_eq!(value(row.idle_percent), 5.0);
}

#[test]
fn overhead_is_quiet_tokens_over_the_baselines() {
    let cells: Vec<Cell> = [(1, 100.0, 99.0), (2, 200.0, 200.0), (3, 100.0, 101.0)]
        .into_iter()
        .flat_map(|(round, base, subject)| {
            [
                cell(round, "eevdf", Neighbour::None, base),
                cell(round, "gpuaware", Neighbour::None, subject),
                cell(round, "isolcpus", Neighbour::None, 5.0),
            ]
        })
        .collect();
    let summary = study(&plan(), &cells);
    assert_eq!(summary.overhead.len(), 1);
    let overhead = &summary.overhead[0];
    assert_eq!(overhead.arm, "gpuaware");
    assert!((overhead.ratio.value - (0.99_f64 * 1.01).cbrt()).abs() < 1e-12);
    // Logs of 0.99, 1 and 1.01: t(0.975; 2) standard errors of them.
    let [low, high] = overhead.ratio.interval.unwrap();
    assert!((low - 0.975_431).abs() < 1e-6 && (high - 1.025_119).abs() < 1e-6);
    assert!(!overhead.ratio.excludes(1.0));
}

#[test]
fn failed_cells_are_rows_with_a_reason() {
    let mut bad = cell(2, "gpuaware", Neighbour::Cpu, 1.0);
    bad.measurement = None;
    bad.failure = Some("gpuaware was thrown out".to_owned());
    let summary = study(&plan(), &[cell(1, "gpuaware", Neighbour::Cpu, 90.0), bad]);
    let row = find(&summary, "gpuaware", Neighbour::Cpu);
    assert_eq!((row.rounds, row.failed), (1, 1));
    assert_eq!(value(row.tokens_per_s), 90.0);
    assert!(row.share_of_clean.is_none(), "there is no clean reference");
    assert_eq!(summary.failed[0].reason, "gpuaware was thrown out");
}

#[test]
fn disturbed_cells_are_counted_in_their_row_unless_measured_again() {
    let mut disturbed = cell(1, "eevdf", Neighbour::Cpu, 90.0);
    disturbed.disturbed = vec!["a compiler".to_owned()];
    let mut mended = cell(2, "eevdf", Neighbour::Cpu, 95.0);
    mended.discarded = vec![Discarded {
        tokens_per_s: 50.0,
        surroundings: Surroundings::default(),
        reasons: vec!["a compiler".to_owned()],
    }];
    let summary = study(
        &plan(),
        &[disturbed, mended, cell(3, "eevdf", Neighbour::Cpu, 95.0)],
    );
    let row = find(&summary, "eevdf", Neighbour::Cpu);
    assert_eq!((row.rounds, row.disturbed), (3, 1));
    let seen: Vec<_> = summary
        .disturbed
        .iter()
        .map(|d| (d.round, d.reasons.len(), d.discarded))
        .collect();
    assert_eq!(seen, [(1, 1, 0), (2, 0, 1)]);
}

#[test]
fn what_the_hypervisor_kept_is_the_hosts_in_the_median_cell() {
    let stolen = |round, neighbour, host: Option<f64>, here: f64| {
        let load = |steal_cpus| Load {
            seconds: 1.0,
            cpus: 2,
            outside_cpus: 0.0,
            steal_cpus,
            throttles: 0,
            clock_limit: None,
            piece_us: None,
            loads_us: None,
        };
        let mut cell = cell(round, "gpuaware", neighbour, 1.0);
        cell.measurement.as_mut().unwrap().surroundings = Surroundings {
            here: Some(load(here)),
            host: host.map(load),
        };
        cell
    };
    let (quiet, noisy) = (Neighbour::None, Neighbour::Heavy);
    let cells = [
        stolen(1, noisy, Some(0.02), 0.5),
        stolen(2, noisy, Some(0.08), 0.0),
        stolen(3, noisy, Some(0.04), 0.0),
        // On the host itself.
        stolen(1, quiet, None, 0.01),
        cell(2, "gpuaware", quiet, 1.0),
    ];
    let summary = study(&plan(), &cells);
    assert_eq!(summary.stolen_percent, [(quiet, 0.5), (noisy, 2.0)].into());
}

#[test]
fn marks_are_counted_with_the_slowest() {
    let marked = |round, delay_ms: Option<f64>| {
        let mut cell = cell(round, "gpuaware", Neighbour::Cpu, 1.0);
        cell.measurement.as_mut().unwrap().marks = Some(MarksSeen {
            marked: delay_ms.is_some(),
            delay_ms,
            marks: serde_json::Value::Null,
        });
        cell
    };
    let summary = study(
        &plan(),
        &[
            marked(1, Some(10.0)),
            marked(2, Some(30.0)),
            marked(3, None),
        ],
    );
    let expected = Marks {
        workload: "qwen3".to_owned(),
        arm: "gpuaware".to_owned(),
        class: "launch".to_owned(),
        cells: 3,
        marked: 2,
        delay_ms_median: Some(20.0),
        delay_ms_max: Some(30.0),
    };
    assert_eq!(summary.marks, [expected]);
}

/// `requests` of which one fails; the others take `ttft_s` to the first token.
fn served(round: u32, neighbour: Neighbour, requests: usize, ttft_s: f64) -> Cell {
    let mut cell = cell(round, "gpuaware", neighbour, 100.0);
    let done = requests - 1;
    let report = serde_json::json!({"workload": "llm_serving",
        "client": {"offered": requests, "completed": done, "failed": 1, "good": done / 2,
            "ttfts": vec![ttft_s; done], "tpots": vec![0.01; done], "e2els": vec![1.0; done],
            "itls": vec![[0.01]; done], "errors": ["x"]},
        "server": {"launches": 9, "context_switches": {"voluntary": 1, "involuntary": 0},
            "threads_detail": []}});
    let report: WorkloadReport = serde_json::from_value(report).unwrap();
    cell.measurement.as_mut().unwrap().workload = report;
    cell
}

#[test]
fn requests_are_set_against_those_of_the_quiet_cells() {
    let mut plan = plan();
    "gpuaware".clone_into(&mut plan.matrix.baseline);
    let cells: Vec<Cell> = (1..=3)
        .flat_map(|round| {
            [
                served(round, Neighbour::None, 201, 0.1),
                served(round, Neighbour::Heavy, 201, 0.15),
            ]
        })
        .collect();
    let summary = study(&plan, &cells);
    assert_eq!(summary.serving.len(), 2);
    let heavy = &summary.serving[1];
    assert_eq!(
        (heavy.offered, heavy.failed, heavy.ttft.samples),
        (603, 3, 600)
    );
    assert!((value(heavy.ttft.p99_of_clean) - 1.5).abs() < 1e-9);
    assert!((value(heavy.ttft.p99_over_own_quiet) - 1.5).abs() < 1e-9);
    assert!(
        heavy.ttft.p99_over_isolcpus.is_none(),
        "it was not measured"
    );
    assert!((value(heavy.tpot.p99_of_clean) - 1.0).abs() < 1e-9);
    assert!((value(heavy.ttft.mean_of_clean) - 1.5).abs() < 1e-9);
    // Of the offered ones, failures included: 100 of 201.
    assert!((value(heavy.good) - 100.0 / 201.0).abs() < 1e-9);
    // Two rounds are 400 requests: too few for a p99.
    let thin = study(&plan, &cells[..4]);
    assert!(thin.serving[1].ttft.p99_ms.is_none() && thin.serving[1].ttft.p50_ms.is_some());
}
