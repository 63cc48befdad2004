// SPDX-License-Identifier: GPL-2.0-only
//! From the kernel side's events to records. Pure.

use std::mem::size_of;

use gpuaware_trace::schema::{Kind, Name, Reason, Record};

use crate::bpf::{text, trace_intf as intf};
use crate::identify::libcuda::{LAUNCH_SYMBOLS, SYNC_SYMBOLS};

/// An event as the kernel side writes it.
pub type Raw = intf::trace_record;

/// The order of `/proc/softirqs`.
const SOFT_IRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

const CLASSES: [&str; 7] = ["", "stop", "deadline", "rt", "fair", "ext", "idle"];

/// The event in `bytes`. `None` if there are too few of them.
pub fn raw(bytes: &[u8]) -> Option<Raw> {
    if bytes.len() < size_of::<Raw>() {
        return None;
    }
    // SAFETY: long enough, and the struct is plain integers and a union of such, valid for any
    // bytes; the read tolerates any alignment.
    Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}

/// An event that is about no thread.
pub fn raw_of_window(kind: Kind, time_ns: u64) -> Raw {
    // SAFETY: plain integers and a union of such, valid as zeros.
    let mut raw: Raw = unsafe { std::mem::zeroed() };
    raw.kind = kind as u32;
    raw.time_ns = time_ns;
    raw
}

/// Its kind. `None`: a newer kernel side.
pub fn kind(raw: &Raw) -> Option<Kind> {
    Kind::ALL.get(raw.kind as usize).copied()
}

/// What the kernel wrote: up to the first NUL. Bytes that are no UTF-8 become U+FFFD.
pub fn name<const N: usize>(bytes: &[u8]) -> Name<N> {
    Name::new(&text(bytes))
}

/// Name of interrupt number `nr`, whose handler or vector, if it has one, is called `handler`.
pub fn irq_name(kind: Kind, nr: u32, handler: &[u8]) -> Name<32> {
    match kind {
        Kind::SoftIrq => Name::new(SOFT_IRQS.get(nr as usize).unwrap_or(&"?")),
        _ => name(handler),
    }
}

/// Reason by its number in `bpf/trace_intf.h`, where 0 is none.
pub fn reason(number: u32) -> Option<Reason> {
    let index = (number as usize).checked_sub(1)?;
    Reason::ALL.get(index).copied()
}

/// The record of an event. `None`: a kind that is not known.
pub fn record(raw: &Raw) -> Option<Record> {
    let kind = kind(raw)?;
    let mut record = Record {
        cpu: raw.cpu,
        tid: raw.tid,
        tgid: raw.tgid,
        comm: name(&raw.comm),
        ..Record::new(raw.time_ns, kind)
    };
    // SAFETY: the kind says which member was written; all are plain integers anyway.
    unsafe {
        match kind {
            Kind::Launch
            | Kind::GraphLaunch
            | Kind::GraphLaunchExit
            | Kind::SyncEnter
            | Kind::SyncExit => add_cuda(&mut record, &raw.__bindgen_anon_1.cuda),
            Kind::HardIrq | Kind::SoftIrq | Kind::VectorIrq => {
                add_irq(&mut record, &raw.__bindgen_anon_1.irq);
            }
            Kind::WindowOpen | Kind::WindowClose => {}
            _ => add_sched(&mut record, &raw.__bindgen_anon_1.sched),
        }
    }
    Some(record)
}

fn add_cuda(record: &mut Record, cuda: &intf::trace_cuda) {
    let symbols: &[&str] = match record.event {
        Kind::SyncEnter | Kind::SyncExit => &SYNC_SYMBOLS,
        _ => &LAUNCH_SYMBOLS,
    };
    record.symbol = symbols
        .get(cuda.symbol as usize)
        .map(|name| Name::new(name));
    record.stream = Some(cuda.stream);
    match record.event {
        Kind::Launch => {
            [record.grid_x, record.grid_y, record.grid_z] = cuda.grid.map(Some);
            [record.block_x, record.block_y, record.block_z] = cuda.block.map(Some);
            record.shared_bytes = Some(cuda.shared_bytes);
        }
        Kind::GraphLaunchExit | Kind::SyncExit => record.duration_ns = Some(cuda.duration_ns),
        _ => {}
    }
}

fn add_irq(record: &mut Record, irq: &intf::trace_irq) {
    record.duration_ns = Some(irq.duration_ns);
    record.self_ns = Some(irq.self_ns);
    record.irq = Some(irq.nr);
    record.irq_name = Some(irq_name(record.event, irq.nr, &irq.name));
}

