// SPDX-License-Identifier: GPL-2.0-only
//! A graph as it is run: stages in an order in which items can flow, every value in range. `docs/pipelines.md` says what
//! each key means.

use busy::Sync;
use serde::{Deserialize, Serialize};

use super::curve::Curve;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Graph {
    pub description: String,
    pub sync: Sync,
    /// A stage comes after all that it takes from.
    pub stages: Vec<Stage>,
    pub edges: Vec<Edge>,
}

/// Places in `Graph::stages`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stage {
    pub name: String,
    pub threads: usize,
    /// Threads that join later.
    pub grow: Option<Grow>,
    pub arrive: Option<Arrive>,
    /// Items that may wait before the stage; before each thread where `route` chooses one.
    pub queue: usize,
    pub route: Route,
    pub join: Option<Join>,
    pub batch: Batch,
    pub cpu: Option<Cpu>,
    pub gpu: Option<Gpu>,
    pub http: Option<Http>,
    pub window: Option<Window>,
    /// Items that leave for each one that is done.
    pub emit: f64,
    /// Items leave with one of so many keys, drawn anew; absent: with the key that they came with.
    pub keys: Option<u64>,
    pub message: Option<Message>,
}

impl Stage {
    /// With those that join later.
    pub fn all_threads(&self) -> usize {
        self.threads + self.grow.as_ref().map_or(0, |grow| grow.threads)
    }

    /// As the kernel shows it.
    pub fn thread_name(&self, number: usize) -> String {
        format!("{}{number}", self.name)
    }
}

/// Where items come from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "loop", rename_all = "snake_case")]
pub enum Arrive {
    /// At times of their own, whether earlier ones are done or not.
    Open { phases: Vec<Phase>, gaps: Gaps },
    /// Each client sends its next item when its last one is done.
    Closed { clients: usize },
    /// As fast as the queues take them.
    Saturate,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Phase {
    /// Of all threads of the source; absent in the last phase, which does not end.
    pub items: Option<u64>,
    /// Items a second, of all threads.
    pub rate: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gaps {
    #[default]
    Poisson,
    Even,
}

/// Which thread of a stage gets an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// Whoever is free: all take from one queue.
    #[default]
    Any,
    /// One after the other, each sender by itself.
    Turn,
    /// The one with the sender's number.
    Same,
    /// Always the same for a key.
    Key,
    /// By the request's number: settled when it comes in, the same in every stage with as many threads.
    Request,
}

/// What of an item must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    Key,
    Request,
    /// Nothing: windows of all items that a thread gets.
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Join {
    pub by: By,
    /// Incomplete sets that may wait; the oldest fails when there are more.
    pub pending: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Window {
    pub by: By,
    pub every: Every,
}

/// How often there is a result.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Every {
    Items(u64),
    Ms(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Batch {
    /// What `max` and `slo_ms` leave.
    pub max: usize,
    pub gather: Gather,
    /// What the first item of a fixed batch waits for the others.
    pub wait_ms: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gather {
    /// What waits already.
    #[default]
    Opportunistic,
    /// A full batch.
    Fixed,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cpu {
    /// For each item.
    pub us: f64,
    pub clock: Clock,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// Until the thread has run for so long.
    #[default]
    Cpu,
    /// Until so much time has passed, as a busy-wait on the wall's clock does.
    Wall,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gpu {
    /// GPU time of a batch by its size.
    pub service: Curve,
    /// Kernels that this time is split into.
    pub launches: u32,
    /// CPU time before each launch.
    pub gap_us: f64,
    /// Thread n uses the n-th, in turn.
    pub devices: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Http {
    pub url: String,
    /// Absent: the server's first.
    pub model: Option<String>,
    pub prompt_tokens: usize,
    pub max_tokens: usize,
    pub timeout_s: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The least and the most, in bytes.
    pub bytes: (usize, usize),
    pub hand_over: HandOver,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandOver {
    /// Whoever takes it copies it, as from a socket.
    #[default]
    Copy,
    /// Whoever takes it gets a pointer.
    Share,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Grow {
    /// The first request that the new threads may get.
    pub at_item: u64,
    pub threads: usize,
    /// What loading the model takes.
    pub load_ms: f64,
    /// Loaded before that request comes, instead of when it is there.
    pub preload: bool,
}
