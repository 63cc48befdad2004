// SPDX-License-Identifier: GPL-2.0-only
//! A run: threads for all stages, the measured window, the end, and what all threads saw put together.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::cache::Misses;
use crate::channel::{Receiver, Sender, bounded};
use crate::graph::{Graph, Stage};
use crate::item::{Account, Outcomes};
use crate::queue::{Outlet, Queues};
use crate::recorder::{EdgeTimes, Ends, Places, Recorder, StageTimes};
use crate::source::Source;
use crate::stage::Taker;
use crate::worker::{Shared, Worker};

/// How often the main thread looks: seldom, because every look disturbs what is measured.
const POLL: Duration = Duration::from_millis(20);
/// For contexts, connections and models.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long, and what is asked of it.
#[derive(Debug, Clone)]
pub struct Plan {
    pub warmup: Duration,
    pub duration: Duration,
    pub drain: Duration,
    pub seed: u64,
    pub slo_ms: Vec<f64>,
    /// Goes on after the window until stdin ends.
    pub until_eof: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct Measured {
    pub outcomes: Outcomes,
    pub seconds: f64,
    pub monotonic_ns: (u64, u64),
    /// By place in the graph.
    pub stages: Vec<StageTimes>,
    pub edges: Vec<EdgeTimes>,
    pub ends: Ends,
    /// Objectives in ms, and how many requests kept each.
    pub kept: Vec<(f64, u64)>,
    pub threads: Vec<Recorder>,
    pub errors: Vec<String>,
    pub device_name: Option<String>,
    /// Of the last-level cache, or why they are not counted.
    pub llc_load_misses: Result<u64, String>,
}

/// Threads that work, until they are told to quit.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<Recorder>>>,
    /// By the thread's name.
    places: BTreeMap<String, Places>,
    misses: Misses,
}

/// What was measured of the window as a whole.
#[derive(Debug)]
struct Seen {
    start_ns: u64,
    seconds: f64,
    llc_load_misses: Result<u64, String>,
}

impl Running {
    /// Starts all stages, then the sources.
    ///
    /// # Errors
    /// A thread cannot start, or has no GPU or no server.
    pub fn start(graph: Graph, plan: &Plan) -> Result<Self> {
        let shared = Arc::new(Shared {
            account: Arc::new(Account::new(plan.duration, &plan.slo_ms)),
            seed: plan.seed,
            quit: AtomicBool::new(false),
            past: AtomicUsize::new(0),
            errors: Mutex::default(),
            device_name: Mutex::default(),
            graph,
        });
        let mut running = Self {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            places: BTreeMap::new(),
            misses: Misses::open(),
        };
        let started = running.start_all();
        if started.is_err() {
            running.shared.quit.store(true, Relaxed);
        }
        started.map(|()| running)
    }

    /// In the order of the graph, which is the order of their TIDs. Sources begin when everybody is there.
    fn start_all(&mut self) -> Result<()> {
        let threads = self
            .shared
            .graph
            .stages
            .iter()
            .map(Stage::all_threads)
            .sum();
        let (ready, is_ready) = bounded(threads);
        let begin = Arc::new(OnceLock::new());
        let started = self.spawn_all(&ready, &begin);
        drop(ready);
        let started = started.and_then(|()| await_all(&is_ready, self.threads.len()));
        // Also where one could not start: the sources that wait find out that all is over.
        let _ = begin.set(Instant::now());
        started
    }

