// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler's code costs, by callback and by whom it was for: basic blocks that it enters, counted in the
//! variant that `shim/meter.c` is part of, or nanoseconds of this host. Beside these the kernel functions that it calls
//! and the queues that it locks.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::iter::Sum;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::abi::TaskStruct;
use crate::dsq::TaskId;
use crate::native::Native;

/// Whom a callback is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Launch,
    Handoff,
    Background,
    /// The kernel's own threads.
    Kthread,
    /// Not known while it runs: dispatch and update_idle.
    Cpu,
}

impl Group {
    pub fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Handoff => "handoff",
            Self::Background => "background",
            Self::Kthread => "kthread",
            Self::Cpu => "CPU",
        }
    }
}

/// The task that a callback's first argument stands for.
pub trait Subject {
    fn task(&self) -> Option<TaskId>;
}

impl Subject for *const TaskStruct {
    fn task(&self) -> Option<TaskId> {
        // SAFETY: callbacks get tasks of the kernel, or none.
        unsafe { self.as_ref() }.map(|task| task.index.get() as usize)
    }
}

impl Subject for i32 {
    fn task(&self) -> Option<TaskId> {
        None
    }
}

impl Subject for *const crate::abi::Cgroup {
    fn task(&self) -> Option<TaskId> {
        None
    }
}

/// How often, and how many basic blocks or nanoseconds in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub calls: u64,
    pub cost: u64,
}

impl Count {
    fn add(&mut self, calls: u64, cost: u64) {
        self.calls += calls;
        self.cost += cost;
    }

    pub fn per_call(&self) -> f64 {
        self.cost as f64 / self.calls.max(1) as f64
    }
}

impl Sum for Count {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |mut all, count| {
            all.add(count.calls, count.cost);
            all
        })
    }
}

/// What was counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Callbacks by the class of the task that they served. A search for the next task counts for the task that it
    /// finds; one that finds none counts for the task that ran last.
    pub callbacks: BTreeMap<(Group, &'static str), Count>,
    /// Times that somebody got a CPU.
    pub turns: BTreeMap<Group, u64>,
    pub kfuncs: BTreeMap<&'static str, u64>,
    /// Tasks that the kernel came past in queues.
    pub walked: u64,
    /// How often each queue was locked.
    pub locks: BTreeMap<u64, u64>,
    /// Blocks by where they are in the object, and for whom.
    pub places: BTreeMap<(Group, u64), u64>,
}

impl Counts {
    /// What callback `name` costs for each turn of `group`; all callbacks if `None`.
    pub fn per_turn(&self, group: Group, name: Option<&str>) -> f64 {
        let ours = self.callbacks.iter().filter(|((of, callback), _)| {
            *of == group && name.is_none_or(|name| name == *callback)
        });
        let cost: u64 = ours.map(|(_, count)| count.cost).sum();
        cost as f64 / self.turns.get(&group).copied().unwrap_or(0).max(1) as f64
    }

    pub fn all_turns(&self) -> u64 {
        self.turns.values().sum()
    }

    /// Of the same run, timed twice, what each callback cost where it cost less: nothing makes code faster than it is.
    pub fn least(mut self, other: &Self) -> Self {
        for (callback, count) in &mut self.callbacks {
            let again = other
                .callbacks
                .get(callback)
                .map_or(count.cost, |again| again.cost);
            count.cost = count.cost.min(again);
        }
        self
    }
}

/// What is read before and after a callback.
#[derive(Debug)]
enum Reading {
    /// Variables of the scheduler, in which its code counts.
    Blocks {
        entered: *const Cell<u64>,
        group: *const Cell<u32>,
    },
    Clock(Clock),
}

/// Of the host. It stands while the scheduler calls the kernel, which is a model here.
#[derive(Debug)]
struct Clock {
    since: Instant,
    ran_ns: u64,
    /// What reading it takes.
    own_ns: u64,
}

fn median(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    numbers.get(numbers.len() / 2).copied().unwrap_or(0)
}

impl Clock {
    fn new() -> Self {
        let read = |_| {
            let begun = Instant::now();
            Instant::now().duration_since(begun).as_nanos() as u64
        };
        Self {
            since: Instant::now(),
            ran_ns: 0,
            own_ns: median((0..10_001).map(read).collect()),
        }
    }

    fn stop(&mut self) {
        let ns = self.since.elapsed().as_nanos() as u64;
        self.ran_ns += ns.saturating_sub(self.own_ns);
    }

    fn go_on(&mut self) {
        self.since = Instant::now();
    }
}

/// What a CPU did since somebody was chosen to run there.
#[derive(Debug, Default)]
struct Pending {
    counts: Vec<(&'static str, u64)>,
    last: Option<TaskId>,
}

/// Counts while a simulation runs.
#[derive(Debug)]
pub struct Meter {
    reading: Reading,
    groups: Vec<Group>,
    pending: Vec<Pending>,
    began: u64,
    subject: Option<TaskId>,
    pub counts: Counts,
}

const GROUPS: [Group; 5] = [
    Group::Launch,
    Group::Handoff,
    Group::Background,
    Group::Kthread,
    Group::Cpu,
];
/// `MAX_BLOCKS`
const MAX_BLOCKS: usize = 8192;

impl Meter {
    /// Nanoseconds, of any scheduler.
    pub fn clock(groups: Vec<Group>, nr_cpus: usize) -> Box<Self> {
        Self::reading(Reading::Clock(Clock::new()), groups, nr_cpus)
    }

