// SPDX-License-Identifier: GPL-2.0-only
//! `analyze` as a user meets it: files in, tables, JSON and a page out, errors with their place.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Instant;

use gpuaware_trace::export::{self, Format};
use gpuaware_trace::schema::{
    Comm, End, EndedBy, Header, Kind, Launches, Name, Reason, Record, VERSION,
};
use nix::fcntl::{FcntlArg, fcntl};

use crate::process::{code, repository, scx_gpuaware};

const HEADER: &str = "timestamp_ns,event_type,pid,tid,comm,cpu,grid_x,grid_y,grid_z,block_x,block_y,block_z,shared_mem,stream,last_offcpu_ns,last_oncpu_ns,irq_num,irq_name,duration_ns\n";

/// Rows number `from..to` of a trace that never ends: three processes that launch, threads that come
/// and go, interrupts of many names, intervals of all lengths.
fn rows(from: u64, to: u64) -> String {
    let mut text = String::new();
    for at in from..to {
        let time_ns = at * 2_000 + (at * at) % 1_900;
        let pid = 10 + at % 3;
        let (cpu, vector) = (at % 64, at % 10);
        let _ = match at % 8 {
            0 => writeln!(
                text,
                "{time_ns},schedSwitch,{pid},{pid},engine,{cpu},,,,,,,,,{},0",
                time_ns + 700
            ),
            1 => writeln!(
                text,
                "{time_ns},schedSwitch,{pid},{pid},engine,{cpu},,,,,,,,,0,{}",
                time_ns + 700
            ),
            2 => writeln!(
                text,
                "{time_ns},softirqEntry,{pid},{pid},engine,{cpu},,,,,,,,,,,{vector},n{},0",
                at % 50_000
            ),
            3 => writeln!(
                text,
                "{time_ns},softirqExit,{pid},{pid},engine,{cpu},,,,,,,,,,,{vector},n{},{}",
                at % 50_000,
                at % 99_991
            ),
            4 => writeln!(
                text,
                "{time_ns},syncEnter,9,{},worker-{},1,,,,,,,,,,",
                at % 1_000_000,
                at % 70_000
            ),
            _ => writeln!(
                text,
                "{time_ns},cuLaunchKernel,{pid},{pid},engine,{cpu},1,1,1,32,1,1,0,0x0,0,0"
            ),
        };
    }
    text
}

fn analyze(args: &[&str]) -> Output {
    let mut command = scx_gpuaware(&["analyze"]);
    command.args(args).output().expect("starting scx_gpuaware")
}

