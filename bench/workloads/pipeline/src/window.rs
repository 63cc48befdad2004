// SPDX-License-Identifier: GPL-2.0-only
//! Windows: of many items one result, every so many items or every so often. What is not a result is absorbed. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::graph::{By, Every, Window as Shape};

/// A result stands for what came since the one before; it is as old as the newest item in it.
#[derive(Debug)]
pub struct Window<T> {
    by: By,
    every: Period,
    /// Of each key: how many have come, and, where time decides, the newest.
    open: HashMap<u64, Open<T>>,
}

#[derive(Debug)]
enum Period {
    Items(u64),
    /// And when the next one ends.
    Time(Duration, Instant),
}

#[derive(Debug)]
struct Open<T> {
    items: u64,
    newest: Option<T>,
}

/// What an item brings about.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect<T> {
    Result(T),
    /// In a result that is yet to come.
    Absorbed(T),
    /// Kept until its window ends.
    Kept,
}

impl<T> Window<T> {
    pub fn new(shape: Shape, now: Instant) -> Self {
        let every = match shape.every {
            Every::Items(items) => Period::Items(items),
            Every::Ms(ms) => {
                let period = Duration::from_secs_f64(ms / 1e3);
                Period::Time(period, now + period)
            }
        };
        Self {
            by: shape.by,
            every,
            open: HashMap::new(),
        }
    }

    pub fn add(&mut self, key: u64, item: T) -> Effect<T> {
        let key = if self.by == By::All { 0 } else { key };
        let open = self.open.entry(key).or_insert(Open {
            items: 0,
            newest: None,
        });
        open.items += 1;
        match self.every {
            Period::Items(every) if open.items == every => {
                open.items = 0;
                Effect::Result(item)
            }
            Period::Items(_) => Effect::Absorbed(item),
            Period::Time(..) => match open.newest.replace(item) {
                Some(before) => Effect::Absorbed(before),
                None => Effect::Kept,
            },
        }
    }

    /// When somebody should look, whether an item comes or not.
    pub fn due(&self) -> Option<Instant> {
        match self.every {
            Period::Time(_, end) => Some(end),
            Period::Items(_) => None,
        }
    }

    /// The results of a window that has ended by `now`, one for each key that had an item.
    pub fn ended(&mut self, now: Instant) -> Vec<T> {
        match &mut self.every {
            Period::Time(period, end) if *end <= now => {
                while *end <= now {
                    *end += *period;
                }
                self.rest()
            }
            _ => Vec::new(),
        }
    }

    /// The results of windows that are still open at the end.
    pub fn rest(&mut self) -> Vec<T> {
        let open = self.open.drain();
        open.filter_map(|(_, open)| open.newest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(by: By, every: Every, now: Instant) -> Window<u32> {
        Window::new(Shape { by, every }, now)
    }

    #[test]
    fn every_third_item_of_a_key_is_a_result() {
        let mut window = window(By::Key, Every::Items(3), Instant::now());
        let effects: Vec<_> = [(1, 10), (2, 20), (1, 11), (1, 12), (2, 21), (1, 13)]
            .map(|(key, item)| window.add(key, item))
            .into();
        let results: Vec<_> = effects
            .iter()
            .filter(|effect| matches!(effect, Effect::Result(_)))
            .collect();
        assert_eq!(results, [&Effect::Result(12)]);
        assert_eq!(window.due(), None);
        assert!(window.rest().is_empty(), "what was absorbed is done");
    }

    #[test]
    fn without_a_key_all_items_count() {
        let mut window = window(By::All, Every::Items(2), Instant::now());
        assert_eq!(window.add(1, 10), Effect::Absorbed(10));
        assert_eq!(window.add(2, 20), Effect::Result(20));
    }

    #[test]
    fn when_time_is_over_each_key_has_its_newest() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut window = window(By::Key, Every::Ms(10.0), start);
        assert_eq!(window.add(1, 10), Effect::Kept);
        assert_eq!(window.add(1, 11), Effect::Absorbed(10));
        assert_eq!(window.add(2, 20), Effect::Kept);
        assert!(window.ended(at(9)).is_empty());
        let mut results = window.ended(at(35));
        results.sort_unstable();
        assert_eq!(results, [11, 20]);
        assert_eq!(
            window.due(),
            Some(at(40)),
            "windows without items have no results"
        );
        assert!(window.ended(at(40)).is_empty());
    }
}
