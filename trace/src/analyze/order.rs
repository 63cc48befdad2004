// SPDX-License-Identifier: GPL-2.0-only
//! Events in the order of their times. A ring buffer holds them nearly so: a bounded window
//! mends what several CPUs wrote in turn, and counts what comes later still.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::event::Event;

/// Events held back. A megabyte of ring buffer holds fewer.
const WINDOW: usize = 16_384;

/// An event by its time, then by when it came.
type Held = (i64, u64, Event);

/// The window.
#[derive(Debug)]
pub struct Order {
    window: usize,
    seen: u64,
    /// Most events come in order and never touch the heap.
    in_order: VecDeque<Held>,
    stragglers: BinaryHeap<Reverse<Held>>,
    last_out_ns: i64,
    late: u64,
}

impl Default for Order {
    fn default() -> Self {
        Self::new(WINDOW)
    }
}

impl Order {
    /// A window of so many events.
    fn new(window: usize) -> Self {
        Self {
            window,
            seen: 0,
            in_order: VecDeque::new(),
            stragglers: BinaryHeap::new(),
            last_out_ns: i64::MIN,
            late: 0,
        }
    }

    /// Takes an event; gives the earliest back once the window is full.
    pub fn push(&mut self, event: Event) -> Option<Event> {
        self.seen += 1;
        let held = (event.time_ns, self.seen, event);
        if self.in_order.back().is_none_or(|last| *last < held) {
            self.in_order.push_back(held);
        } else {
            self.stragglers.push(Reverse(held));
        }
        (self.in_order.len() + self.stragglers.len() > self.window)
            .then(|| self.pop())
            .flatten()
    }

    /// The earliest event that is held.
    pub fn pop(&mut self) -> Option<Event> {
        let straggler_first = match (self.in_order.front(), self.stragglers.peek()) {
            (Some(first), Some(Reverse(straggler))) => straggler < first,
            (None, straggler) => straggler.is_some(),
            (Some(_), None) => false,
        };
        let (_, _, mut event) = if straggler_first {
            self.stragglers.pop().map(|Reverse(held)| held)
        } else {
            self.in_order.pop_front()
        }?;
        if event.time_ns < self.last_out_ns {
            self.late += 1;
            event.time_ns = self.last_out_ns;
        }
        self.last_out_ns = event.time_ns;
        Some(event)
    }

    /// Forgets the time reached: another run begins.
    pub fn restart(&mut self) {
        self.last_out_ns = i64::MIN;
    }

    /// Events that came too late for the window; their times were moved up.
    pub fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::event::{EventKind, Name};

    fn at(time_ns: i64, tid: i32) -> Event {
        Event {
            time_ns,
            tgid: 1,
            tid,
            cpu: 0,
            comm: Name::default(),
            what: EventKind::On(None),
        }
    }

    fn through(window: usize, times: &[i64]) -> (Vec<(i64, i32)>, u64) {
        let mut order = Order::new(window);
        let mut out = Vec::new();
        for (at_index, &time) in times.iter().enumerate() {
            out.extend(order.push(at(time, at_index as i32)));
        }
        while let Some(event) = order.pop() {
            out.push(event);
        }
        (
            out.iter().map(|event| (event.time_ns, event.tid)).collect(),
            order.late(),
        )
    }

    #[test]
    fn mends_the_order_and_keeps_equal_times_as_they_came() {
        let (out, late) = through(8, &[10, 30, 20, 20, 40, 5]);
        assert_eq!(out, [(5, 5), (10, 0), (20, 2), (20, 3), (30, 1), (40, 4)]);
        assert_eq!(late, 0);
    }

    #[test]
    fn counts_what_comes_too_late_and_never_goes_back() {
        let (out, late) = through(1, &[10, 20, 30, 1, 40]);
        assert_eq!(late, 1);
        assert!(out.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{out:?}");
    }
}
