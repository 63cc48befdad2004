// SPDX-License-Identifier: GPL-2.0-only
//! A bounded queue between threads. Who must wait sleeps in the kernel at once.
//!
//! The channels of std and crossbeam call `sched_yield` several times before they sleep. A server that waits at a
//! condition variable does not, and the hand-over is what is measured here. So this is a mutex and two condition
//! variables: the standard library's wait in a futex.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// For up to `room` items. It ends when all senders are gone.
pub fn bounded<T>(room: usize) -> (Sender<T>, Receiver<T>) {
    let queue = Arc::new(Queue {
        state: Mutex::new(State {
            items: VecDeque::new(),
            room,
            senders: 1,
            receivers: 1,
            waiting_for_item: 0,
            waiting_for_room: 0,
        }),
        has_item: Condvar::new(),
        has_room: Condvar::new(),
    });
    (Sender(Arc::clone(&queue)), Receiver(queue))
}

#[derive(Debug)]
pub struct Sender<T>(Arc<Queue<T>>);

#[derive(Debug)]
pub struct Receiver<T>(Arc<Queue<T>>);

/// Why there is no item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nothing {
    Yet,
    /// All senders are gone.
    Ever,
}

#[derive(Debug)]
struct Queue<T> {
    state: Mutex<State<T>>,
    has_item: Condvar,
    has_room: Condvar,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    room: usize,
    senders: usize,
    receivers: usize,
    // Threads that sleep. To wake nobody is a system call too, for each item.
    waiting_for_item: usize,
    waiting_for_room: usize,
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Sender<T> {
    /// Waits for room. Where nobody takes any more the item is dropped.
    pub fn send(&self, item: T) {
        let queue = &*self.0;
        let mut state = queue.lock();
        while state.items.len() >= state.room && state.receivers > 0 {
            state.waiting_for_room += 1;
            state = (queue.has_room.wait(state)).unwrap_or_else(PoisonError::into_inner);
            state.waiting_for_room -= 1;
        }
        if state.receivers == 0 {
            return;
        }
        state.items.push_back(item);
        let is_awaited = state.waiting_for_item > 0;
        // Whoever is woken finds the lock free.
        drop(state);
        if is_awaited {
            queue.has_item.notify_one();
        }
    }
}

impl<T> Receiver<T> {
    /// Waits for an item, until `deadline` if there is one.
    pub fn take(&self, deadline: Option<Instant>) -> Result<T, Nothing> {
        let queue = &*self.0;
        let mut state = queue.lock();
        // What is there is taken also after the deadline and after the last sender.
        while state.items.is_empty() {
            if state.senders == 0 {
                return Err(Nothing::Ever);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Nothing::Yet);
            }
            state.waiting_for_item += 1;
            state = match left {
                None => queue.has_item.wait(state),
                Some(left) => (queue.has_item.wait_timeout(state, left))
                    .map(|(state, _)| state)
                    .map_err(|error| PoisonError::new(error.into_inner().0)),
            }
            .unwrap_or_else(PoisonError::into_inner);
            state.waiting_for_item -= 1;
        }
        let item = state.items.pop_front().ok_or(Nothing::Yet);
        let is_awaited = state.waiting_for_room > 0;
        drop(state);
        if is_awaited {
            queue.has_room.notify_one();
        }
        item
    }

