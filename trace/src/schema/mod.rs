// SPDX-License-Identifier: GPL-2.0-only
//! The trace file: what a record is, in CSV and in NDJSON. Pure: types and their text, no I/O.
//!
//! The page for people is `docs/tracing.md`. A file is a [`Header`], records in order of time, and
//! an [`End`]; a file without its end was cut short. A change that old readers would misread takes
//! a new [`VERSION`]; a new kind, or a new column at the end, does not.

mod name;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

pub use name::Name;

/// How much later an event may be known than it happened: an interrupt is known at its end.
pub const HORIZON_NS: u64 = 100_000_000;
/// Version of the schema.
pub const VERSION: u32 = 1;
/// A CSV file begins with this, followed by the [`Header`] as JSON, on one line.
pub const CSV_HEADER_PREFIX: &str = "# scx_gpuaware trace ";
/// A complete CSV file ends with this, followed by the [`End`] as JSON, on one line.
pub const CSV_END_PREFIX: &str = "# end ";
/// The columns of the CSV, in order: the fields of [`Record`].
pub const COLUMNS: [&str; 29] = [
    "time_ns",
    "event",
    "cpu",
    "tid",
    "tgid",
    "comm",
    "symbol",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "shared_bytes",
    "stream",
    "duration_ns",
    "self_ns",
    "wait_ns",
    "reason",
    "state",
    "other_tid",
    "other_tgid",
    "other_comm",
    "to_cpu",
    "irq",
    "irq_name",
    "sched_class",
    "dsq",
    "slice_ns",
];

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Kind {
    /// A kernel launch was called.
    Launch,
    /// A graph launch was called.
    GraphLaunch,
    /// It returned.
    GraphLaunchExit,
    /// A call that waits for the GPU began.
    SyncEnter,
    /// It returned.
    SyncExit,
    /// The thread lost its CPU.
    SwitchOut,
    /// The thread got a CPU.
    SwitchIn,
    /// The sleeping thread was made runnable.
    Wakeup,
    /// The thread was moved to the queue of another CPU.
    Migrate,
    /// A device's interrupt handler ran on top of the thread.
    HardIrq,
    /// A softirq ran on top of the thread.
    SoftIrq,
    /// An interrupt without a handler of its own (timer, reschedule, function call) did.
    VectorIrq,
    /// The thread is traced from here on.
    ThreadStart,
    /// The thread ended.
    ThreadExit,
    /// From here on launches, graph launches and syncs are recorded.
    WindowOpen,
    /// From here on they are not.
    WindowClose,
}

impl Kind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 16] = [
        Self::Launch,
        Self::GraphLaunch,
        Self::GraphLaunchExit,
        Self::SyncEnter,
        Self::SyncExit,
        Self::SwitchOut,
        Self::SwitchIn,
        Self::Wakeup,
        Self::Migrate,
        Self::HardIrq,
        Self::SoftIrq,
        Self::VectorIrq,
        Self::ThreadStart,
        Self::ThreadExit,
        Self::WindowOpen,
        Self::WindowClose,
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::GraphLaunch => "graph_launch",
            Self::GraphLaunchExit => "graph_launch_exit",
            Self::SyncEnter => "sync_enter",
            Self::SyncExit => "sync_exit",
            Self::SwitchOut => "switch_out",
            Self::SwitchIn => "switch_in",
            Self::Wakeup => "wakeup",
            Self::Migrate => "migrate",
            Self::HardIrq => "hard_irq",
            Self::SoftIrq => "soft_irq",
            Self::VectorIrq => "vector_irq",
            Self::ThreadStart => "thread_start",
            Self::ThreadExit => "thread_exit",
            Self::WindowOpen => "window_open",
            Self::WindowClose => "window_close",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Recorded in windows only, unless every launch is.
    pub fn is_sampled(self) -> bool {
        matches!(
            self,
            Self::Launch
                | Self::GraphLaunch
                | Self::GraphLaunchExit
                | Self::SyncEnter
                | Self::SyncExit
        )
    }
}

