// SPDX-License-Identifier: GPL-2.0-only
//! What the scx_stats server answers with.

use std::sync::Arc;

use anyhow::Result;
use scx_stats::prelude::*;

use super::desk::Desk;
use super::stats::{ClassMetrics, CpuMetrics, MarkMetrics, Metrics, TOTALS};

/// Each client gets the counters since its previous request, or since the start.
/// They ask at `desk`, not through the channels of the server.
pub fn data(desk: &Arc<Desk>) -> StatsServerData<(), ()> {
    let desk = || Arc::clone(desk);
    let of_each_client = desk();
    let open: Box<dyn StatsOpener<(), ()>> = Box::new(move |_| {
        let desk = Arc::clone(&of_each_client);
        let mut before = desk.ask()?;
        let read: Box<dyn StatsReader<(), ()>> = Box::new(move |_args, _| {
            let now = desk.ask()?;
            let metrics = now.since(&before);
            before = now;
            metrics.to_json()
        });
        Ok(read)
    });
    let of_totals = desk();
    let totals: Box<dyn StatsReaderSend<(), ()>> =
        Box::new(move |_args, _| of_totals.ask()?.to_json());
    StatsServerData::new()
        .add_meta(Metrics::meta())
        .add_meta(ClassMetrics::meta())
        .add_meta(CpuMetrics::meta())
        .add_meta(MarkMetrics::meta())
        .add_ops("top", StatsOps { open, close: None })
        .add_stats(TOTALS, totals)
}

/// Describes every metric (`--help-stats`).
///
/// # Errors
/// Standard output is closed, or the kernel has no eventfd left.
pub fn describe() -> Result<()> {
    let desk = Arc::new(Desk::new()?);
    data(&desk).describe_meta(&mut std::io::stdout(), None)
}
