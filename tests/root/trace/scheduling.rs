// SPDX-License-Identifier: GPL-2.0-only
//! Switches, wakeups and migrations that are forced, one by one and by the hundred thousand.

use gpuaware_trace::schema::{Kind, Reason, Record};

use super::known::trace;
use super::{MOST_UNSHOWN, alone, assert_close, assert_close_but_for, assert_none_lost};
use crate::disturbed::unless_disturbed;

#[test]
fn forced_blocks_are_blocks() {
    let Some(_alone) = alone() else { return };
    unless_disturbed(|| {
        let traced = trace("", "block:300:10000");
        traced.assert_consistent();
        let phase = traced.phase("block");
        // One that is preempted on its way to sleep may be woken before it sleeps.
        assert!((290..=300).contains(&phase.nvcsw), "{phase:?}");
        assert_eq!(traced.switches(phase, Reason::Blocked), phase.nvcsw);
        let (missed, switches) = (traced.end.missed, phase.nvcsw + phase.nivcsw);
        assert!(missed <= MOST_UNSHOWN, "{}", traced.log);
        // Who is woken before it sleeps has a wakeup and no switch.
        let wakeups = traced.count(phase, Kind::Wakeup);
        assert!(
            (phase.nvcsw - missed..=300).contains(&wakeups),
            "{wakeups} wakeups, {missed} not shown: {phase:?}"
        );
        let switches_in = traced.count(phase, Kind::SwitchIn);
        assert!(
            (switches - missed..=switches).contains(&switches_in),
            "{switches_in} switches in, {missed} not shown: {phase:?}"
        );
        assert_close_but_for(
            traced.off_ns(phase, Reason::Blocked) + traced.off_ns(phase, Reason::Preempted),
            phase.asleep_ns,
            phase.steal_ns,
            "time in sleeps",
        );
        for record in traced
            .within(phase)
            .filter(|record| record.event == Kind::SwitchIn)
        {
            assert!(record.wait_ns <= record.duration_ns);
        }
        let sleeps = traced
            .within(phase)
            .filter(|record| record.event == Kind::SwitchOut);
        assert!(
            sleeps
                .filter(|record| record.reason == Some(Reason::Blocked))
                .all(|record| record.state == Some('S'))
        );
    });
}

#[test]
fn wakeups_name_the_waker() {
    let Some(_alone) = alone() else { return };
    let traced = trace("", "wake:200 block:100:2000");
    let phase = traced.phase("wake");
    assert!(traced.end.missed <= MOST_UNSHOWN, "{}", traced.log);
    let wakeups: Vec<_> = traced
        .within(phase)
        .filter(|record| record.event == Kind::Wakeup)
        .collect();
    let shown = phase.nvcsw - traced.end.missed..=phase.nvcsw;
    assert!(shown.contains(&(wakeups.len() as u64)), "{phase:?}");
    for wakeup in &wakeups {
        assert_eq!(wakeup.reason, Some(Reason::Task), "{wakeup:?}");
        assert_eq!(wakeup.other_tid, Some(phase.waker_tid));
        assert_eq!(wakeup.cpu, 0, "where the waker runs");
    }
    // A sleep ends with a timer, whoever that interrupts.
    let by_timer = traced
        .within(traced.phase("block"))
        .filter(|record| record.event == Kind::Wakeup && record.reason == Some(Reason::Irq));
    assert!(by_timer.count() >= 99);
}

#[test]
fn forced_migrations_say_from_where_to_where() {
    let Some(_alone) = alone() else { return };
    let traced = trace("", "move:100");
    let phase = traced.phase("move");
    let moves: Vec<_> = traced
        .within(phase)
        .filter(|record| record.event == Kind::Migrate)
        .map(|record| (record.cpu, record.to_cpu.unwrap()))
        .collect();
    let wanted: Vec<_> = (0..100)
        .map(|number| (1 - number % 2, number % 2))
        .collect();
    assert_eq!(moves, wanted);
}

