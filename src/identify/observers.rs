// SPDX-License-Identifier: GPL-2.0-only
//! The tracepoints that are watched: some always, the dear ones only while a rule asks for them.

use anyhow::{Context, Result};
use libbpf_rs::{Link, ProgramMut};

use crate::bpf::identify::IdentifySkel;

use super::rules::Rules;

/// Attached programs. Detaches when dropped.
pub struct Observers {
    _always: Vec<Link>,
    renames: Option<Link>,
    wakes: Option<Link>,
    spins: Option<Link>,
    sends: Option<Link>,
}

impl Observers {
    /// Attaches what is cheap.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(skel: &IdentifySkel<'_>) -> Result<Self> {
        let progs = &skel.progs;
        let always = [
            (&progs.task_started, "task_newtask"),
            (&progs.process_execed, "sched_process_exec"),
            (&progs.cgroup_made, "cgroup_mkdir"),
            (&progs.cgroup_removed, "cgroup_rmdir"),
            (&progs.cgroup_renamed, "cgroup_rename"),
        ];
        let links = always
            .into_iter()
            .map(|(program, tracepoint)| attach(program, tracepoint));
        Ok(Self {
            _always: links.collect::<Result<_>>()?,
            renames: None,
            wakes: None,
            spins: None,
            sends: None,
        })
    }

    /// Attaches what `rules` ask for and detaches the rest.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn follow(&mut self, skel: &IdentifySkel<'_>, rules: &Rules) -> Result<()> {
        let progs = &skel.progs;
        let by_sends = !rules.endpoints.is_empty();
        for (link, wanted, program, tracepoint) in [
            (
                &mut self.renames,
                rules.by_name(),
                &progs.task_renamed,
                "task_rename",
            ),
            (
                &mut self.wakes,
                rules.by_wakes(),
                &progs.thread_waking,
                "sched_waking",
            ),
            (
                &mut self.spins,
                rules.by_spins(),
                &progs.thread_switched,
                "sched_switch",
            ),
            (
                &mut self.sends,
                by_sends,
                &progs.socket_sent,
                "sock_send_length",
            ),
        ] {
            if !wanted {
                *link = None;
            } else if link.is_none() {
                *link = Some(attach(program, tracepoint)?);
            }
        }
        Ok(())
    }
}

fn attach(program: &ProgramMut<'_>, tracepoint: &str) -> Result<Link> {
    program
        .attach()
        .with_context(|| format!("attaching to tracepoint {tracepoint}"))
}
