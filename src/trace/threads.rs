// SPDX-License-Identifier: GPL-2.0-only
//! From what the kernel side counted of a thread to the thread, and those that ended. Pure.

use gpuaware_trace::counters_of;
use gpuaware_trace::schema::Comm;
use gpuaware_trace::thread::{Histogram, Histograms, Thread};

use crate::bpf::trace_intf as intf;

use super::decode::name;

/// The thread of `record` with what it is doing at `now_ns` added to its times, so that they add up to the
/// time for which it was traced. `sampled_ns`: all windows up to now, for one that goes on.
pub fn settled(record: &intf::trace_thread_record, now_ns: u64, sampled_ns: u64) -> Thread {
    let mut counters = counters_of!(record.counters);
    let since_ns = now_ns.saturating_sub(record.since_ns);
    let woken_ns = match record.woken_ns {
        0 => 0,
        woken_ns => now_ns.saturating_sub(woken_ns).min(since_ns),
    };
    match record.reason {
        intf::trace_reason_TRACE_ON_CPU => counters.on_cpu_ns += since_ns,
        intf::trace_reason_TRACE_PREEMPTED => counters.preempted_ns += since_ns,
        intf::trace_reason_TRACE_YIELDED => counters.yielded_ns += since_ns,
        intf::trace_reason_TRACE_BLOCKED => {
            counters.asleep_ns += since_ns - woken_ns;
            counters.wakeup_wait_ns += woken_ns;
        }
        intf::trace_reason_TRACE_NEW => counters.wakeup_wait_ns += since_ns,
        intf::trace_reason_TRACE_EXITED => {}
        _ => counters.unknown_ns += since_ns,
    }
    Thread {
        tid: record.tid,
        tgid: record.tgid,
        comm: name(&record.comm),
        threads: 1,
        traced_ns: now_ns.saturating_sub(record.start_ns),
        sampled_ns: match record.end_ns {
            0 => sampled_ns.saturating_sub(record.sampled_ns),
            _ => record.sampled_ns,
        },
        ended: record.end_ns != 0,
        counters,
        squared_launches: Some(record.squared_launches + u64::from(record.window_launches).pow(2)),
        histograms: histograms(&record.counters),
    }
}

fn histograms(wire: &intf::trace_counters) -> Histograms {
    let hist = |index: intf::trace_hist| Histogram {
        buckets: wire.hists[index as usize],
    };
    Histograms {
        on_cpu: hist(intf::trace_hist_TRACE_HIST_ON_CPU),
        preempted: hist(intf::trace_hist_TRACE_HIST_PREEMPTED),
        yielded: hist(intf::trace_hist_TRACE_HIST_YIELDED),
        asleep: hist(intf::trace_hist_TRACE_HIST_ASLEEP),
        wakeup_wait: hist(intf::trace_hist_TRACE_HIST_WAKEUP_WAIT),
        sync: hist(intf::trace_hist_TRACE_HIST_SYNC),
        interval_calm: hist(intf::trace_hist_TRACE_HIST_INTERVAL_CALM),
        interval_disturbed: hist(intf::trace_hist_TRACE_HIST_INTERVAL_DISTURBED),
    }
}

/// Threads that ended, in bounded memory: beyond [`Ended::MOST`], those of a process that never
/// launched and have one name are put together.
#[derive(Debug, Default)]
pub struct Ended {
    threads: Vec<Thread>,
    /// How many of these stand for several.
    sums: usize,
}

impl Ended {
    const MOST: usize = 4096;

    /// Takes one more.
    pub fn push(&mut self, thread: Thread) {
        let room = self.threads.len() < Self::MOST;
        if room || thread.counters.all_launches() > 0 && self.threads.len() < 2 * Self::MOST {
            self.threads.push(thread);
            return;
        }
        let mut thread = thread;
        if self.sums >= Self::MOST && self.sum_of(&thread).is_none() {
            // Names with a number in them, say.
            thread.comm = Comm::new("(others)");
        }
        if let Some(sum) = self.sum_of(&thread) {
            if sum.tgid != thread.tgid {
                sum.tgid = 0;
            }
            sum.add(&thread);
            return;
        }
        self.sums += 1;
        self.threads.push(Thread { tid: 0, ..thread });
    }