    /// What is there already.
    pub fn take_now(&self) -> Result<T, Nothing> {
        self.take(Some(Instant::now()))
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.lock().receivers += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.senders -= 1;
        if state.senders == 0 {
            self.0.has_item.notify_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.receivers -= 1;
        if state.receivers == 0 {
            self.0.has_room.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{self, Builder, sleep};
    use std::time::Duration;

    use busy::Usage;

    use super::*;
    use crate::yields;

    const ROUNDS: i64 = 1000;

    /// Runs both in threads of these names; the first one's voluntary switches.
    fn side_by_side(
        names: [&str; 2],
        counted: impl FnOnce() + Send,
        other: impl FnOnce() + Send,
    ) -> i64 {
        thread::scope(|scope| {
            let named = |name: &str| Builder::new().name(name.to_owned());
            let counted = named(names[0]).spawn_scoped(scope, || {
                let before = Usage::of_this_thread().unwrap();
                counted();
                let after = Usage::of_this_thread().unwrap();
                after.since(&before).context_switches.voluntary
            });
            named(names[1]).spawn_scoped(scope, other).unwrap();
            counted.unwrap().join().unwrap()
        })
    }

    /// Until `is_so` of the queue's state, by sleeps: a thread that yielded would be found out by name.
    fn wait_until<T>(queue: &Queue<T>, is_so: impl Fn(&State<T>) -> bool) {
        let mut left = 100_000;
        while !is_so(&queue.lock()) {
            left -= 1;
            assert!(left > 0, "it does not come to that");
            sleep(Duration::from_micros(50));
        }
    }

    /// One switch a wait, and one if it meets the other's lock; none if it loses its CPU just before it sleeps, and is
    /// woken meanwhile.
    fn assert_sleeps_at_once(names: [&str; 2], switches: i64) {
        assert!(
            (ROUNDS * 3 / 4..=2 * ROUNDS).contains(&switches),
            "{switches} voluntary switches in {ROUNDS} rounds"
        );
        for name in names {
            assert!(!yields::has_yielded(name), "{name}");
        }
    }

    #[test]
    fn yields_are_counted() {
        let yielding = Builder::new().name("yielding".to_owned());
        let yielding = yielding.spawn(thread::yield_now).unwrap();
        yielding.join().unwrap();
        assert!(yields::has_yielded("yielding"));
    }

    #[test]
    fn who_waits_for_an_item_sleeps_at_once() {
        let ((there, taken), (back, answer)) = (bounded(1), bounded(1));
        let far = Some(Instant::now() + Duration::from_secs(3600));
        let ask = move || {
            for round in 0..ROUNDS {
                there.send(round);
                let deadline = far.filter(|_| round % 2 == 0);
                assert_eq!(answer.take(deadline), Ok(round));
            }
        };
        let reply = move || {
            while let Ok(round) = taken.take(None) {
                // Who is woken may take the other's CPU: an answer at once may be there before the other waits for it.
                wait_until(&back.0, |state| state.waiting_for_item > 0);
                back.send(round);
            }
        };
        let names = ["asks", "replies"];
        assert_sleeps_at_once(names, side_by_side(names, ask, reply));
    }

    #[test]
    fn who_waits_for_room_sleeps_at_once() {
        let (sender, receiver) = bounded(1);
        let fill = move || (0..=ROUNDS).for_each(|round| sender.send(round));
        let empty = move || {
            for expected in 0..ROUNDS {
                wait_until(&receiver.0, |state| {
                    state.items.len() == state.room && state.waiting_for_room > 0
                });
                assert_eq!(receiver.take(None), Ok(expected));
            }
            assert_eq!(receiver.take(None), Ok(ROUNDS));
            assert_eq!(receiver.take(None), Err(Nothing::Ever));
        };
        let names = ["fills", "empties"];
        assert_sleeps_at_once(names, side_by_side(names, fill, empty));
    }

    #[test]
    fn each_item_is_taken_once_by_whoever_waits() {
        let (sender, receiver) = bounded(3);
        let total: u64 = thread::scope(|scope| {
            let takers: Vec<_> = (0..4)
                .map(|_| {
                    let receiver = receiver.clone();
                    scope
                        .spawn(move || std::iter::from_fn(|| receiver.take(None).ok()).sum::<u64>())
                })
                .collect();
            for first in 0..4 {
                let sender = sender.clone();
                scope.spawn(move || (first..4000).step_by(4).for_each(|item| sender.send(item)));
            }
            drop(sender);
            takers.into_iter().map(|taker| taker.join().unwrap()).sum()
        });
        assert_eq!(total, (0..4000).sum::<u64>());
    }

    #[test]
    fn a_queue_ends_when_its_senders_have_and_loses_nothing() {
        let (sender, receiver) = bounded(2);
        let second = sender.clone();
        second.send(1);
        drop(sender);
        assert_eq!(receiver.take_now(), Ok(1));
        assert_eq!(receiver.take_now(), Err(Nothing::Yet));
        second.send(2);
        drop(second);
        assert_eq!(receiver.take_now(), Ok(2), "what waits is not lost");
        assert_eq!(receiver.take(None), Err(Nothing::Ever));
    }

    #[test]
    fn who_waits_is_woken_by_the_end_of_the_other_side() {
        let (sender, receiver) = bounded::<u64>(1);
        thread::scope(|scope| {
            let taker = scope.spawn(|| receiver.take(None));
            sleep(Duration::from_millis(20));
            drop(sender);
            assert_eq!(taker.join().unwrap(), Err(Nothing::Ever));
        });
        let (sender, receiver) = bounded(1);
        sender.send(1);
        thread::scope(|scope| {
            scope.spawn(|| sender.send(2));
            sleep(Duration::from_millis(20));
            drop(receiver);
        });
    }
}
