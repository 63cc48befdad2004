// SPDX-License-Identifier: GPL-2.0-only
//! The engine: one thread that batches requests continuously and launches each step's kernels. It
//! knows tokens and no text; vLLM's EngineCore is the model.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use busy::{Driver, Usage};
use serde::Serialize;

use crate::profile::{Profile, UsageError};
use crate::schedule::{Limits, Load, Scheduler, Sequence, Step, Token};

/// vLLM's process title, as much of it as the kernel keeps of a name.
const THREAD_NAME: &str = "VLLM::EngineCor";
/// How often a waiting engine looks whether it shall end.
const IDLE_POLL: Duration = Duration::from_millis(100);

/// What the engine is told.
#[derive(Debug)]
pub enum Message {
    Request {
        id: u64,
        prompt_tokens: u32,
        max_tokens: u32,
    },
    /// The client is gone.
    Abort(u64),
    Stop,
}

/// The load now, for whoever asks.
pub type Gauge = Arc<Mutex<Load>>;

pub struct Engine {
    pub gauge: Gauge,
    pub kv_blocks: u32,
    /// Tokens of prompt and answer that one request may have.
    pub max_model_len: u32,
    thread: JoinHandle<Result<EngineReport>>,
}

/// What the engine's thread did in its life.
#[derive(Debug, Serialize)]
pub struct EngineReport {
    pub driver: DriverFacts,
    pub kv_blocks: u32,
    pub launches: u64,
    pub failures: u64,
    pub steps: u64,
    pub tokens: u64,
    pub preemptions: u64,
    #[serde(flatten)]
    pub usage: Usage,
    pub threads_detail: Vec<LaunchThread>,
}

#[derive(Debug, Clone, Serialize)]
pub struct DriverFacts {
    pub device_name: String,
    pub version: i32,
}

#[derive(Debug, Serialize)]
pub struct LaunchThread {
    pub tid: i32,
    /// The first one for a request, if any came: that of the start is over before anyone can look for it.
    pub first_launch_monotonic_ns: u64,
}

impl Engine {
    /// Starts the thread and waits until it has its memory and has run a step, as vLLM does before
    /// it listens.
    pub fn start(
        profile: Profile,
        utilization: f64,
        messages: Receiver<Message>,
        tokens: Sender<Vec<Token>>,
    ) -> Result<Self> {
        let gauge = Gauge::default();
        let shared = Arc::clone(&gauge);
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(move || {
                let mut core = Core::new(profile, utilization, shared)?;
                // Whoever started this waits for it.
                let _ = ready.send((core.limits.blocks, Scheduler::max_model_len(&core.limits)));
                core.serve(&messages, &tokens)?;
                core.report()
            })
            .context("cannot start the engine's thread")?;
        match is_ready.recv() {
            Ok((kv_blocks, max_model_len)) => Ok(Self {
                gauge,
                kv_blocks,
                max_model_len,
                thread,
            }),
            Err(_) => Err(join(thread).map_or_else(
                |error| error,
                |_| anyhow::anyhow!("the engine ended before it began"),
            )),
        }
    }

    /// Whether its thread has ended, which it only does by itself when a driver call failed.
    pub fn is_dead(&self) -> bool {
        self.thread.is_finished()
    }

    /// Its report, after `Message::Stop`.
    pub fn finish(self) -> Result<EngineReport> {
        join(self.thread)
    }
}

fn join(thread: JoinHandle<Result<EngineReport>>) -> Result<EngineReport> {
    thread
        .join()
        .unwrap_or_else(|_| Err(anyhow::anyhow!("the engine's thread panicked")))
}

/// What lives in the engine's thread.
struct Core {
    profile: Profile,
    driver: Driver,
    limits: Limits,
    scheduler: Scheduler,
    gauge: Gauge,
    first_launch_ns: u64,
    launches: u64,
    steps: u64,
    tokens: u64,
}

