// SPDX-License-Identifier: GPL-2.0-only
//! From what the kernel side counted of a thread of the host to what a profile is made of. Pure.

use gpuaware_trace::profile::observed::Observed;
use gpuaware_trace::profile::{Class, Histogram, Policy};

use crate::bpf::profile_intf as intf;

/// `SCHED_FIFO`, `SCHED_RR`, `SCHED_IDLE`, `SCHED_DEADLINE`
const REAL_TIME: [u32; 3] = [1, 2, 6];
const IDLE: u32 = 5;

const BY_TASK: u32 = intf::profile_sort_PROFILE_BY_TASK;

/// The thread of `record`, as it was at `end_ns` when recording ended. `online` are the CPUs of the profile, by their
/// numbers on the host.
pub fn observed(
    record: &intf::profile_thread,
    end_ns: u64,
    class: Class,
    online: &[u32],
) -> Observed {
    let causes = |sorts: &[u32]| -> u64 {
        let counts = sorts.iter().map(|&sort| record.causes[sort as usize]);
        counts.map(u64::from).sum()
    };
    let wakers = record.wakers.iter().filter(|waker| waker.count > 0);
    let mut thread = Observed {
        pids: vec![record.pid],
        kernel: record.is_kernel != 0,
        class,
        nice: record.nice.clamp(-20, 19),
        policy: policy(record.policy),
        cpus: allowed(&record.cpus, online),
        alive_ns: end(record, end_ns).saturating_sub(record.born_ns),
        cpu_ns: record.cpu_ns,
        ready_ns: record.ready_ns,
        preempted: record.preempted.into(),
        yielded: record.yielded.into(),
        run: histogram(&record.run),
        sleep_alone: histogram(&record.alone),
        sleep_awaited: histogram(&record.awaited),
        wait: histogram(&record.wait),
        by_timer: causes(&[intf::profile_sort_PROFILE_TIMER]),
        by_interrupt: causes(&[
            intf::profile_sort_PROFILE_HARD,
            intf::profile_sort_PROFILE_SOFT,
            intf::profile_sort_PROFILE_IPI,
        ]),
        wakers: wakers.map(|it| (it.pid, it.count.into())).collect(),
        by_others: record.by_others.into(),
    };
    close(&mut thread, record, end_ns);
    thread
}

fn end(record: &intf::profile_thread, end_ns: u64) -> u64 {
    match record.end_ns {
        0 => end_ns,
        ended_ns => ended_ns,
    }
}

fn policy(number: u32) -> Policy {
    match number {
        IDLE => Policy::Idle,
        number if REAL_TIME.contains(&number) => Policy::RealTime,
        _ => Policy::Normal,
    }
}

/// By their numbers in the profile; `None`: all of them.
fn allowed(mask: &[u64], online: &[u32]) -> Option<Vec<u32>> {
    let is_allowed = |cpu: u32| {
        let word = mask.get(cpu as usize / 64).copied().unwrap_or(0);
        word >> (cpu % 64) & 1 != 0
    };
    let numbered = (0..).zip(online);
    let allowed: Vec<u32> = numbered
        .filter(|&(_, &cpu)| is_allowed(cpu))
        .map(|(at, _)| at)
        .collect();
    // None of them: the kernel lets it run anywhere, or it is about to.
    let some = !allowed.is_empty() && allowed.len() < online.len();
    some.then_some(allowed)
}

fn histogram(wire: &intf::profile_hist) -> Histogram {
    let counts = wire.counts.map(u64::from);
    Histogram::of(&counts, &wire.sums_ns)
}

