// SPDX-License-Identifier: GPL-2.0-only
//! What flows: items, the requests that they come from, and the account of what became of those.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::channel::Sender;
use crate::graph::HandOver;

const FILTERED: u8 = 1;
const ABSORBED: u8 = 2;
const COMPLETED: u8 = 4;
const FAILED: u8 = 8;

/// One item of a source and all that came out of it. Its outcome is counted when the last of that is gone.
#[derive(Debug)]
pub struct Request {
    /// The source's own count.
    pub number: u64,
    pub arrived: Instant,
    /// It arrived in the measured window.
    pub measured: bool,
    outcome: AtomicU8,
    /// What its slowest item took until an end of the graph.
    slowest_us: AtomicU64,
    account: Arc<Account>,
    /// Where a closed loop waits for it.
    done: Option<Sender<()>>,
}

impl Request {
    pub fn new(
        number: u64,
        arrived: Instant,
        account: &Arc<Account>,
        done: Option<Sender<()>>,
    ) -> Self {
        Self {
            number,
            arrived,
            measured: account.window.holds(arrived),
            outcome: AtomicU8::new(0),
            slowest_us: AtomicU64::new(0),
            account: Arc::clone(account),
            done,
        }
    }

    fn mark(&self, outcome: u8) {
        self.outcome.fetch_or(outcome, Relaxed);
    }

    /// Whether its times belong to what is measured.
    pub fn counts(&self) -> bool {
        self.measured && self.account.is_open()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let outcome = *self.outcome.get_mut();
        if self.counts() {
            self.account.settle(outcome, *self.slowest_us.get_mut());
        }
        if let Some(done) = &self.done {
            done.send(());
        }
    }
}

/// A message, with how it is handed over.
#[derive(Debug, Clone)]
pub struct Payload {
    pub bytes: Arc<Vec<u8>>,
    pub hand_over: HandOver,
}

#[derive(Debug, Clone)]
pub struct Item {
    pub request: Arc<Request>,
    pub key: u64,
    pub payload: Option<Payload>,
}

impl Item {
    pub fn fail(self) {
        self.request.mark(FAILED);
    }

    /// It was not passed on.
    pub fn filter(self) {
        self.request.mark(FILTERED);
    }

    /// It is part of a result that another item carries on.
    pub fn absorb(self) {
        self.request.mark(ABSORBED);
    }

    /// It is where nothing comes after, `latency` after its request arrived.
    pub fn complete(self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.request.slowest_us.fetch_max(us, Relaxed);
        self.request.mark(COMPLETED);
    }
}

/// The measured window; its beginning is not known when the threads start.
#[derive(Debug)]
pub struct Window {
    start: OnceLock<Instant>,
    length: Duration,
}

impl Window {
    pub fn new(length: Duration) -> Self {
        Self {
            start: OnceLock::new(),
            length,
        }
    }

    pub fn begin(&self) -> Instant {
        *self.start.get_or_init(Instant::now)
    }

    pub fn holds(&self, at: Instant) -> bool {
        let start = self.start.get();
        start.is_some_and(|&start| at >= start && at < start + self.length)
    }

    pub fn is_over(&self, at: Instant) -> bool {
        let start = self.start.get();
        start.is_some_and(|&start| at >= start + self.length)
    }

    /// False also if it never began.
    pub fn ends_after(&self, at: Instant) -> bool {
        let start = self.start.get();
        start.is_some_and(|&start| at < start + self.length)
    }
}

/// What became of the requests of the measured window. Once it is closed nothing more counts but what was offered.
#[derive(Debug)]
pub struct Account {
    pub window: Window,
    closed: AtomicBool,
    offered: AtomicU64,
    outcomes: [AtomicU64; 4],
    /// Objectives in ms, and how many completed requests kept each.
    kept: Vec<(f64, AtomicU64)>,
}

/// Requests; what is left of `offered` is unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    pub offered: u64,
    /// An item of it has come to an end of the graph, and none failed.
    pub completed: u64,
    pub failed: u64,
    /// Nothing of it was passed on.
    pub filtered: u64,
    /// It is part of the result that another one carries.
    pub absorbed: u64,
    pub unfinished: u64,
}