fn error(args: &[&str]) -> (i32, String) {
    let output = analyze(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (code(output.status), text)
}

fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn tables_json_and_a_page_come_of_the_same_files() {
    let folder = tempfile::tempdir().unwrap();
    let base = file(
        folder.path(),
        "a.csv",
        &(HEADER.to_owned() + &rows(0, 4000)),
    );
    let cpu = file(
        folder.path(),
        "b.csv",
        &(HEADER.to_owned() + &rows(0, 8000)),
    );
    let page = folder.path().join("page.html");
    let page = page.to_str().unwrap();
    let named = [format!("base={base}"), format!("cpu={cpu}")];
    let files = [named[0].as_str(), named[1].as_str()];
    let rates = ["--tokens-per-second", "209.82,188.93"];
    // Said before the work.
    let nowhere = analyze(&["no-such-trace.csv", "--html", "/dev/null/page.html"]);
    assert_eq!(nowhere.status.code(), Some(2));
    let said = String::from_utf8_lossy(&nowhere.stderr);
    assert!(said.contains("/dev/null/page.html"), "{said}");
    let none = analyze(&["no-such-trace.csv", "--html", page]);
    assert_eq!(none.status.code(), Some(2));
    assert!(!std::path::Path::new(page).exists());
    let text = analyze(&[&files[..], &rates, &["--html", page]].concat());
    assert!(
        text.status.success(),
        "{}",
        String::from_utf8_lossy(&text.stderr)
    );
    let text = String::from_utf8(text.stdout).unwrap();
    // Three of eight rows launch, two are switches.
    for part in ["1,500", "666.7", "10.0 %", "cpu"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(std::fs::read_to_string(page).unwrap().contains("<svg"));
    let json = analyze(&[&files[..], &rates, &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["version"], 1);
    assert_eq!(json["files"][0]["study"]["launches"], 1500);
    let slowdown = json["comparison"]["slowdown_percent"][1]["value"]
        .as_f64()
        .unwrap();
    assert!((slowdown - 9.956).abs() < 0.001, "{slowdown}");
}

/// Records of every kind that is analysed; where `sampled`, launches are in windows: 60 of each 300 records.
fn varied(sampled: bool) -> Vec<Record> {
    let reasons = [Reason::Preempted, Reason::Blocked, Reason::Yielded];
    let calls = [Kind::SyncEnter, Kind::SyncExit];
    let mut records = Vec::new();
    for at in 0..3_000 {
        let mut record = record(at);
        let time_ns = record.time_ns;
        let off = record.reason.is_some();
        record.reason = off.then(|| reasons[(at / 6 % 3) as usize]);
        match at % 30 {
            3 => record.event = Kind::HardIrq,
            9 => record.event = Kind::VectorIrq,
            at @ (4 | 5) => record.event = calls[at as usize - 4],
            _ => {}
        }
        if sampled && at % 300 == 0 {
            records.push(Record::new(time_ns - 1, Kind::WindowOpen));
        }
        if !sampled || at % 300 < 60 || !record.event.is_sampled() {
            records.push(record);
        }
        if sampled && at % 300 == 59 {
            records.push(Record::new(time_ns + 1, Kind::WindowClose));
        }
    }
    records
}

/// Writes `records` to the file of that name.
fn export(folder: &Path, name: &str, format: Format, launches: Launches, records: &[Record]) {
    let out = std::fs::File::create(folder.join(name)).unwrap();
    let mut sink = export::begin(format, Box::new(out), &header(launches)).unwrap();
    for record in records {
        sink.record(record).unwrap();
    }
    let lost = End {
        lost: [(Kind::SwitchIn, 4)].into(),
        missed: 3,
        missed_by: [("too_deep".to_owned(), 3)].into(),
        ..end(6_000_000)
    };
    sink.end(&lost).unwrap();
}

#[test]
fn files_and_figures_are_to_the_letter_what_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (all, sampled) = (
        Launches::All,
        Launches::Sampled {
            window_ns: 120_000,
            period_ns: 600_000,
        },
    );
    file(folder, "legacy.csv", &(HEADER.to_owned() + &rows(0, 240)));
    export(folder, "ours.csv", Format::Csv, all, &varied(false));
    export(
        folder,
        "windows.ndjson",
        Format::Ndjson,
        sampled,
        &varied(true),
    );
    let mut names = vec!["page.html"];
    for (name, format) in [
        ("events.csv", Format::Csv),
        ("events.ndjson", Format::Ndjson),
        ("events.legacy.csv", Format::LegacyCsv),
        ("events.perfetto", Format::Perfetto),
    ] {
        export(folder, name, format, sampled, &varied(true)[..40]);
        names.push(name);
    }
    let arms = "a=ours.csv a=legacy.csv b=windows.ndjson b=ours.csv b=windows.ndjson b=legacy.csv";
    let arms = format!("{arms} --tokens 10,20,30,40,50,60");
    for (name, args) in [
        ("ours.txt", "ours.csv --tokens 7"),
        ("legacy.txt", "legacy.csv"),
        ("windows.txt", "windows.ndjson --tokens-per-second 9"),
        ("windows.json", "windows.ndjson --tokens 7 --json"),
        ("arms.txt", &arms),
        ("two.txt", "a=ours.csv b=windows.ndjson --html page.html"),
    ] {
        let mut command = scx_gpuaware(&["analyze"]);
        command.args(args.split(' ')).current_dir(folder);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        std::fs::write(folder.join(name), output.stdout).unwrap();
        names.push(name);
    }
    let expected = repository().join("tests/data/analyze");
    let differs = |name: &&str| {
        let found = std::fs::read(folder.join(name)).unwrap();
        if std::env::var_os("GPUAWARE_RENEW").is_some() {
            std::fs::write(expected.join(name), &found).unwrap();
        }
        std::fs::read(expected.join(name)).unwrap_or_default() != found
    };
    let different: Vec<_> = names.into_iter().filter(differs).collect();
    assert!(
        different.is_empty(),
        "{different:?}: if that is meant, GPUAWARE_RENEW=1 writes tests/data/analyze anew"
    );
}

#[test]
fn bad_input_names_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let table = file(folder.path(), "table.csv", "name,age\nx,3\n");
    let (code, text) = error(&[&table]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("table.csv:1: not a trace"), "{text}");
    let future = file(folder.path(), "f.ndjson", "{\"header\":{\"schema\":99}}\n");
    let (code, text) = error(&[&future]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("f.ndjson:1: a trace of schema 99"), "{text}");
    for missing in ["/nonexistent/trace.csv", folder.path().to_str().unwrap()] {
        let (code, text) = error(&[missing]);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains(missing), "{text}");
    }
    let good = file(folder.path(), "good.csv", &rows(0, 100));
    let (code, text) = error(&[&good, "--tokens", "1,2"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("each of the 1 files, found 2"), "{text}");
}

#[test]
fn a_partial_file_says_so_or_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = rows(0, 400);
    let partial = file(folder.path(), "cut.csv", &whole[..whole.len() - 7]);
    let output = analyze(&[&partial]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.contains("cut.csv:400: partial"),
        "{text}"
    );
    let (code, text) = error(&[&partial, "--strict"]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("not complete") && text.contains("cut.csv:400"),
        "{text}"
    );
    let malformed = file(folder.path(), "m.csv", &(whole + "1,schedSwitch,1\n"));
    let text = String::from_utf8(analyze(&[&malformed]).stdout).unwrap();
    assert!(
        text.contains("m.csv:401: partial: expected 16 or 19 columns"),
        "{text}"
    );
}

