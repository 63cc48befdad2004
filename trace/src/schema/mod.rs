// SPDX-License-Identifier: GPL-2.0-only
//! The trace file: what a record is, in CSV and in NDJSON. Pure: types and their text, no I/O.
//!
//! The page for people is `docs/tracing.md`. A file is a [`Header`], records in order of time, and
//! an [`End`]; a file without its end was cut short. A change that old readers would misread takes
//! a new [`VERSION`]; a new kind, or a new column at the end, does not.

mod cell;
mod name;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

pub use cell::Cell;
pub use name::Name;

/// How much later an event may be known than it happened: an interrupt is known at its end.
pub const HORIZON_NS: u64 = 100_000_000;
/// Version of the schema.
pub const VERSION: u32 = 1;
/// A CSV file begins with this, followed by the [`Header`] as JSON, on one line.
pub const CSV_HEADER_PREFIX: &str = "# scx_gpuaware trace ";
/// A complete CSV file ends with this, followed by the [`End`] as JSON, on one line.
pub const CSV_END_PREFIX: &str = "# end ";

/// Defines what has a name in files once: which there are, in their order, and what they are called.
macro_rules! named {
    ($(#[$meta:meta])* $enum:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $enum {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl $enum {
            /// All of them, in the order of their numbers.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Its name in files.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The one of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|it| it.name() == name)
            }
        }

        impl Cell for $enum {
            fn write(&self, text: &mut String) {
                text.push_str(self.name());
            }
        }
    };
}

named! {
    /// What a record is about.
    #[derive(Default)]
    #[repr(u8)]
    Kind {
        /// A kernel launch was called.
        #[default]
        Launch = "launch",
        /// A graph launch was called.
        GraphLaunch = "graph_launch",
        /// It returned.
        GraphLaunchExit = "graph_launch_exit",
        /// A call that waits for the GPU began.
        SyncEnter = "sync_enter",
        /// It returned.
        SyncExit = "sync_exit",
        /// The thread lost its CPU.
        SwitchOut = "switch_out",
        /// The thread got a CPU.
        SwitchIn = "switch_in",
        /// The sleeping thread was made runnable.
        Wakeup = "wakeup",
        /// The thread was moved to the queue of another CPU.
        Migrate = "migrate",
        /// A device's interrupt handler ran on top of the thread.
        HardIrq = "hard_irq",
        /// A softirq ran on top of the thread.
        SoftIrq = "soft_irq",
        /// An interrupt without a handler of its own (timer, reschedule, function call) did.
        VectorIrq = "vector_irq",
        /// The thread is traced from here on.
        ThreadStart = "thread_start",
        /// The thread ended.
        ThreadExit = "thread_exit",
        /// From here on launches, graph launches and syncs are recorded.
        WindowOpen = "window_open",
        /// From here on they are not.
        WindowClose = "window_close",
    }
}

impl Kind {
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

named! {
    /// Why a thread is off its CPU (switches), or from where it was woken (wakeups).
    Reason {
        /// It could have gone on: somebody else got the CPU.
        Preempted = "preempted",
        /// It called `sched_yield`.
        Yielded = "yielded",
        /// It waits for something: see `state`.
        Blocked = "blocked",
        /// It ended.
        Exited = "exited",
        /// It had not run before.
        New = "new",
        /// It was off its CPU already when tracing began.
        Unknown = "unknown",
        /// Woken by another thread.
        Task = "task",
        /// Woken by an interrupt, whoever it interrupted.
        Irq = "irq",
    }
}

/// Name of a thread.
pub type Comm = Name<48>;

/// Defines the columns once: the record, what they are called, its cells.
macro_rules! columns {
    (
        every kind has { $($(#[$doc:meta])* $name:ident: $type:ty,)* }
        some have { $($(#[$some_doc:meta])* $some:ident: $some_type:ty,)* }
    ) => {
        /// One record, with the columns of every kind. NDJSON leaves out those that a kind does not have;
        /// in CSV they are empty. Which kind has which, and what they mean, is in `docs/tracing.md`.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        pub struct Record {
            $($(#[$doc])* pub $name: $type,)*
            $(
                $(#[$some_doc])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $some: Option<$some_type>,
            )*
        }

        /// The columns of the CSV, in order: the fields of [`Record`].
        pub const COLUMNS: [&str; [$(stringify!($name),)* $(stringify!($some)),*].len()] =
            [$(stringify!($name),)* $(stringify!($some)),*];

        impl Record {
            /// Gives `take` its cells, in the order of [`COLUMNS`].
            ///
            /// # Errors
            /// Those of `take`.
            pub fn cells<E>(&self, mut take: impl FnMut(&dyn Cell) -> Result<(), E>) -> Result<(), E> {
                $(take(&self.$name)?;)*
                $(take(&self.$some)?;)*
                Ok(())
            }
        }
    };
}

columns! {
    every kind has {
        /// When, of CLOCK_MONOTONIC. Of something that lasted, its end.
        time_ns: u64,
        /// What.
        event: Kind,
        /// On which CPU. Of a wakeup, the waker's; of a migration, the old one.
        cpu: u32,
        /// The thread; 0 for windows.
        tid: i32,
        /// Its process.
        tgid: i32,
        /// Its name at that time.
        comm: Comm,
    }
    some have {
        /// The CUDA function.
        symbol: Name<32>,
        /// Blocks in a grid.
        grid_x: u32,
        /// Blocks in a grid.
        grid_y: u32,
        /// Blocks in a grid.
        grid_z: u32,
        /// Threads in a block.
        block_x: u32,
        /// Threads in a block.
        block_y: u32,
        /// Threads in a block.
        block_z: u32,
        /// Dynamic shared memory of a block.
        shared_bytes: u32,
        /// The stream, or what the call waits for, as the program passes it.
        stream: u64,
        /// How long it lasted. Of `switch_out`, the time on the CPU; of `switch_in`, the time off it;
        /// of `wakeup`, the time asleep.
        duration_ns: u64,
        /// Of interrupts, `duration_ns` without the interrupts nested in it. The sum of these is the
        /// time stolen.
        self_ns: u64,
        /// Of `switch_in`, the part of `duration_ns` in which the thread was runnable.
        wait_ns: u64,
        /// Why.
        reason: Reason,
        /// Of `switch_out`, the state as `ps` prints it: R, S, D, T, t, X, Z, P or I.
        state: char,
        /// The other thread: who got the CPU, who had it, who woke, who started it; 0 is idle.
        other_tid: i32,
        /// Its process.
        other_tgid: i32,
        /// Its name.
        other_comm: Comm,
        /// Of a migration, the new CPU.
        to_cpu: u32,
        /// Number of the interrupt, of the softirq's or of the interrupt vector.
        irq: u32,
        /// Its name: of the handler, of the softirq as `/proc/softirqs` has it, of the vector.
        irq_name: Name<32>,
        /// Scheduling class that the thread is in: stop, deadline, rt, fair, ext or idle.
        sched_class: Name<16>,
        /// Dispatch queue of a sched_ext scheduler in which it waits (out) or waited (in).
        dsq: u64,
        /// What is left of the slice that a sched_ext scheduler gave it.
        slice_ns: u64,
    }
}

impl Record {
    /// A record without optional columns.
    pub fn new(time_ns: u64, event: Kind) -> Self {
        Self {
            time_ns,
            event,
            ..Self::default()
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
