// SPDX-License-Identifier: GPL-2.0-only
//! Traces of cuda_sched_trace.

use super::{analysis, launch, legacy, near, off, on};
use crate::analyze::event::IrqKind;
use crate::analyze::figures::Analysis;
use crate::analyze::read::LEGACY_HEADER;
use crate::analyze::tally::Cause;

#[test]
fn ratios_of_the_studies_by_hand() {
    let study = analysis(&legacy()).study;
    assert_eq!(study.launches, 8);
    // 4 scheduler rows, 2 soft interrupts, 1 hard interrupt; 8 launches.
    near(study.sched_per_1k.unwrap(), 500.0);
    near(study.soft_irq_per_1k.unwrap(), 250.0);
    near(study.hard_irq_per_1k.unwrap(), 125.0);
    // 4 + 8 + 2 µs of 40 ms.
    near(study.irq_time_ms, 0.014);
    near(study.irq_time_percent.unwrap(), 0.035);
}

#[test]
fn launch_pairs_penalty_and_impact_by_hand() {
    let pairs = analysis(&legacy()).study.busiest.unwrap().pairs;
    assert_eq!((pairs.launches, pairs.switches, pairs.pairs), (8, 4, 7));
    near(pairs.runtime_s, 0.040);
    near(pairs.switches_per_s.unwrap(), 100.0);
    // 28 µs + 2 µs off the CPU.
    near(pairs.off_cpu_ms, 0.030);
    near(pairs.off_cpu_percent.unwrap(), 0.075);
    // Group A: 2, 2, 2, 4, 15000 µs.
    let a = pairs.without_switch.unwrap();
    assert_eq!((a.count, a.exact), (5, true));
    near(a.mean_us, 3002.0);
    near(a.p50_us, 2.0);
    near(a.p90_us, 4.0 + 0.6 * 14_996.0);
    near(a.p99_us, 4.0 + 0.96 * 14_996.0);
    near(a.max_us, 15_000.0);
    // Group B: 15000 and 4 µs.
    let b = pairs.with_switch.unwrap();
    assert_eq!(b.count, 2);
    near(pairs.with_switch_percent.unwrap(), 200.0 / 7.0);
    near(b.p50_us, 7502.0);
    near(b.p90_us, 4.0 + 0.9 * 14_996.0);
    near(pairs.penalty_us.unwrap(), 7500.0);
    near(pairs.penalty_p90_us.unwrap(), 13_500.4 - 9001.6);
    // 2 pairs × 7.5 ms, of 40 ms.
    near(pairs.impact_s.unwrap(), 0.015);
    near(pairs.impact_percent.unwrap(), 37.5);
    let in_pair = pairs.off_cpu_in_pair.unwrap();
    near(in_pair.p50_us, 15.0);
    near(in_pair.max_us, 28.0);
}

#[test]
fn tails_and_bursts_by_hand() {
    let pairs = analysis(&legacy()).study.busiest.unwrap().pairs;
    // Of 2, 2, 2, 4, 4, 15000, 15000 µs the 95th and 99th percentile are 15000: two pairs, one of
    // them with a switch.
    for (tail, percentile) in pairs.tails.iter().zip([95, 99]) {
        assert_eq!(
            (tail.percentile, tail.pairs, tail.with_switch),
            (percentile, 2, 1)
        );
        near(tail.from_us, 15_000.0);
        near(tail.scheduler_percent, 50.0);
        near(tail.application_percent, 50.0);
    }
    let bursts = pairs.bursts.unwrap();
    assert_eq!(
        (bursts.bursts, bursts.min_launches, bursts.max_launches),
        (2, 3, 4)
    );
    near(bursts.mean_launches, 3.5);
    assert_eq!(bursts.preempted, 1);
    near(bursts.preempted_percent, 50.0);
    near(bursts.gap.unwrap().p50_us, 15_000.0);
}

#[test]
fn interrupts_by_source_by_hand() {
    let irqs = analysis(&legacy()).study.irqs;
    let figures: Vec<_> = irqs
        .iter()
        .map(|row| {
            (
                row.kind,
                row.name.as_str(),
                row.count,
                row.total_us,
                row.self_us,
            )
        })
        .collect();
    assert_eq!(
        figures,
        [
            (IrqKind::Soft, "NET_RX", 1, 8.0, 6.0),
            (IrqKind::Hard, "eth0", 1, 4.0, 4.0),
            (IrqKind::Soft, "TIMER", 1, 2.0, 2.0),
        ]
    );
    near(irqs[0].count_percent.unwrap(), 50.0);
    near(irqs[1].count_percent.unwrap(), 100.0);
    near(irqs[0].mean_us.unwrap(), 8.0);
    near(irqs[0].max_us, 8.0);
}