/// Most memory that a process has had, KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse().unwrap()
}

#[test]
fn memory_does_not_grow_with_the_trace() {
    const STEP: u64 = 50_000;
    let mut command = scx_gpuaware(&["analyze", "--json", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut feed = |from: u64, to: u64| {
        for at in (from..to).step_by(STEP as usize) {
            input.write_all(rows(at, at + STEP).as_bytes()).unwrap();
        }
    };
    // All that is bounded fills up first.
    feed(0, 900_000);
    let before = peak_kib(child.id());
    feed(900_000, 1_800_000);
    let after = peak_kib(child.id());
    drop(input);
    let output = child.wait_with_output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["files"][0]["source"]["events"], 1_800_000);
    // Kept as events the second half would take 60 MiB.
    assert!(after < before + 8 * 1024, "{before} KiB, then {after} KiB");
    assert!(after < 120 * 1024, "{after} KiB");
}

fn header(launches: Launches) -> Header {
    Header {
        schema: VERSION,
        program: "0".to_owned(),
        clock: "CLOCK_MONOTONIC".to_owned(),
        start_ns: 0,
        start_unix_ns: 0,
        kernel: "6.18".to_owned(),
        scheduler: None,
        cpus: 64,
        target: "a pipe".to_owned(),
        launches,
    }
}

fn end(end_ns: u64) -> End {
    End {
        ended_by: EndedBy::Command,
        end_ns,
        window_ns: end_ns,
        windows: 1,
        counted: [].into(),
        lost: [].into(),
        missed: 0,
        missed_by: [].into(),
    }
}

/// Record number `at` of a trace of threads that launch, are switched and interrupted.
fn record(at: u64) -> Record {
    let kinds = [
        Kind::Launch,
        Kind::SwitchOut,
        Kind::SwitchIn,
        Kind::SoftIrq,
        Kind::Launch,
        Kind::Launch,
    ];
    let event = kinds[(at % 6) as usize];
    let tid = 10 + (at / 6 % 3) as i32;
    let switch = matches!(event, Kind::SwitchOut | Kind::SwitchIn);
    let irq = event == Kind::SoftIrq;
    Record {
        cpu: (at % 64) as u32,
        tid,
        tgid: tid,
        comm: Comm::new("engine"),
        symbol: (event == Kind::Launch).then(|| Name::new("cuLaunchKernel")),
        duration_ns: (switch || irq).then_some(at % 99_991),
        self_ns: irq.then_some(at % 99_991),
        wait_ns: (event == Kind::SwitchIn).then_some(at % 99_991),
        reason: switch.then_some(Reason::Preempted),
        other_tid: switch.then_some((at % 1_000_000) as i32),
        other_comm: switch.then(|| Comm::new(&format!("hog-{}", at % 70_000))),
        irq: irq.then_some((at % 10) as u32),
        irq_name: irq.then(|| Name::new("NET_RX")),
        ..Record::new(1_000 + at * 2_000, event)
    }
}

#[test]
#[ignore = "takes minutes: 5 GB go through a pipe"]
fn five_gigabytes_of_csv_take_bounded_memory() {
    five_gigabytes(Format::Csv);
}

#[test]
#[ignore = "takes minutes: 5 GB go through a pipe"]
fn five_gigabytes_of_ndjson_take_bounded_memory() {
    five_gigabytes(Format::Ndjson);
}

#[test]
#[ignore = "takes minutes: 5 GB go through a pipe"]
fn five_gigabytes_of_legacy_csv_take_bounded_memory() {
    five_gigabytes(Format::LegacyCsv);
}

fn five_gigabytes(format: Format) {
    const BYTES: u64 = 5_000_000_000;
    const PIPE_BYTES: i32 = 4096;
    let mut command = scx_gpuaware(&["analyze", "--json", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let began = Instant::now();
    let mut child = command.spawn().unwrap();
    let pipe = child.stdout.as_ref().unwrap();
    fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES)).unwrap();
    let header = header(Launches::All);
    let input = std::io::BufWriter::with_capacity(1 << 20, child.stdin.take().unwrap());
    let mut sink = export::begin(format, Box::new(input), &header).unwrap();
    let mut nr_records = 0;
    while sink.nr_bytes() < BYTES {
        sink.record(&record(nr_records)).unwrap();
        nr_records += 1;
    }
    let end_ns = 1_000 + nr_records * 2_000;
    sink.end(&end(end_ns)).unwrap();
    // With a byte of its output there, all is concluded and rendered; the rest has no room.
    let mut output = child.stdout.take().unwrap();
    let mut json = vec![0];
    output.read_exact(&mut json).unwrap();
    let peak = peak_kib(child.id());
    output.read_to_end(&mut json).unwrap();
    assert!(json.len() > 2 * PIPE_BYTES as usize, "{}", json.len());
    assert!(child.wait().unwrap().success());
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let source = &json["files"][0]["source"];
    assert_eq!(source["complete"], true);
    let events = source["events"].as_u64().unwrap();
    if format == Format::LegacyCsv {
        // An interrupt is two rows of cuda_sched_trace.
        assert!((nr_records..2 * nr_records).contains(&events), "{source}");
    } else {
        assert_eq!(events, nr_records);
    }
    eprintln!(
        "{events} records in {:?}, {peak} KiB at most",
        began.elapsed()
    );
    assert!(peak < 500_000, "{peak} KiB");
}