    /// Basic blocks, for tasks of these groups. `None`: of this scheduler they are not counted.
    pub fn of(native: &Native, groups: Vec<Group>, nr_cpus: usize) -> Result<Option<Box<Self>>> {
        let Ok(entered) = native.symbol::<*const Cell<u64>>("sim_blocks") else {
            return Ok(None);
        };
        let nr: *const u32 = native.symbol("sim_nr_blocks")?;
        // SAFETY: a variable of the loaded scheduler.
        let nr = unsafe { *nr } as usize;
        ensure!(
            nr < MAX_BLOCKS,
            "{nr} basic blocks: shim/meter.c has room for {MAX_BLOCKS}"
        );
        let hits: *mut u64 = native.symbol("sim_hits")?;
        // SAFETY: an array of the loaded scheduler, of that length. What init did is not counted.
        unsafe { hits.write_bytes(0, GROUPS.len() * MAX_BLOCKS) };
        let group = native.symbol("sim_group")?;
        let reading = Reading::Blocks { entered, group };
        Ok(Some(Self::reading(reading, groups, nr_cpus)))
    }

    fn reading(reading: Reading, groups: Vec<Group>, nr_cpus: usize) -> Box<Self> {
        Box::new(Self {
            reading,
            groups,
            pending: (0..nr_cpus).map(|_| Pending::default()).collect(),
            began: 0,
            subject: None,
            counts: Counts::default(),
        })
    }

    fn read(&self) -> u64 {
        match &self.reading {
            // SAFETY: a variable of the loaded scheduler, which lives as long as the kernel that has this.
            Reading::Blocks { entered, .. } => unsafe { (**entered).get() },
            Reading::Clock(clock) => clock.ran_ns,
        }
    }

    fn group(&self, task: Option<TaskId>) -> Group {
        task.and_then(|task| self.groups.get(task).copied())
            .unwrap_or(Group::Cpu)
    }

    /// A callback for `subject` is about to be called.
    pub fn begin(&mut self, subject: Option<TaskId>) {
        self.subject = subject;
        self.began = self.read();
        let of_subject = self.group(subject) as u32;
        match &mut self.reading {
            // SAFETY: as in read().
            Reading::Blocks { group, .. } => unsafe { (**group).set(of_subject) },
            Reading::Clock(clock) => clock.go_on(),
        }
    }

    /// It has returned.
    pub fn end(&mut self, callback: &'static str, cpu: usize) {
        if let Reading::Clock(clock) = &mut self.reading {
            clock.stop();
        }
        let cost = self.read() - self.began;
        match (callback, self.subject) {
            ("dispatch" | "update_idle", _) => self.pending[cpu].counts.push((callback, cost)),
            (_, None) => {}
            (_, subject) => {
                let group = self.group(subject);
                let count = self.counts.callbacks.entry((group, callback)).or_default();
                count.add(1, cost);
            }
        }
    }

    /// `cpu` has found `next`, or nobody; did the task change?
    pub fn chose(&mut self, cpu: usize, next: Option<TaskId>, switches: bool) {
        let pending = &mut self.pending[cpu];
        let counts = std::mem::take(&mut pending.counts);
        let task = next.or(pending.last);
        pending.last = task;
        let Some(task) = task else {
            return;
        };
        let group = self.group(Some(task));
        for (callback, cost) in counts {
            let count = self.counts.callbacks.entry((group, callback)).or_default();
            count.add(1, cost);
        }
        if next.is_some() && switches {
            *self.counts.turns.entry(group).or_default() += 1;
        }
    }

    /// The scheduler calls the kernel.
    pub fn kfunc(&mut self, name: &'static str) {
        if let Reading::Clock(clock) = &mut self.reading {
            clock.stop();
        }
        *self.counts.kfuncs.entry(name).or_default() += 1;
    }

    /// And is about to go on.
    pub fn kfunc_returns(&mut self) {
        if let Reading::Clock(clock) = &mut self.reading {
            clock.go_on();
        }
    }

    /// A queue is locked, and so many tasks in it are looked at.
    pub fn locks_queue(&mut self, dsq: u64, walked: usize) {
        self.counts.walked += walked as u64;
        *self.counts.locks.entry(dsq).or_default() += 1;
    }

    /// What was counted up to now, with where.
    pub fn finish(&mut self, native: &Native) -> Result<Counts> {
        if let Reading::Clock(_) = self.reading {
            return Ok(std::mem::take(&mut self.counts));
        }
        let hits: *const u64 = native.symbol("sim_hits")?;
        let places: *const u64 = native.symbol("sim_places")?;
        for (row, group) in GROUPS.into_iter().enumerate() {
            for block in 0..MAX_BLOCKS {
                // SAFETY: arrays of the loaded scheduler, of these lengths.
                let (hits, place) =
                    unsafe { (*hits.add(row * MAX_BLOCKS + block), *places.add(block)) };
                if hits > 0 {
                    *self.counts.places.entry((group, place)).or_default() += hits;
                }
            }
        }
        Ok(std::mem::take(&mut self.counts))
    }
}
