// SPDX-License-Identifier: GPL-2.0-only
//! What the loaded BPF side tells and is told: counters, interrupt times, demand; preferred CPUs.

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags, ProgramInput};

use super::placement::Placement;
use super::reload::Standing;
use super::stats::Metrics;
use crate::bpf::gpuaware::{GpuawareSkel, types};
use crate::bpf::intf;
use crate::identify::Sightings;
use crate::policy::cpuset::CpuSet;
use crate::topology::demand::Demand;
use crate::topology::irq_load::IrqTime;

/// Puts other tunables into force, each at once.
pub fn set_tunables(skel: &mut GpuawareSkel<'_>, tunables: types::gpuaware_tunables) -> Result<()> {
    let data = skel.maps.data_data.as_deref_mut();
    data.context("the BPF object has no writable data")?
        .tunables = tunables;
    Ok(())
}

/// Writes the set that `set_preferred` puts into force, best CPU first.
pub fn request_preferred(request: &mut types::gpuaware_preferred, preferred: &[u32]) {
    request.nr = preferred.len() as u32;
    for (slot, cpu) in request.cpus.iter_mut().zip(preferred) {
        *slot = cpu.cast_signed();
    }
}

/// Puts another set of preferred CPUs into force.
pub fn set_preferred(skel: &mut GpuawareSkel<'_>, preferred: &[u32]) -> Result<()> {
    let bss = skel.maps.bss_data.as_deref_mut();
    request_preferred(
        &mut bss.context("the BPF object has no data")?.preferred_request,
        preferred,
    );
    let output = skel
        .progs
        .set_preferred
        .test_run(ProgramInput::default())
        .context("changing the preferred CPUs")?;
    if output.return_value != 0 {
        bail!(
            "changing the preferred CPUs: {}",
            output.return_value.cast_signed()
        );
    }
    Ok(())
}

/// The most launch and handoff threads that were runnable at once since this was asked last.
pub fn take_demand(skel: &mut GpuawareSkel<'_>) -> Result<Demand> {
    let bss = skel.maps.bss_data.as_deref_mut();
    let demand = &mut bss.context("the BPF object has no data")?.demand;
    let peak = Demand {
        launch: demand.launch_peak.max(demand.launch),
        handoff: demand.handoff_peak.max(demand.handoff),
    };
    demand.launch_peak = demand.launch;
    demand.handoff_peak = demand.handoff;
    Ok(peak)
}

/// Interrupt time of each of `cpus` since the load.
pub fn irq_times(skel: &GpuawareSkel<'_>, cpus: &CpuSet) -> Result<Vec<(u32, IrqTime)>> {
    cpus.iter()
        .map(|cpu| {
            let value = skel
                .maps
                .irq_ctxs
                .lookup(&cpu.to_ne_bytes(), MapFlags::ANY)
                .context("reading interrupt times")?
                .unwrap_or_default();
            // The map's value begins with struct gpuaware_irq_time: hard, then soft.
            let number = |at: usize| {
                let bytes = value
                    .get(at..at + 8)
                    .and_then(|bytes| bytes.try_into().ok());
                bytes.map_or(0, u64::from_ne_bytes)
            };
            let time = IrqTime {
                hard_ns: number(0),
                soft_ns: number(8),
            };
            Ok((cpu, time))
        })
        .collect()
}

/// The statistics of the moment.
pub fn metrics(
    skel: &GpuawareSkel<'_>,
    placement: &Placement,
    sightings: &Sightings,
    policies: &Standing,
) -> Result<Metrics> {
    let sum = |stat| counter(skel, stat).map(|values| values.iter().sum::<u64>());
    let us = |stat| sum(stat).map(|ns| ns / 1000);
    let max_us = |stat| -> Result<u64> {
        let values = counter(skel, stat)?;
        Ok(values.iter().max().map_or(0, |ns| ns / 1000))
    };
    Ok(Metrics {
        preferred_cpus: placement.cpus().to_string(),
        irq_heavy_cpus: placement.irq_heavy().to_string(),
        launch_wakeups: sum(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_WAKEUPS)?,
        launch_to_preferred: sum(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_TO_PREFERRED)?,
        launch_preempts: sum(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_PREEMPTS)?,
        launch_to_other: sum(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_TO_OTHER)?,
        launch_queued: sum(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_QUEUED)?,
        launch_run_us: us(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_RUN_NS)?,
        handoff_wakeups: sum(intf::gpuaware_stat_GPUAWARE_STAT_HANDOFF_WAKEUPS)?,
        handoff_queued: sum(intf::gpuaware_stat_GPUAWARE_STAT_HANDOFF_QUEUED)?,
        handoff_run_us: us(intf::gpuaware_stat_GPUAWARE_STAT_HANDOFF_RUN_NS)?,
        guard_throttles: sum(intf::gpuaware_stat_GPUAWARE_STAT_GUARD_THROTTLES)?,
        capped: sum(intf::gpuaware_stat_GPUAWARE_STAT_CAPPED)?,
        background_direct: sum(intf::gpuaware_stat_GPUAWARE_STAT_BACKGROUND_DIRECT)?,
        background_queued: sum(intf::gpuaware_stat_GPUAWARE_STAT_BACKGROUND_QUEUED)?,
        background_run_us: us(intf::gpuaware_stat_GPUAWARE_STAT_BACKGROUND_RUN_NS)?,
        background_turns: sum(intf::gpuaware_stat_GPUAWARE_STAT_BACKGROUND_TURNS)?,
        lent_run_us: us(intf::gpuaware_stat_GPUAWARE_STAT_LENT_RUN_NS)?,
        holds: sum(intf::gpuaware_stat_GPUAWARE_STAT_HOLDS)?,
        hold_us: us(intf::gpuaware_stat_GPUAWARE_STAT_HOLD_NS)?,
        holds_expired: sum(intf::gpuaware_stat_GPUAWARE_STAT_HOLDS_EXPIRED)?,
        worst_wait_us: max_us(intf::gpuaware_stat_GPUAWARE_STAT_WORST_WAIT_NS)?,
        worst_launch_wait_us: max_us(intf::gpuaware_stat_GPUAWARE_STAT_WORST_LAUNCH_WAIT_NS)?,
        probe_hits: sightings.launch_hits,
        probe_windows: sightings.windows,
        probes_armed: u64::from(sightings.armed),
        libraries: sightings.libraries as u64,
        launchers_found: sightings.launchers_found,
        policy_generation: policies.generation,
        policy_refused: policies.refused,
        policy_error: policies.error.clone(),
    })
}

/// One counter's value on every possible CPU.
fn counter(skel: &GpuawareSkel<'_>, stat: intf::gpuaware_stat) -> Result<Vec<u64>> {
    let values = skel
        .maps
        .stats
        .lookup_percpu(&stat.to_ne_bytes(), MapFlags::ANY)
        .context("reading the scheduler's counters")?
        .unwrap_or_default();
    let number = |bytes: Vec<u8>| bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0);
    Ok(values.into_iter().map(number).collect())
}