impl Account {
    pub fn new(length: Duration, slo_ms: &[f64]) -> Self {
        Self {
            window: Window::new(length),
            closed: AtomicBool::new(false),
            offered: AtomicU64::new(0),
            outcomes: Default::default(),
            kept: slo_ms.iter().map(|&ms| (ms, AtomicU64::new(0))).collect(),
        }
    }

    pub fn offer(&self) {
        self.offered.fetch_add(1, Relaxed);
    }

    fn settle(&self, outcome: u8, slowest_us: u64) {
        let place = match outcome {
            outcome if outcome & FAILED != 0 => 1,
            outcome if outcome & COMPLETED != 0 => 0,
            outcome if outcome & ABSORBED != 0 => 3,
            outcome if outcome & FILTERED != 0 => 2,
            // It was thrown away when the run ended.
            _ => return,
        };
        self.outcomes[place].fetch_add(1, Relaxed);
        if place == 0 {
            let ms = slowest_us as f64 / 1e3;
            for (_, kept) in self.kept.iter().filter(|(limit, _)| ms <= *limit) {
                kept.fetch_add(1, Relaxed);
            }
        }
    }

    pub fn kept(&self) -> Vec<(f64, u64)> {
        let kept = self.kept.iter();
        kept.map(|(ms, kept)| (*ms, kept.load(Relaxed))).collect()
    }

    fn is_open(&self) -> bool {
        !self.closed.load(Relaxed)
    }

    pub fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    pub fn outcomes(&self) -> Outcomes {
        let [completed, failed, filtered, absorbed] =
            [0, 1, 2, 3].map(|place: usize| self.outcomes[place].load(Relaxed));
        let offered = self.offered.load(Relaxed);
        Outcomes {
            offered,
            completed,
            failed,
            filtered,
            absorbed,
            unfinished: offered.saturating_sub(completed + failed + filtered + absorbed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Arc<Account> {
        let account = Arc::new(Account::new(Duration::from_secs(60), &[]));
        account.window.begin();
        account
    }

    fn item(account: &Arc<Account>) -> Item {
        account.offer();
        Item {
            request: Arc::new(Request::new(1, Instant::now(), account, None)),
            key: 1,
            payload: None,
        }
    }

    #[test]
    fn a_request_is_what_became_of_all_its_items() {
        let account = account();
        let first = item(&account);
        let copy = first.clone();
        first.complete(Duration::ZERO);
        assert_eq!(account.outcomes().unfinished, 1, "a copy is under way");
        copy.fail();
        item(&account).complete(Duration::ZERO);
        item(&account).filter();
        item(&account).absorb();
        drop(item(&account));
        let outcomes = Outcomes {
            offered: 5,
            completed: 1,
            failed: 1,
            filtered: 1,
            absorbed: 1,
            unfinished: 1,
        };
        assert_eq!(account.outcomes(), outcomes);
    }

    #[test]
    fn a_request_keeps_an_objective_if_its_slowest_item_does() {
        let account = Arc::new(Account::new(Duration::from_secs(60), &[50.0, 200.0]));
        account.window.begin();
        let [quick, slow] = [1, 100].map(Duration::from_millis);
        for later in [Some(quick), Some(slow), None] {
            let first = item(&account);
            let second = first.clone();
            first.complete(quick);
            match later {
                Some(latency) => second.complete(latency),
                None => second.fail(),
            }
        }
        assert_eq!(account.kept(), [(50.0, 1), (200.0, 2)]);
    }

    #[test]
    fn what_ends_after_the_account_is_closed_is_unfinished() {
        let account = account();
        let item = item(&account);
        account.close();
        item.complete(Duration::ZERO);
        let outcomes = account.outcomes();
        assert_eq!((outcomes.completed, outcomes.unfinished), (0, 1));
    }

    #[test]
    fn what_comes_before_the_window_does_not_count() {
        let account = Arc::new(Account::new(Duration::from_secs(60), &[]));
        let early = Request::new(1, Instant::now(), &account, None);
        account.window.begin();
        assert!(!early.measured);
        assert!(!account.window.is_over(Instant::now()));
    }

    #[test]
    fn a_closed_loop_is_told_when_all_is_done() {
        let account = account();
        let (done, waiting) = crate::channel::bounded(1);
        let request = Arc::new(Request::new(1, Instant::now(), &account, Some(done)));
        let copy = Arc::clone(&request);
        drop(request);
        assert!(waiting.take_now().is_err());
        drop(copy);
        assert!(waiting.take_now().is_ok());
    }
}
