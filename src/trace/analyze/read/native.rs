// SPDX-License-Identifier: GPL-2.0-only
//! Rows of our own traces, CSV and NDJSON: the schema's columns to events. Columns and kinds that
//! the schema does not know are passed over, as it promises.

use std::borrow::Cow;

use serde::Deserialize;

use super::parsed::Parsed;
use crate::trace::analyze::event::{Api, Away, Event, Irq, IrqKind, Names, What, Why};
use crate::trace::schema::{CSV_END_PREFIX, CSV_HEADER_PREFIX, End, Header, Kind, Reason, VERSION};

/// An NDJSON file begins with this.
pub const NDJSON_HEADER_START: &str = "{\"header\"";
const NDJSON_END_START: &str = "{\"end\"";

/// The columns that the analysis needs. NDJSON leaves out what a kind does not have.
#[derive(Debug, Default, Deserialize)]
struct Row<'a> {
    time_ns: u64,
    #[serde(borrow)]
    event: Cow<'a, str>,
    cpu: u32,
    tid: i32,
    tgid: i32,
    #[serde(borrow)]
    comm: Cow<'a, str>,
    #[serde(default)]
    grid_x: Option<u32>,
    #[serde(default)]
    grid_y: Option<u32>,
    #[serde(default)]
    grid_z: Option<u32>,
    #[serde(default)]
    block_x: Option<u32>,
    #[serde(default)]
    block_y: Option<u32>,
    #[serde(default)]
    block_z: Option<u32>,
    #[serde(default)]
    shared_bytes: Option<u32>,
    #[serde(default)]
    stream: Option<u64>,
    #[serde(default)]
    duration_ns: Option<u64>,
    #[serde(default)]
    self_ns: Option<u64>,
    #[serde(default)]
    wait_ns: Option<u64>,
    #[serde(borrow, default)]
    reason: Cow<'a, str>,
    #[serde(default)]
    other_tid: Option<i32>,
    #[serde(borrow, default)]
    other_comm: Cow<'a, str>,
    #[serde(default)]
    irq: Option<u32>,
    #[serde(borrow, default)]
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
        return Ok(Parsed::End(Box::new(last.end)));
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
    Ok(Parsed::Header(Box::new(header)))
}

/// Where the columns are in this file.
#[derive(Debug, Default)]
pub struct Columns {
    /// The fields of `Row`, in its order; `None` until the line with the names was read.
    at: Option<[Option<usize>; Self::NAMES.len()]>,
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

    fn find(fields: &[Cow<[u8]>]) -> Result<Self, String> {
        let mut at = [None; Self::NAMES.len()];
        for (slot, name) in at.iter_mut().zip(Self::NAMES) {
            let found = fields.iter().position(|field| **field == *name.as_bytes());
            *slot = Some(found.ok_or_else(|| format!("the names of the columns lack `{name}`"))?);
        }
        Ok(Self { at: Some(at) })
    }
}

/// Whether a quoted field goes on in the next line.
pub fn goes_on(line: &[u8]) -> bool {
    line.iter().filter(|&&byte| byte == b'"').count() % 2 == 1
}

/// One line of CSV.
pub fn parse_csv(line: &[u8], columns: &mut Columns, names: &mut Names) -> Result<Parsed, String> {
    if let Some(json) = line.strip_prefix(CSV_HEADER_PREFIX.as_bytes()) {
        columns.at = None;
        return header(serde_json::from_slice(json).map_err(json_error)?);
    }
    if let Some(json) = line.strip_prefix(CSV_END_PREFIX.as_bytes()) {
        let end = serde_json::from_slice(json).map_err(json_error)?;
        return Ok(Parsed::End(Box::new(end)));
    }
    let fields = split(line);
    let Some(at) = &columns.at else {
        *columns = Columns::find(&fields)?;
        return Ok(Parsed::Nothing);
    };
    let row = Row {
        time_ns: needed(figure(0, &fields, at)?, 0)?,
        event: text(1, &fields, at)?,
        cpu: needed(figure(2, &fields, at)?, 2)?,
        tid: needed(figure(3, &fields, at)?, 3)?,
        tgid: needed(figure(4, &fields, at)?, 4)?,
        comm: text(5, &fields, at)?,
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
        reason: text(17, &fields, at)?,
        other_tid: figure(18, &fields, at)?,
        other_comm: text(19, &fields, at)?,
        irq: figure(20, &fields, at)?,
        irq_name: text(21, &fields, at)?,
    };
    event(&row, names)
}

/// A field of text.
fn text<'a>(
    column: usize,
    fields: &'a [Cow<[u8]>],
    at: &[Option<usize>],
) -> Result<Cow<'a, str>, String> {
    let field = at[column].and_then(|at| fields.get(at));
    let field = field.ok_or_else(|| format!("{} columns only", fields.len()))?;
    std::str::from_utf8(field)
        .map(Cow::Borrowed)
        .map_err(|_| format!("{}: expected UTF-8", Columns::NAMES[column]))
}