impl Core {
    fn new(profile: Profile, utilization: f64, gauge: Gauge) -> Result<Self> {
        let driver = Driver::open(0, profile.sync)?;
        let (blocks, kv_bytes) = profile.kv_cache(utilization, driver.total_bytes)?;
        let share = profile.weights_percent / 100.0;
        driver
            .allocate((driver.total_bytes as f64 * share) as u64)
            .context("no memory for the weights")?;
        driver.allocate(kv_bytes).map_err(|error| {
            UsageError(format!(
                "--gpu-memory-utilization {utilization}: no memory for the KV cache: {error:#}"
            ))
        })?;
        let limits = Limits {
            max_num_seqs: profile.max_num_seqs,
            max_num_batched_tokens: profile.max_num_batched_tokens,
            blocks,
            block_tokens: profile.block_tokens,
        };
        let mut core = Self {
            first_launch_ns: busy::monotonic_ns()?,
            scheduler: Scheduler::new(limits),
            profile,
            driver,
            limits,
            gauge,
            launches: 0,
            steps: 0,
            tokens: 0,
        };
        core.compute(&Step::default())?;
        Ok(core)
    }

    fn serve(&mut self, messages: &Receiver<Message>, tokens: &Sender<Vec<Token>>) -> Result<()> {
        let mut has_served = false;
        loop {
            if !self.take_messages(messages) {
                return Ok(());
            }
            if self.scheduler.is_idle() {
                self.publish();
                match messages.recv_timeout(IDLE_POLL) {
                    Ok(message) if self.obey(&message) => {}
                    Ok(_) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                    Err(RecvTimeoutError::Timeout) => {}
                }
                continue;
            }
            let step = self.scheduler.next_step();
            if !std::mem::replace(&mut has_served, true) {
                self.first_launch_ns = busy::monotonic_ns()?;
            }
            self.compute(&step)?;
            busy::burn(Duration::from_micros(self.profile.step_cpu_us));
            let new = self.scheduler.finish(&step);
            self.tokens += new.len() as u64;
            self.publish();
            // Nobody to tell: the server is about to end.
            if tokens.send(new).is_err() {
                return Ok(());
            }
        }
    }

    /// All that has come in the meantime; `false`: it was the last.
    fn take_messages(&mut self, messages: &Receiver<Message>) -> bool {
        loop {
            match messages.try_recv() {
                Ok(message) if self.obey(&message) => {}
                Ok(_) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn obey(&mut self, message: &Message) -> bool {
        match *message {
            Message::Request {
                id,
                prompt_tokens,
                max_tokens,
            } => self
                .scheduler
                .add(Sequence::new(id, prompt_tokens, max_tokens)),
            Message::Abort(id) => self.scheduler.abort(id),
            Message::Stop => return false,
        }
        true
    }

    /// Launches the step's kernels one by one and waits for the GPU.
    fn compute(&mut self, step: &Step) -> Result<()> {
        let Profile {
            launches_per_step,
            launch_gap_ns,
            kernel_ns,
            ..
        } = self.profile;
        // What the batch adds is in the last kernel: where it falls within a step changes nothing.
        let extra_ns = u64::from(step.prefill_tokens()) * self.profile.prefill_ns_per_token
            + step.sequences() as u64 * self.profile.decode_ns_per_sequence;
        for launch in 1..=launches_per_step {
            busy::burn(Duration::from_nanos(launch_gap_ns));
            let last = launch == launches_per_step;
            self.driver
                .launch(kernel_ns + if last { extra_ns } else { 0 })?;
        }
        self.launches += u64::from(launches_per_step);
        self.steps += 1;
        self.driver.synchronize()
    }

    fn publish(&self) {
        *self.gauge.lock().unwrap_or_else(PoisonError::into_inner) = self.scheduler.load();
    }

    fn report(&self) -> Result<EngineReport> {
        Ok(EngineReport {
            driver: DriverFacts {
                device_name: self.driver.device_name.clone(),
                version: self.driver.version,
            },
            kv_blocks: self.limits.blocks,
            launches: self.launches,
            // The first failure ends the engine, with an error and no report.
            failures: 0,
            steps: self.steps,
            tokens: self.tokens,
            preemptions: self.scheduler.load().preemptions,
            usage: Usage::of_this_thread()?,
            threads_detail: vec![LaunchThread {
                tid: nix::unistd::gettid().as_raw(),
                first_launch_monotonic_ns: self.first_launch_ns,
            }],
        })
    }
}