    fn spawn_all(
        &mut self,
        ready: &Sender<Result<()>>,
        begin: &Arc<OnceLock<Instant>>,
    ) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let stages = &shared.graph.stages;
        let queues: Vec<Queues> = stages.iter().map(Queues::before).collect();
        for (place, stage) in stages.iter().enumerate() {
            for thread in 0..stage.all_threads() {
                if stage.arrive.is_some() {
                    let begin = Arc::clone(begin);
                    let run = move |worker: Worker| Source::new(worker, place, *begin.wait()).run();
                    self.spawn(&queues, place, thread, ready.clone(), run)?;
                } else {
                    let inbox = queues[place].inbox(thread);
                    let into = edges_into(&shared.graph, place);
                    let run = move |worker: Worker| Taker::new(worker, inbox, into).run();
                    self.spawn(&queues, place, thread, ready.clone(), run)?;
                }
            }
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        queues: &[Queues],
        place: usize,
        thread: usize,
        ready: Sender<Result<()>>,
        run: impl FnOnce(Worker) -> Result<Recorder> + Send + 'static,
    ) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let name = shared.graph.stages[place].thread_name(thread);
        let outlets: Vec<Outlet> = edges_out_of(&shared.graph, place)
            .map(|(edge, to)| queues[to].outlet(edge, thread))
            .collect();
        let places = Places::default();
        self.places.insert(name.clone(), Arc::clone(&places));
        let started = std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || {
                let worker = Worker::open(&shared, place, thread, outlets, places);
                match worker {
                    Ok(worker) => {
                        ready.send(Ok(()));
                        drop(ready);
                        run(worker)
                    }
                    Err(error) => {
                        ready.send(Err(anyhow!("{error:#}")));
                        Err(error)
                    }
                }
            });
        let started = started.with_context(|| format!("cannot start thread {name}"))?;
        self.threads.push(started);
        Ok(())
    }

    /// Every thread with where it has worked since the last call.
    pub fn take_places(&self) -> BTreeMap<&str, BTreeMap<usize, u64>> {
        let take = |places: &Places| {
            std::mem::take(&mut *places.lock().unwrap_or_else(PoisonError::into_inner))
        };
        let all = self.places.iter();
        all.map(|(name, places)| (name.as_str(), take(places)))
            .collect()
    }

    /// An error once a thread has ended, which none does before it is told to.
    pub fn must_live(&self) -> Result<()> {
        if self.threads.iter().any(JoinHandle::is_finished) {
            bail!("a thread has ended by itself");
        }
        Ok(())
    }

    /// Warms up, measures, and ends.
    pub fn measure(mut self, plan: &Plan) -> Result<Measured> {
        let window = self.watch_window(plan);
        self.shared.account.close();
        self.shared.quit.store(true, Relaxed);
        let shared = Arc::clone(&self.shared);
        let threads: Result<Vec<Recorder>> = self.threads.into_iter().map(join).collect();
        // What a thread died of says more than that it died.
        let (threads, seen) = (threads?, window?);
        let mut measured = Measured {
            outcomes: shared.account.outcomes(),
            seconds: seen.seconds,
            monotonic_ns: (seen.start_ns, seen.start_ns + (seen.seconds * 1e9) as u64),
            stages: vec![StageTimes::default(); shared.graph.stages.len()],
            edges: vec![EdgeTimes::default(); shared.graph.edges.len()],
            ends: Ends::default(),
            kept: shared.account.kept(),
            threads,
            errors: lock(&shared.errors).iter().cloned().collect(),
            device_name: lock(&shared.device_name).clone(),
            llc_load_misses: seen.llc_load_misses,
        };
        for thread in &mut measured.threads {
            measured.stages[thread.stage].add(&thread.times);
            for (&edge, times) in &thread.edges {
                measured.edges[edge].add(times);
            }
            measured.ends.add(std::mem::take(&mut thread.ends));
        }
        Ok(measured)
    }

    /// Until what was offered in the window is done, or the time for that is over.
    fn watch_window(&mut self, plan: &Plan) -> Result<Seen> {
        self.pause_until(Instant::now() + plan.warmup)?;
        let start_ns = busy::monotonic_ns()?;
        let start = self.shared.account.window.begin();
        let misses = self.misses.so_far();
        eprintln!("pipeline: measuring");
        let end = start + plan.duration;
        self.pause_until(end)?;
        let llc_load_misses = self
            .misses
            .so_far()
            .and_then(|end| Ok(end.saturating_sub(misses?)));
        let sources = self.shared.graph.stages.iter();
        let sources: usize = sources
            .filter(|stage| stage.arrive.is_some())
            .map(|stage| stage.threads)
            .sum();
        let is_done = || {
            self.shared.past.load(Relaxed) >= sources
                && self.shared.account.outcomes().unfinished == 0
        };
        while !is_done() && Instant::now() < end + plan.drain {
            self.pause_until(Instant::now() + POLL)?;
        }
        self.shared.account.close();
        eprintln!("pipeline: measured");
        if plan.until_eof {
            wait_for_eof();
        }
        self.must_live()?;
        Ok(Seen {
            start_ns,
            seconds: plan.duration.as_secs_f64(),
            llc_load_misses,
        })
    }

    fn pause_until(&self, end: Instant) -> Result<()> {
        loop {
            self.must_live()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(POLL));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn join(thread: JoinHandle<Result<Recorder>>) -> Result<Recorder> {
    let name = thread.thread().name().unwrap_or_default().to_owned();
    let joined = thread.join();
    joined
        .unwrap_or_else(|_| Err(anyhow!("it panicked")))
        .with_context(|| format!("thread {name}"))
}

fn await_all(is_ready: &Receiver<Result<()>>, threads: usize) -> Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    for _ in 0..threads {
        let Ok(answer) = is_ready.take(Some(deadline)) else {
            bail!("a thread did not start within {START_TIMEOUT:?}");
        };
        answer?;
    }
    Ok(())
}

/// Places of the edges into a stage, in the order of its `from`.
fn edges_into(graph: &Graph, place: usize) -> Vec<usize> {
    let edges = graph.edges.iter().enumerate();
    let here = edges.filter(|(_, edge)| edge.to == place);
    here.map(|(number, _)| number).collect()
}

/// The edges out of a stage: their places, and where they lead.
fn edges_out_of(graph: &Graph, place: usize) -> impl Iterator<Item = (usize, usize)> {
    let edges = graph.edges.iter().enumerate();
    let away = edges.filter(move |(_, edge)| edge.from == place);
    away.map(|(number, edge)| (number, edge.to))
}

fn wait_for_eof() {
    let mut byte = [0];
    let mut stdin = std::io::stdin().lock();
    while stdin.read(&mut byte).is_ok_and(|read| read > 0) {}
}

#[cfg(test)]
mod tests;
