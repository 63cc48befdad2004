// SPDX-License-Identifier: GPL-2.0-only
//! What happens when: a queue ordered by time, then by who came first, and the hash of all that happened.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::dsq::TaskId;

/// Something that happens at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The task begins.
    Start(TaskId),
    /// The task's own timer wakes it, in an interrupt on the CPU where it went to sleep.
    Wake(TaskId),
    /// A timer that another task has started wakes the task, in an interrupt on the CPU.
    Signal(TaskId, usize),
    /// Nobody has woken the task, which awaits that, since it was on a CPU so many times.
    GivesUp(TaskId, u64),
    /// What the task has to do on the CPU is done, unless another one runs there by now (the number).
    Done(usize, u64),
    /// The CPU looks for the next task.
    Resched(usize),
    /// `scx_bpf_kick_cpu()` arrives, which CPU `by` has called.
    Kick {
        cpu: usize,
        flags: u64,
        by: usize,
    },
    Tick(usize),
    /// A timer of the scheduler fires, unless it was started anew since (the number).
    Timer(usize, u64),
    /// The scenario's change of that number.
    Change(usize),
    /// The real-time task of that number wakes up.
    Above(usize),
    /// The one that has the CPU is done.
    AboveEnds(usize),
    /// An interrupt of the device of that number comes.
    Interrupt(usize),
    /// The handler that runs on the CPU is done.
    InterruptEnds(usize),
    /// The invariants that are about time are looked at.
    Audit,
}

impl Event {
    /// Numbers that tell it from others in the hash.
    fn words(self) -> [u64; 3] {
        match self {
            Self::Start(task) => [1, task as u64, 0],
            Self::Wake(task) => [2, task as u64, 0],
            Self::GivesUp(task, switches) => [17, task as u64, switches],
            Self::Signal(task, by) => [18, task as u64, by as u64],
            Self::Done(cpu, run) => [3, cpu as u64, run],
            Self::Resched(cpu) => [4, cpu as u64, 0],
            Self::Kick { cpu, flags, .. } => [5, cpu as u64, flags],
            Self::Tick(cpu) => [6, cpu as u64, 0],
            Self::Timer(timer, start) => [7, timer as u64, start],
            Self::Change(at) => [11, at as u64, 0],
            Self::Above(task) => [13, task as u64, 0],
            Self::AboveEnds(cpu) => [14, cpu as u64, 0],
            Self::Interrupt(device) => [15, device as u64, 0],
            Self::InterruptEnds(cpu) => [16, cpu as u64, 0],
            Self::Audit => [8, 0, 0],
        }
    }
}

/// All events to come.
#[derive(Debug)]
pub struct Events {
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    seq: u64,
    hash: u64,
    count: u64,
    recent: VecDeque<Recent>,
    /// Within so many callbacks the next one happens.
    pub depth: usize,
}

/// One that has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recent {
    pub at_ns: u64,
    pub event: Event,
    /// Within so many callbacks of others.
    pub depth: usize,
}

/// So many of the last events are kept, for those who look for a cause.
const RECENT: usize = 60;

impl Default for Events {
    fn default() -> Self {
        Self {
            queue: BinaryHeap::new(),
            seq: 0,
            // FNV-1a's.
            hash: 0xcbf2_9ce4_8422_2325,
            count: 0,
            recent: VecDeque::with_capacity(RECENT),
            depth: 0,
        }
    }
}

impl Events {
    pub fn push(&mut self, at_ns: u64, event: Event) {
        self.seq += 1;
        self.queue.push(Reverse((at_ns, self.seq, event)));
    }

    /// The next one and its time, noted in the hash.
    pub fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse((at_ns, _, event)) = self.queue.pop()?;
        self.note_event(at_ns, event);
        Some((at_ns, event))
    }

    /// The first one up to `limit_ns` that is wanted. Those before it stay.
    pub fn take(
        &mut self,
        limit_ns: u64,
        wants: impl Fn(u64, Event) -> bool,
    ) -> Option<(u64, Event)> {
        let (mut passed, mut found) = (Vec::new(), None);
        while let Some(&Reverse(next)) = self.queue.peek() {
            let (at_ns, _, event) = next;
            if at_ns > limit_ns {
                break;
            }
            self.queue.pop();
            if wants(at_ns, event) {
                self.note_event(at_ns, event);
                found = Some((at_ns, event));
                break;
            }
            passed.push(Reverse(next));
        }
        self.queue.extend(passed);
        found
    }

    fn note_event(&mut self, at_ns: u64, event: Event) {
        self.count += 1;
        let [kind, a, b] = event.words();
        self.note(&[at_ns, kind, a, b]);
        if event != Event::Audit {
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(Recent {
                at_ns,
                event,
                depth: self.depth,
            });
        }
    }

    /// Adds to the hash.
    pub fn note(&mut self, words: &[u64]) {
        for word in words {
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
            self.hash ^= self.hash >> 29;
        }
    }

    /// The last ones, audits left out.
    pub fn recent(&self) -> Vec<Recent> {
        self.recent.iter().copied().collect()
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_at_the_same_time_keeps_its_order() {
        let mut events = Events::default();
        events.push(20, Event::Tick(0));
        events.push(10, Event::Tick(2));
        events.push(10, Event::Tick(1));
        let order: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert_eq!(
            order,
            [
                (10, Event::Tick(2)),
                (10, Event::Tick(1)),
                (20, Event::Tick(0))
            ]
        );
    }

    #[test]
    fn one_is_taken_out_of_turn_and_the_others_stay() {
        let mut events = Events::default();
        for (at_ns, cpu) in [(10, 0), (10, 1), (20, 2)] {
            events.push(at_ns, Event::Tick(cpu));
        }
        let is_of = |cpu| move |_, event| event == Event::Tick(cpu);
        assert_eq!(events.take(19, is_of(2)), None);
        assert_eq!(events.take(20, is_of(1)), Some((10, Event::Tick(1))));
        let rest: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert_eq!(rest, [(10, Event::Tick(0)), (20, Event::Tick(2))]);
        assert_eq!(events.count(), 3);
    }

    #[test]
    fn the_hash_tells_orders_apart() {
        let hash = |cpus: [usize; 2]| {
            let mut events = Events::default();
            for cpu in cpus {
                events.push(5, Event::Tick(cpu));
            }
            while events.pop().is_some() {}
            events.hash()
        };
        assert_eq!(hash([1, 2]), hash([1, 2]));
        assert_ne!(hash([1, 2]), hash([2, 1]));
    }
}
