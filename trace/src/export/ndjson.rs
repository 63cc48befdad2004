// SPDX-License-Identifier: GPL-2.0-only
//! One JSON object a line.

use std::io::{self, Write};

use anyhow::{Context, Result};
use serde::Serialize;

use super::sink::{Counted, Sink};
use crate::schema::{End, Header, Line, Record};

/// An NDJSON file that is being written.
pub struct Ndjson<W: Write> {
    out: Counted<W>,
}

impl<W: Write> Ndjson<W> {
    /// Writes the header.
    pub fn begin(out: Counted<W>, header: &Header) -> Result<Self> {
        let mut file = Self { out };
        file.line(&Line::Header(header.clone()))?;
        Ok(file)
    }

    fn line(&mut self, line: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.out, line)
            .map_err(io::Error::from)
            .and_then(|()| self.out.write_all(b"\n"))
            .context("writing a line")
    }
}

impl<W: Write> Sink for Ndjson<W> {
    fn record(&mut self, record: &Record) -> Result<()> {
        // What Line::Record would write, without a copy.
        self.line(record)
    }

    fn end(mut self: Box<Self>, end: &End) -> Result<()> {
        self.line(&Line::End(end.clone()))?;
        self.out.flush().context("writing the end")
    }

    fn nr_bytes(&self) -> u64 {
        self.out.bytes
    }
}
