// SPDX-License-Identifier: GPL-2.0-only
//! From events to counts, one event at a time and in bounded memory. Owns what is counted; the
//! figures made of it are in `figures`.

use std::collections::HashMap;

use super::event::{Event, EventKind, Irq, Name, Names, OffReason, Tid};
use super::irqs::Irqs;
use super::order::Order;
use super::pairs::Pairs;
use super::spread::Spread;
use super::tally::{Cause, Slices, Tally};
use super::thread::{Launched, Stolen, Thread};

/// Threads followed. A trace with more has them counted, not followed.
const MAX_THREADS: usize = 32_768;
/// Processes or threads whose launch pairs are looked at.
const MAX_PAIR_KEYS: usize = 32;

/// How the trace was made: what its rows mean depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceKind {
    /// By cuda_sched_trace: scheduler rows only of main threads, whose TID is their process;
    /// every row is of a process that launches.
    pub legacy: bool,
    /// Launches only in windows.
    pub sampled: bool,
}

impl TraceKind {
    /// Whether the trace says why threads were off their CPUs.
    pub fn tells_why(self) -> bool {
        !self.legacy
    }
}

/// Counts, while events come in.
#[derive(Debug, Default)]
pub struct Analyzer {
    trace_kind: TraceKind,
    order: Order,
    threads: HashMap<Tid, Thread>,
    /// Those that have launched and ended.
    ended: Vec<(Tid, Thread)>,
    pub(super) pairs: HashMap<i32, Pairs>,
    pub(super) irqs: Irqs,
    pub(super) slices: Slices,
    pub(super) stolen: Stolen,
    /// From wakeup to running.
    pub(super) wakeups: Spread,
    /// Preempted, until running again.
    pub(super) preemptions: Spread,
    /// Who preempted: times, and time until the thread ran again.
    pub(super) preemptors: HashMap<Name, (u64, u64)>,
    pub(super) events: u64,
    /// Rows of threads beyond `MAX_THREADS`, launches of keys beyond `MAX_PAIR_KEYS`.
    pub(super) not_followed: (u64, u64),
    /// Nanoseconds since the beginning, runs one after the other.
    now_ns: u64,
    run_began_ns: u64,
    run_first_ns: Option<i64>,
    window_since_ns: Option<u64>,
    /// When counting began: at the first launch, or with the window that it was recorded in.
    counting_since_ns: Option<u64>,
    /// Until when windows without a launch show that nobody launched.
    silent_until_ns: u64,
}

impl Analyzer {
    /// Nothing counted yet. `start_ns` is when the first run began, where the trace says; without it
    /// that is its first event.
    pub fn new(trace_kind: TraceKind, start_ns: Option<u64>) -> Self {
        Self {
            trace_kind,
            run_first_ns: start_ns.map(u64::cast_signed),
            ..Self::default()
        }
    }

    /// How the trace was made.
    pub fn trace_kind(&self) -> TraceKind {
        self.trace_kind
    }

    /// Takes an event, in roughly the right order.
    pub fn push(&mut self, event: Event) {
        if let Some(event) = self.order.push(event) {
            self.count(event);
        }
    }

    /// Another run begins: times start anew.
    pub fn restart(&mut self) {
        self.drain();
        self.order.restart();
        self.irqs.restart();
        self.threads.values_mut().for_each(Thread::restart);
        self.pairs.values_mut().for_each(Pairs::restart);
        self.run_began_ns = self.now_ns;
        self.run_first_ns = None;
    }

    fn drain(&mut self) {
        while let Some(event) = self.order.pop() {
            self.count(event);
        }
        self.close_window();
    }

    /// All events have come; gives the time from the first to the last.
    pub fn end(&mut self) -> u64 {
        self.drain();
        self.irqs.restart();
        self.now_ns
    }

    /// Since when rows count, nanoseconds since the beginning: those of cuda_sched_trace always do.
    pub fn counting_since_ns(&self) -> u64 {
        self.counting_since_ns
            .filter(|_| !self.trace_kind.legacy)
            .unwrap_or_default()
    }

    /// Since when somebody may have launched, nanoseconds since the beginning.
    pub fn launching_since_ns(&self) -> u64 {
        if self.trace_kind.sampled {
            self.silent_until_ns
        } else {
            self.counting_since_ns()
        }
    }

    /// Events that came too late to be put in order.
    pub fn late(&self) -> u64 {
        self.order.late()
    }

