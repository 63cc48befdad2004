// SPDX-License-Identifier: GPL-2.0-only
//! `trace --record-profile`.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use gpuaware_trace::profile::{self, Profile};
use log::warn;

use crate::doctor::KernelConfig;
use crate::identify::Class;
use crate::identify::marks::Pins;
use crate::namespaces;
use crate::running::{self, Role};
use crate::sched;
use crate::shutdown::Shutdown;
use crate::trace::record;
use crate::trace::session::Plan;
use crate::unread::Unread;

use super::output::{Failure, say};
use super::overwritten::Overwritten;

/// Records this host into `path`.
pub fn run(path: &Path, plan: &Plan) -> Result<(), Failure> {
    let shutdown = Shutdown::watch(|| {})?;
    // Before recording: a file that cannot be written is no news for the end.
    let file = Overwritten::open(path).map_err(Failure::Input)?;
    let mut file = Unread::new(file, &shutdown);
    namespaces::check_root("recording")?;
    let profile = record::run(plan, hz()?, classes, &shutdown)?;
    let text = profile.text().context("writing a profile")?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("writing {}", path.display()))?;
    say(&summary(path, &profile, text.len()));
    Ok(())
}

fn summary(path: &Path, profile: &Profile, bytes: usize) -> String {
    let threads: u64 = profile.groups.iter().map(|group| group.threads).sum();
    let missed = match profile.missed {
        0 => "nothing missed".to_owned(),
        missed => format!("{missed} threads, switches or interrupts missed"),
    };
    format!(
        "{}: {:.1} s of {} CPUs, {threads} threads in {} groups, {} more that slept, {} KB, {missed}\n",
        path.display(),
        profile.length_ns as f64 / 1e9,
        profile.machine.cpus.len(),
        profile.groups.len(),
        profile.quiet_threads,
        bytes.div_ceil(1000)
    )
}

/// Ticks a second, from the kernel's configuration, where there is one: `HZ_250`.
fn hz() -> Result<Option<u32>> {
    let release = nix::sys::utsname::uname().context("uname")?;
    let release = release.release().to_string_lossy();
    let config = KernelConfig::read(Path::new("/"), &release);
    let options = config.iter().flat_map(|config| &config.enabled);
    let mut ticks = options.filter_map(|option| option.strip_prefix("HZ_")?.parse().ok());
    Ok(ticks.next())
}

/// What scx_gpuaware takes which thread for, if it runs.
fn classes() -> HashMap<i32, profile::Class> {
    if !sched::is_loaded() && running::role() != Some(Role::Feed) {
        return HashMap::new();
    }
    // Not worth a recording.
    let marks = Pins::default().list().unwrap_or_else(|error| {
        warn!("the profile says of no thread what scx_gpuaware takes it for: {error:#}");
        Vec::new()
    });
    let class = |class| match class {
        Class::Launch => profile::Class::Launch,
        Class::Handoff => profile::Class::Handoff,
        Class::Background => profile::Class::Background,
    };
    marks
        .iter()
        .map(|mark| (mark.tid, class(mark.class)))
        .collect()
}
