// SPDX-License-Identifier: GPL-2.0-only
//! What a trace file is while it is being written, whatever its format.

use std::io::{self, Write};

use anyhow::Result;

use crate::schema::{End, Record};

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

/// What a CSV writer keeps back.
pub const CSV_BUFFER_BYTES: usize = 4096;

/// Counts what is written.
pub struct Counted<W> {
    pub out: W,
    pub bytes: u64,
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
