// SPDX-License-Identifier: GPL-2.0-only
//! Rows of our own traces, CSV and NDJSON: the schema's columns to events. Columns and kinds that
//! the schema does not know are passed over, as it promises.

use std::borrow::Cow;

use serde::Deserialize;

use super::cells::{self, figure_json, needed_json, split, text_json};
use super::parsed::Parsed;
use crate::analyze::event::{Api, Event, EventKind, Irq, IrqKind, Names, OffCpu, OffReason};
use crate::schema::{CSV_END_PREFIX, CSV_HEADER_PREFIX, End, Header, Kind, Reason, VERSION};

/// An NDJSON file begins with this.
pub const NDJSON_HEADER_START: &str = "{\"header\"";
const NDJSON_END_START: &str = "{\"end\"";

/// The columns that the analysis needs. NDJSON leaves out what a kind does not have.
#[derive(Debug, Default, Deserialize)]
struct Row<'a> {
    #[serde(deserialize_with = "needed_json")]
    time_ns: u64,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(deserialize_with = "needed_json")]
    cpu: u32,
    #[serde(deserialize_with = "needed_json")]
    tid: i32,
    #[serde(deserialize_with = "needed_json")]
    tgid: i32,
    #[serde(borrow)]
    comm: Cow<'a, str>,
    #[serde(default, deserialize_with = "figure_json")]
    grid_x: Option<u32>,
    #[serde(default, deserialize_with = "figure_json")]
    grid_y: Option<u32>,
    #[serde(default, deserialize_with = "figure_json")]
    grid_z: Option<u32>,
    #[serde(default, deserialize_with = "figure_json")]
    block_x: Option<u32>,
    #[serde(default, deserialize_with = "figure_json")]
    block_y: Option<u32>,
    #[serde(default, deserialize_with = "figure_json")]
    block_z: Option<u32>,
    #[serde(default, deserialize_with = "figure_json")]
    shared_bytes: Option<u32>,
    #[serde(default, deserialize_with = "figure_json")]
    stream: Option<u64>,
    #[serde(default, deserialize_with = "figure_json")]
    duration_ns: Option<u64>,
    #[serde(default, deserialize_with = "figure_json")]
    self_ns: Option<u64>,
    #[serde(default, deserialize_with = "figure_json")]
    wait_ns: Option<u64>,
    #[serde(borrow, default, deserialize_with = "text_json")]
    reason: Cow<'a, str>,
    #[serde(default, deserialize_with = "figure_json")]
    other_tid: Option<i32>,
    #[serde(borrow, default, deserialize_with = "text_json")]
    other_comm: Cow<'a, str>,
    #[serde(default, deserialize_with = "figure_json")]
    irq: Option<u32>,
    #[serde(borrow, default, deserialize_with = "text_json")]
    irq_name: Cow<'a, str>,
}

/// One line of NDJSON.
pub fn parse_json(line: &[u8], names: &mut Names) -> Result<Parsed, String> {
    #[derive(Deserialize)]
    struct First {
        header: serde_json::Value,
    }
    #[derive(Deserialize)]
    struct Last {
        end: End,
    }
    if line.starts_with(NDJSON_HEADER_START.as_bytes()) {
        let first: First = serde_json::from_slice(line).map_err(json_error)?;
        return header(first.header);
    }
    if line.starts_with(NDJSON_END_START.as_bytes()) {
        let last: Last = serde_json::from_slice(line).map_err(json_error)?;
        return end(last.end);
    }
    let row: Row = serde_json::from_slice(line).map_err(json_error)?;
    event(&row, names)
}

fn json_error(error: serde_json::Error) -> String {
    format!("column {}: {error}", error.column())
}

/// Another version is no malformed line: nothing after it can be trusted.
fn header(value: serde_json::Value) -> Result<Parsed, String> {
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(other) => return Ok(Parsed::OtherVersion(other)),
        None => return Err("header: expected `schema`, a version number".to_owned()),
    }
    let header: Header =
        serde_json::from_value(value).map_err(|error| format!("header: {error}"))?;
    time("start_ns", header.start_ns)?;
    Ok(Parsed::Header(Box::new(header)))
}

fn end(end: End) -> Result<Parsed, String> {
    time("end_ns", end.end_ns)?;
    Ok(Parsed::End(Box::new(end)))
}

/// A time since the boot, ns. Differences of two have a sign.
fn time(name: &str, ns: u64) -> Result<i64, String> {
    i64::try_from(ns).map_err(|_| format!("{name}: expected less than 2^63"))
}

