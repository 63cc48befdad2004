// SPDX-License-Identifier: GPL-2.0-only
//! Our CSV.

use std::io::{self, Write};

use anyhow::{Context, Result};

use super::sink::{CSV_BUFFER_BYTES, Counted, Sink};
use crate::schema::{COLUMNS, CSV_END_PREFIX, CSV_HEADER_PREFIX, End, Header, Name, Record};

/// A CSV file that is being written.
pub struct Csv<W: Write> {
    rows: csv::Writer<Counted<W>>,
    numbers: itoa::Buffer,
}

impl<W: Write> Csv<W> {
    /// Writes the header and the names of the columns.
    pub fn begin(mut out: Counted<W>, header: &Header) -> Result<Self> {
        let header = serde_json::to_string(header).context("writing the header")?;
        writeln!(out, "{CSV_HEADER_PREFIX}{header}").context("writing the header")?;
        let mut rows = csv::WriterBuilder::new()
            .buffer_capacity(CSV_BUFFER_BYTES)
            .from_writer(out);
        let written = rows.write_record(COLUMNS).map_err(io::Error::from);
        written.context("writing the header")?;
        Ok(Self {
            rows,
            numbers: itoa::Buffer::new(),
        })
    }

    fn text(&mut self, text: &str) -> csv::Result<()> {
        self.rows.write_field(text)
    }

    fn number<T: itoa::Integer>(&mut self, number: Option<T>) -> csv::Result<()> {
        let text = number.map_or("", |number| self.numbers.format(number));
        self.rows.write_field(text)
    }

    fn name<const N: usize>(&mut self, name: Option<Name<N>>) -> csv::Result<()> {
        self.text(name.as_ref().map_or("", Name::as_str))
    }

    /// The fields in the order of [`COLUMNS`].
    fn row(&mut self, record: &Record) -> csv::Result<()> {
        self.number(Some(record.time_ns))?;
        self.text(record.event.name())?;
        self.number(Some(record.cpu))?;
        self.number(Some(record.tid))?;
        self.number(Some(record.tgid))?;
        self.text(record.comm.as_str())?;
        self.name(record.symbol)?;
        for number in [
            record.grid_x,
            record.grid_y,
            record.grid_z,
            record.block_x,
            record.block_y,
            record.block_z,
            record.shared_bytes,
        ] {
            self.number(number)?;
        }
        for number in [
            record.stream,
            record.duration_ns,
            record.self_ns,
            record.wait_ns,
        ] {
            self.number(number)?;
        }
        self.text(record.reason.map_or("", |reason| reason.name()))?;
        let mut letter = [0; 4];
        let state = record.state.map(|state| &*state.encode_utf8(&mut letter));
        self.text(state.unwrap_or_default())?;
        self.number(record.other_tid)?;
        self.number(record.other_tgid)?;
        self.name(record.other_comm)?;
        self.number(record.to_cpu)?;
        self.number(record.irq)?;
        self.name(record.irq_name)?;
        self.name(record.sched_class)?;
        self.number(record.dsq)?;
        self.number(record.slice_ns)?;
        self.rows.write_record(None::<&[u8]>)
    }
}

impl<W: Write> Sink for Csv<W> {
    fn record(&mut self, record: &Record) -> Result<()> {
        // As the error that the file gave, which csv's has no way back to.
        let written = self.row(record).map_err(io::Error::from);
        written.context("writing a record")
    }

    fn end(mut self: Box<Self>, end: &End) -> Result<()> {
        self.rows.flush().context("writing the last records")?;
        let mut out = self
            .rows
            .into_inner()
            .map_err(csv::IntoInnerError::into_error)
            .context("writing the last records")?;
        let end = serde_json::to_string(end).context("writing the end")?;
        writeln!(out, "{CSV_END_PREFIX}{end}")
            .and_then(|()| out.flush())
            .context("writing the end")
    }

    fn nr_bytes(&self) -> u64 {
        self.rows.get_ref().bytes + CSV_BUFFER_BYTES as u64
    }
}