/// Why a thread is off its CPU (switches), or from where it was woken (wakeups).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It could have gone on: somebody else got the CPU.
    Preempted,
    /// It called `sched_yield`.
    Yielded,
    /// It waits for something: see `state`.
    Blocked,
    /// It ended.
    Exited,
    /// It had not run before.
    New,
    /// It was off its CPU already when tracing began.
    Unknown,
    /// Woken by another thread.
    Task,
    /// Woken by an interrupt, whoever it interrupted.
    Irq,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Preempted,
        Self::Yielded,
        Self::Blocked,
        Self::Exited,
        Self::New,
        Self::Unknown,
        Self::Task,
        Self::Irq,
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preempted => "preempted",
            Self::Yielded => "yielded",
            Self::Blocked => "blocked",
            Self::Exited => "exited",
            Self::New => "new",
            Self::Unknown => "unknown",
            Self::Task => "task",
            Self::Irq => "irq",
        }
    }

    /// The reason of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// Name of a thread.
pub type Comm = Name<48>;

/// One record, with the columns of every kind. NDJSON leaves out those that a kind does not have;
/// in CSV they are empty. Which kind has which, and what they mean, is in `docs/tracing.md`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When, of CLOCK_MONOTONIC. Of something that lasted, its end.
    pub time_ns: u64,
    /// What.
    pub event: Kind,
    /// On which CPU. Of a wakeup, the waker's; of a migration, the old one.
    pub cpu: u32,
    /// The thread; 0 for windows.
    pub tid: i32,
    /// Its process.
    pub tgid: i32,
    /// Its name at that time.
    pub comm: Comm,
    /// The CUDA function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<Name<32>>,
    /// Blocks in a grid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid_x: Option<u32>,
    /// Blocks in a grid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid_y: Option<u32>,
    /// Blocks in a grid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid_z: Option<u32>,
    /// Threads in a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_x: Option<u32>,
    /// Threads in a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_y: Option<u32>,
    /// Threads in a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_z: Option<u32>,
    /// Dynamic shared memory of a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<u32>,
    /// The stream, or what the call waits for, as the program passes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<u64>,
    /// How long it lasted. Of `switch_out`, the time on the CPU; of `switch_in`, the time off it;
    /// of `wakeup`, the time asleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<u64>,
    /// Of interrupts, `duration_ns` without the interrupts nested in it. The sum of these is the
    /// time stolen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_ns: Option<u64>,
    /// Of `switch_in`, the part of `duration_ns` in which the thread was runnable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ns: Option<u64>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Of `switch_out`, the state as `ps` prints it: R, S, D, T, t, X, Z, P or I.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<char>,
    /// The other thread: who got the CPU, who had it, who woke, who started it; 0 is idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_tid: Option<i32>,
    /// Its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_tgid: Option<i32>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_comm: Option<Comm>,
    /// Of a migration, the new CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_cpu: Option<u32>,
    /// Number of the interrupt, of the softirq's or of the interrupt vector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq: Option<u32>,
    /// Its name: of the handler, of the softirq as `/proc/softirqs` has it, of the vector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq_name: Option<Name<32>>,
    /// Scheduling class that the thread is in: stop, deadline, rt, fair, ext or idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sched_class: Option<Name<16>>,
    /// Dispatch queue of a sched_ext scheduler in which it waits (out) or waited (in).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dsq: Option<u64>,
    /// What is left of the slice that a sched_ext scheduler gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_ns: Option<u64>,
}

impl Record {
    /// A record without optional columns.
    pub fn new(time_ns: u64, event: Kind) -> Self {
        Self {
            time_ns,
            event,
            cpu: 0,
            tid: 0,
            tgid: 0,
            comm: Comm::default(),
            symbol: None,
            grid_x: None,
            grid_y: None,
            grid_z: None,
            block_x: None,
            block_y: None,
            block_z: None,
            shared_bytes: None,
            stream: None,
            duration_ns: None,
            self_ns: None,
            wait_ns: None,
            reason: None,
            state: None,
            other_tid: None,
            other_tgid: None,
            other_comm: None,
            to_cpu: None,
            irq: None,
            irq_name: None,
            sched_class: None,
            dsq: None,
            slice_ns: None,
        }
    }
}