#[test]
fn none_of_many_threads_is_missed() {
    let Some(_alone) = alone() else { return };
    for _ in 0..5 {
        let traced = trace("", "crowd:400");
        traced.assert_consistent();
        assert_none_lost(&traced);
        // With the main thread and that of the phase.
        assert_eq!(traced.end.counted[&Kind::ThreadStart], 402);
        assert_eq!(traced.end.counted[&Kind::ThreadExit], 402);
    }
}

#[test]
fn forced_preemptions_are_preemptions_by_the_hog() {
    let Some(_alone) = alone() else { return };
    unless_disturbed(|| {
        let traced = trace("", "hog:2000");
        traced.assert_consistent();
        let phase = traced.phase("hog");
        assert!(phase.nivcsw > 50, "the hog shares the CPU: {phase:?}");
        assert_eq!(traced.switches(phase, Reason::Preempted), phase.nivcsw);
        assert_eq!(traced.switches(phase, Reason::Blocked), phase.nvcsw);
        assert_eq!(traced.switches(phase, Reason::Yielded), 0);
        assert_close_but_for(
            traced.off_ns(phase, Reason::Preempted),
            phase.wait_ns,
            phase.steal_ns,
            "time waiting for the CPU",
        );
        // The hog's own records say the same, whoever else ran on that CPU.
        let hog = traced.records.iter().find(|record| {
            record.comm.as_str() == "hog" && record.tid != phase.tid && record.other_tid != Some(0)
        });
        let hog = hog.expect("a record of the hog").tid;
        let of_hog = traced.records.iter().filter(|record| {
            record.tid == hog
                && record.event == Kind::SwitchIn
                && record.other_tid == Some(phase.tid)
                && (phase.from_ns..phase.to_ns).contains(&record.time_ns)
        });
        let by_hog = traced
            .within(phase)
            .filter(|record| record.event == Kind::SwitchOut && record.other_tid == Some(hog));
        let by_hog: Vec<_> = by_hog.map(|record| record.time_ns).collect();
        assert!(!by_hog.is_empty());
        assert_eq!(
            by_hog,
            of_hog.map(|record| record.time_ns).collect::<Vec<_>>()
        );
    });
}

#[test]
fn forced_yields_are_yields() {
    let Some(_alone) = alone() else { return };
    unless_disturbed(|| {
        let traced = trace("", "yield:3000:20000");
        traced.assert_consistent();
        assert_none_lost(&traced);
        let phase = traced.phase("yield");
        let yielded = traced.switches(phase, Reason::Yielded);
        let preempted = traced.switches(phase, Reason::Preempted);
        assert!((yielded + preempted).abs_diff(phase.nivcsw) <= traced.end.missed);
        assert_close(yielded, phase.yields_switched, "switches in sched_yield");
        assert_close_but_for(
            traced.off_ns(phase, Reason::Yielded) + traced.off_ns(phase, Reason::Preempted),
            phase.wait_ns,
            phase.steal_ns,
            "time waiting for the CPU",
        );
    });
}

#[test]
fn each_yield_is_told_from_every_other_switch() {
    let Some(_alone) = alone() else { return };
    let traced = trace("", "each:2000:5000");
    traced.assert_consistent();
    assert_none_lost(&traced);
    let phase = traced.phase("each");
    let offs: Vec<_> = traced
        .within(phase)
        .filter(|record| record.event == Kind::SwitchOut)
        .collect();
    let is_yield = |record: &&&Record| record.reason == Some(Reason::Yielded);
    let (mut switched, mut yielded) = (0, 0);
    for &(from_ns, to_ns, switches) in &phase.spans {
        let begin = offs.partition_point(|record| record.time_ns < from_ns);
        let end = offs.partition_point(|record| record.time_ns < to_ns);
        let inside = &offs[begin..end];
        assert_eq!(inside.len() as u64, switches, "{from_ns}: {inside:?}");
        switched += usize::from(switches > 0);
        yielded += inside.iter().filter(is_yield).count();
    }
    assert!(switched > 1000, "the other thread is there: {switched}");
    // No switch outside of the calls is called a yield.
    assert_eq!(offs.iter().filter(is_yield).count(), yielded);
    // Inside, a tick may come before the yield does, or after it: see docs/tracing.md.
    assert!(
        yielded.abs_diff(switched) * 100 <= switched,
        "{yielded} of {switched}"
    );
}