#[test]
fn our_figures_of_a_legacy_trace_by_hand() {
    let ours = analysis(&legacy()).ours;
    assert_eq!(
        (ours.launches, ours.launching_threads, ours.intervals),
        (8, 1, 7)
    );
    // An off and its on are one here.
    near(ours.switches_per_1k.unwrap(), 250.0);
    let (second, token) = (ours.per_second.unwrap(), ours.per_token.unwrap());
    near(second.launches, 200.0);
    near(second.switches, 50.0);
    near(second.soft_irqs, 50.0);
    // 12 µs without what is nested, in 40 ms.
    near(second.irq_us, 300.0);
    assert_eq!(second.preemptions, None);
    near(token.launches, 4.0);
    near(token.hard_irqs, 0.5);
    near(token.irq_us, 6.0);
    near(ours.tokens_per_s.unwrap(), 50.0);
    let stolen: Vec<_> = ours
        .stolen
        .iter()
        .map(|row| (row.cause, row.intervals_hit, (row.total_ms * 1e6).round()))
        .collect();
    assert_eq!(
        stolen,
        [
            (Cause::HardIrq, 1, 4000.0),
            (Cause::SoftIrq, 1, 6000.0),
            (Cause::Unknown, 2, 30_000.0),
        ]
    );
    near(ours.stolen[2].time_percent, 30.0 / 30_014.0 * 100.0);
    assert_eq!(ours.give_back.lost_ms, None);
    near(ours.give_back.by_placement_ms, 0.012);
    near(ours.give_back.at_most_ms_per_s.unwrap(), 0.75);
}

#[test]
fn switches_at_the_moment_of_a_launch_belong_to_no_pair() {
    let text = launch(10) + &off(10) + &on(20) + &off(30) + &launch(30) + &launch(35);
    let pairs = analysis(&text).study.busiest.unwrap().pairs;
    assert_eq!(pairs.with_switch, None);
    assert_eq!(pairs.without_switch.unwrap().count, 2);
    assert_eq!(pairs.switches, 3);
}

#[test]
fn rows_that_come_out_of_order_are_mended() {
    let mut lines: Vec<String> = legacy()
        .lines()
        .map(|line| line.to_owned() + "\n")
        .collect();
    lines[1..].reverse();
    let (sorted, reversed) = (analysis(&legacy()), analysis(&lines.concat()));
    let json = |analysis: &Analysis| serde_json::to_value(&analysis.study).unwrap();
    assert_eq!(json(&sorted), json(&reversed));
}

#[test]
fn two_runs_in_one_file_are_not_joined() {
    let analysis = analysis(&(legacy() + &legacy()));
    assert_eq!(analysis.source.runs, 2);
    near(analysis.source.duration_s, 0.080);
    let pairs = analysis.study.busiest.unwrap().pairs;
    assert_eq!((pairs.launches, pairs.pairs), (16, 14));
    near(pairs.runtime_s, 0.080);
    near(pairs.penalty_us.unwrap(), 7500.0);
    assert_eq!(pairs.bursts.unwrap().bursts, 4);
    near(analysis.study.sched_per_1k.unwrap(), 500.0);
}

#[test]
fn the_tracers_summary_gives_the_published_ratios() {
    let log = "\nCUDA + SCHEDULER + IRQ TRACE SUMMARY\ncuLaunchKernel                 400\n\
               Sched Switches Tracked         100\nHard IRQs Tracked                4\n\
               Soft IRQs Tracked               20\nDropped Events                 111\n";
    let analysis = analysis(&(legacy() + log));
    let counted = analysis.study.as_counted.unwrap();
    assert_eq!((counted.launches, counted.dropped), (400, Some(111)));
    near(counted.sched_per_1k.unwrap(), 250.0);
    near(counted.soft_irq_per_1k.unwrap(), 50.0);
    near(counted.hard_irq_per_1k.unwrap(), 10.0);
    assert_eq!(
        (analysis.source.lost, analysis.source.complete),
        (Some(111), false)
    );
}

#[test]
fn a_thread_that_the_legacy_tracer_does_not_see_is_named() {
    let worker = launch(0).replace("100,100", "100,101") + &launch(5).replace("100,100", "100,101");
    let remarks = analysis(&worker).source.remarks.join("\n");
    assert!(
        remarks.contains("1 of 1 launching threads have no scheduler row"),
        "{remarks}"
    );
}

/// Our own tracer writes this format too, with switches of every thread.
#[test]
fn switches_of_threads_that_do_not_launch_are_not_the_launchers() {
    let of_worker = |row: String| row.replace("100,100", "100,102");
    let text = launch(0) + &of_worker(off(10)) + &of_worker(on(20)) + &launch(30);
    let study = analysis(&text).study;
    near(study.sched_per_1k.unwrap(), 0.0);
    assert_eq!(study.busiest.unwrap().pairs.with_switch, None);
}

#[test]
fn a_long_trace_with_everything_in_it_stays_within_its_bounds() {
    let mut text = format!("{LEGACY_HEADER}\n");
    for at in 0..60_000_u64 {
        let (tid, comm) = (at % 50_000, at % 20_000);
        text += &format!(
            "{},cuLaunchKernel,{tid},{tid},n{comm},3,1,1,1,32,1,1,0,0x0,0,0\n",
            at * 1000
        );
    }
    let analysis = analysis(&text);
    assert_eq!(analysis.study.launches, 42_768);
    assert!(analysis.timeline.len() <= 128);
    let remarks = analysis.source.remarks.join("\n");
    assert!(
        remarks.contains("too many threads to follow: 17232 rows"),
        "{remarks}"
    );
}
