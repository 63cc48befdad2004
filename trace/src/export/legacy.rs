// SPDX-License-Identifier: GPL-2.0-only
//! The CSV of cuda_sched_trace, for scripts that read it: 19 columns, times from the first event on.
//!
//! What it has no word for is left out: wakeups, migrations, why a thread is off its CPU,
//! interrupts without a handler. Unlike there, `pid` is always the process and `tid` the thread,
//! and every row has all columns.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::{Context, Result};
use log::warn;

use super::sink::{CSV_BUFFER_BYTES, Counted, Sink};
use crate::schema::{End, HORIZON_NS, Kind, Record};

/// Its header, as it prints it.
pub const HEADER: &str = "timestamp_ns,event_type,pid,tid,comm,cpu,grid_x,grid_y,grid_z,block_x,\
                          block_y,block_z,shared_mem,stream,last_offcpu_ns,last_oncpu_ns,irq_num,\
                          irq_name,duration_ns";
const NR_COLUMNS: usize = 19;
/// Kind of the row that says in its `duration_ns` how many rows are missing.
const LOST: &str = "lost";

type Row = [String; NR_COLUMNS];

/// A legacy file that is being written.
pub struct LegacyCsv<W: Write> {
    rows: csv::Writer<Counted<W>>,
    /// An interrupt is known at its end, its first row belongs before that: rows wait here.
    held: BTreeMap<(u64, u64), Row>,
    nr_rows: u64,
    start_ns: Option<u64>,
    /// Time of the last row.
    last_ns: u64,
}

impl<W: Write> LegacyCsv<W> {
    /// Writes the names of the columns.
    pub fn begin(mut out: Counted<W>) -> Result<Self> {
        writeln!(out, "{HEADER}").context("writing the header")?;
        Ok(Self {
            rows: csv::WriterBuilder::new()
                .buffer_capacity(CSV_BUFFER_BYTES)
                .from_writer(out),
            held: BTreeMap::new(),
            nr_rows: 0,
            start_ns: None,
            last_ns: 0,
        })
    }

    fn hold(&mut self, time_ns: u64, event_type: &str, record: &Record, fill: impl Fn(&mut Row)) {
        let mut row = Row::default();
        row[1] = event_type.to_owned();
        row[2] = record.tgid.to_string();
        row[3] = record.tid.to_string();
        row[4] = record.comm.to_string();
        row[5] = record.cpu.to_string();
        fill(&mut row);
        self.nr_rows += 1;
        self.held.insert((time_ns, self.nr_rows), row);
    }

    fn write_until(&mut self, until_ns: u64) -> Result<()> {
        while let Some(entry) = self.held.first_entry() {
            let (time_ns, _) = *entry.key();
            if time_ns >= until_ns {
                break;
            }
            let mut row = entry.remove();
            let start_ns = *self.start_ns.get_or_insert(time_ns);
            self.last_ns = time_ns.saturating_sub(start_ns);
            row[0] = self.last_ns.to_string();
            let written = self.rows.write_record(&row).map_err(io::Error::from);
            written.context("writing a row")?;
        }
        Ok(())
    }

    fn hold_irq(&mut self, record: &Record, entry: &str, exit: &str) {
        let duration_ns = record.duration_ns.unwrap_or_default();
        let irq = |row: &mut Row, duration_ns: u64| {
            row[16] = record.irq.unwrap_or_default().to_string();
            row[17] = record.irq_name.unwrap_or_default().to_string();
            row[18] = duration_ns.to_string();
        };
        let start_ns = record.time_ns.saturating_sub(duration_ns);
        self.hold(start_ns, entry, record, |row| irq(row, 0));
        self.hold(record.time_ns, exit, record, |row| irq(row, duration_ns));
    }
}

