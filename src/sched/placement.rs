// SPDX-License-Identifier: GPL-2.0-only
//! Follows the machine while the scheduler runs: interrupt load and demand in, the preferred CPUs of
//! the moment out. What is chosen is `topology::choose`'s business; nothing is changed here.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use log::{info, warn};

use super::pin::threads;
use crate::policy::Policy;
use crate::policy::cpuset::CpuSet;
use crate::topology::choose::{Choice, PreferredRules, choose};
use crate::topology::demand::{Demand, RecentDemand};
use crate::topology::irq_load::{IrqLoad, IrqRules, IrqTime, IrqVerdicts};
use crate::topology::pci::Devices;
use crate::topology::{SYSFS, Topology};

/// How often the machine is looked at.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// Why the preferred CPUs change: other is the slow search for better ones.
const CAUSES: [&str; 5] = ["cpuset", "demand", "irq", "policy", "other"];
/// How long a peak of the demand keeps its CPUs.
const DEMAND_WINDOW: Duration = Duration::from_secs(10);

/// The preferred CPUs and what they follow from.
pub struct Placement {
    topology: Topology,
    devices: Devices,
    rules: PreferredRules,
    irq: IrqLoad,
    demand: RecentDemand,
    recent_demand: Demand,
    choice: Choice,
    changes: BTreeMap<&'static str, u64>,
    next_look: Duration,
}

/// The CPUs that this process may use: fewer than are online in a container or a slice with a cpuset. Empty if the kernel
/// will not say.
pub fn allowed_cpus() -> CpuSet {
    threads::affinity(0).unwrap_or_default()
}

impl Placement {
    /// The choice for one launcher on this machine, whose interrupts are not known yet.
    pub fn new(policy: &Policy) -> Result<Self> {
        let topology = Topology::read(Path::new(SYSFS))?.within(&allowed_cpus());
        let rules = rules(policy, &topology);
        let devices = Devices::read(Path::new(SYSFS));
        let none = IrqVerdicts::default();
        let choice = choose(&topology, &devices, &none, Demand::ONE, &rules, None);
        Ok(Self {
            irq: IrqLoad::new(IrqRules::new(rules.irq_heavy_percent)),
            demand: RecentDemand::new(DEMAND_WINDOW),
            recent_demand: Demand::ONE,
            changes: CAUSES.map(|cause| (cause, 0)).into(),
            next_look: INTERVAL,
            topology,
            devices,
            rules,
            choice,
        })
    }

    /// The machine as it was when the scheduler was loaded.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The preferred CPUs.
    pub fn cpus(&self) -> &CpuSet {
        &self.choice.cpus
    }

    /// The same, best first.
    pub fn ranked(&self) -> &[u32] {
        &self.choice.ranked
    }

    /// Why these.
    pub fn reason(&self) -> &str {
        &self.choice.reason
    }

    /// How often they have changed, by what had changed before.
    pub fn changes(&self) -> &BTreeMap<&'static str, u64> {
        &self.changes
    }

    /// What interrupts take from each CPU.
    pub fn irq_verdicts(&self) -> IrqVerdicts {
        self.irq.verdicts()
    }

    /// CPUs that interrupts take too much of.
    pub fn irq_heavy(&self) -> CpuSet {
        let verdicts = self.irq.verdicts();
        let cpus = self.topology.cpus.iter().map(|cpu| cpu.id);
        CpuSet::new(cpus.filter(|&cpu| verdicts.is_heavy(cpu)))
    }

    /// How long until [`Placement::is_due`].
    pub fn next_look(&self, now: Duration) -> Duration {
        self.next_look.saturating_sub(now)
    }

    /// Is it time to look at the machine?
    pub fn is_due(&self, now: Duration) -> bool {
        now >= self.next_look
    }

    /// Chooses by another policy, as if it had been in force from the start. Where it says the same of
    /// preferred CPUs, they stay.
    pub fn follow(&mut self, policy: &Policy) {
        let rules = rules(policy, &self.topology);
        if rules == self.rules {
            return;
        }
        self.rules = rules;
        self.irq
            .set_rules(IrqRules::new(self.rules.irq_heavy_percent));
        self.choose_again(None, "policy");
    }

    /// Takes what was seen at `now`, time since the load: interrupt time of every online CPU, the most threads that were
    /// runnable at once since the last look, and the CPUs that this process may use. A partition that is made
    /// meanwhile takes CPUs from everybody outside it, this process too. Is there another choice?
    pub fn look(
        &mut self,
        now: Duration,
        irq: impl IntoIterator<Item = (u32, IrqTime)>,
        demand: Demand,
        allowed: &CpuSet,
    ) -> bool {
        self.next_look = now + INTERVAL;
        let before = (
            self.irq_heavy(),
            self.recent_demand,
            self.topology.allowed.clone(),
        );
        self.topology.confine(allowed);
        self.irq.observe(now, irq);
        self.recent_demand = self.demand.observe(now, demand);
        let cause = if self.topology.allowed != before.2 {
            "cpuset"
        } else if self.irq_heavy() != before.0 {
            "irq"
        } else if self.recent_demand != before.1 {
            "demand"
        } else {
            "other"
        };
        let home = self.choice.home.clone();
        self.choose_again(Some(&home), cause)
    }

    /// Is there another choice?
    fn choose_again(&mut self, previous: Option<&CpuSet>, cause: &'static str) -> bool {
        let choice = choose(
            &self.topology,
            &self.devices,
            &self.irq.verdicts(),
            self.recent_demand,
            &self.rules,
            previous,
        );
        let changed = choice.ranked != self.choice.ranked;
        if choice.cpus != self.choice.cpus {
            *self.changes.entry(cause).or_default() += 1;
            let (cpus, before) = (choice.cpus.to_string(), self.choice.cpus.to_string());
            let reason = choice.reason.as_str();
            info!(
                event = "preferred_changed", cpus = cpus, before = before, cause = cause, reason = reason;
                "launchers prefer CPUs {cpus} now, not {before}: {reason}"
            );
        }
        self.choice = choice;
        changed
    }
}

fn rules(policy: &Policy, topology: &Topology) -> PreferredRules {
    PreferredRules {
        cpus: named_cpus(policy, topology),
        ..PreferredRules::from(policy)
    }
}

/// The CPUs that were named and are still online.
fn named_cpus(policy: &Policy, topology: &Topology) -> Option<CpuSet> {
    let named = policy.preferred.cpus.as_ref()?;
    let gone = named.difference(&topology.online());
    if !gone.is_empty() {
        warn!("preferred CPUs {gone} went offline");
    }
    Some(named.difference(&gone)).filter(|usable| !usable.is_empty())
}
