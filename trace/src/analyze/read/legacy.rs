// SPDX-License-Identifier: GPL-2.0-only
//! Rows of cuda_sched_trace, and their quirks: 16 columns without the interrupt's three, names with
//! unquoted commas, times before the first event as huge numbers, its log in between. And the same as
//! another tool has written it again: quoted, in another order, with more columns.

use std::borrow::Cow;

use super::cells::{self, split, whole};
use super::parsed::{Counter, Parsed};
use crate::analyze::event::{Api, Event, EventKind, Irq, IrqKind, Names, OffReason};

/// The header of the version that traces interrupts.
pub const HEADER: &str = "timestamp_ns,event_type,pid,tid,comm,cpu,grid_x,grid_y,grid_z,block_x,block_y,block_z,shared_mem,stream,last_offcpu_ns,last_oncpu_ns,irq_num,irq_name,duration_ns";
/// That of the first version.
pub const FIRST_HEADER: &str = "timestamp_ns,event_type,pid,tid,comm,cpu,grid_x,grid_y,grid_z,block_x,block_y,block_z,shared_mem,stream,last_offcpu_ns,last_oncpu_ns";
/// Columns that it lacks.
const NR_IRQ_COLUMNS: usize = 3;
const NR_COLUMNS: usize = 19;
/// Those that may have any text: kind, name, name of the interrupt.
const TEXTS: [usize; 3] = [1, 4, 17];

const CUDA_COLUMNS: usize = 8;
const MAX_FIELDS: usize = 64;

/// Where the columns are, if not where cuda_sched_trace writes them.
#[derive(Debug, Default)]
pub struct Columns {
    at: Option<[Option<usize>; NR_COLUMNS]>,
    nr: usize,
}

impl Columns {
    /// From a line with their names. `None`: it is none.
    fn find(line: &[u8]) -> Option<Result<Self, String>> {
        if [HEADER.as_bytes(), FIRST_HEADER.as_bytes()].contains(&line) {
            return Some(Ok(Self::default()));
        }
        let names = split(line);
        let has = |wanted: &[u8]| names.iter().any(|name| name.trim_ascii() == wanted);
        (has(b"timestamp_ns") && has(b"event_type")).then(|| Self::named(&names))
    }

    fn named(names: &[Cow<[u8]>]) -> Result<Self, String> {
        let mut at = [None; NR_COLUMNS];
        for (number, name) in HEADER.split(',').enumerate() {
            at[number] = cells::find(names, name)?;
            if at[number].is_none() && number < NR_COLUMNS - NR_IRQ_COLUMNS {
                return Err(format!("the names of the columns lack `{name}`"));
            }
        }
        Ok(Self {
            at: Some(at),
            nr: names.len(),
        })
    }
}

/// One line.
pub fn parse(line: &[u8], columns: &mut Columns, names: &mut Names) -> Result<Parsed, String> {
    let is_row = line.first().is_some_and(u8::is_ascii_digit);
    if !is_row && let Some(found) = Columns::find(line) {
        *columns = found?;
        return Ok(Parsed::Restart);
    }
    if !is_row && let Some(logged) = log_line(line) {
        return Ok(logged);
    }
    if let Some(at) = &columns.at {
        let fields = split(line);
        cells::check_count(fields.len(), columns.nr)?;
        let mut usual: [&[u8]; NR_COLUMNS] = [&[]; NR_COLUMNS];
        for (slot, at) in usual.iter_mut().zip(at) {
            *slot = at.map_or(&[], |at| fields[at].trim_ascii());
        }
        empty_gaps(&mut usual);
        return parsed(&usual, names);
    }
    if line.starts_with(b"\"") || line.windows(2).any(|two| two == b",\"") {
        let fields = split(line);
        let fields: Vec<&[u8]> = fields.iter().map(|field| &**field).collect();
        // Else it is a name with quotes in it, which that tool does not quote.
        if let Ok(event) = parsed(&fields, names) {
            return Ok(event);
        }
    }
    if !is_row {
        return Err("expected a row that begins with a time".to_owned());
    }
    let mut fields: [&[u8]; MAX_FIELDS] = [&[]; MAX_FIELDS];
    let mut count = 0;
    for field in line.split(|&byte| byte == b',') {
        let slot = fields.get_mut(count).ok_or("more than 64 columns")?;
        *slot = field;
        count += 1;
    }
    parsed(&fields[..count], names).or_else(|reason| {
        if count == NR_COLUMNS && empty_gaps(&mut fields[..count]) {
            return parsed(&fields[..count], names);
        }
        Err(reason)
    })
}

