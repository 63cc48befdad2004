// SPDX-License-Identifier: GPL-2.0-only
//! Rows of cuda_sched_trace, and their quirks: 16 columns without the interrupt's three, names with
//! unquoted commas, times before the first event as huge numbers, its log in between, figures that
//! pandas has made `1.0` of.

use super::parsed::{Counter, Parsed};
use crate::trace::analyze::event::{Api, Event, Irq, IrqKind, Names, What, Why};

/// The header of the version that traces interrupts.
#[cfg(test)]
pub const HEADER: &str = "timestamp_ns,event_type,pid,tid,comm,cpu,grid_x,grid_y,grid_z,block_x,block_y,block_z,shared_mem,stream,last_offcpu_ns,last_oncpu_ns,irq_num,irq_name,duration_ns";
/// Every header begins with this; the first version's ends with `last_oncpu_ns`.
pub const HEADER_START: &str = "timestamp_ns,event_type,pid,tid,comm,cpu,";

const CUDA_COLUMNS: usize = 8;
const MAX_FIELDS: usize = 64;

/// One line.
pub fn parse(line: &[u8], names: &mut Names) -> Result<Parsed, String> {
    if line.starts_with(HEADER_START.as_bytes()) {
        return Ok(Parsed::Restart);
    }
    if !line.first().is_some_and(u8::is_ascii_digit) {
        return log_line(line).ok_or_else(|| "expected a row that begins with a time".to_owned());
    }
    let mut fields: [&[u8]; MAX_FIELDS] = [&[]; MAX_FIELDS];
    let mut count = 0;
    for field in line.split(|&byte| byte == b',') {
        let slot = fields.get_mut(count).ok_or("more than 64 columns")?;
        *slot = field;
        count += 1;
    }
    row(&fields[..count], line, names).map(Parsed::Event)
}

fn row(fields: &[&[u8]], line: &[u8], names: &mut Names) -> Result<Event, String> {
    let [time, kind, pid, tid, ..] = fields else {
        return Err(format!("expected 16 or 19 columns, found {}", fields.len()));
    };
    let layout = if matches!(*kind, [b'h', ..] | [b's', b'o', ..]) {
        irq_layout(fields)
    } else {
        short_layout(fields)
    };
    let cpu = layout.ok_or_else(|| expected_columns(fields.len()))?;
    let comm = between(line, fields, 4, cpu);
    Ok(Event {
        // Unsigned there: what happened before the first event has wrapped round.
        time_ns: unsigned("timestamp_ns", time)? as i64,
        tgid: unsigned("pid", pid)? as i32,
        tid: unsigned("tid", tid)? as i32,
        cpu: unsigned("cpu", fields[cpu])? as u32,
        comm: names.keep(&String::from_utf8_lossy(comm)),
        what: what(kind, &fields[cpu + 1..], names)?,
    })
}

fn expected_columns(found: usize) -> String {
    format!("expected 16 columns, or 19 for an interrupt, found {found} in no such order")
}

/// Where `cpu` is in a row of 16 columns, or of 19 whose last three are empty. Commas in the name
/// of the thread push it right.
fn short_layout(fields: &[&[u8]]) -> Option<usize> {
    [11, 14].into_iter().find_map(|from_end| {
        let cpu = fields.len().checked_sub(from_end)?;
        let padded = from_end == 11 || fields[fields.len() - 3..].iter().all(|f| f.is_empty());
        (cpu >= 5 && padded && number(fields[cpu]).is_some()).then_some(cpu)
    })
}

/// Where `cpu` is in an interrupt's row: the number before ten empty columns.
fn irq_layout(fields: &[&[u8]]) -> Option<usize> {
    let empty = CUDA_COLUMNS + 2;
    let last = fields.len().checked_sub(empty + 4)?;
    (5..=last).find(|&at| {
        number(fields[at]).is_some() && fields[at + 1..=at + empty].iter().all(|f| f.is_empty())
    })
}

/// The text of fields `from..to`, with the commas between them.
fn between<'a>(line: &'a [u8], fields: &[&[u8]], from: usize, to: usize) -> &'a [u8] {
    let before: usize = fields[..from].iter().map(|field| field.len() + 1).sum();
    let length: usize = fields[from..to].iter().map(|field| field.len() + 1).sum();
    line.get(before..before + length.saturating_sub(1))
        .unwrap_or_default()
}

