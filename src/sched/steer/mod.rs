// SPDX-License-Identifier: GPL-2.0-only
//! Keeps interrupts away from preferred CPUs, and puts everything back.
//!
//! Owns `smp_affinity` of every interrupt that it has changed, `default_smp_affinity`, and the file
//! that remembers the originals if this process is killed. Which CPUs are preferred is not decided
//! here. What to write is decided in `ledger`, which is pure.

mod ledger;
mod mask;
mod proc_irq;
mod state;

use std::io;
use std::path::Path;

use anyhow::Result;
use log::{info, warn};

use super::state_file::StateFile;
use crate::policy::cpuset::CpuSet;

use ledger::{Ledger, Wish, Write};
use proc_irq::ProcIrq;
use state::Affinity;

/// Where Linux mounts procfs.
pub const PROCFS: &str = "/proc";
/// What a killed run leaves for the next one. /run is empty after a boot, as are the affinities.
pub const STATE_FILE: &str = "/run/scx_gpuaware/irq-affinity.json";

/// Steering in force: restores every affinity when dropped.
#[derive(Debug)]
pub struct Steer {
    proc_irq: ProcIrq,
    state: StateFile<Affinity>,
    ledger: Ledger,
    /// The last problem, which is said once and not at every call.
    problem: Option<String>,
}

/// What one call of [`Steer::follow`] did. Interrupts are named as `24 (virtio0-config)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Interrupts that are kept away from preferred CPUs now.
    pub nr_steered: usize,
    /// Interrupts that may come to preferred CPUs: they cannot be moved, or are somebody else's.
    pub nr_left_alone: usize,
    /// Affinities that were changed in this call.
    pub moved: Vec<String>,
    /// Those that the kernel refused to move in this call, each with its reason.
    pub refused: Vec<String>,
    /// Those that somebody else has set since the last call: left as they are.
    pub taken_over: Vec<String>,
    /// Those that were moved in an earlier call and still go to a preferred CPU: an interrupt
    /// moves when it next fires.
    pub late: Vec<String>,
    /// What went wrong beside single interrupts. If the state cannot be written nothing is moved.
    pub problem: Option<String>,
}

impl Steer {
    /// Restores what a killed run has left in `state`, and gets ready; nothing is moved yet. `root` is
    /// [`PROCFS`] or a copy of it, `state` is [`STATE_FILE`] or another place.
    ///
    /// One process at a time, the one that holds [`crate::running`]'s lock: a second one would take the first one's
    /// state for that of a killed run.
    ///
    /// # Errors
    /// There are no affinities below `root`; `state` is not what a run has left; it cannot be
    /// removed.
    pub fn start(root: &Path, state: &Path) -> Result<Self> {
        let steer = Self {
            proc_irq: ProcIrq::new(root),
            state: StateFile::new(state),
            ledger: Ledger::default(),
            problem: None,
        };
        let lines = steer.proc_irq.read()?;
        if let Some(left) = steer.state.load()? {
            let left = state::ledger(left);
            let restored = steer.restore(&left.restoration(&lines));
            info!("restored {restored} interrupt affinities that a killed run had changed");
            steer.state.remove()?;
        }
        if proc_irq::irqbalance_runs(root) {
            warn!(
                "irqbalance runs and will move interrupts back to preferred CPUs: stop it, or ban \
                 these CPUs from it (IRQBALANCE_BANNED_CPULIST)"
            );
        }
        Ok(steer)
    }

    /// Moves interrupts away from `preferred` to other CPUs of `online`, and those back that are in
    /// nobody's way any more. Call it when a set changes, and now and then for new interrupts: it
    /// reads three files an interrupt.
    pub fn follow(&mut self, preferred: &CpuSet, online: &CpuSet) -> Report {
        let wish = Wish {
            preferred: preferred.clone(),
            online: online.clone(),
        };
        let mut report = self.try_follow(&wish).unwrap_or_else(|error| Report {
            problem: Some(format!("{error:#}")),
            ..Report::default()
        });
        report.nr_steered = self.ledger.nr_steered();
        report.nr_left_alone = self.ledger.nr_left_alone();
        self.tell(&report, preferred);
        report
    }

    fn try_follow(&mut self, wish: &Wish) -> Result<Report> {
        let mut ledger = self.ledger.clone();
        let plan = ledger.plan(&self.proc_irq.read()?, wish);
        if ledger.known != self.ledger.known {
            // Before the first write: from here on a kill can be undone.
            self.remember(&ledger)?;
        }
        self.ledger = ledger;
        let mut report = Report {
            taken_over: plan.taken_over,
            late: plan.late,
            ..Report::default()
        };
        for write in &plan.writes {
            self.carry_out(write, &mut report);
        }
        if !plan.writes.is_empty()
            && let Err(error) = self.remember(&self.ledger)
        {
            report.problem = Some(format!("{error:#}"));
        }
        Ok(report)
    }

    fn carry_out(&mut self, write: &Write, report: &mut Report) {
        let outcome = match self.proc_irq.write(write.target, &write.to) {
            Ok(()) => {
                report.moved.push(write.to_string());
                Ok(self.proc_irq.line(write.target).map(|line| line.affinity))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                report.refused.push(format!("{write}: {error}"));
                Err(error)
            }
        };
        self.ledger.settle(write.target, outcome);
    }

    fn remember(&self, ledger: &Ledger) -> Result<()> {
        if ledger.has_changes() {
            self.state.save(state::entries(ledger))
        } else {
            self.state.remove()
        }
    }

    /// Carries out a restoration; returns how many affinities it changed.
    fn restore(&self, writes: &[Write]) -> usize {
        let restores = |write: &&Write| match self.proc_irq.write(write.target, &write.to) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                warn!(
                    "interrupt {write}: restoring affinity {}: {error}",
                    write.to
                );
                false
            }
        };
        writes.iter().filter(restores).count()
    }

    fn tell(&mut self, report: &Report, preferred: &CpuSet) {
        let list = |names: &[String]| names.join(", ");
        if !report.moved.is_empty() {
            info!(
                "{} interrupt affinities changed, {} interrupts are kept away from CPUs {preferred}",
                report.moved.len(),
                report.nr_steered
            );
        }
        if !report.refused.is_empty() {
            warn!("interrupts that cannot be moved: {}", list(&report.refused));
        }
        if !report.taken_over.is_empty() {
            let names = list(&report.taken_over);
            warn!("interrupts that somebody else has moved, left as they are: {names}");
        }
        if !report.late.is_empty() {
            info!(
                "interrupts that move when they next fire: {}",
                list(&report.late)
            );
        }
        if report.problem != self.problem {
            if let Some(problem) = &report.problem {
                warn!("steering interrupts: {problem}");
            }
            self.problem.clone_from(&report.problem);
        }
    }
}

impl Drop for Steer {
    fn drop(&mut self) {
        if !self.ledger.has_changes() {
            return;
        }
        let undone = self.proc_irq.read().and_then(|lines| {
            self.restore(&self.ledger.restoration(&lines));
            self.state.remove()
        });
        if let Err(error) = undone {
            warn!("interrupt affinities were not restored: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests;
