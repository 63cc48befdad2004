// SPDX-License-Identifier: GPL-2.0-only
//! Rows of cuda_sched_trace, as written and as other tools write them again.

use super::*;

fn event(line: &str) -> Result<(Event, Names), String> {
    let mut names = Names::default();
    match parse(line.as_bytes(), &mut Columns::default(), &mut names)? {
        Parsed::Event(event) => Ok((event, names)),
        other => panic!("{other:?}"),
    }
}

fn what_of(line: &str) -> EventKind {
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
        EventKind::Launch {
            api: Api::Driver,
            ..
        }
    ));
    let off = what_of("9,schedSwitch,10,10,runcu,3,,,,,,,,,98765,0");
    assert!(matches!(
        off,
        EventKind::Off {
            why: OffReason::Unknown,
            next: None
        }
    ));
    assert_eq!(
        what_of("9,schedSwitch,10,10,runcu,3,,,,,,,,,0,98765"),
        EventKind::On(None)
    );
    assert_eq!(
        what_of("9,syncEnter,10,10,runcu,3,,,,,,,,,,"),
        EventKind::SyncEnter
    );
    let (exit, names) = event("9,softirqExit,10,10,runcu,3,,,,,,,,,,,3,NET_RX,4500").unwrap();
    let EventKind::IrqExit {
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
        (
            "9,cuLaunchKernel,1,1,a,3,1,2,3,32,1,1,0,0x7f,0,0",
            "9,cuLaunchKernel,1,1,a,3,1.0,2.0,3,32,1,1,0,0x7f,0,0,,,",
        ),
        (
            "9,softirqExit,1,1,a,3,,,,,,,,,,,3,NET_RX,45",
            "9,softirqExit,1,1,a,3,NA,NA,NA,NA,NA,NA,NA,,NA,NA,3,NET_RX,45",
        ),
        (
            "9,cuLaunchKernel,1,1,a,b,3,1,2,3,32,1,1,0,0x7f,0,0",
            "\"9\",\"cuLaunchKernel\",1,1,\"a,b\",3,1,2,3,32,1,1,0,\"0x7f\",0,0,,,",
        ),
    ] {
        assert_eq!(event(short).unwrap().0, event(long).unwrap().0);
    }
}

#[test]
fn commas_in_names_do_not_shift_columns() {
    let (event_a, names) = event("9,schedSwitch,1,1,a, 7,b,3,,,,,,,,,5,0").unwrap();
    assert_eq!((names.text(event_a.comm), event_a.cpu), ("a, 7,b", 3));
    let (event_b, names) = event("9,hardirqExit,1,1,x,5,3,,,,,,,,,,,17,ehci, ohci,900").unwrap();
    assert_eq!((names.text(event_b.comm), event_b.cpu), ("x,5", 3));
    let EventKind::IrqExit {
        irq, duration_ns, ..
    } = event_b.what
    else {
        panic!("{event_b:?}");
    };
    assert_eq!((names.text(irq.name), duration_ns), ("ehci, ohci", 900));
}

#[test]
fn columns_in_another_order_are_found_by_their_names() {
    let usual = "9,softirqExit,10,11,\"a,b\",3,,,,,,,,,,,3,NET_RX,4500";
    let reversed = |line: &str| {
        let mut cells: Vec<_> = split(line.as_bytes())
            .iter()
            .map(|cell| format!("\"{}\"", String::from_utf8_lossy(cell)))
            .collect();
        cells.reverse();
        cells.push("extra".to_owned());
        cells.join(",")
    };
    let (mut columns, mut names) = (Columns::default(), Names::default());
    let mut parsed = |line: &str| parse(line.as_bytes(), &mut columns, &mut names);
    assert_eq!(parsed(&reversed(HEADER)), Ok(Parsed::Restart));
    let row = reversed(usual)
        .replace("\"10\"", "10.0")
        .replace("\"\"", "NaN");
    let Ok(Parsed::Event(found)) = parsed(&row) else {
        panic!("{:?}", parsed(&row));
    };
    assert!(
        parsed(&(row.clone() + ",7"))
            .unwrap_err()
            .contains("21 columns, where")
    );
    let twice = parsed(&reversed(&HEADER.replacen("tid", "pid", 1))).unwrap_err();
    assert!(twice.contains("two columns are called `pid`"), "{twice}");
    assert_eq!(
        (found.tgid, found.tid, names.text(found.comm)),
        (10, 11, "a,b")
    );
    assert!(matches!(
        found.what,
        EventKind::IrqExit {
            duration_ns: 4500,
            ..
        }
    ));
}

#[test]
fn quotes_in_a_name_are_no_quoting() {
    let (found, names) = event("9,syncEnter,1,1,\"a,3,,,,,,,,,,").unwrap();
    assert_eq!((names.text(found.comm), found.cpu), ("\"a", 3));
}

#[test]
fn time_before_the_first_event_is_negative() {
    let row = "18446744073709551000,syncEnter,1,1,a,3,,,,,,,,,,";
    assert_eq!(event(row).unwrap().0.time_ns, -616);
}

#[test]
fn the_same_launch_has_the_same_shape() {
    let shape = |line| match what_of(line) {
        EventKind::Launch { shape, .. } => shape,
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
    let mut columns = Columns::default();
    let mut parsed = |line: &str| parse(line.as_bytes(), &mut columns, &mut names);
    let counted = parsed("Dropped Events              111000").unwrap();
    assert!(matches!(
        counted,
        Parsed::Counted(Counter::Dropped, 111_000)
    ));
    assert!(matches!(
        parsed("Attached tracepoint: sched_switch"),
        Ok(Parsed::Nothing)
    ));
    let lost = parsed("8200,lost,0,0,,0,,,,,,,,,,,,,4").unwrap();
    assert!(matches!(lost, Parsed::Counted(Counter::Dropped, 4)));
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
        ("9,schedSwitch,1,1,a,3,,,,,,,,,1.5,0", "last_offcpu_ns"),
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
