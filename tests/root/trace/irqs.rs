// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts on top of a thread, nested ones among them.

use scx_gpuaware::trace::schema::{Kind, Record};

use super::known::trace;
use super::{alone, assert_close, assert_none_lost};

#[test]
fn nested_interrupts_count_once() {
    let Some(_alone) = alone() else { return };
    let traced = trace("", "udp:2000");
    traced.assert_consistent();
    assert_none_lost(&traced);
    let is_irq = |record: &&Record| {
        matches!(
            record.event,
            Kind::HardIrq | Kind::SoftIrq | Kind::VectorIrq
        )
    };
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
}