/// Empties what another tool has written where there is no figure. True: there was some.
fn empty_gaps(fields: &mut [&[u8]]) -> bool {
    let mut found = false;
    for (number, field) in fields.iter_mut().enumerate() {
        if !field.is_empty() && !TEXTS.contains(&number) && cells::is_gap(field) {
            (*field, found) = (&[], true);
        }
    }
    found
}

fn parsed(fields: &[&[u8]], names: &mut Names) -> Result<Parsed, String> {
    // Ours says so in a row what the tracer itself says in its log.
    if fields.len() == NR_COLUMNS && fields[1] == b"lost" {
        let count = unsigned("duration_ns", fields[NR_COLUMNS - 1])?;
        return Ok(Parsed::Counted(Counter::Dropped, count));
    }
    row(fields, names).map(Parsed::Event)
}

fn row(fields: &[&[u8]], names: &mut Names) -> Result<Event, String> {
    let [time, kind, pid, tid, ..] = fields else {
        return Err(format!("expected 16 or 19 columns, found {}", fields.len()));
    };
    let layout = if matches!(*kind, [b'h', ..] | [b's', b'o', ..]) {
        irq_layout(fields)
    } else {
        short_layout(fields)
    };
    let cpu = layout.ok_or_else(|| expected_columns(fields.len()))?;
    let comm = match &fields[4..cpu] {
        [comm] => Cow::Borrowed(*comm),
        parts => Cow::Owned(parts.join(&b","[..])),
    };
    Ok(Event {
        // Unsigned there: what happened before the first event has wrapped round.
        time_ns: unsigned("timestamp_ns", time)? as i64,
        tgid: unsigned("pid", pid)? as i32,
        tid: unsigned("tid", tid)? as i32,
        cpu: unsigned("cpu", fields[cpu])? as u32,
        comm: names.keep(&String::from_utf8_lossy(&comm)),
        what: what(kind, &fields[cpu + 1..], names)?,
    })
}

fn expected_columns(found: usize) -> String {
    format!("expected 16 columns, or 19 for an interrupt, found {found} in no such order")
}

/// Where `cpu` is in a row of 16 columns, or of 19 whose last three are empty. Commas in the name
/// of the thread push it right.
fn short_layout(fields: &[&[u8]]) -> Option<usize> {
    [14, 11].into_iter().find_map(|from_end| {
        let cpu = fields.len().checked_sub(from_end)?;
        let padded = from_end == 11 || fields[fields.len() - 3..].iter().all(|f| f.is_empty());
        (cpu >= 5 && padded && whole(fields[cpu]).is_some()).then_some(cpu)
    })
}

/// Where `cpu` is in an interrupt's row: the number before ten empty columns.
fn irq_layout(fields: &[&[u8]]) -> Option<usize> {
    let empty = CUDA_COLUMNS + 2;
    let last = fields.len().checked_sub(empty + 4)?;
    (5..=last).find(|&at| {
        whole(fields[at]).is_some() && fields[at + 1..=at + empty].iter().all(|f| f.is_empty())
    })
}

/// `rest` is what follows `cpu`.
fn what(kind: &[u8], rest: &[&[u8]], names: &mut Names) -> Result<EventKind, String> {
    Ok(match kind {
        b"cuLaunchKernel" => launch(Api::Driver, rest)?,
        b"cudaLaunchKernel" => launch(Api::Runtime, rest)?,
        b"syncEnter" => EventKind::SyncEnter,
        b"syncExit" => EventKind::SyncExit,
        b"schedSwitch" => switch(rest)?,
        b"hardirqEntry" => EventKind::IrqEnter(irq(IrqKind::Hard, rest, names)?),
        b"softirqEntry" => EventKind::IrqEnter(irq(IrqKind::Soft, rest, names)?),
        b"hardirqExit" => irq_exit(IrqKind::Hard, rest, names)?,
        b"softirqExit" => irq_exit(IrqKind::Soft, rest, names)?,
        other => {
            let other = String::from_utf8_lossy(other);
            return Err(format!("unknown event_type `{other}`"));
        }
    })
}

