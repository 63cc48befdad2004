// SPDX-License-Identifier: GPL-2.0-only
//! cgroups with a weight and a limit, which may change, and come and go.

use std::array;
use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

use crate::abi::{Cgroup, CgroupInitArgs, Css, CssSet, KernfsNode, MAX_DEPTH};
use crate::state::{Context, Kernel, Place, Task, call};

/// One cgroup as a scenario describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupSpec {
    /// Index of one described before; `None`: the root.
    pub parent: Option<usize>,
    pub weight: u32,
    /// `cpu.max`: of each 100 ms; `None`: no limit.
    pub quota_us: Option<u64>,
}

#[derive(Debug)]
struct Node {
    cgroup: Cgroup,
    kernfs: KernfsNode,
    set: CssSet,
}

/// The root and those of a scenario, in its order.
#[derive(Debug)]
pub struct Cgroups {
    nodes: Vec<Rc<Node>>,
    specs: Vec<CgroupSpec>,
    /// Those that were removed: somebody may look at them still, as RCU allows.
    removed: Vec<Rc<Node>>,
}

const PERIOD_US: u64 = 100_000;
/// Who owns the folders of all cgroups.
static ROOT_UID: u32 = 0;
const NO_LIMIT: u64 = u64::MAX / 1000;

fn node(id: u64, parent: Option<&Node>) -> Rc<Node> {
    let level = parent.map_or(0, |parent| parent.cgroup.level.get() + 1);
    let node = Rc::new(Node {
        cgroup: Cgroup {
            css: Css {
                cgroup: Cell::new(ptr::null()),
                parent: Cell::new(
                    parent.map_or(ptr::null(), |parent| &raw const parent.cgroup.css),
                ),
            },
            level: Cell::new(level),
            kn: Cell::new(ptr::null()),
            ancestors: array::from_fn(|level| {
                let above = parent.map(|parent| parent.cgroup.ancestors[level].get());
                Cell::new(above.unwrap_or(ptr::null()))
            }),
        },
        kernfs: KernfsNode {
            id,
            iattr: &ROOT_UID,
        },
        set: CssSet {
            dfl_cgrp: Cell::new(ptr::null()),
        },
    });
    let cgroup = &raw const node.cgroup;
    node.cgroup.css.cgroup.set(cgroup);
    node.cgroup.kn.set(&raw const node.kernfs);
    node.cgroup.ancestors[level as usize].set(cgroup);
    node.set.dfl_cgrp.set(cgroup);
    node
}

impl Cgroups {
    pub fn new(specs: &[CgroupSpec]) -> Self {
        let mut nodes = vec![node(1, None)];
        for spec in specs {
            let parent = &nodes[spec.parent.map_or(0, |parent| parent + 1)];
            assert!(
                (parent.cgroup.level.get() as usize) < MAX_DEPTH - 1,
                "too deep"
            );
            nodes.push(node(nodes.len() as u64 + 1, Some(parent)));
        }
        Self {
            nodes,
            specs: specs.to_vec(),
            removed: Vec::new(),
        }
    }

    /// The scheduler learns of them, from the root down.
    pub fn init(&self, kernel: &mut Kernel) {
        for at in 0..self.nodes.len() {
            self.init_one(kernel, at);
        }
    }

    fn init_one(&self, kernel: &mut Kernel, at: usize) {
        let spec = at.checked_sub(1).map(|at| &self.specs[at]);
        let args = CgroupInitArgs {
            weight: spec.map_or(100, |spec| spec.weight),
            sched_idle: false,
            bw_period_us: PERIOD_US,
            bw_quota_us: spec.and_then(|spec| spec.quota_us).unwrap_or(NO_LIMIT),
            bw_burst_us: 0,
        };
        let cgroup = &raw const self.nodes[at].cgroup;
        let made = call!(
            kernel,
            0,
            Context::Unlocked,
            cgroup_init(cgroup, &raw const args)
        );
        if made.is_some_and(|code| code != 0) {
            kernel.fail(format!("ops.cgroup_init() returned {made:?}"));
        }
    }

    /// Their numbers, without the root's.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.nodes.iter().skip(1).map(|node| node.kernfs.id)
    }

    /// Of the scenario's cgroup of that number.
    fn pointer(&self, cgroup: usize) -> *const Cgroup {
        &raw const self.nodes[cgroup + 1].cgroup
    }

    /// What a task in it points to: its group for the CPU controller, and its cgroup. `None`: the root.
    pub fn pointers(&self, cgroup: Option<usize>) -> (*const Css, *const CssSet) {
        let node = &self.nodes[cgroup.map_or(0, |cgroup| cgroup + 1)];
        (&raw const node.cgroup.css, &raw const node.set)
    }

    /// `cpu.weight`
    pub fn set_weight(&self, kernel: &mut Kernel, cgroup: usize, weight: u32) {
        let cgroup = self.pointer(cgroup);
        call!(
            kernel,
            0,
            Context::Unlocked,
            cgroup_set_weight(cgroup, weight)
        );
    }

    /// `cpu.idle`
    pub fn set_idle(&self, kernel: &mut Kernel, cgroup: usize, idle: bool) {
        let cgroup = self.pointer(cgroup);
        call!(kernel, 0, Context::Unlocked, cgroup_set_idle(cgroup, idle));
    }

    /// `cpu.max`
    pub fn set_limit(&self, kernel: &mut Kernel, cgroup: usize, quota_us: Option<u64>) {
        let (cgroup, quota_us) = (self.pointer(cgroup), quota_us.unwrap_or(NO_LIMIT));
        call!(
            kernel,
            0,
            Context::Unlocked,
            cgroup_set_bandwidth(cgroup, PERIOD_US, quota_us, 0)
        );
    }

    /// Removes it and makes it once more, with another id. One that a task or a cgroup is in stays.
    pub fn remake(&mut self, kernel: &mut Kernel, cgroup: usize) {
        let (css, _) = self.pointers(Some(cgroup));
        let is_in =
            |task: &Task| task.place != Place::Dead && task.body.sched_task_group.get() == css;
        let has_child = self.specs.iter().any(|spec| spec.parent == Some(cgroup));
        if has_child || kernel.tasks.iter().any(is_in) {
            return;
        }
        let pointer = self.pointer(cgroup);
        call!(kernel, 0, Context::Unlocked, cgroup_exit(pointer));
        let id = (self.nodes.len() + self.removed.len()) as u64 + 1;
        let parent = &self.nodes[self.specs[cgroup].parent.map_or(0, |parent| parent + 1)];
        let made = node(id, Some(parent));
        let gone = std::mem::replace(&mut self.nodes[cgroup + 1], made);
        self.removed.push(gone);
        self.init_one(kernel, cgroup + 1);
    }
}
