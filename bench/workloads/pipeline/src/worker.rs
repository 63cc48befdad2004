// SPDX-License-Identifier: GPL-2.0-only
//! A thread of a stage: the work on items and handing them on. Where they come from is the business of `stage` and
//! `source`.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::gpu::Gpu;
use crate::graph::{Clock, Cpu, Graph, Message, Stage};
use crate::item::{Account, Item, Payload};
use crate::queue::Outlet;
use crate::recorder::{Places, Recorder};
use crate::rpc::Rpc;
use crate::window::{Effect, Window};

/// Different errors that the document shows.
const MAX_ERRORS: usize = 10;

/// What all threads of a run share.
#[derive(Debug)]
pub struct Shared {
    pub graph: Graph,
    pub account: Arc<Account>,
    pub seed: u64,
    /// Sources end; what is under way is thrown away.
    pub quit: AtomicBool,
    /// Threads of sources whose next item is due after the window.
    pub past: AtomicUsize,
    pub errors: Mutex<BTreeSet<String>>,
    pub device_name: Mutex<Option<String>>,
}

impl Shared {
    pub fn has_quit(&self) -> bool {
        self.quit.load(Relaxed)
    }

    fn note(&self, error: String) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() < MAX_ERRORS {
            errors.insert(error);
        }
    }
}

#[derive(Debug)]
pub struct Worker {
    pub shared: Arc<Shared>,
    pub stage: Stage,
    pub thread: usize,
    pub recorder: Recorder,
    gpu: Option<Gpu>,
    rpc: Option<Rpc>,
    window: Option<Window<Item>>,
    outlets: Vec<Outlet>,
    rng: Pcg64Mcg,
}

impl Worker {
    /// In the thread that will work: contexts and connections are its own.
    pub fn open(
        shared: &Arc<Shared>,
        place: usize,
        thread: usize,
        outlets: Vec<Outlet>,
        places: Places,
    ) -> Result<Self> {
        let stage = shared.graph.stages[place].clone();
        let gpu = (stage.gpu.as_ref())
            .map(|gpu| Gpu::open(gpu, shared.graph.sync, thread))
            .transpose()?;
        if let Some(gpu) = &gpu {
            let mut name = (shared.device_name.lock()).unwrap_or_else(PoisonError::into_inner);
            *name = Some(gpu.device_name().to_owned());
        }
        let name = stage.thread_name(thread);
        Ok(Self {
            recorder: Recorder::new(place, name, places),
            gpu,
            rpc: stage.http.as_ref().map(Rpc::open).transpose()?,
            window: stage.window.map(|shape| Window::new(shape, Instant::now())),
            outlets,
            rng: Pcg64Mcg::seed_from_u64(seed_of(shared.seed, place, thread)),
            shared: Arc::clone(shared),
            stage,
            thread,
        })
    }

    /// When a window ends, whether items come or not.
    pub fn window_due(&self) -> Option<Instant> {
        self.window.as_ref().and_then(Window::due)
    }

    /// Works on a batch and hands it on.
    ///
    /// # Errors
    /// The GPU has failed, or a clock: the run is over.
    pub fn process(&mut self, batch: Vec<Item>) -> Result<()> {
        self.recorder.look(&self.shared.account.window);
        if self.shared.has_quit() {
            return Ok(());
        }
        if !batch.is_empty() {
            for item in self.serve(batch)? {
                self.collect(item);
            }
        }
        if let Some(window) = &mut self.window {
            for result in window.ended(Instant::now()) {
                self.pass_on(result);
            }
        }
        Ok(())
    }

    /// Results of windows that the end finds open.
    pub fn finish(mut self) -> Recorder {
        let rest = self.window.as_mut().map(Window::rest);
        if !self.shared.has_quit() {
            for result in rest.into_iter().flatten() {
                self.pass_on(result);
            }
        }
        self.recorder.look(&self.shared.account.window);
        self.recorder
    }

