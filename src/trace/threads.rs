// SPDX-License-Identifier: GPL-2.0-only
//! Traced threads and what was counted of them. Pure.

use serde::Serialize;

use crate::bpf::trace_intf as intf;

use super::schema::Comm;

/// Defines the counters once: the struct, how it is read, how two are added.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a thread, or of several.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            fn from_wire(wire: &intf::trace_counters) -> Self {
                Self { $($name: wire.$name,)* }
            }

            /// Adds those of another thread.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Time on a CPU, interrupts on top of it included.
    on_cpu_ns,
    /// Time off, though it could have run.
    preempted_ns,
    /// Time off after `sched_yield`.
    yielded_ns,
    /// Time off, waiting for something.
    asleep_ns,
    /// Time off between its wakeup, or its start, and running.
    wakeup_wait_ns,
    /// Time off that began before tracing did.
    unknown_ns,
    /// Switches away though it could have run.
    preempted,
    /// Switches away by `sched_yield`.
    yielded,
    /// Switches away to wait for something, or to end.
    blocked,
    /// Switches to it.
    switches_in,
    /// Wakeups from sleep.
    wakeups,
    /// Moves to another CPU.
    migrations,
    /// Device interrupts on top of it.
    hard_irqs,
    /// Their own time.
    hard_irq_ns,
    /// Softirqs on top of it.
    soft_irqs,
    /// Their own time.
    soft_irq_ns,
    /// Timer, reschedule and function-call interrupts on top of it.
    vector_irqs,
    /// Their own time.
    vector_irq_ns,
    /// Switches away while launches were counted: in windows only if these were sampled, as all
    /// below.
    window_switches,
    /// Kernel launches counted.
    launches,
    /// Graph launches counted.
    graph_launches,
    /// Calls that wait for the GPU.
    syncs,
    /// Time in them.
    sync_ns,
    /// Pairs of launches, one after the other, without a switch in between.
    intervals_calm,
    /// Time between them.
    intervals_calm_ns,
    /// Pairs of launches with a switch in between.
    intervals_disturbed,
    /// Time between them.
    intervals_disturbed_ns,
    /// What all these intervals lost, by cause.
    interval_preempted_ns,
    /// To yields.
    interval_yielded_ns,
    /// To sleep.
    interval_asleep_ns,
    /// To waiting for a CPU after a wakeup.
    interval_wakeup_wait_ns,
    /// To device interrupts.
    interval_hard_irq_ns,
    /// To softirqs.
    interval_soft_irq_ns,
    /// To other interrupts.
    interval_vector_irq_ns,
}

impl Counters {
    /// Switches away from it.
    pub fn switches(&self) -> u64 {
        self.preempted + self.yielded + self.blocked
    }

    /// Launches of both sorts.
    pub fn all_launches(&self) -> u64 {
        self.launches + self.graph_launches
    }

    /// Time that interrupts took, nothing twice.
    pub fn irq_ns(&self) -> u64 {
        self.hard_irq_ns + self.soft_irq_ns + self.vector_irq_ns
    }
}

/// How often times of which length were met. Bucket 0 counts zeros, bucket n values from 2^(n-1)
/// to 2^n - 1 ns, the last one everything above.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// The buckets.
    pub buckets: [u32; intf::trace_limits_TRACE_NR_BUCKETS as usize],
}

impl Histogram {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().copied().map(u64::from).sum()
    }

    /// The bound in ns below which a share `quantile` of the values lies: a power of 2, so the
    /// value itself may be half of it. `None` without values, and where the last bucket begins.
    pub fn bound_ns(&self, quantile: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * quantile).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|&count| {
            seen += u64::from(count);
            seen >= wanted
        })?;
        (bucket + 1 < self.buckets.len()).then(|| 1 << bucket)
    }

    fn add(&mut self, other: &Self) {
        for (sum, value) in self.buckets.iter_mut().zip(other.buckets) {
            *sum = sum.saturating_add(value);
        }
    }
}

/// The histograms of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Histograms {
    /// Time on a CPU at a stretch.
    pub on_cpu: Histogram,
    /// Time off after a preemption.
    pub preempted: Histogram,
    /// Time off after a yield.
    pub yielded: Histogram,
    /// Time asleep.
    pub asleep: Histogram,
    /// From wakeup to running.
    pub wakeup_wait: Histogram,
    /// Time in calls that wait for the GPU.
    pub sync: Histogram,
    /// Between two launches without a switch.
    pub interval_calm: Histogram,
    /// Between two launches with a switch.
    pub interval_disturbed: Histogram,
}

