// SPDX-License-Identifier: GPL-2.0-only
//! Puts events into the order of time. Pure.
//!
//! CPUs write to one buffer, and some events are only known later than they happened, so events
//! arrive almost in order. They are held back for [`HORIZON_NS`].

use gpuaware_trace::schema::HORIZON_NS;

use super::decode::Raw;

/// What is held back at most. Beyond it order gives way to bounded memory.
const MOST: usize = 1 << 18;

/// The events that are held back.
#[derive(Default)]
pub struct Order {
    held: Vec<Raw>,
    newest_ns: u64,
}

impl Order {
    /// Takes an event.
    pub fn push(&mut self, raw: Raw) {
        self.newest_ns = self.newest_ns.max(raw.time_ns);
        self.held.push(raw);
    }

    /// Takes an event of user space, which may be far ahead of what the kernel side has delivered.
    pub fn push_ahead(&mut self, raw: Raw) {
        self.held.push(raw);
    }

    /// Must [`Self::release`] be called before more is pushed?
    pub fn is_full(&self) -> bool {
        self.held.len() >= MOST
    }

    /// The events that nothing can come before any more, in order.
    pub fn release(&mut self) -> Vec<Raw> {
        // Stable, and fast on what is almost sorted.
        self.held.sort_by_key(|raw| raw.time_ns);
        let until = self.newest_ns.saturating_sub(HORIZON_NS);
        let mut nr_ready = self.held.partition_point(|raw| raw.time_ns < until);
        if self.is_full() {
            nr_ready = nr_ready.max(MOST / 2);
        }
        self.held.drain(..nr_ready).collect()
    }

    /// All that is left, in order.
    pub fn release_all(&mut self) -> Vec<Raw> {
        self.held.sort_by_key(|raw| raw.time_ns);
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use gpuaware_trace::schema::Kind;

    use super::*;
    use crate::trace::decode::raw_of_window;

    fn times(raws: &[Raw]) -> Vec<u64> {
        raws.iter().map(|raw| raw.time_ns).collect()
    }

    #[test]
    fn late_events_find_their_place() {
        let mut order = Order::default();
        for time_ns in [5, 3, 200_000_000, 4, HORIZON_NS + 4] {
            order.push(raw_of_window(Kind::WindowOpen, time_ns));
        }
        assert_eq!(times(&order.release()), [3, 4, 5]);
        assert!(order.release().is_empty());
        assert_eq!(times(&order.release_all()), [HORIZON_NS + 4, 200_000_000]);
    }

    #[test]
    fn events_of_user_space_wait_for_the_kernels() {
        let mut order = Order::default();
        order.push_ahead(raw_of_window(Kind::WindowOpen, 900_000_000));
        order.push(raw_of_window(Kind::WindowOpen, 1));
        assert!(order.release().is_empty());
        order.push(raw_of_window(Kind::WindowOpen, 300_000_000));
        assert_eq!(times(&order.release()), [1]);
        assert_eq!(times(&order.release_all()), [300_000_000, 900_000_000]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut order = Order::default();
        for _ in 0..MOST {
            order.push(raw_of_window(Kind::WindowOpen, 1));
        }
        assert!(order.is_full());
        assert_eq!(order.release().len(), MOST / 2);
        assert!(!order.is_full());
    }
}
