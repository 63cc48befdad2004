// SPDX-License-Identifier: GPL-2.0-only
//! Trace files in their formats. Each is written as the trace goes on, in bounded memory.

mod csv;
mod legacy;
mod ndjson;
mod perfetto;
mod perfetto_proto;

use std::io::{self, Write};

use anyhow::Result;
use clap::ValueEnum;

use super::schema::{End, Header, Record};

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
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

/// A trace file that is being written.
pub trait Sink {
    /// Takes the next record.
    ///
    /// # Errors
    /// The file cannot be written.
    fn record(&mut self, record: &Record) -> Result<()>;

    /// Completes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    fn end(self: Box<Self>, end: &End) -> Result<()>;

    /// Size of the file so far, with what is not written yet; rather too much than too little.
    fn nr_bytes(&self) -> u64;
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

/// What a CSV writer keeps back.
const CSV_BUFFER_BYTES: usize = 4096;

/// Counts what is written.
struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests;
