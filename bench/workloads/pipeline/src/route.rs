// SPDX-License-Identifier: GPL-2.0-only
//! Which thread of a stage gets an item. Pure.

use crate::graph::{Route, Stage};

/// A stage's threads as senders see them: how many there are for a request.
#[derive(Debug, Clone, Copy)]
pub struct Replicas {
    threads: u64,
    /// From which request on, and how many more.
    later: Option<(u64, u64)>,
}

impl Replicas {
    pub fn of(stage: &Stage) -> Self {
        Self {
            threads: stage.threads as u64,
            later: (stage.grow.as_ref()).map(|grow| (grow.at_item, grow.threads as u64)),
        }
    }

    fn count(self, request: u64) -> u64 {
        match self.later {
            Some((first, more)) if request >= first => self.threads + more,
            _ => self.threads,
        }
    }
}

/// What a sender knows of an item when it chooses.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    pub request: u64,
    pub key: u64,
    /// The sender's number.
    pub sender: usize,
    /// Items that it has sent this way.
    pub sent: u64,
}

/// The number of the thread; 0 where all take from one queue.
pub fn thread(route: Route, replicas: Replicas, choice: Choice) -> usize {
    let count = replicas.count(choice.request);
    let number = match route {
        Route::Any => 0,
        Route::Turn => (choice.sent + choice.sender as u64) % count,
        Route::Same => choice.sender as u64 % count,
        Route::Key => choice.key % count,
        Route::Request => choice.request % count,
    };
    usize::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(route: Route, later: Option<(u64, u64)>) -> Vec<usize> {
        let replicas = Replicas { threads: 3, later };
        let choice = |request| Choice {
            request,
            key: 7,
            sender: 1,
            sent: request,
        };
        (0..6)
            .map(|request| thread(route, replicas, choice(request)))
            .collect()
    }

    #[test]
    fn each_route_has_its_order() {
        assert_eq!(threads(Route::Any, None), [0; 6]);
        assert_eq!(threads(Route::Turn, None), [1, 2, 0, 1, 2, 0]);
        assert_eq!(threads(Route::Same, None), [1; 6]);
        assert_eq!(threads(Route::Key, None), [1; 6]);
        assert_eq!(threads(Route::Request, None), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn threads_that_join_later_get_requests_from_theirs_on() {
        assert_eq!(threads(Route::Request, Some((4, 2))), [0, 1, 2, 0, 4, 0]);
    }
}