    /// Counts in the slice of this moment, and in its windows part if launches are recorded now.
    fn note(&mut self, change: impl Fn(&mut Tally)) {
        let slice = self.slices.at(self.now_ns);
        change(&mut slice.all);
        if !self.trace_kind.sampled || self.window_since_ns.is_some() {
            change(&mut slice.windows);
        }
    }

    fn count(&mut self, event: Event) {
        self.events += 1;
        let first_ns = *self.run_first_ns.get_or_insert(event.time_ns);
        self.now_ns = self.run_began_ns + event.time_ns.abs_diff(first_ns);
        match event.what {
            EventKind::WindowOpen => return self.open_window(),
            EventKind::WindowClose => return self.close_window(),
            EventKind::Exit => return self.exited(event.tid),
            _ => {}
        }
        let known = self.threads.contains_key(&event.tid);
        if !known && self.threads.len() + self.ended.len() >= MAX_THREADS {
            self.not_followed.0 += 1;
            return;
        }
        let thread = self.threads.entry(event.tid).or_default();
        thread.tgid = event.tgid;
        thread.comm = event.comm;
        match event.what {
            EventKind::Launch { api, shape } => {
                let launched = thread.launch(event.time_ns, api, shape);
                self.launched(&event, launched);
            }
            EventKind::SyncEnter => thread.sync_enter(event.time_ns),
            EventKind::SyncExit => thread.sync_exit(event.time_ns),
            EventKind::Off { why, next } => self.off(&event, why, next.map(|(_, comm)| comm)),
            EventKind::On(_) => self.on(&event),
            EventKind::IrqEnter(irq) => self.irq_enter(&event, irq),
            EventKind::IrqExit { .. } => self.irq_exit(&event),
            EventKind::Exit | EventKind::WindowOpen | EventKind::WindowClose => {}
        }
        self.note_in_pairs(&event);
    }

    /// What comes with the same id is another thread, which has not launched.
    fn exited(&mut self, tid: Tid) {
        if let Some(pairs) = self.pairs.get_mut(&tid) {
            pairs.interrupt();
        }
        let thread = self.threads.remove(&tid);
        self.ended
            .extend(thread.filter(Thread::launches).map(|thread| (tid, thread)));
    }

    /// The threads that live, then those that have launched and ended.
    fn all_threads(&self) -> impl Iterator<Item = (Tid, &Thread)> {
        let threads = self.threads.iter().map(|(&tid, thread)| (tid, thread));
        threads.chain(self.ended.iter().map(|(tid, thread)| (*tid, thread)))
    }

    /// The threads that have launched, those that have ended too.
    pub fn launching(&self) -> impl Iterator<Item = (Tid, &Thread)> {
        self.all_threads().filter(|(_, thread)| thread.launches())
    }

    /// Whether a row counts beside launches: once its thread has launched. cuda_sched_trace records
    /// interrupts on any thread of a process that launches, switches of its main thread only.
    fn counts(&self, event: &Event) -> bool {
        let by_kind = match event.what {
            EventKind::Off { .. } | EventKind::On(_) => event.tid == event.tgid,
            _ => true,
        };
        self.trace_kind.legacy && by_kind
            || self.threads.get(&event.tid).is_some_and(Thread::launches)
    }

    fn launched(&mut self, event: &Event, launched: Launched) {
        let EventKind::Launch { api, .. } = event.what else {
            return;
        };
        if self.trace_kind.sampled {
            // A launch shows that a window is open, should the row that says so be lost.
            self.window_since_ns.get_or_insert(self.now_ns);
        }
        let window_ns = self.window_since_ns.filter(|_| self.trace_kind.sampled);
        self.counting_since_ns
            .get_or_insert(window_ns.unwrap_or(self.now_ns));
        let twice = u64::from(launched == Launched::SeenTwice);
        self.note(|tally| {
            tally.launch_rows[api as usize] += 1;
            tally.seen_twice += twice;
        });
        if let Launched::New(Some(interval)) = launched {
            self.stolen.add(&interval);
        }
    }

    fn off(&mut self, event: &Event, why: OffReason, by: Option<Name>) {
        if let Some(thread) = self.threads.get_mut(&event.tid) {
            thread.off(event.time_ns, why, by);
        }
        if self.counts(event) {
            self.note(|tally| {
                tally.switches += 1;
                tally.offs[why as usize] += 1;
            });
        }
    }