impl Histograms {
    fn from_wire(wire: &intf::trace_counters) -> Self {
        let hist = |index: intf::trace_hist| Histogram {
            buckets: wire.hists[index as usize],
        };
        Self {
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

    fn add(&mut self, other: &Self) {
        self.on_cpu.add(&other.on_cpu);
        self.preempted.add(&other.preempted);
        self.yielded.add(&other.yielded);
        self.asleep.add(&other.asleep);
        self.wakeup_wait.add(&other.wakeup_wait);
        self.sync.add(&other.sync);
        self.interval_calm.add(&other.interval_calm);
        self.interval_disturbed.add(&other.interval_disturbed);
    }
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Thread {
    /// Its id; 0 for the sum of several that ended.
    pub tid: i32,
    /// Its process.
    pub tgid: i32,
    /// Its name, the last one that it had.
    pub comm: Comm,
    /// How many threads this is: 1, unless several that ended are put together.
    pub threads: u64,
    /// How long it was traced.
    pub traced_ns: u64,
    /// How much of that lay in windows of launches.
    pub sampled_ns: u64,
    /// Has it ended?
    pub ended: bool,
    /// What was counted.
    pub counters: Counters,
    /// The square of the launches of a window, summed over the windows; none for several threads.
    #[serde(skip)]
    pub squared_launches: Option<u64>,
    /// Times by length.
    pub histograms: Histograms,
}

impl Thread {
    /// The thread with what it is doing at `now_ns` added to its times, so that they add up to the
    /// time for which it was traced. `sampled_ns`: all windows up to now, for one that goes on.
    pub fn settled(record: &intf::trace_thread_record, now_ns: u64, sampled_ns: u64) -> Self {
        let mut counters = Counters::from_wire(&record.counters);
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
        Self {
            tid: record.tid,
            tgid: record.tgid,
            comm: Comm::from_kernel(&record.comm),
            threads: 1,
            traced_ns: now_ns.saturating_sub(record.start_ns),
            sampled_ns: match record.end_ns {
                0 => sampled_ns.saturating_sub(record.sampled_ns),
                _ => record.sampled_ns,
            },
            ended: record.end_ns != 0,
            counters,
            squared_launches: Some(
                record.squared_launches + u64::from(record.window_launches).pow(2),
            ),
            histograms: Histograms::from_wire(&record.counters),
        }
    }

    /// A sum to add threads to.
    pub fn nobody() -> Self {
        Self {
            tid: 0,
            tgid: 0,
            comm: Comm::default(),
            threads: 0,
            traced_ns: 0,
            sampled_ns: 0,
            ended: false,
            counters: Counters::default(),
            squared_launches: None,
            histograms: Histograms::default(),
        }
    }

    /// Adds another thread: a sum has no TID.
    pub fn add(&mut self, other: &Self) {
        self.tid = 0;
        self.squared_launches = None;
        self.threads += other.threads;
        self.traced_ns += other.traced_ns;
        self.sampled_ns += other.sampled_ns;
        self.counters.add(&other.counters);
        self.histograms.add(&other.histograms);
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
        let on = Thread::settled(&record(intf::trace_reason_TRACE_ON_CPU, 0), now_ns, 700);
        assert_eq!((on.counters.on_cpu_ns, on.traced_ns), (4_000, 8_000));
        assert_eq!(on.sampled_ns, 600, "100 were before it");
        let woken = Thread::settled(
            &record(intf::trace_reason_TRACE_BLOCKED, 8_000),
            now_ns,
            700,
        );
        assert_eq!(woken.counters.asleep_ns, 3_000);
        assert_eq!(woken.counters.wakeup_wait_ns, 1_000);
        let asleep = Thread::settled(&record(intf::trace_reason_TRACE_BLOCKED, 0), now_ns, 700);
        assert_eq!(asleep.counters.asleep_ns, 4_000);
    }

    #[test]
    fn quantiles_are_bounds_of_buckets() {
        let mut hist = Histogram::default();
        assert_eq!(hist.bound_ns(0.5), None);
        hist.buckets[3] = 98; // 4 to 7 ns
        hist.buckets[10] = 1;
        hist.buckets[31] = 1;
        assert_eq!(hist.count(), 100);
        assert_eq!(hist.bound_ns(0.5), Some(8));
        assert_eq!(hist.bound_ns(0.99), Some(1024));
        assert_eq!(hist.bound_ns(1.0), None);
    }

    #[test]
    fn so_do_their_names() {
        let mut ended = Ended::default();
        let mut thread = Thread::settled(&record(intf::trace_reason_TRACE_EXITED, 0), 9_000, 0);
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
        let mut thread = Thread::settled(&record(intf::trace_reason_TRACE_EXITED, 0), 9_000, 0);
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