    /// The items that did not fail.
    fn serve(&mut self, batch: Vec<Item>) -> Result<Vec<Item>> {
        let began = Instant::now();
        let counted = batch.iter().filter(|item| item.request.counts()).count() as u64;
        if let Some(cpu) = self.stage.cpu {
            work(cpu, batch.len())?;
        }
        if let Some(gpu) = &self.gpu {
            if self.recorder.first_launch_ns.is_none() {
                self.recorder.first_launch_ns = Some(busy::monotonic_ns()?);
            }
            let time = gpu.run(batch.len())?;
            self.recorder.launches += gpu.launches();
            if counted > 0 {
                self.recorder.times.gpu.record(time);
            }
        }
        let size = batch.len() as u64;
        let done = match &self.rpc {
            Some(rpc) => {
                if self.recorder.first_call_ns.is_none() {
                    self.recorder.first_call_ns = Some(busy::monotonic_ns()?);
                }
                let rpc_began = Instant::now();
                let done = call_all(rpc, batch, &self.shared);
                if counted > 0 {
                    self.recorder.times.rpc.record(rpc_began.elapsed());
                }
                done
            }
            None => batch,
        };
        self.recorder.worked_here(size);
        if counted > 0 {
            let times = &mut self.recorder.times;
            times.items += counted;
            times.failed += size - done.len() as u64;
            times.batch_size.record_value(size);
            times.service.record(began.elapsed());
        }
        Ok(done)
    }

    /// Into the window, if there is one.
    fn collect(&mut self, item: Item) {
        let Some(window) = &mut self.window else {
            return self.pass_on(item);
        };
        match window.add(item.key, item) {
            Effect::Result(result) => self.pass_on(result),
            Effect::Absorbed(item) => item.absorb(),
            Effect::Kept => {}
        }
    }

    fn pass_on(&mut self, item: Item) {
        let whole = self.stage.emit.floor();
        let one_more = self.rng.random::<f64>() < self.stage.emit - whole;
        let copies = whole as usize + usize::from(one_more);
        if copies == 0 {
            return item.filter();
        }
        for _ in 0..copies {
            let out = self.outgoing(&item);
            self.put(out);
        }
    }

    fn outgoing(&mut self, item: &Item) -> Item {
        let key = match self.stage.keys {
            Some(keys) => self.rng.random_range(0..keys),
            None => item.key,
        };
        let payload = self.stage.message;
        Item {
            request: Arc::clone(&item.request),
            key,
            payload: payload.map(|message| self.write(message)),
        }
    }

    fn write(&mut self, message: Message) -> Payload {
        let (least, most) = message.bytes;
        let size = self.rng.random_range(least..=most);
        Payload {
            // Not zero: pages of zeroes are not written before somebody writes to them.
            bytes: Arc::new(vec![1; size]),
            hand_over: message.hand_over,
        }
    }

    fn put(&mut self, item: Item) {
        let counts = item.request.counts();
        if self.outlets.is_empty() {
            let latency = item.request.arrived.elapsed();
            if counts {
                self.recorder.ends.record(item.request.number, latency);
            }
            return item.complete(latency);
        }
        for outlet in &mut self.outlets {
            let blocked = outlet.put(item.clone());
            if counts {
                self.recorder.times.blocked.record(blocked);
            }
        }
    }
}

fn work(cpu: Cpu, items: usize) -> Result<()> {
    let time = Duration::from_secs_f64(cpu.us * items as f64 / 1e6);
    match cpu.clock {
        Clock::Cpu => busy::burn_cpu(time),
        Clock::Wall => {
            busy::spin(time);
            Ok(())
        }
    }
}

/// One after the other; those that were answered.
fn call_all(rpc: &Rpc, batch: Vec<Item>, shared: &Shared) -> Vec<Item> {
    let mut done = Vec::with_capacity(batch.len());
    for item in batch {
        match rpc.call(item.request.number, &shared.quit) {
            Ok(()) => done.push(item),
            Err(error) => {
                if item.request.counts() {
                    shared.note(format!("{error:#}"));
                }
                item.fail();
            }
        }
    }
    done
}

/// Of each thread its own, settled by the run's.
pub fn seed_of(seed: u64, stage: usize, thread: usize) -> u64 {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ ((stage as u64) << 32) ^ thread as u64
}
