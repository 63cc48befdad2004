// SPDX-License-Identifier: GPL-2.0-only
//! What boosted tasks may take: no more of the machine than `guard.max_share` while others wait for it, and no second
//! thread of a core that another launcher runs on while a preferred core is free.

use crate::changes::Change;
use crate::dsq::TaskId;
use crate::native::Scheduler;
use crate::scenario::Scenario;
use crate::setup::Policy;
use crate::state::{Kernel, Place, START_NS};

/// The background queue of the first LLC; those of the others follow.
const DSQ_BACKGROUND: u64 = 0x50000;
/// That of what is pinned to the first CPU; those of the others follow.
const DSQ_PINNED: u64 = 0x60000;
const QUEUES: u64 = 0x10000;

/// A window of the guard.
const WINDOW_NS: f64 = 1e8;
/// So many windows' budgets beyond what is allowed: a tenant goes on until it has had an even part, a new task of one
/// begins anew, and only the next window pays for it.
const WINDOWS_OVER: f64 = 3.0;
/// Until a CPU whose launcher is to stop looks.
const LATE_NS: f64 = 25e6;
/// Throttled tasks that are overdue have turns as background has.
const TURNS_SHARE: f64 = 0.05;
/// A launcher that never sleeps looks for a better core at the end of its slice.
const MOST_BESIDE_NS: u64 = 60_000_000;

/// Looks now and then at what boosted tasks have.
#[derive(Debug)]
pub struct Boosted {
    /// Of all CPUs; `None`: boosted tasks may take all.
    share: Option<f64>,
    preferred: Vec<usize>,
    /// Background waits for these with their own tasks only.
    closed: Vec<usize>,
    looked_ns: u64,
    /// Who waited then, and where.
    waited: Vec<(TaskId, u64)>,
    /// What boosted tasks had had of each CPU then.
    had_ns: Vec<u64>,
    /// What they took from others beyond their share, which a quiet time makes good.
    over_ns: f64,
    /// Since when each launcher was beside another one, whenever looked at.
    beside_since_ns: Vec<u64>,
}

impl Boosted {
    /// Of a scenario in which boosted tasks run as such all the time. Not so with core scheduling, where the kernel takes
    /// whom it likes, nor in cgroups with a limit: who waited for quota comes back as background.
    pub fn of(scenario: &Scenario) -> Option<Self> {
        let limits = scenario.cgroups.iter().map(|cgroup| cgroup.quota_us);
        let changes = scenario.changes.iter().map(|(_, change)| change);
        let changed = changes.filter_map(|change| match change {
            Change::CgroupLimit(_, quota_us) => Some(*quota_us),
            _ => None,
        });
        let is_plain =
            scenario.cookies.is_none() && limits.chain(changed).all(|quota| quota.is_none());
        let has_classes = scenario.scheduler == Scheduler::Gpuaware && is_plain;
        let (nr_tasks, nr_cpus) = (scenario.tasks.len(), scenario.machine.nr_cpus());
        has_classes.then(|| Self::new(&scenario.policy, nr_tasks, nr_cpus))
    }

    fn new(policy: &Policy, nr_tasks: usize, nr_cpus: usize) -> Self {
        let mut boosted = Self {
            share: None,
            preferred: Vec::new(),
            closed: Vec::new(),
            looked_ns: START_NS,
            waited: Vec::new(),
            had_ns: vec![0; nr_cpus],
            over_ns: 0.0,
            beside_since_ns: vec![START_NS; nr_tasks],
        };
        boosted.reload(policy, START_NS);
        boosted
    }

    /// `policy` is in force from `now_ns` on.
    pub fn reload(&mut self, policy: &Policy, now_ns: u64) {
        self.share = (policy.max_share < 1.0).then_some(policy.max_share);
        self.preferred.clone_from(&policy.preferred);
        self.closed.clear();
        if !policy.lend {
            self.closed.clone_from(&policy.preferred);
        }
        self.over_ns = 0.0;
        // From the first look on, not from before.
        self.waited.clear();
        self.beside_since_ns.fill(now_ns);
    }

    /// `launchers` are the tasks of class LAUNCH.
    pub fn look(&mut self, kernel: &Kernel, launchers: &[TaskId]) -> Result<(), String> {
        self.look_at_share(kernel)?;
        self.look_at_cores(kernel, launchers)
    }

