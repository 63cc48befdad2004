// SPDX-License-Identifier: GPL-2.0-only
//! What other programs reach: commands mark and list by it, threads give hints.

use std::path::Path;

use anyhow::{Context, Result};
use log::debug;

use crate::bpf::identify::IdentifySkel;

use super::listing::Listing;
use super::marks::Pins;

/// Pins it; returns the iterator that lists marks.
///
/// # Errors
/// There is no BPF file system that takes it, or the kernel refuses.
pub fn pin(skel: &mut IdentifySkel<'_>, pins: &Pins) -> Result<Listing> {
    pins.prepare()?;
    let pinned = |path: &Path| format!("pinning {}", path.display());
    let progs = &mut skel.progs;
    for (program, path) in [
        (&mut progs.mark_task, pins.mark_task()),
        (&mut progs.rescan, pins.rescan_program()),
    ] {
        program.pin(&path).with_context(|| pinned(&path))?;
    }
    let maps = &mut skel.maps;
    for (map, path) in [
        (&mut maps.texts, pins.texts()),
        (&mut maps.hints, pins.hints()),
        (&mut maps.hint_calls, pins.hint_calls()),
    ] {
        map.pin(&path).with_context(|| pinned(&path))?;
    }
    let link = skel.progs.list_marks.attach();
    let mut link = link.context("attaching the task iterator")?;
    link.pin(pins.marks())
        .with_context(|| pinned(&pins.marks()))?;
    debug!("pinned below {}", pins.dir().display());
    Ok(Listing::new(link))
}