/// `rest` is what follows `cpu`.
fn what(kind: &[u8], rest: &[&[u8]], names: &mut Names) -> Result<What, String> {
    Ok(match kind {
        b"cuLaunchKernel" => launch(Api::Driver, rest)?,
        b"cudaLaunchKernel" => launch(Api::Runtime, rest)?,
        b"syncEnter" => What::SyncEnter,
        b"syncExit" => What::SyncExit,
        b"schedSwitch" => switch(rest)?,
        b"hardirqEntry" => What::IrqEnter(irq(IrqKind::Hard, rest, names)?),
        b"softirqEntry" => What::IrqEnter(irq(IrqKind::Soft, rest, names)?),
        b"hardirqExit" => irq_exit(IrqKind::Hard, rest, names)?,
        b"softirqExit" => irq_exit(IrqKind::Soft, rest, names)?,
        other => {
            let other = String::from_utf8_lossy(other);
            return Err(format!("unknown event_type `{other}`"));
        }
    })
}

fn launch(api: Api, rest: &[&[u8]]) -> Result<What, String> {
    // FNV-1a: the values are compared, never shown.
    let mut shape = 0xcbf2_9ce4_8422_2325_u64;
    for field in &rest[..CUDA_COLUMNS] {
        for &byte in field.iter().chain(b",") {
            shape = (shape ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    for (column, field) in ["grid_x", "grid_y", "grid_z"].into_iter().zip(rest) {
        unsigned(column, field)?;
    }
    Ok(What::Launch { api, shape })
}

fn switch(rest: &[&[u8]]) -> Result<What, String> {
    let off = unsigned("last_offcpu_ns", rest[CUDA_COLUMNS])?;
    let on = unsigned("last_oncpu_ns", rest[CUDA_COLUMNS + 1])?;
    match (off > 0, on > 0) {
        (true, false) => Ok(What::Off {
            why: Why::Unknown,
            next: None,
        }),
        (false, true) => Ok(What::On(None)),
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

fn irq_exit(kind: IrqKind, rest: &[&[u8]], names: &mut Names) -> Result<What, String> {
    Ok(What::IrqExit {
        irq: irq(kind, rest, names)?,
        duration_ns: unsigned("duration_ns", rest[rest.len() - 1])?,
        self_ns: None,
    })
}

fn unsigned(column: &str, field: &[u8]) -> Result<u64, String> {
    number(field).ok_or_else(|| {
        let found = String::from_utf8_lossy(field);
        format!("{column}: expected a whole number, found `{found}`")
    })
}

/// A whole number; pandas writes columns with gaps as `1.0`.
fn number(field: &[u8]) -> Option<u64> {
    let digits = field.strip_suffix(b".0").unwrap_or(field);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
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
mod tests {
    use super::*;

    fn event(line: &str) -> Result<(Event, Names), String> {
        let mut names = Names::default();
        match parse(line.as_bytes(), &mut names)? {
            Parsed::Event(event) => Ok((event, names)),
            other => panic!("{other:?}"),
        }
    }

    fn what_of(line: &str) -> What {
        event(line).unwrap().0.what
    }

    #[test]
    fn reads_rows_of_every_kind() {
        let (launch, names) =
            event("1500,cuLaunchKernel,10,11,runcu,3,1,2,3,32,1,1,0,0x7f,0,0").unwrap();
        assert_eq!(
            (launch.time_ns, launch.tgid, launch.tid, launch.cpu),
            (1500, 10, 11, 3)
        );
        assert_eq!(names.text(launch.comm), "runcu");
        assert!(matches!(
            launch.what,
            What::Launch {
                api: Api::Driver,
                ..
            }
        ));
        let off = what_of("9,schedSwitch,10,10,runcu,3,,,,,,,,,98765,0");
        assert!(matches!(
            off,
            What::Off {
                why: Why::Unknown,
                next: None
            }
        ));
        assert_eq!(
            what_of("9,schedSwitch,10,10,runcu,3,,,,,,,,,0,98765"),
            What::On(None)
        );
        assert_eq!(
            what_of("9,syncEnter,10,10,runcu,3,,,,,,,,,,"),
            What::SyncEnter
        );
        let (exit, names) = event("9,softirqExit,10,10,runcu,3,,,,,,,,,,,3,NET_RX,4500").unwrap();
        let What::IrqExit {
            irq, duration_ns, ..
        } = exit.what
        else {
            panic!("{exit:?}");
        };
        assert_eq!(
            (irq.kind, irq.number, duration_ns),
            (IrqKind::Soft, 3, 4500)
        );
        assert_eq!(names.text(irq.name), "NET_RX");
    }

    #[test]
    fn rows_padded_to_19_columns_are_the_same() {
        for (short, long) in [
            (
                "9,syncEnter,1,1,a,3,,,,,,,,,,",
                "9,syncEnter,1,1,a,3,,,,,,,,,,,,,",
            ),
            (
                "9,schedSwitch,1,1,a,3,,,,,,,,,5,0",
                "9,schedSwitch,1,1,a,3,,,,,,,,,5.0,0.0,,,",
            ),
        ] {
            assert_eq!(event(short).unwrap().0, event(long).unwrap().0);
        }
    }

    #[test]
    fn commas_in_names_do_not_shift_columns() {
        let (event_a, names) = event("9,schedSwitch,1,1,a, 7,b,3,,,,,,,,,5,0").unwrap();
        assert_eq!((names.text(event_a.comm), event_a.cpu), ("a, 7,b", 3));
        let (event_b, names) =
            event("9,hardirqExit,1,1,x,5,3,,,,,,,,,,,17,ehci, ohci,900").unwrap();
        assert_eq!((names.text(event_b.comm), event_b.cpu), ("x,5", 3));
        let What::IrqExit {
            irq, duration_ns, ..
        } = event_b.what
        else {
            panic!("{event_b:?}");
        };
        assert_eq!((names.text(irq.name), duration_ns), ("ehci, ohci", 900));
    }

    #[test]
    fn time_before_the_first_event_is_negative() {
        let row = "18446744073709551000,syncEnter,1,1,a,3,,,,,,,,,,";
        assert_eq!(event(row).unwrap().0.time_ns, -616);
    }

    #[test]
    fn the_same_launch_has_the_same_shape() {
        let shape = |line| match what_of(line) {
            What::Launch { shape, .. } => shape,
            other => panic!("{other:?}"),
        };
        let driver = shape("9,cuLaunchKernel,1,1,a,3,1,2,3,32,1,1,0,0x7f,0,0");
        assert_eq!(
            driver,
            shape("5,cudaLaunchKernel,1,1,b,1,1,2,3,32,1,1,0,0x7f,0,0")
        );
        assert_ne!(
            driver,
            shape("5,cudaLaunchKernel,1,1,b,1,1,2,3,32,1,1,0,0x80,0,0")
        );
    }

    #[test]
    fn the_log_is_told_from_rows_and_its_counters_are_kept() {
        let mut names = Names::default();
        let mut parsed = |line: &str| parse(line.as_bytes(), &mut names);
        let counted = parsed("Dropped Events              111000").unwrap();
        assert!(matches!(
            counted,
            Parsed::Counted(Counter::Dropped, 111_000)
        ));
        assert!(matches!(
            parsed("Attached tracepoint: sched_switch"),
            Ok(Parsed::Nothing)
        ));
        assert!(matches!(parsed(HEADER), Ok(Parsed::Restart)));
        assert!(parsed("something else").is_err());
    }

    #[test]
    fn says_what_is_wrong_with_a_row() {
        for (line, part) in [
            ("9,schedSwitch,1,1,a,3,,,,,,,,,5", "found 15"),
            ("9,schedSwitch,1,1,a,3,,,,,,,,,5,6", "to be 0"),
            ("9,schedSwitch,1,1,a,3,,,,,,,,,x,0", "last_offcpu_ns"),
            ("9,cuLaunchKernel,1,1,a,3,,,,,,,,,0,0", "grid_x"),
            ("9,madeUp,1,1,a,3,,,,,,,,,0,0", "madeUp"),
            ("9,softirqExit,1,1,a,3,,,,,,,,,,,3,NET_RX,", "duration_ns"),
            ("9", "found 1"),
            (
                "99999999999999999999,syncEnter,1,1,a,3,,,,,,,,,,",
                "timestamp_ns",
            ),
        ] {
            let error = event(line).unwrap_err();
            assert!(error.contains(part), "{part} in {error}");
        }
    }
}