fn launch(api: Api, rest: &[&[u8]]) -> Result<EventKind, String> {
    // FNV-1a: the values are compared, never shown.
    let mut shape = 0xcbf2_9ce4_8422_2325_u64;
    for field in &rest[..CUDA_COLUMNS] {
        let digits = whole(field).map(|value| value.to_string());
        let field = digits.as_ref().map_or(*field, |digits| digits.as_bytes());
        for &byte in field.iter().chain(b",") {
            shape = (shape ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    for (column, field) in ["grid_x", "grid_y", "grid_z"].into_iter().zip(rest) {
        unsigned(column, field)?;
    }
    Ok(EventKind::Launch { api, shape })
}

fn switch(rest: &[&[u8]]) -> Result<EventKind, String> {
    let off = unsigned("last_offcpu_ns", rest[CUDA_COLUMNS])?;
    let on = unsigned("last_oncpu_ns", rest[CUDA_COLUMNS + 1])?;
    match (off > 0, on > 0) {
        (true, false) => Ok(EventKind::Off {
            why: OffReason::Unknown,
            next: None,
        }),
        (false, true) => Ok(EventKind::On(None)),
        _ => Err("expected one of last_offcpu_ns and last_oncpu_ns to be 0".to_owned()),
    }
}

fn irq(kind: IrqKind, rest: &[&[u8]], names: &mut Names) -> Result<Irq, String> {
    let rest = &rest[CUDA_COLUMNS + 2..];
    let name = rest[1..rest.len() - 1].join(&b","[..]);
    Ok(Irq {
        kind,
        number: unsigned("irq_num", rest[0])? as u32,
        name: names.keep(&String::from_utf8_lossy(&name)),
    })
}

fn irq_exit(kind: IrqKind, rest: &[&[u8]], names: &mut Names) -> Result<EventKind, String> {
    Ok(EventKind::IrqExit {
        irq: irq(kind, rest, names)?,
        duration_ns: unsigned("duration_ns", rest[rest.len() - 1])?,
        self_ns: None,
    })
}

fn unsigned(column: &str, field: &[u8]) -> Result<u64, String> {
    let empty = || format!("{column}: expected a whole number, found ``");
    cells::figure(column, field)?.ok_or_else(empty)
}

/// A line of the tracer's log, which is in the file when standard error went there too.
pub fn log_line(line: &[u8]) -> Option<Parsed> {
    const COUNTERS: [(&str, Counter); 6] = [
        ("cuLaunchKernel ", Counter::DriverLaunches),
        ("cudaLaunchKernel ", Counter::RuntimeLaunches),
        ("Sched Switches Tracked ", Counter::Switches),
        ("Hard IRQs Tracked ", Counter::HardIrqs),
        ("Soft IRQs Tracked ", Counter::SoftIrqs),
        ("Dropped Events ", Counter::Dropped),
    ];
    const REMARKS: [&str; 9] = [
        "Attached ",
        "Using CUDA ",
        "Warning: ",
        "Tracing CUDA ",
        "CSV output ",
        "=====",
        "CUDA + SCHED",
        "cudaSync Enter ",
        "cudaSync Exit ",
    ];
    let text = std::str::from_utf8(line).ok()?;
    for (label, counter) in COUNTERS {
        if let Some(count) = text.strip_prefix(label) {
            return count
                .trim()
                .parse()
                .ok()
                .map(|count| Parsed::Counted(counter, count));
        }
    }
    let known = REMARKS.iter().any(|remark| text.starts_with(remark));
    known.then_some(Parsed::Nothing)
}

#[cfg(test)]
mod tests;
