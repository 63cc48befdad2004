// SPDX-License-Identifier: GPL-2.0-only
//! What the scx_stats server answers with.

use std::sync::Arc;

use anyhow::Result;
use scx_stats::prelude::*;

use super::requests::Requests;
use super::stats::{ClassMetrics, CpuMetrics, MarkMetrics, Metrics, TOTALS};

/// Each client gets the counters since its previous request, or since the start.
/// They ask through `requests`, not through the channels of the server.
pub fn data(requests: &Arc<Requests>) -> StatsServerData<(), ()> {
    let requests = || Arc::clone(requests);
    let of_each_client = requests();
    let open: Box<dyn StatsOpener<(), ()>> = Box::new(move |_| {
        let requests = Arc::clone(&of_each_client);
        let mut before = requests.ask()?;
        let read: Box<dyn StatsReader<(), ()>> = Box::new(move |_args, _| {
            let now = requests.ask()?;
            let metrics = now.since(&before);
            before = now;
            metrics.to_json()
        });
        Ok(read)
    });
    let of_totals = requests();
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
    let requests = Arc::new(Requests::new()?);
    data(&requests).describe_meta(&mut std::io::stdout(), None)
}