    fn look_at_share(&mut self, kernel: &Kernel) -> Result<(), String> {
        let Some(share) = self.share else {
            return Ok(());
        };
        let waits = waiting(kernel);
        let waited = std::mem::replace(&mut self.waited, waits);
        let since_ns = std::mem::replace(&mut self.looked_ns, kernel.now_ns);
        let wait_on = |wait: &&(TaskId, u64)| {
            kernel.tasks[wait.0].waits_since_ns <= since_ns && waited.binary_search(wait).is_ok()
        };
        let wait_on: Vec<(TaskId, u64)> = self.waited.iter().filter(wait_on).copied().collect();
        let mut taken_ns = 0;
        for cpu in 0..kernel.cpus.len() {
            let has_ns = kernel.boosted_ns(cpu);
            let got_ns = has_ns - std::mem::replace(&mut self.had_ns[cpu], has_ns);
            let shared = DSQ_BACKGROUND + kernel.machine.cpus[cpu].llc as u64;
            let is_open = !self.closed.contains(&cpu);
            let is_wanted = wait_on.iter().any(|&(task, dsq)| {
                let waits_here = dsq == DSQ_PINNED + cpu as u64 || (is_open && dsq == shared);
                waits_here && kernel.tasks[task].mask.has(cpu)
            });
            taken_ns += if is_wanted { got_ns } else { 0 };
        }
        let cpus = kernel.cpus.len() as f64;
        let lap_ns = (kernel.now_ns - since_ns) as f64;
        let may_ns = (share + TURNS_SHARE) * cpus * lap_ns;
        self.over_ns = (self.over_ns + taken_ns as f64 - may_ns).max(0.0);
        if self.over_ns > WINDOWS_OVER * share * WINDOW_NS * cpus + LATE_NS * cpus {
            return Err(format!(
                "boosted tasks took {:.0} ms from others beyond {share} of all CPUs",
                self.over_ns / 1e6
            ));
        }
        Ok(())
    }

    /// Where the guard throttles nobody: who is throttled runs wherever nobody else wants to.
    fn look_at_cores(&mut self, kernel: &Kernel, launchers: &[TaskId]) -> Result<(), String> {
        let now_ns = kernel.now_ns;
        for task in 0..kernel.tasks.len() {
            let cpu = match kernel.tasks[task].place {
                Place::Running(cpu) if launchers.contains(&task) => cpu,
                _ => {
                    self.begin_anew(task, now_ns);
                    continue;
                }
            };
            if self.share.is_some() || !is_beside(kernel, cpu, launchers) {
                self.begin_anew(task, now_ns);
                continue;
            }
            let since_ns = self.beside_since_ns[task];
            for &free in &self.preferred {
                let Some(free_ns) =
                    free_since_ns(kernel, free).filter(|_| kernel.tasks[task].mask.has(free))
                else {
                    continue;
                };
                let missed_ns = now_ns.saturating_sub(free_ns.max(since_ns));
                if missed_ns > MOST_BESIDE_NS {
                    return Err(format!(
                        "a launcher is beside another one on the core of CPU {cpu} for {} ms while that of {free} is free",
                        missed_ns / 1_000_000
                    ));
                }
            }
        }
        Ok(())
    }

    /// What `task` may do is another thing from `now_ns` on.
    pub fn begin_anew(&mut self, task: TaskId, now_ns: u64) {
        self.beside_since_ns[task] = now_ns;
    }
}

/// Since when all of the core of `cpu` is idle and without interrupts; `None`: it is not.
fn free_since_ns(kernel: &Kernel, cpu: usize) -> Option<u64> {
    let core = kernel.machine.cpus[cpu].core.iter();
    let since = core.map(|&thread| {
        let run = &kernel.cpus[thread];
        let since_ns = run.idle_since_ns.max(run.irq_until_ns);
        (run.is_idle() && kernel.active.has(thread)).then_some(since_ns)
    });
    since.collect::<Option<Vec<u64>>>()?.into_iter().max()
}

/// Tasks that are not boosted and wait where the guard sees them.
fn waiting(kernel: &Kernel) -> Vec<(TaskId, u64)> {
    let tasks = kernel.tasks.iter().enumerate();
    let waits = tasks.filter_map(|(id, task)| match task.place {
        Place::Queued(dsq, _) if !task.is_boosted => Some((id, dsq)),
        _ => None,
    });
    waits
        .filter(|(_, dsq)| (DSQ_BACKGROUND..DSQ_PINNED + QUEUES).contains(dsq))
        .collect()
}

/// Does another launcher run on the core of `cpu`?
fn is_beside(kernel: &Kernel, cpu: usize, launchers: &[TaskId]) -> bool {
    let core = kernel.machine.cpus[cpu].core.iter();
    core.filter(|&&thread| thread != cpu)
        .filter_map(|&thread| kernel.cpus[thread].curr)
        .any(|other| launchers.contains(&other))
}