fn add_sched(record: &mut Record, sched: &intf::trace_sched) {
    let kind = record.event;
    record.reason = reason(sched.reason);
    if kind == Kind::Migrate {
        record.to_cpu = Some(sched.to_cpu);
        return;
    }
    if kind == Kind::ThreadExit {
        return;
    }
    record.other_tid = Some(sched.other_tid);
    record.other_tgid = Some(sched.other_tgid);
    record.other_comm = Some(name(&sched.other_comm));
    if kind != Kind::ThreadStart {
        record.duration_ns = Some(sched.duration_ns);
    }
    if !matches!(kind, Kind::SwitchOut | Kind::SwitchIn) {
        return;
    }
    const NO_DSQ: u64 = u64::MAX;
    let class = CLASSES.get(sched.sched_class as usize).unwrap_or(&"");
    record.sched_class = (!class.is_empty()).then(|| Name::new(class));
    record.dsq = (sched.dsq != NO_DSQ).then_some(sched.dsq);
    if kind == Kind::SwitchOut {
        record.state = Some(state(sched.state));
    } else {
        record.wait_ns = Some(sched.wait_ns);
        record.slice_ns =
            (sched.sched_class == intf::trace_class_TRACE_CLASS_EXT).then_some(sched.slice_ns);
    }
}

/// The letter that `ps` prints for a task state.
fn state(bits: u32) -> char {
    const IDLE: u32 = 0x402;
    const LETTERS: [(u32, char); 8] = [
        (0x01, 'S'),
        (0x02, 'D'),
        (0x04, 'T'),
        (0x08, 't'),
        (0x10, 'X'),
        (0x20, 'Z'),
        (0x40, 'P'),
        (0x80, 'X'),
    ];
    if bits & IDLE == IDLE {
        return 'I';
    }
    LETTERS
        .into_iter()
        .find(|(bit, _)| bits & bit != 0)
        .map_or('R', |(_, letter)| letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaware_trace::analyze::pairs;

    fn event(kind: Kind) -> Raw {
        let mut raw = raw_of_window(kind, 77);
        raw.cpu = 1;
        raw.tid = 12;
        raw.tgid = 10;
        raw.comm[..3].copy_from_slice(b"eng");
        raw
    }

    #[test]
    fn a_launch_has_its_configuration() {
        let mut raw = event(Kind::Launch);
        raw.__bindgen_anon_1.cuda = intf::trace_cuda {
            duration_ns: 0,
            stream: 9,
            grid: [1, 2, 3],
            block: [4, 5, 6],
            shared_bytes: 7,
            symbol: 2,
        };
        let record = record(&raw).unwrap();
        assert_eq!(record.symbol.unwrap().as_str(), "cuLaunchKernelEx");
        assert_eq!((record.grid_z, record.block_z), (Some(3), Some(6)));
        assert_eq!((record.shared_bytes, record.stream), (Some(7), Some(9)));
        assert_eq!((record.comm.as_str(), record.duration_ns), ("eng", None));
    }

    #[test]
    fn a_switch_says_why_and_who() {
        let mut raw = event(Kind::SwitchOut);
        let mut other_comm = [0; 16];
        other_comm[..3].copy_from_slice(b"hog");
        raw.__bindgen_anon_1.sched = intf::trace_sched {
            duration_ns: 500,
            wait_ns: 0,
            dsq: u64::MAX,
            slice_ns: 0,
            other_tid: 99,
            other_tgid: 98,
            other_comm,
            reason: intf::trace_reason_TRACE_PREEMPTED,
            state: 0,
            sched_class: intf::trace_class_TRACE_CLASS_FAIR,
            to_cpu: 0,
        };
        let record = record(&raw).unwrap();
        assert_eq!(record.reason, Some(Reason::Preempted));
        assert_eq!(record.state, Some('R'));
        assert_eq!(record.other_comm.unwrap().as_str(), "hog");
        assert_eq!(record.sched_class.unwrap().as_str(), "fair");
        assert_eq!((record.dsq, record.wait_ns), (None, None));
    }

    #[test]
    fn reasons_and_kinds_have_the_numbers_of_the_kernel_side() {
        assert_eq!(reason(intf::trace_reason_TRACE_ON_CPU), None);
        assert_eq!(
            reason(intf::trace_reason_TRACE_YIELDED),
            Some(Reason::Yielded)
        );
        assert_eq!(reason(intf::trace_reason_TRACE_BY_IRQ), Some(Reason::Irq));
        assert_eq!(intf::trace_kind_TRACE_THREAD_EXIT, Kind::ThreadExit as u32);
        assert_eq!(intf::trace_kind_TRACE_NR_KINDS, Kind::WindowOpen as u32);
    }

    #[test]
    fn a_burst_is_the_same_for_counters_and_for_events() {
        let counted = [
            intf::trace_burst_TRACE_BURST_NS,
            intf::trace_burst_TRACE_MIN_BURST_PAIRS,
        ];
        let of_events = [pairs::BURST_NS, pairs::MIN_BURST_PAIRS];
        assert_eq!(counted.map(u64::from), of_events);
    }

    #[test]
    fn states_are_letters_of_ps() {
        let letters: String = [0, 1, 2, 0x402, 0x102, 8, 0x80].map(state).iter().collect();
        assert_eq!(letters, "RSDIDtX");
    }

    #[test]
    fn names_end_at_the_first_nul() {
        let name: Name<48> = name(b"eng\xff\0rest");
        assert_eq!(name.as_str(), "eng\u{fffd}");
    }

    #[test]
    fn a_truncated_event_is_none() {
        assert!(raw(&[0; 40]).is_none());
        let mut unknown = event(Kind::Launch);
        unknown.kind = 1000;
        assert!(record(&unknown).is_none());
    }
}