/// Where the columns are in this file.
#[derive(Debug, Default)]
pub struct Columns {
    /// The fields of `Row`, in its order; `None` until the line with the names was read.
    at: Option<[usize; Self::NAMES.len()]>,
    /// How many there are.
    nr: usize,
}

impl Columns {
    const NAMES: [&str; 22] = [
        "time_ns",
        "event",
        "cpu",
        "tid",
        "tgid",
        "comm",
        "grid_x",
        "grid_y",
        "grid_z",
        "block_x",
        "block_y",
        "block_z",
        "shared_bytes",
        "stream",
        "duration_ns",
        "self_ns",
        "wait_ns",
        "reason",
        "other_tid",
        "other_comm",
        "irq",
        "irq_name",
    ];

    fn find(names: &[Cow<[u8]>], line: &[u8]) -> Result<Self, String> {
        let mut at = [0; Self::NAMES.len()];
        for (slot, name) in at.iter_mut().zip(Self::NAMES) {
            *slot = cells::find(names, name)?.ok_or_else(|| {
                let missing = format!("the names of the columns lack `{name}`");
                cells::other_separator(line).unwrap_or(missing)
            })?;
        }
        Ok(Self {
            at: Some(at),
            nr: names.len(),
        })
    }
}

/// One line of CSV.
pub fn parse_csv(line: &[u8], columns: &mut Columns, names: &mut Names) -> Result<Parsed, String> {
    // A spreadsheet pads every line with empty cells.
    let padded = |json: &[u8]| {
        json.iter()
            .rposition(|&byte| byte != b',')
            .map_or(0, |at| at + 1)
    };
    if let Some(json) = line.strip_prefix(CSV_HEADER_PREFIX.as_bytes()) {
        columns.at = None;
        return header(serde_json::from_slice(&json[..padded(json)]).map_err(json_error)?);
    }
    if let Some(json) = line.strip_prefix(CSV_END_PREFIX.as_bytes()) {
        return end(serde_json::from_slice(&json[..padded(json)]).map_err(json_error)?);
    }
    let fields = split(line);
    let Some(at) = &columns.at else {
        *columns = Columns::find(&fields, line)?;
        return Ok(Parsed::Nothing);
    };
    cells::check_count(fields.len(), columns.nr)?;
    // Files that were put together may have the names again, in another order.
    if fields[at[0]].trim_ascii() == Columns::NAMES[0].as_bytes() {
        *columns = Columns::find(&fields, line)?;
        return Ok(Parsed::Nothing);
    }
    let row = Row {
        time_ns: needed(figure(0, &fields, at)?, 0)?,
        event: text(1, &fields, at),
        cpu: needed(figure(2, &fields, at)?, 2)?,
        tid: needed(figure(3, &fields, at)?, 3)?,
        tgid: needed(figure(4, &fields, at)?, 4)?,
        comm: text(5, &fields, at),
        grid_x: figure(6, &fields, at)?,
        grid_y: figure(7, &fields, at)?,
        grid_z: figure(8, &fields, at)?,
        block_x: figure(9, &fields, at)?,
        block_y: figure(10, &fields, at)?,
        block_z: figure(11, &fields, at)?,
        shared_bytes: figure(12, &fields, at)?,
        stream: figure(13, &fields, at)?,
        duration_ns: figure(14, &fields, at)?,
        self_ns: figure(15, &fields, at)?,
        wait_ns: figure(16, &fields, at)?,
        reason: text(17, &fields, at),
        other_tid: figure(18, &fields, at)?,
        other_comm: text(19, &fields, at),
        irq: figure(20, &fields, at)?,
        irq_name: text(21, &fields, at),
    };
    event(&row, names)
}

/// A field of text, with what is no UTF-8 replaced: as in the other format, names of threads may have any bytes.
fn text<'a>(column: usize, fields: &'a [Cow<[u8]>], at: &[usize]) -> Cow<'a, str> {
    String::from_utf8_lossy(&fields[at[column]])
}

/// A field of digits; `None` where it is empty.
fn figure<T: TryFrom<u64>>(
    column: usize,
    fields: &[Cow<[u8]>],
    at: &[usize],
) -> Result<Option<T>, String> {
    let name = Columns::NAMES[column];
    let Some(value) = cells::figure(name, &fields[at[column]])? else {
        return Ok(None);
    };
    let too_large = |_| format!("{name}: {value} is too large");
    T::try_from(value).map(Some).map_err(too_large)
}

