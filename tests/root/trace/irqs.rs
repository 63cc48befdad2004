// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts on top of a thread, nested ones among them.

use gpuaware_trace::schema::{Kind, Record};

use super::known::trace;
use super::{alone, assert_close, assert_none_lost};
use crate::disturbed::unless_disturbed;

fn is_irq(record: &&Record) -> bool {
    matches!(
        record.event,
        Kind::HardIrq | Kind::SoftIrq | Kind::VectorIrq
    )
}

#[test]
fn nested_interrupts_count_once() {
    let Some(_alone) = alone() else { return };
    unless_disturbed(|| {
        let traced = trace("", "udp:2000");
        traced.assert_consistent();
        assert_none_lost(&traced);
        let irqs: Vec<_> = traced.within(traced.phase("udp")).filter(is_irq).collect();
        let span = |irq: &Record| irq.time_ns - irq.duration_ns.unwrap()..irq.time_ns;
        let mut nr_nested = 0;
        for (index, outer) in irqs.iter().enumerate() {
            let (span_outer, mut nested_ns) = (span(outer), 0);
            // Records are in order of their ends: what is nested comes right before.
            for inner in irqs[..index].iter().rev() {
                if inner.time_ns < span_outer.start {
                    break;
                }
                nested_ns += inner.self_ns.unwrap();
                nr_nested += 1;
            }
            assert_eq!(
                outer.self_ns.unwrap(),
                outer.duration_ns.unwrap() - nested_ns,
                "{outer:?}"
            );
        }
        assert!(
            nr_nested > 0,
            "no timer hit a softirq in {} interrupts",
            irqs.len()
        );
        let net: Vec<_> = irqs
            .iter()
            .filter(|irq| irq.irq_name.unwrap_or_default().as_str() == "NET_RX")
            .collect();
        let phase = traced.phase("udp");
        // A datagram to oneself is one softirq; some may be left to ksoftirqd or to whoever comes.
        assert!(phase.datagrams > 10_000, "{phase:?}");
        let (count, most) = (net.len() as u64, phase.net_rx);
        assert!(count <= most, "{count} of {most} by the kernel's own count");
        assert_close(count, phase.datagrams, "softirqs of datagrams");
        // They run inside of the calls that send, by the program's clock.
        let ns: u64 = net.iter().filter_map(|irq| irq.duration_ns).sum();
        let sending_ns = phase.sending_ns;
        assert!(
            (sending_ns / 10..sending_ns).contains(&ns),
            "{ns} of {sending_ns}"
        );
    });
}

#[test]
fn interrupts_of_a_device_are_as_many_as_the_kernel_counts() {
    let Some(_alone) = alone() else { return };
    let traced = trace("", "disk:300");
    traced.assert_consistent();
    assert_none_lost(&traced);
    let phase = traced.phase("disk");
    let (from_ns, to_ns, wanted) = phase.spans[0];
    assert!(wanted >= 300, "one for each block: {wanted}");
    let irqs: Vec<_> = traced
        .within(phase)
        .filter(|record| record.event == Kind::HardIrq)
        .filter(|record| (from_ns..to_ns).contains(&record.time_ns))
        .collect();
    assert_eq!(irqs.len() as u64, wanted);
    for irq in irqs {
        assert!(irq.irq.is_some() && irq.irq_name.is_some(), "{irq:?}");
    }
}

#[test]
fn interrupts_last_as_long_as_a_thread_that_looks_at_the_clock_is_away() {
    let Some(_alone) = alone() else { return };
    unless_disturbed(|| {
        let traced = trace("", "gaps:4000:2000");
        traced.assert_consistent();
        assert_none_lost(&traced);
        let phase = traced.phase("gaps");
        let irqs: Vec<_> = traced.within(phase).filter(is_irq).collect();
        let switches: Vec<_> = traced
            .within(phase)
            .filter(|record| record.event == Kind::SwitchOut)
            .map(|record| record.time_ns)
            .collect();
        let mut shares: Vec<f64> = Vec::new();
        for &(from_ns, to_ns, _) in &phase.spans {
            let inside = irqs.iter().filter(|irq| {
                let begin_ns = irq.time_ns - irq.duration_ns.unwrap();
                from_ns <= begin_ns && irq.time_ns <= to_ns
            });
            let own_ns: u64 = inside.map(|irq| irq.self_ns.unwrap()).sum();
            assert!(own_ns <= to_ns - from_ns, "{own_ns} in {from_ns}..{to_ns}");
            // The others are a host's doing, or another thread's.
            let is_switched = switches.iter().any(|at| (from_ns..to_ns).contains(at));
            if own_ns > 0 && !is_switched {
                shares.push(own_ns as f64 / (to_ns - from_ns) as f64);
            }
        }
        assert!(shares.len() > 100, "{}", shares.len());
        shares.sort_by(f64::total_cmp);
        // Getting in and out, and what records it, is the rest.
        let median = shares[shares.len() / 2];
        eprintln!("interrupts are {:.0} % of a gap", median * 100.0);
        assert!((0.2..1.0).contains(&median), "{median}");
        // And none is where the thread was not away.
        let in_a_gap = |irq: &&&Record| {
            let begin_ns = irq.time_ns - irq.duration_ns.unwrap();
            let at = phase.spans.partition_point(|span| span.1 <= begin_ns);
            let gap = phase.spans.get(at);
            gap.is_some_and(|gap| gap.0 <= begin_ns && irq.time_ns <= gap.1)
        };
        let first = phase.spans[0].0;
        let last = phase.spans[phase.spans.len() - 1].1;
        let long: Vec<_> = irqs
            .iter()
            .filter(|irq| irq.duration_ns.unwrap() >= 2000)
            .filter(|irq| (first..last).contains(&(irq.time_ns - irq.duration_ns.unwrap())))
            .collect();
        let outside = long.len() - long.iter().copied().filter(in_a_gap).count();
        assert_eq!(outside, 0, "of {}", long.len());
    });
}
