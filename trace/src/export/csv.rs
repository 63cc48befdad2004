// SPDX-License-Identifier: GPL-2.0-only
//! Our CSV.

use std::io::{self, Write};

use anyhow::{Context, Result};

use super::sink::{CSV_BUFFER_BYTES, Counted, Sink};
use crate::schema::{COLUMNS, CSV_END_PREFIX, CSV_HEADER_PREFIX, End, Header, Record};

/// A CSV file that is being written.
pub struct Csv<W: Write> {
    rows: csv::Writer<Counted<W>>,
    /// Room for a cell.
    text: String,
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
            text: String::new(),
        })
    }
}

impl<W: Write> Sink for Csv<W> {
    fn record(&mut self, record: &Record) -> Result<()> {
        let Self { rows, text } = self;
        let cells = record.cells(|cell| {
            text.clear();
            cell.write(text);
            rows.write_field(&*text)
        });
        let written = cells.and_then(|()| rows.write_record(None::<&[u8]>));
        // As the error that the file gave, which csv's has no way back to.
        let written = written.map_err(io::Error::from);
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
