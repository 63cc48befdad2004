// SPDX-License-Identifier: GPL-2.0-only
//! Our own CSV and NDJSON, as written and as other tools write them again.

use super::*;
use crate::schema::{COLUMNS, Comm, Record};

const COLUMNS_LINE: &str = "time_ns,event,cpu,tid,tgid,comm,symbol,grid_x,grid_y,grid_z,block_x,block_y,\
                            block_z,shared_bytes,stream,duration_ns,self_ns,wait_ns,reason,state,\
                            other_tid,other_tgid,other_comm,to_cpu,irq,irq_name,sched_class,dsq,slice_ns";

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
    let off_cpu = OffCpu {
        why: OffReason::Blocked,
        off_ns: 900,
        wait_ns: 300,
    };
    assert_eq!(event.what, EventKind::On(Some(off_cpu)));
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
fn a_file_that_another_tool_has_written_again_is_the_same() {
    // Reordered, with an index in front, everything quoted, floats where columns have gaps.
    let row = csv_row(&record());
    let (names, cells) = (split(COLUMNS_LINE.as_bytes()), split(row.as_bytes()));
    let text = |cell: &Cow<[u8]>| String::from_utf8_lossy(cell).replace('"', "\"\"");
    let quoted = |cells: &[Cow<[u8]>], index: &str| {
        let cells = cells.iter().rev().map(|cell| format!("\"{}\"", text(cell)));
        std::iter::once(index.to_owned())
            .chain(cells)
            .collect::<Vec<_>>()
            .join(",")
    };
    let row = quoted(&cells, "0")
        .replace("\"900\"", "900.0")
        .replace("\"300\"", "300.000");
    let (parsed, found) = csv(&[&quoted(&names, "\"\""), &row]);
    assert_is_record(parsed, &found);
    // The names in the middle, in another order.
    let (parsed, found) = csv(&[
        COLUMNS_LINE,
        &csv_row(&record()),
        COLUMNS_LINE,
        &csv_row(&record()),
    ]);
    assert_is_record(parsed, &found);
    let mut object = serde_json::to_value(record()).unwrap();
    for column in COLUMNS {
        let cell = object
            .as_object_mut()
            .unwrap()
            .entry(column)
            .or_insert(serde_json::Value::Null);
        if let Some(figure) = cell.as_u64() {
            *cell = (figure as f64).into();
        }
    }
    let mut names = Names::default();
    assert_is_record(
        parse_json(object.to_string().as_bytes(), &mut names),
        &names,
    );
    object["wait_ns"] = 1.5.into();
    let error = parse_json(object.to_string().as_bytes(), &mut names).unwrap_err();
    assert!(error.contains("1.5: expected a whole number"), "{error}");
}

#[test]
fn another_version_is_seen() {
    let mut names = Names::default();
    let parsed = parse_json(br#"{"header":{"schema":2}}"#, &mut names);
    assert!(matches!(parsed, Ok(Parsed::OtherVersion(2))));
    let (parsed, _) = csv(&["# scx_gpuaware trace {\"schema\":3}"]);
    assert!(matches!(parsed, Ok(Parsed::OtherVersion(3))));
}

/// Differences of times are signed.
#[test]
fn no_time_is_beyond_a_signed_number() {
    let header = r#"{"header":{"schema":1,"program":"x","clock":"c","start_ns":9223372036854775808,"start_unix_ns":1,
                     "kernel":"k","scheduler":null,"cpus":2,"target":"t","launches":{"mode":"all"}}}"#;
    let header = header.replace('\n', " ");
    let mut names = Names::default();
    let error = parse_json(header.as_bytes(), &mut names).unwrap_err();
    assert!(
        error.contains("start_ns: expected less than 2^63"),
        "{error}"
    );
    let good = header.replace("9223372036854775808", "9223372036854775807");
    let good = parse_json(good.as_bytes(), &mut names);
    assert!(matches!(good, Ok(Parsed::Header(_))), "{good:?}");
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
        ("5000,switch_in".to_owned(), "2 columns, where"),
        (good.clone() + ",", "30 columns, where"),
        (good.replacen("900", "900.5", 1), "duration_ns: expected"),
        (
            good.replacen(",12,", ",99999999999,", 1),
            "tid: 99999999999 is too large",
        ),
    ] {
        let error = csv(&[&columns, &row]).0.unwrap_err();
        assert!(error.contains(part), "{part} in {error}");
    }
    let twice = columns.replacen("tgid", "tid", 1);
    for (names, part) in [
        ("time_ns,event,cpu", "`tid`"),
        (&twice, "two columns are called `tid`"),
        (&columns.replace(',', ";"), "separated by `;`"),
    ] {
        let error = csv(&[names]).0.unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_name_that_is_no_utf_8_is_read_as_far_as_it_is() {
    let record = Record {
        comm: Comm::new("odd?"),
        ..record()
    };
    let mut row = csv_row(&record).into_bytes();
    let odd = row.iter().position(|&byte| byte == b'?').unwrap();
    row[odd] = 0xff;
    let (mut columns, mut names) = (Columns::default(), Names::default());
    parse_csv(COLUMNS.join(",").as_bytes(), &mut columns, &mut names).unwrap();
    let Ok(Parsed::Event(event)) = parse_csv(&row, &mut columns, &mut names) else {
        panic!("no event");
    };
    assert_eq!(names.text(event.comm), "odd\u{fffd}");
}