    fn on(&mut self, event: &Event) {
        let EventKind::On(off_cpu) = event.what else {
            return;
        };
        let thread = self.threads.get_mut(&event.tid);
        let period = thread.and_then(|thread| thread.on(event.time_ns, off_cpu));
        if !self.counts(event) {
            return;
        }
        self.note(|tally| tally.switches += 1);
        let Some(period) = period else {
            return;
        };
        let parts = period.parts();
        self.note(|tally| {
            for (cause, ns) in parts.into_iter().filter(|&(_, ns)| ns > 0) {
                tally.lost_ns.add(cause, ns);
                tally.lost_times.add(cause, 1);
            }
        });
        match period.off_cpu.why {
            OffReason::Preempted => {
                self.preemptions.add(period.off_cpu.off_ns);
                if let Some(by) = period.by {
                    let (times, ns) = self.preemptors.entry(by).or_default();
                    *times += 1;
                    *ns += period.off_cpu.off_ns;
                }
            }
            OffReason::Blocked => self.wakeups.add(period.off_cpu.wait_ns),
            OffReason::Yielded | OffReason::Unknown => {}
        }
    }

    fn irq_enter(&mut self, event: &Event, irq: Irq) {
        if self.counts(event) {
            self.irqs.enter(event.cpu, event.time_ns, irq);
            self.note(|tally| tally.irqs[irq.kind as usize] += 1);
        }
    }

    fn irq_exit(&mut self, event: &Event) {
        let EventKind::IrqExit {
            irq,
            duration_ns,
            self_ns,
        } = event.what
        else {
            return;
        };
        if !self.counts(event) {
            return;
        }
        // Our traces have one record an interrupt, at its end.
        let began = u64::from(self_ns.is_some());
        let stolen_ns = self
            .irqs
            .exit(event.cpu, event.time_ns, irq, duration_ns, self_ns);
        let cause = Cause::of_irq(irq.kind);
        if let Some(thread) = self.threads.get_mut(&event.tid) {
            thread.lose(cause, stolen_ns);
        }
        self.note(|tally| {
            tally.irqs[irq.kind as usize] += began;
            tally.irq_ns[irq.kind as usize] += duration_ns;
            tally.lost_ns.add(cause, stolen_ns);
            tally.lost_times.add(cause, 1);
        });
    }

    /// The studies look at processes; their rows of the scheduler are of main threads alone. Our
    /// traces are exact by thread.
    fn note_in_pairs(&mut self, event: &Event) {
        let key = if self.trace_kind.legacy {
            event.tgid
        } else {
            event.tid
        };
        let launch = matches!(event.what, EventKind::Launch { .. });
        if launch && !self.pairs.contains_key(&key) {
            if self.pairs.len() >= MAX_PAIR_KEYS {
                self.not_followed.1 += 1;
                return;
            }
            self.pairs.insert(key, Pairs::default());
        }
        let counts = self.counts(event);
        let Some(pairs) = self.pairs.get_mut(&key) else {
            return;
        };
        match event.what {
            EventKind::Launch { .. } => pairs.launch(event.time_ns),
            EventKind::Off { .. } if counts => pairs.switch(event.time_ns, true),
            EventKind::On(_) if counts => pairs.switch(event.time_ns, false),
            _ => pairs.other(event.time_ns),
        }
    }

    fn open_window(&mut self) {
        self.close_window();
        self.window_since_ns = Some(self.now_ns);
    }

    fn close_window(&mut self) {
        let since_ns = self.window_since_ns.take();
        if !self.trace_kind.sampled {
            return;
        }
        match since_ns {
            Some(_) if self.counting_since_ns.is_none() => self.silent_until_ns = self.now_ns,
            Some(since_ns) => self.slices.add_window(since_ns, self.now_ns),
            None => {}
        }
        let window_ns = since_ns.map_or(0, |since_ns| self.now_ns.saturating_sub(since_ns));
        self.threads.values_mut().for_each(Thread::interrupt);
        self.pairs
            .values_mut()
            .for_each(|pairs| pairs.end_window(window_ns));
    }

    /// The process or thread with the most launches.
    pub fn take_busiest(&mut self) -> Option<(i32, Pairs)> {
        let busiest = self
            .pairs
            .iter()
            .max_by_key(|&(&key, pairs)| (pairs.launches(), std::cmp::Reverse(key)));
        let key = *busiest?.0;
        self.pairs.remove_entry(&key)
    }

    /// The name of a thread, or of a process by its main thread, else the one with the lowest id.
    pub fn name_of(&self, key: i32, names: &Names) -> String {
        let threads = self.all_threads();
        let named = threads.filter(|&(tid, thread)| tid == key || thread.tgid == key);
        let nearest = named.min_by_key(|&(tid, _)| (tid != key, tid));
        nearest.map_or_else(String::new, |(_, thread)| {
            names.text(thread.comm).to_owned()
        })
    }
}
