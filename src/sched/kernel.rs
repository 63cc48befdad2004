// SPDX-License-Identifier: GPL-2.0-only
//! What the loaded BPF side is told: tunables, preferred CPUs; and the demand that it is asked for.

use anyhow::{Context, Result, bail};
use libbpf_rs::ProgramInput;
use log::debug;

use crate::bpf::gpuaware::{GpuawareSkel, types};
use crate::topology::demand::Demand;

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

/// Has the BPF side look for what the kernel only has by name. It does without what it may not see.
pub fn find_by_name(skel: &GpuawareSkel<'_>) -> Result<()> {
    let output = skel
        .progs
        .find_active_mask
        .test_run(ProgramInput::default());
    let output = output.context("looking for __cpu_active_mask")?;
    if output.return_value != 0 {
        debug!("no __cpu_active_mask: a CPU that goes offline is given work until it has");
    }
    Ok(())
}

/// Why the kernel has unregistered the scheduler: an `scx_exit_kind`, and the reason in words.
pub fn exit_reason(skel: &GpuawareSkel<'_>) -> Result<(i32, String)> {
    let data = skel.maps.data_data.as_deref();
    let uei = &data.context("the BPF object has no writable data")?.uei;
    let text = |chars: &[i8]| {
        let bytes = chars.iter().map(|char| char.cast_unsigned());
        String::from_utf8_lossy(&bytes.take_while(|byte| *byte != 0).collect::<Vec<_>>())
            .into_owned()
    };
    let reason = match (text(&uei.reason), text(&uei.msg)) {
        (reason, message) if message.is_empty() => reason,
        (reason, message) => format!("{reason} ({message})"),
    };
    Ok((uei.kind, reason))
}

/// Cgroups that count as part of one above them since the load: too many, or nested too deep.
pub fn cgroups_left_out(skel: &GpuawareSkel<'_>) -> u64 {
    let bss = skel.maps.bss_data.as_deref();
    // SAFETY: a valid, aligned reference; volatile because the kernel writes behind our back.
    bss.map_or(0, |bss| unsafe {
        std::ptr::read_volatile(&raw const bss.nr_cgroups_left_out)
    })
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