/// Counts what recording began and ended in the middle of. Where both are runs, or both sleeps, they are taken for the
/// two parts of one: as if the recording went on with its own begin.
fn close(thread: &mut Observed, record: &intf::profile_thread, end_ns: u64) {
    let began_asleep = record.began == intf::profile_state_PROFILE_ASLEEP;
    let is_past_first = record.is_past_first != 0;
    let first_ns = if is_past_first { record.first_ns } else { 0 };
    let since_ns = end(record, end_ns).saturating_sub(record.since_ns);
    match record.state {
        intf::profile_state_PROFILE_ASLEEP => {
            if began_asleep {
                sleep(thread, record.first_cause, first_ns + since_ns);
                return;
            }
            if is_past_first {
                thread.run.add(first_ns);
            }
            thread.sleep_alone.add(since_ns);
        }
        state => {
            let mut run_ns = record.burst_ns;
            match state {
                intf::profile_state_PROFILE_RUNNING => {
                    run_ns += since_ns;
                    thread.cpu_ns += since_ns;
                }
                intf::profile_state_PROFILE_READY => thread.ready_ns += since_ns,
                _ => {}
            }
            if began_asleep && is_past_first {
                sleep(thread, record.first_cause, first_ns);
            } else {
                run_ns += first_ns;
            }
            if run_ns > 0 {
                thread.run.add(run_ns);
            }
        }
    }
}

fn sleep(thread: &mut Observed, cause: u32, ns: u64) {
    match cause {
        BY_TASK => thread.sleep_awaited.add(ns),
        _ => thread.sleep_alone.add(ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn record() -> intf::profile_thread {
        // SAFETY: plain integers.
        let mut record: intf::profile_thread = unsafe { std::mem::zeroed() };
        record.born_ns = 100 * MS;
        record.since_ns = 100 * MS;
        record
    }

    fn seen(record: &intf::profile_thread) -> Observed {
        observed(record, 200 * MS, Class::Background, &[0, 1, 4, 5])
    }

    fn times(histogram: &Histogram) -> (u64, u64) {
        (histogram.count(), histogram.sum_ns() / MS)
    }

    #[test]
    fn a_sleep_that_recording_began_and_ended_in_is_one() {
        let mut asleep = record();
        asleep.began = intf::profile_state_PROFILE_ASLEEP;
        asleep.state = intf::profile_state_PROFILE_ASLEEP;
        asleep.first_cause = BY_TASK;
        asleep.is_past_first = 1;
        asleep.first_ns = 30 * MS;
        asleep.since_ns = 150 * MS;
        asleep.run.counts[24] = 1;
        asleep.run.sums_ns[24] = 20 * MS;
        let thread = seen(&asleep);
        assert_eq!(times(&thread.sleep_awaited), (1, 80));
        assert_eq!(
            (times(&thread.run), times(&thread.sleep_alone)),
            ((1, 20), (0, 0))
        );
        assert_eq!(thread.alive_ns, 100 * MS);
    }

    #[test]
    fn a_thread_that_never_slept_has_one_run() {
        let mut busy = record();
        busy.began = intf::profile_state_PROFILE_RUNNING;
        busy.state = intf::profile_state_PROFILE_RUNNING;
        busy.burst_ns = 40 * MS;
        busy.cpu_ns = 40 * MS;
        busy.since_ns = 190 * MS;
        let thread = seen(&busy);
        assert_eq!((times(&thread.run), thread.cpu_ns), ((1, 50), 50 * MS));
        assert_eq!(thread.sleep_alone.count(), 0);
    }

    #[test]
    fn one_that_ran_first_and_sleeps_last_has_both() {
        let mut one = record();
        one.began = intf::profile_state_PROFILE_READY;
        one.state = intf::profile_state_PROFILE_ASLEEP;
        one.is_past_first = 1;
        one.first_ns = 5 * MS;
        one.since_ns = 105 * MS;
        let thread = seen(&one);
        assert_eq!(
            (times(&thread.run), times(&thread.sleep_alone)),
            ((1, 5), (1, 95))
        );
    }

    #[test]
    fn cpus_are_numbered_without_gaps_and_all_of_them_are_no_affinity() {
        let with = |mask: u64| {
            let mut one = record();
            one.cpus[0] = mask;
            seen(&one).cpus
        };
        assert_eq!(with(0b11_0000), Some(vec![2, 3]));
        assert_eq!(with(0b11_1111), None);
        assert_eq!(with(0b1000), None, "offline CPUs alone");
    }
}
