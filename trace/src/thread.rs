// SPDX-License-Identifier: GPL-2.0-only
//! Traced threads and what was counted of them. Pure.

use serde::Serialize;

use crate::schema::Comm;

/// Buckets of a histogram.
pub const NR_BUCKETS: usize = 32;

/// Defines the counters once: the struct, how it is read, how two are added.
macro_rules! counters {
    ($dollar:tt $($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a thread, or of several.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Adds those of another thread.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }

        /// The counters of a struct that has fields of these names, as the kernel side's.
        #[macro_export]
        macro_rules! counters_of {
            ($dollar wire:expr) => { $crate::thread::Counters { $($name: $dollar wire.$name,)* } };
        }
    };
}

counters! {
    $
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
    /// Time off that began before tracing did, and time around a switch that the kernel did not show.
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
    /// Three launches or more in one window, each less than 100 µs after the one before.
    bursts,
    /// Launches in these.
    burst_launches,
    /// Those with a switch inside.
    bursts_disturbed,
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
    pub buckets: [u32; NR_BUCKETS],
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

/// One thread; by default a sum to add threads to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
