// SPDX-License-Identifier: GPL-2.0-only
//! A thread that items come from.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::arrivals::Arrivals;
use crate::channel::{Nothing, Sender, bounded};
use crate::graph::{Arrive, Gaps, Phase};
use crate::item::{Item, Request};
use crate::recorder::Recorder;
use crate::worker::{Worker, seed_of};

/// How often a waiting source looks whether the run has ended.
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct Source {
    worker: Worker,
    /// Place in `Graph::stages`.
    place: usize,
    /// When the first item could come.
    began: Instant,
    is_past: bool,
}

impl Source {
    pub fn new(worker: Worker, place: usize, began: Instant) -> Self {
        Self {
            worker,
            place,
            began,
            is_past: false,
        }
    }

    /// Until the run ends.
    pub fn run(mut self) -> Result<Recorder> {
        match self.worker.stage.arrive.clone() {
            Some(Arrive::Open { phases, gaps }) => self.open(&phases, gaps)?,
            Some(Arrive::Closed { clients }) => self.closed(clients)?,
            Some(Arrive::Saturate) | None => self.saturate()?,
        }
        Ok(self.worker.finish())
    }

    fn open(&mut self, phases: &[Phase], gaps: Gaps) -> Result<()> {
        let shared = Arc::clone(&self.worker.shared);
        let (thread, threads) = (self.worker.thread, self.worker.stage.threads);
        let seed = !seed_of(shared.seed, self.place, thread);
        for arrival in Arrivals::new(phases, gaps, seed, thread, threads) {
            let due = self.began + arrival.due;
            while !shared.has_quit() && Instant::now() < due {
                std::thread::sleep(POLL.min(due.saturating_duration_since(Instant::now())));
            }
            self.note_time(due);
            if !shared.has_quit() {
                // It arrives when it is due, however late this thread is.
                self.send(arrival.number, due, None)?;
            } else if !shared.account.window.ends_after(due) {
                break;
            } else if shared.account.window.holds(due) {
                // Due in the window and never sent: offered, and unfinished.
                shared.account.offer();
            }
        }
        Ok(())
    }

    fn closed(&mut self, clients: usize) -> Result<()> {
        let (thread, threads) = (self.worker.thread, self.worker.stage.threads);
        let mine = clients / threads + usize::from(thread < clients % threads);
        // No more can be under way, so that nobody waits to say that one is done.
        let (done, is_done) = bounded(mine);
        let mut numbers = (thread as u64..).step_by(threads);
        for number in numbers.by_ref().take(mine) {
            self.send(number, Instant::now(), Some(done.clone()))?;
        }
        while !self.worker.shared.has_quit() {
            match is_done.take(Some(Instant::now() + POLL)) {
                Ok(()) => {
                    let Some(number) = numbers.next() else { break };
                    self.send(number, Instant::now(), Some(done.clone()))?;
                }
                Err(Nothing::Yet) => self.note_time(Instant::now()),
                Err(Nothing::Ever) => break,
            }
        }
        Ok(())
    }

    fn saturate(&mut self) -> Result<()> {
        let (thread, threads) = (self.worker.thread, self.worker.stage.threads);
        for number in (thread as u64..).step_by(threads) {
            if self.worker.shared.has_quit() {
                break;
            }
            self.send(number, Instant::now(), None)?;
        }
        Ok(())
    }

    /// Once all that is due in the window was sent, whoever waits for its end is told.
    fn note_time(&mut self, at: Instant) {
        let shared = &self.worker.shared;
        if !self.is_past && shared.account.window.is_over(at) {
            self.is_past = true;
            shared.past.fetch_add(1, Relaxed);
        }
    }

    fn send(&mut self, number: u64, arrived: Instant, done: Option<Sender<()>>) -> Result<()> {
        self.note_time(arrived);
        let account = &self.worker.shared.account;
        let request = Request::new(number, arrived, account, done);
        if request.measured {
            account.offer();
        }
        self.worker.process(vec![Item {
            request: Arc::new(request),
            key: number,
            payload: None,
        }])
    }
}