/// A field of digits; `None` where it is empty.
fn figure<T: std::str::FromStr>(
    column: usize,
    fields: &[Cow<[u8]>],
    at: &[Option<usize>],
) -> Result<Option<T>, String> {
    let field = at[column].and_then(|at| fields.get(at));
    let field = field.ok_or_else(|| format!("{} columns only", fields.len()))?;
    if field.is_empty() {
        return Ok(None);
    }
    let parsed = std::str::from_utf8(field)
        .ok()
        .and_then(|text| text.parse().ok());
    parsed.map(Some).ok_or_else(|| {
        let found = String::from_utf8_lossy(field);
        format!(
            "{}: expected a whole number, found `{found}`",
            Columns::NAMES[column]
        )
    })
}

fn needed<T>(value: Option<T>, column: usize) -> Result<T, String> {
    value.ok_or_else(|| format!("{} is empty", Columns::NAMES[column]))
}

/// Fields as RFC 4180 quotes them.
fn split(line: &[u8]) -> Vec<Cow<'_, [u8]>> {
    if !line.contains(&b'"') {
        return line
            .split(|&byte| byte == b',')
            .map(Cow::Borrowed)
            .collect();
    }
    let mut fields = Vec::new();
    let (mut field, mut quoted) = (Vec::new(), false);
    let mut bytes = line.iter().peekable();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' if quoted && bytes.peek() == Some(&&b'"') => {
                bytes.next();
                field.push(b'"');
            }
            b'"' => quoted = !quoted,
            b',' if !quoted => fields.push(Cow::Owned(std::mem::take(&mut field))),
            other => field.push(other),
        }
    }
    fields.push(Cow::Owned(field));
    fields
}

fn event(row: &Row, names: &mut Names) -> Result<Parsed, String> {
    let Some(kind) = Kind::from_name(&row.event) else {
        return Ok(Parsed::UnknownKind);
    };
    let Some(what) = what(kind, row, names)? else {
        return Ok(Parsed::Nothing);
    };
    let time_ns = i64::try_from(row.time_ns).map_err(|_| "time_ns: expected less than 2^63")?;
    Ok(Parsed::Event(Event {
        time_ns,
        tgid: row.tgid,
        tid: row.tid,
        cpu: row.cpu,
        comm: names.keep(&row.comm),
        what,
    }))
}

