// SPDX-License-Identifier: GPL-2.0-only
//! A thread that takes items from its queue: one by one, in batches, in matched sets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::channel::{Nothing, Receiver};
use crate::graph::{By, Gather, HandOver};
use crate::item::Item;
use crate::join::Join;
use crate::queue::Envelope;
use crate::recorder::Recorder;
use crate::worker::Worker;

#[derive(Debug)]
pub struct Taker {
    worker: Worker,
    inbox: Receiver<Envelope>,
    join: Option<Join<Item>>,
    /// Places in `Graph::edges` of the edges here, in the order of the join's inputs.
    edges: Vec<usize>,
    /// Not loaded yet: what that takes.
    load: Option<Duration>,
}

impl Taker {
    pub fn new(worker: Worker, inbox: Receiver<Envelope>, edges: Vec<usize>) -> Self {
        let stage = &worker.stage;
        let join = (stage.join).map(|join| Join::new(edges.len(), join.pending));
        let is_late = worker.thread >= stage.threads;
        let grow = stage.grow.filter(|grow| is_late && !grow.preload);
        Self {
            load: grow.map(|grow| Duration::from_secs_f64(grow.load_ms / 1e3)),
            join,
            edges,
            inbox,
            worker,
        }
    }

    /// Until all that send here have ended.
    pub fn run(mut self) -> Result<Recorder> {
        loop {
            let (batch, is_last) = self.gather();
            if !batch.is_empty()
                && let Some(load) = self.load.take()
            {
                std::thread::sleep(load);
            }
            self.worker.process(batch)?;
            if is_last {
                break;
            }
        }
        // What never met its counterpart has failed, unless the run was cut off.
        let rest = self.join.as_mut().map(Join::rest);
        if !self.worker.shared.has_quit() {
            rest.into_iter().flatten().for_each(Item::fail);
        }
        Ok(self.worker.finish())
    }

    /// A batch, and whether nothing comes after it. Without an item: a window has ended, or all has.
    fn gather(&mut self) -> (Vec<Item>, bool) {
        let shape = self.worker.stage.batch;
        let wait = Duration::from_secs_f64(shape.wait_ms / 1e3);
        let mut batch = Vec::new();
        let mut full_by = None;
        while batch.len() < shape.max {
            let taken = match (batch.is_empty(), shape.gather) {
                (true, _) => self.inbox.take(self.worker.window_due()),
                (false, Gather::Opportunistic) => self.inbox.take_now(),
                (false, Gather::Fixed) => self.inbox.take(full_by),
            };
            match taken {
                Ok(envelope) => batch.extend(self.accept(envelope)),
                Err(Nothing::Yet) => break,
                Err(Nothing::Ever) => return (batch, true),
            }
            if !batch.is_empty() && full_by.is_none() {
                full_by = Some(Instant::now() + wait);
            }
        }
        (batch, false)
    }

    /// The item, or the set that it completes as one.
    fn accept(&mut self, envelope: Envelope) -> Option<Item> {
        let Envelope {
            mut item,
            edge,
            ready,
        } = envelope;
        let taken = Instant::now();
        copy_message(&mut item);
        if item.request.counts() {
            let times = self.worker.recorder.edges.entry(edge).or_default();
            times.delay.record(taken.saturating_duration_since(ready));
            let age = ready.saturating_duration_since(item.request.arrived);
            times.age.record(age);
            if item.payload.is_some() {
                times.transfer.record(taken.elapsed());
            }
        }
        let Some(join) = &mut self.join else {
            return Some(item);
        };
        let input = self.edges.iter().position(|&known| known == edge)?;
        let key = match self.worker.stage.join.map(|join| join.by) {
            Some(By::Request) => item.request.number,
            _ => item.key,
        };
        let joined = join.add(input, key, item);
        joined.given_up.into_iter().for_each(Item::fail);
        joined.set.and_then(as_one)
    }
}

/// A message that is not shared is read and written once more.
fn copy_message(item: &mut Item) {
    if let Some(payload) = &mut item.payload
        && payload.hand_over == HandOver::Copy
    {
        payload.bytes = Arc::new(Vec::clone(&payload.bytes));
    }
}

/// The newest request's item; other requests are part of it.
fn as_one(mut set: Vec<Item>) -> Option<Item> {
    let newest = (0..set.len()).max_by_key(|&place| set[place].request.arrived)?;
    let item = set.swap_remove(newest);
    for other in set {
        if !Arc::ptr_eq(&other.request, &item.request) {
            other.absorb();
        }
    }
    Some(item)
}
