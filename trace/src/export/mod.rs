// SPDX-License-Identifier: GPL-2.0-only
//! Trace files in their formats. Each is written as the trace goes on, in bounded memory.

mod csv;
mod legacy;
mod ndjson;
mod perfetto;
mod perfetto_proto;
mod sink;

use std::io::Write;

use anyhow::Result;

use crate::schema::Header;
use sink::Counted;
pub use sink::Sink;

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One row an event; docs/tracing.md.
    Csv,
    /// One JSON object a line; docs/tracing.md.
    Ndjson,
    /// Protobuf for ui.perfetto.dev.
    Perfetto,
    /// The 19 columns of cuda_sched_trace.
    LegacyCsv,
}

/// Begins a file of this format.
///
/// # Errors
/// The file cannot be written.
pub fn begin<'out>(
    format: Format,
    out: Box<dyn Write + 'out>,
    header: &Header,
) -> Result<Box<dyn Sink + 'out>> {
    let out = Counted { out, bytes: 0 };
    Ok(match format {
        Format::Csv => Box::new(csv::Csv::begin(out, header)?),
        Format::Ndjson => Box::new(ndjson::Ndjson::begin(out, header)?),
        Format::Perfetto => Box::new(perfetto::Perfetto::begin(out, header)?),
        Format::LegacyCsv => Box::new(legacy::LegacyCsv::begin(out)?),
    })
}

#[cfg(test)]
mod tests;