/// How launches are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum Launches {
    /// Every one.
    All,
    /// In windows of this length, one in each period, at a random place in it.
    Sampled {
        /// Length of a window.
        window_ns: u64,
        /// One window in each period.
        period_ns: u64,
    },
}

/// What was known when tracing began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub schema: u32,
    /// Version of the program.
    pub program: String,
    /// What `time_ns` is: `CLOCK_MONOTONIC`.
    pub clock: String,
    /// When tracing began, on that clock.
    pub start_ns: u64,
    /// The same moment in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// The sched_ext scheduler that was loaded, if any.
    pub scheduler: Option<String>,
    /// Number of CPUs online.
    pub cpus: u32,
    /// Who was traced, in words.
    pub target: String,
    /// How launches, graph launches and syncs were recorded.
    pub launches: Launches,
}

/// Why tracing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The command ended.
    Command,
    /// Every traced process ended.
    Target,
    /// `--duration`.
    Duration,
    /// `--max-size`.
    MaxSize,
    /// SIGINT or SIGTERM.
    Signal,
}

/// What was known when tracing had ended. Counts are of the kernel side: of each kind,
/// `counted = records in the file + lost`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Why.
    pub ended_by: EndedBy,
    /// When, on the header's clock.
    pub end_ns: u64,
    /// Time during which launches were recorded. All of it unless they were sampled.
    pub window_ns: u64,
    /// Number of windows.
    pub windows: u64,
    /// Events that happened, by kind; of sampled kinds, in the windows.
    #[serde(deserialize_with = "known_kinds")]
    pub counted: BTreeMap<Kind, u64>,
    /// Of these, the ones that are not in the file. Kinds without a loss are left out.
    #[serde(deserialize_with = "known_kinds")]
    pub lost: BTreeMap<Kind, u64>,
    /// Events that were passed over without a kind: a probe that was interrupted by itself, no memory
    /// for a thread, a switch that the kernel did not show. 0 unless something is wrong.
    pub missed: u64,
    /// The same by why, as docs/tracing.md lists it; files of earlier programs lack it.
    #[serde(default)]
    pub missed_by: BTreeMap<String, u64>,
}

/// Kinds to come are passed over, as their records are.
fn known_kinds<'de, D: Deserializer<'de>>(input: D) -> Result<BTreeMap<Kind, u64>, D::Error> {
    let counts = BTreeMap::<String, u64>::deserialize(input)?;
    let known = |(name, count): (String, u64)| Some((Kind::from_name(&name)?, count));
    Ok(counts.into_iter().filter_map(known).collect())
}

impl End {
    /// The share of the traced time in which launches were recorded, 0 to 1. Divide counts of
    /// sampled kinds by it for an estimate, and call it one.
    pub fn sampled_fraction(&self, header: &Header) -> f64 {
        let traced_ns = self.end_ns.saturating_sub(header.start_ns);
        match header.launches {
            Launches::All => 1.0,
            Launches::Sampled { .. } if traced_ns == 0 => 0.0,
            Launches::Sampled { .. } => self.window_ns as f64 / traced_ns as f64,
        }
    }

    /// Everything lost.
    pub fn nr_lost(&self) -> u64 {
        self.lost.values().sum::<u64>() + self.missed
    }
}

/// One line of an NDJSON file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first: `{"header":{…}}`.
    Header(Header),
    /// The last: `{"end":{…}}`.
    End(End),
    /// All others: the record itself, which has an `event`.
    #[serde(untagged)]
    Record(Box<Record>),
}

#[cfg(test)]
mod tests;