fn what(kind: Kind, row: &Row, names: &mut Names) -> Result<Option<What>, String> {
    Ok(Some(match kind {
        Kind::Launch => What::Launch {
            api: Api::Driver,
            shape: shape(row),
        },
        Kind::GraphLaunch => What::Launch {
            api: Api::Graph,
            shape: shape(row),
        },
        Kind::SyncEnter => What::SyncEnter,
        Kind::SyncExit => What::SyncExit,
        Kind::SwitchOut => What::Off {
            why: why(row)?,
            next: row.other_tid.map(|tid| (tid, names.keep(&row.other_comm))),
        },
        Kind::SwitchIn => What::On(away(row)?),
        Kind::HardIrq => irq(IrqKind::Hard, row, names)?,
        Kind::SoftIrq => irq(IrqKind::Soft, row, names)?,
        Kind::VectorIrq => irq(IrqKind::Vector, row, names)?,
        Kind::WindowOpen => What::WindowOpen,
        Kind::WindowClose => What::WindowClose,
        Kind::ThreadExit => What::Exit,
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

fn why(row: &Row) -> Result<Why, String> {
    match Reason::from_name(&row.reason) {
        Some(Reason::Preempted) => Ok(Why::Preempted),
        Some(Reason::Yielded) => Ok(Why::Yielded),
        Some(Reason::Blocked) => Ok(Why::Blocked),
        Some(Reason::Exited | Reason::New | Reason::Unknown) => Ok(Why::Unknown),
        Some(Reason::Task | Reason::Irq) | None => Err(format!(
            "reason: expected why the thread is off its CPU, found `{}`",
            row.reason
        )),
    }
}

/// A thread that is new, or was off when tracing began, was not off for any reason known.
fn away(row: &Row) -> Result<Option<Away>, String> {
    let why = why(row)?;
    let off_ns = match (why, row.duration_ns) {
        (Why::Unknown, _) => return Ok(None),
        (_, Some(duration_ns)) => duration_ns,
        (_, None) => return Err("duration_ns is empty".to_owned()),
    };
    let wait_ns = row
        .wait_ns
        .unwrap_or(if why == Why::Blocked { 0 } else { off_ns });
    Ok(Some(Away {
        why,
        off_ns,
        wait_ns: wait_ns.min(off_ns),
    }))
}

fn irq(kind: IrqKind, row: &Row, names: &mut Names) -> Result<What, String> {
    let duration_ns = row.duration_ns.ok_or("duration_ns is empty")?;
    Ok(What::IrqExit {
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
mod tests {
    use super::*;
    use crate::trace::schema::{COLUMNS, Comm, Record};

    fn record() -> Record {
        Record {
            cpu: 1,
            tid: 12,
            tgid: 10,
            comm: Comm::new("a,\"b\nc"),
            duration_ns: Some(900),
            wait_ns: Some(300),
            reason: Some(Reason::Blocked),
            ..Record::new(5000, Kind::SwitchIn)
        }
    }

    /// A CSV row of `record`, its names quoted.
    fn csv_row(record: &Record) -> String {
        let object = serde_json::to_value(record).unwrap();
        let cell = |column: &&'static str| match &object[*column] {
            serde_json::Value::Null => String::new(),
            serde_json::Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
            other => other.to_string(),
        };
        COLUMNS.iter().map(cell).collect::<Vec<_>>().join(",")
    }

    fn csv(lines: &[&str]) -> (Result<Parsed, String>, Names) {
        let (mut columns, mut names) = (Columns::default(), Names::default());
        let mut last = Ok(Parsed::Nothing);
        for line in lines {
            last = parse_csv(line.as_bytes(), &mut columns, &mut names);
        }
        (last, names)
    }

    fn assert_is_record(parsed: Result<Parsed, String>, names: &Names) {
        let Ok(Parsed::Event(event)) = parsed else {
            panic!("{parsed:?}");
        };
        assert_eq!(
            (event.time_ns, event.tid, event.tgid, event.cpu),
            (5000, 12, 10, 1)
        );
        assert_eq!(names.text(event.comm), "a,\"b\nc");
        let away = Away {
            why: Why::Blocked,
            off_ns: 900,
            wait_ns: 300,
        };
        assert_eq!(event.what, What::On(Some(away)));
    }

    #[test]
    fn csv_and_ndjson_of_the_same_record_are_the_same_event() {
        let mut names = Names::default();
        let json = serde_json::to_string(&record()).unwrap();
        assert_is_record(parse_json(json.as_bytes(), &mut names), &names);
        let (parsed, names) = csv(&[&COLUMNS.join(","), &csv_row(&record())]);
        assert_is_record(parsed, &names);
    }

    #[test]
    fn columns_and_kinds_to_come_are_passed_over() {
        let columns = COLUMNS.join(",") + ",new_column";
        let (parsed, names) = csv(&[&columns, &(csv_row(&record()) + ",7")]);
        assert_is_record(parsed, &names);
        let mut object = serde_json::to_value(record()).unwrap();
        object["new_column"] = 7.into();
        let mut names = Names::default();
        let mut parse =
            |object: &serde_json::Value| parse_json(object.to_string().as_bytes(), &mut names);
        assert!(matches!(parse(&object), Ok(Parsed::Event(_))));
        object["event"] = "teleport".into();
        assert!(matches!(parse(&object), Ok(Parsed::UnknownKind)));
        let end = serde_json::json!({"end": {"ended_by": "signal", "end_ns": 9, "window_ns": 9, "windows": 1,
            "counted": {"launch": 3, "teleport": 5}, "lost": {"teleport": 1}, "missed": 0, "new_key": 7}});
        let Ok(Parsed::End(end)) = parse(&end) else {
            panic!("an end of a later program")
        };
        assert_eq!(end.counted, [(Kind::Launch, 3)].into());
    }

    #[test]
    fn another_version_is_seen() {
        let mut names = Names::default();
        let parsed = parse_json(br#"{"header":{"schema":2}}"#, &mut names);
        assert!(matches!(parsed, Ok(Parsed::OtherVersion(2))));
        let (parsed, _) = csv(&["# scx_gpuaware trace {\"schema\":3}"]);
        assert!(matches!(parsed, Ok(Parsed::OtherVersion(3))));
    }

    #[test]
    fn says_what_is_wrong_with_a_row() {
        let columns = COLUMNS.join(",");
        let good = csv_row(&record());
        for (row, part) in [
            (good.replacen("5000", "five", 1), "time_ns"),
            (good.replacen("5000", "", 1), "time_ns is empty"),
            (good.replacen("blocked", "irq", 1), "reason"),
            (good.replacen("900", "", 1), "duration_ns"),
            ("5000,switch_in".to_owned(), "2 columns only"),
        ] {
            let error = csv(&[&columns, &row]).0.unwrap_err();
            assert!(error.contains(part), "{part} in {error}");
        }
        let error = csv(&["time_ns,event,cpu"]).0.unwrap_err();
        assert!(error.contains("`tid`"), "{error}");
    }
}