fn needed<T>(value: Option<T>, column: usize) -> Result<T, String> {
    value.ok_or_else(|| format!("{} is empty", Columns::NAMES[column]))
}

fn event(row: &Row, names: &mut Names) -> Result<Parsed, String> {
    let Some(kind) = Kind::from_name(&row.event) else {
        return Ok(Parsed::UnknownKind);
    };
    let Some(what) = what(kind, row, names)? else {
        return Ok(Parsed::Nothing);
    };
    let time_ns = time("time_ns", row.time_ns)?;
    Ok(Parsed::Event(Event {
        time_ns,
        tgid: row.tgid,
        tid: row.tid,
        cpu: row.cpu,
        comm: names.keep(&row.comm),
        what,
    }))
}

fn what(kind: Kind, row: &Row, names: &mut Names) -> Result<Option<EventKind>, String> {
    Ok(Some(match kind {
        Kind::Launch => EventKind::Launch {
            api: Api::Driver,
            shape: shape(row),
        },
        Kind::GraphLaunch => EventKind::Launch {
            api: Api::Graph,
            shape: shape(row),
        },
        Kind::SyncEnter => EventKind::SyncEnter,
        Kind::SyncExit => EventKind::SyncExit,
        Kind::SwitchOut => EventKind::Off {
            why: why(row)?,
            next: row.other_tid.map(|tid| (tid, names.keep(&row.other_comm))),
        },
        Kind::SwitchIn => EventKind::On(off_cpu(row)?),
        Kind::HardIrq => irq(IrqKind::Hard, row, names)?,
        Kind::SoftIrq => irq(IrqKind::Soft, row, names)?,
        Kind::VectorIrq => irq(IrqKind::Vector, row, names)?,
        Kind::WindowOpen => EventKind::WindowOpen,
        Kind::WindowClose => EventKind::WindowClose,
        Kind::ThreadExit => EventKind::Exit,
        Kind::GraphLaunchExit | Kind::Wakeup | Kind::Migrate | Kind::ThreadStart => {
            return Ok(None);
        }
    }))
}

fn shape(row: &Row) -> u64 {
    let dimensions = [
        row.grid_x,
        row.grid_y,
        row.grid_z,
        row.block_x,
        row.block_y,
        row.block_z,
        row.shared_bytes,
    ];
    let figures = dimensions.map(|figure| figure.map_or(0, u64::from));
    figures
        .into_iter()
        .chain(row.stream)
        .fold(0, |shape, figure| {
            (shape ^ figure).wrapping_mul(0x0100_0000_01b3)
        })
}

fn why(row: &Row) -> Result<OffReason, String> {
    match Reason::from_name(&row.reason) {
        Some(Reason::Preempted) => Ok(OffReason::Preempted),
        Some(Reason::Yielded) => Ok(OffReason::Yielded),
        Some(Reason::Blocked) => Ok(OffReason::Blocked),
        Some(Reason::Exited | Reason::New | Reason::Unknown) => Ok(OffReason::Unknown),
        Some(Reason::Task | Reason::Irq) | None => Err(format!(
            "reason: expected why the thread is off its CPU, found `{}`",
            row.reason
        )),
    }
}

/// A thread that is new, or was off when tracing began, was not off for any reason known.
fn off_cpu(row: &Row) -> Result<Option<OffCpu>, String> {
    let why = why(row)?;
    let off_ns = match (why, row.duration_ns) {
        (OffReason::Unknown, _) => return Ok(None),
        (_, Some(duration_ns)) => duration_ns,
        (_, None) => return Err("duration_ns is empty".to_owned()),
    };
    let wait_ns = row
        .wait_ns
        .unwrap_or(if why == OffReason::Blocked { 0 } else { off_ns });
    Ok(Some(OffCpu {
        why,
        off_ns,
        wait_ns: wait_ns.min(off_ns),
    }))
}

fn irq(kind: IrqKind, row: &Row, names: &mut Names) -> Result<EventKind, String> {
    let duration_ns = row.duration_ns.ok_or("duration_ns is empty")?;
    Ok(EventKind::IrqExit {
        irq: Irq {
            kind,
            number: row.irq.ok_or("irq is empty")?,
            name: names.keep(&row.irq_name),
        },
        duration_ns,
        self_ns: Some(row.self_ns.unwrap_or(duration_ns).min(duration_ns)),
    })
}

#[cfg(test)]
mod tests;