#[test]
fn yields_are_counted_exactly_where_nothing_else_switches() {
    let Some(_alone) = alone() else { return };
    let traced = trace("", "alternate:8000");
    traced.assert_consistent();
    assert_none_lost(&traced);
    let phase = traced.phase("alternate");
    let yields: Vec<_> = traced
        .within(phase)
        .filter(|record| record.event == Kind::SwitchOut)
        .filter(|record| record.reason == Some(Reason::Yielded))
        .collect();
    // The kernel's own threads of higher priority may come in between, but hardly ever do.
    let partner = Some(phase.waker_tid);
    let foreign = yields.iter().filter(|record| record.other_tid != partner);
    let foreign = foreign.count();
    assert!(foreign <= 5, "{foreign} went to others");
    let preempted = traced.switches(phase, Reason::Preempted) as usize;
    assert!(preempted <= 5, "{preempted}");
    assert!(
        yields.len().abs_diff(8_000) <= foreign,
        "{} yields, {foreign} of them to others",
        yields.len()
    );
}

#[test]
fn a_forced_wait_is_split_into_sleep_and_waiting() {
    let Some(_alone) = alone() else { return };
    unless_disturbed(|| {
        let traced = trace("", "wait:100:10000");
        traced.assert_consistent();
        assert_none_lost(&traced);
        let phase = traced.phase("wait");
        assert_eq!(traced.count(phase, Kind::Wakeup), phase.nvcsw);
        let ins = traced.within(phase).filter(|record| {
            record.event == Kind::SwitchIn && record.reason == Some(Reason::Blocked)
        });
        let waits_ns: Vec<(u64, u64)> = ins
            .map(|record| {
                let wait_ns = record.wait_ns.unwrap();
                (record.duration_ns.unwrap() - wait_ns, wait_ns)
            })
            .collect();
        let shown = waits_ns.len() as u64;
        assert!(shown + traced.end.missed >= phase.nvcsw, "{}", traced.log);
        // What was not shown was as long as the others.
        let all = |sum_ns: u64| sum_ns * phase.nvcsw / shown;
        let asleep_ns = all(waits_ns.iter().map(|(asleep, _)| asleep).sum());
        let waited_ns = all(waits_ns.iter().map(|(_, waited)| waited).sum());
        assert_close_but_for(asleep_ns, phase.asleep_ns, phase.steal_ns, "time asleep");
        assert_close_but_for(waited_ns, phase.waited_ns, phase.steal_ns, "time waiting");
    });
}

/// Most events in any second.
fn fullest_second(records: &[Record]) -> &[Record] {
    let mut begin = 0;
    let seconds = (0..records.len()).map(|end| {
        while records[end].time_ns - records[begin].time_ns >= 1_000_000_000 {
            begin += 1;
        }
        &records[begin..=end]
    });
    seconds
        .max_by_key(|second| second.len())
        .unwrap_or_default()
}

#[test]
fn none_is_lost_in_a_second_with_200_000_events_of_two_cpus() {
    let Some(_alone) = alone() else { return };
    unless_disturbed(|| {
        // How much the threads do between their yields for so many events is the machine's.
        let mut rates = Vec::new();
        for spin_ns in [20_000, 14_000, 10_000, 6000, 4000, 3000, 2000, 1000, 0] {
            let traced = trace("", &format!("storm:2500:{spin_ns}"));
            traced.assert_consistent();
            let second = fullest_second(&traced.records);
            rates.push(second.len());
            if second.len() < 200_000 {
                continue;
            }
            assert!(traced.end.lost.is_empty(), "{}", traced.log);
            assert!(traced.end.missed <= MOST_UNSHOWN, "{}", traced.log);
            for cpu in 0..2 {
                let on_it = second.iter().filter(|record| record.cpu == cpu).count();
                assert!(on_it > 50_000, "only {on_it} on CPU {cpu}");
            }
            eprintln!(
                "{} events in a second, {spin_ns} ns between yields",
                second.len()
            );
            return;
        }
        panic!("fewer than 200,000 events in each second: {rates:?}");
    });
}
