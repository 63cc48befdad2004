// SPDX-License-Identifier: GPL-2.0-only
//! What the BPF side counts. The kernel writes these at any time.

use std::time::Duration;

use crate::bpf::identify::IdentifySkel;

use super::window::{Counters, Phase};

/// What identification has seen since it was loaded, for the statistics.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sightings {
    /// Probed launches, and contexts that said nothing new.
    pub launch_hits: u64,
    /// Threads that a probe met launching for the first time.
    pub launchers_found: u64,
    /// Libraries in use that are probed.
    pub libraries: usize,
    /// Are the launch probes armed now?
    pub armed: bool,
    /// What they do now.
    pub phase: Phase,
    /// For how long they are taken away the next time: it grows while they find nothing new.
    pub pause: Duration,
    /// Times that they were armed.
    pub windows: u64,
    /// Processes that initialised CUDA and threads that may launch soon, which bring the probes back:
    /// those of trusted users.
    pub triggers: u64,
    /// Sightings that did not count because the thread's user is not trusted.
    pub refused: u64,
}

/// What drives the launch probes.
pub fn probes(skel: &IdentifySkel<'_>) -> Counters {
    let Some(bss) = skel.maps.bss_data.as_deref() else {
        return Counters::default();
    };
    Counters {
        hits: read(&bss.nr_launch_hits),
        finds: read(&bss.nr_new_launchers),
        triggers: read(&bss.nr_cuda_inits) + read(&bss.nr_gpu_forks),
        // BPF gives none.
        orders: 0,
    }
}

/// Contexts that said nothing new of who entered them.
pub fn context_hits(skel: &IdentifySkel<'_>) -> u64 {
    let bss = skel.maps.bss_data.as_deref();
    bss.map_or(0, |bss| read(&bss.nr_context_hits))
}

/// How often cgroups were made, removed or renamed.
pub fn cgroup_changes(skel: &IdentifySkel<'_>) -> u64 {
    let bss = skel.maps.bss_data.as_deref();
    bss.map_or(0, |bss| read(&bss.nr_cgroup_changes))
}

/// Events that found no room.
pub fn lost_events(skel: &IdentifySkel<'_>) -> u64 {
    let bss = skel.maps.bss_data.as_deref();
    bss.map_or(0, |bss| read(&bss.nr_lost_events))
}

/// Changes of marks that may have given a thread another class.
pub fn mark_changes(skel: &IdentifySkel<'_>) -> u64 {
    let bss = skel.maps.bss_data.as_deref();
    bss.map_or(0, |bss| read(&bss.nr_mark_changes))
}

/// Sightings of users that are not trusted.
pub fn refused(skel: &IdentifySkel<'_>) -> u64 {
    let bss = skel.maps.bss_data.as_deref();
    bss.map_or(0, |bss| read(&bss.nr_refused))
}

/// How often the operator asked for a new look at everything.
pub fn rescans(skel: &IdentifySkel<'_>) -> u64 {
    let bss = skel.maps.bss_data.as_deref();
    bss.map_or(0, |bss| read(&bss.nr_rescans))
}

fn read(counter: &u64) -> u64 {
    // SAFETY: a valid, aligned reference; volatile because the kernel writes behind our back.
    unsafe { std::ptr::read_volatile(counter) }
}
