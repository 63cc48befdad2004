// SPDX-License-Identifier: GPL-2.0-only
//! Sets of items that agree in a key, one from each input. Pure.

use std::collections::{HashMap, VecDeque};

/// What waits for its counterparts; of an input the first that came is the first that is matched.
#[derive(Debug)]
pub struct Join<T> {
    inputs: usize,
    /// Most keys that may wait.
    pending: usize,
    waiting: HashMap<u64, Waiting<T>>,
    /// Keys by age; those that are complete already are skipped.
    order: VecDeque<(u64, u64)>,
    /// Of the next key that begins to wait.
    number: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    number: u64,
    items: Vec<VecDeque<T>>,
}

/// What an item brings about.
#[derive(Debug, PartialEq, Eq)]
pub struct Joined<T> {
    /// A whole set, in the order of the inputs.
    pub set: Option<Vec<T>>,
    /// Too much waited: these have waited longest.
    pub given_up: Vec<T>,
}

impl<T> Join<T> {
    pub fn new(inputs: usize, pending: usize) -> Self {
        Self {
            inputs,
            pending,
            waiting: HashMap::new(),
            order: VecDeque::new(),
            number: 0,
        }
    }

    /// `input` is below the number of inputs.
    pub fn add(&mut self, input: usize, key: u64, item: T) -> Joined<T> {
        let waiting = self.waiting.entry(key).or_insert_with(|| {
            self.number += 1;
            self.order.push_back((key, self.number));
            Waiting {
                number: self.number,
                items: (0..self.inputs).map(|_| VecDeque::new()).collect(),
            }
        });
        waiting.items[input].push_back(item);
        let set = if waiting.items.iter().any(VecDeque::is_empty) {
            None
        } else {
            let each = waiting.items.iter_mut();
            Some(each.filter_map(VecDeque::pop_front).collect())
        };
        if waiting.items.iter().all(VecDeque::is_empty) {
            self.waiting.remove(&key);
        }
        Joined {
            set,
            given_up: self.give_up(),
        }
    }

    fn give_up(&mut self) -> Vec<T> {
        let mut given_up = Vec::new();
        while self.waiting.len() > self.pending {
            let Some((key, number)) = self.order.pop_front() else {
                break;
            };
            if self.waiting.get(&key).is_some_and(|w| w.number == number) {
                let waiting = self.waiting.remove(&key);
                given_up.extend(waiting.into_iter().flat_map(|w| w.items).flatten());
            }
        }
        // Keys that are complete leave their place in the order behind.
        if self.order.len() > 2 * self.pending {
            let waiting = &self.waiting;
            self.order
                .retain(|(key, number)| waiting.get(key).is_some_and(|w| w.number == *number));
        }
        given_up
    }

    /// What has no counterparts at the end.
    pub fn rest(&mut self) -> Vec<T> {
        self.order.clear();
        let waiting = self.waiting.drain();
        waiting.flat_map(|(_, w)| w.items).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_whole_with_one_from_each_input() {
        let mut join = Join::new(2, 10);
        assert_eq!(join.add(0, 5, "text5").set, None);
        assert_eq!(join.add(0, 6, "text6").set, None);
        assert_eq!(
            join.add(1, 6, "vision6").set,
            Some(vec!["text6", "vision6"])
        );
        assert_eq!(
            join.add(1, 5, "vision5").set,
            Some(vec!["text5", "vision5"])
        );
        assert!(join.waiting.is_empty());
        assert_eq!(join.add(1, 6, "again").set, None, "each is matched once");
        assert_eq!(join.rest(), ["again"]);
    }

    #[test]
    fn of_one_input_the_first_is_matched_first() {
        let mut join = Join::new(2, 10);
        join.add(0, 1, "a");
        join.add(0, 1, "b");
        assert_eq!(join.add(1, 1, "x").set, Some(vec!["a", "x"]));
        assert_eq!(join.add(1, 1, "y").set, Some(vec!["b", "y"]));
    }

    #[test]
    fn nothing_is_kept_of_what_is_whole() {
        let mut join = Join::new(2, 4);
        join.add(0, 0, 0);
        for key in 1..1000 {
            join.add(0, key, 0);
            assert_eq!(join.add(1, key, 1).set, Some(vec![0, 1]));
        }
        assert!(join.order.len() <= 10 && join.waiting.len() == 1);
    }

    #[test]
    fn the_oldest_is_given_up_when_too_much_waits() {
        let mut join = Join::new(2, 2);
        join.add(0, 1, "one");
        join.add(0, 2, "two");
        join.add(1, 1, "one's");
        join.add(0, 3, "three");
        assert_eq!(join.add(0, 4, "four").given_up, ["two"]);
        assert_eq!(
            join.add(1, 3, "three's").set,
            Some(vec!["three", "three's"])
        );
        assert_eq!(join.add(1, 2, "late").set, None);
    }
}