    /// What it is put together with.
    fn sum_of(&mut self, thread: &Thread) -> Option<&mut Thread> {
        let has_name = |sum: &Thread| sum.tid == 0 && sum.comm == thread.comm;
        let mut sums = self.threads.iter();
        let like = sums.position(|sum| has_name(sum) && sum.tgid == thread.tgid);
        // Where processes come and go by the thousand, their names are all that is left.
        let at = like.or_else(|| self.threads.iter().position(has_name))?;
        self.threads.get_mut(at)
    }

    /// All of them.
    pub fn into_threads(self) -> Vec<Thread> {
        self.threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(reason: u32, woken_ns: u64) -> intf::trace_thread_record {
        // SAFETY: plain integers, valid as zeros.
        let mut record: intf::trace_thread_record = unsafe { std::mem::zeroed() };
        record.tid = 3;
        record.tgid = 2;
        record.start_ns = 1_000;
        record.since_ns = 5_000;
        record.sampled_ns = 100;
        record.woken_ns = woken_ns;
        record.reason = reason;
        record
    }

    #[test]
    fn what_goes_on_still_is_counted() {
        let now_ns = 9_000;
        let on = settled(&record(intf::trace_reason_TRACE_ON_CPU, 0), now_ns, 700);
        assert_eq!((on.counters.on_cpu_ns, on.traced_ns), (4_000, 8_000));
        assert_eq!(on.sampled_ns, 600, "100 were before it");
        let woken = settled(
            &record(intf::trace_reason_TRACE_BLOCKED, 8_000),
            now_ns,
            700,
        );
        assert_eq!(woken.counters.asleep_ns, 3_000);
        assert_eq!(woken.counters.wakeup_wait_ns, 1_000);
        let asleep = settled(&record(intf::trace_reason_TRACE_BLOCKED, 0), now_ns, 700);
        assert_eq!(asleep.counters.asleep_ns, 4_000);
    }

    #[test]
    fn so_do_their_names() {
        let mut ended = Ended::default();
        let mut thread = settled(&record(intf::trace_reason_TRACE_EXITED, 0), 9_000, 0);
        thread.counters.blocked = 1;
        for tid in 1..=10_000 {
            thread.tid = tid;
            thread.comm = Comm::new(&format!("pool-{tid}"));
            ended.push(thread.clone());
        }
        let threads = ended.into_threads();
        assert_eq!(threads.len(), 2 * Ended::MOST + 1);
        let others = threads.last().unwrap();
        assert_eq!(
            (others.comm.as_str(), others.threads),
            ("(others)", 10_000 - 8_192)
        );
        let blocked: u64 = threads.iter().map(|thread| thread.counters.blocked).sum();
        assert_eq!(blocked, 10_000);
    }

    #[test]
    fn threads_that_ended_take_bounded_memory() {
        let mut ended = Ended::default();
        let mut thread = settled(&record(intf::trace_reason_TRACE_EXITED, 0), 9_000, 0);
        thread.counters.blocked = 1;
        for tid in 1..=10_000 {
            thread.tid = tid;
            thread.tgid = tid;
            ended.push(thread.clone());
        }
        let threads = ended.into_threads();
        assert_eq!(threads.len(), Ended::MOST + 1);
        let blocked: u64 = threads.iter().map(|thread| thread.counters.blocked).sum();
        assert_eq!(blocked, 10_000, "nothing is lost in the sum");
        let sum = threads.last().unwrap();
        assert_eq!((sum.tid, sum.tgid, sum.threads), (0, 0, 5_904));
    }
}