/// Where rows are missing a last row says how many, in all columns and of a kind of its own, which readers of
/// that tool's kinds pass over; the log says of which kinds.
fn losses(end: &End) -> Vec<String> {
    let lost = end
        .lost
        .iter()
        .map(|(kind, count)| format!("legacy-csv: {count} {} are not in the file", kind.name()));
    let missed = end.missed_by.iter().map(|(why, count)| {
        format!("legacy-csv: {count} of unknown kind are not in the file, {why}")
    });
    lost.chain(missed).collect()
}

fn launch(record: &Record, row: &mut Row) {
    let numbers = [
        record.grid_x,
        record.grid_y,
        record.grid_z,
        record.block_x,
        record.block_y,
        record.block_z,
        record.shared_bytes,
    ];
    for (field, number) in row[6..13].iter_mut().zip(numbers) {
        *field = number.unwrap_or_default().to_string();
    }
    row[13] = format!("{:#x}", record.stream.unwrap_or_default());
    row[14] = "0".to_owned();
    row[15] = "0".to_owned();
}

impl<W: Write> Sink for LegacyCsv<W> {
    fn record(&mut self, record: &Record) -> Result<()> {
        let time_ns = record.time_ns;
        match record.event {
            Kind::Launch => {
                self.hold(time_ns, "cuLaunchKernel", record, |row| launch(record, row));
            }
            Kind::SyncEnter => self.hold(time_ns, "syncEnter", record, |_| {}),
            Kind::SyncExit => self.hold(time_ns, "syncExit", record, |_| {}),
            // The time again, on the clock itself; 0 in the other column is "does not apply".
            Kind::SwitchOut => self.hold(time_ns, "schedSwitch", record, |row| {
                row[14] = time_ns.to_string();
                row[15] = "0".to_owned();
            }),
            Kind::SwitchIn => self.hold(time_ns, "schedSwitch", record, |row| {
                row[14] = "0".to_owned();
                row[15] = time_ns.to_string();
            }),
            Kind::HardIrq => self.hold_irq(record, "hardirqEntry", "hardirqExit"),
            Kind::SoftIrq => self.hold_irq(record, "softirqEntry", "softirqExit"),
            _ => return Ok(()),
        }
        self.write_until(time_ns.saturating_sub(HORIZON_NS))
    }

    fn end(mut self: Box<Self>, end: &End) -> Result<()> {
        self.write_until(u64::MAX)?;
        let graphs = end.counted.get(&Kind::GraphLaunch).copied().unwrap_or(0);
        if graphs > 0 {
            warn!("{graphs} graph launches have no row in this format");
        }
        if end.nr_lost() > 0 {
            for loss in losses(end) {
                warn!("{loss}");
            }
            let mut row = Row::default();
            row[0] = self.last_ns.to_string();
            row[1] = LOST.to_owned();
            for zero in [2, 3, 5] {
                row[zero] = "0".to_owned();
            }
            row[NR_COLUMNS - 1] = end.nr_lost().to_string();
            self.rows
                .write_record(&row)
                .context("writing what was lost")?;
        }
        self.rows.flush().context("writing the last rows")
    }

    fn nr_bytes(&self) -> u64 {
        // Rows that are held are some 100 bytes each when written.
        self.rows.get_ref().bytes + CSV_BUFFER_BYTES as u64 + 128 * self.held.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::EndedBy;

    #[test]
    fn what_was_lost_and_what_was_missed_is_said_by_kind_and_by_why() {
        let mut end = End {
            ended_by: EndedBy::Signal,
            end_ns: 20_000,
            window_ns: 19_000,
            windows: 1,
            counted: BTreeMap::new(),
            lost: BTreeMap::from([(Kind::SwitchIn, 4)]),
            missed: 3,
            missed_by: BTreeMap::from([("too_deep".to_owned(), 3)]),
        };
        assert_eq!(
            losses(&end),
            [
                "legacy-csv: 4 switch_in are not in the file",
                "legacy-csv: 3 of unknown kind are not in the file, too_deep",
            ]
        );
        end.lost.clear();
        end.missed_by.clear();
        assert_eq!(losses(&end), Vec::<String>::new());
    }
}
