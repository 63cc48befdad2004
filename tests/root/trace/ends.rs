// SPDX-License-Identifier: GPL-2.0-only
//! How a trace ends, in every format, and what memory it takes until then.

use std::path::Path;
use std::time::{Duration, Instant};

use gpuaware_trace::schema::{EndedBy, Line};
use nix::sys::signal::Signal;

use super::alone;
use super::known::{command, read};
use super::perfetto;
use crate::length;
use crate::process::{Process, code};

/// As it is given, and with what.
const FORMATS: [(&str, &str); 4] = [
    ("csv", ""),
    ("ndjson", ""),
    ("perfetto", ""),
    ("legacy-csv", "--all-launches"),
];

/// Reads a file to its end, which must be there; gives the number of its rows, and why it ended
/// where the format says so.
fn complete(format: &str, file: &Path) -> (usize, Option<EndedBy>) {
    let bytes = std::fs::read(file).unwrap();
    let text = || std::str::from_utf8(&bytes).unwrap();
    match format {
        "csv" => {
            let traced = read(file, Vec::new(), String::new());
            traced.assert_consistent();
            (traced.records.len(), Some(traced.end.ended_by))
        }
        "ndjson" => {
            let lines: Vec<Line> = text()
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            let Some(Line::End(end)) = lines.last() else {
                panic!("{format}: no end");
            };
            (lines.len() - 2, Some(end.ended_by))
        }
        "perfetto" => {
            let packets = perfetto::packets(&bytes);
            let last = packets.last().unwrap().track_event();
            assert!(last.name().starts_with("end: "), "{}", last.name());
            assert!(last.name().ends_with(" events lost"), "{}", last.name());
            (packets.len(), None)
        }
        _ => {
            assert_eq!(bytes.last(), Some(&b'\n'));
            // After the rows comes what is not among them, if there is any: beyond a size limit, say.
            let (rows, losses) =
                text().split_at(text().find("Warning: lost ").unwrap_or(bytes.len()));
            let columns = |line: &str| line.split(',').count();
            assert!(rows.lines().all(|line| columns(line) == 19), "{format}");
            if let Some(last) = losses.lines().last() {
                assert!(last.starts_with("Dropped Events "), "{last}");
            }
            (rows.lines().count() - 1, None)
        }
    }
}

#[test]
fn sigint_leaves_a_complete_file() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    for (format, flags) in FORMATS {
        let flags = format!("--format {format} {flags}");
        let mut tracer = Process::start(command(&flags, &file, "block:100000:1000"));
        tracer.wait_for_line("probing");
        // That is said before the probes are placed and the program runs.
        std::thread::sleep(Duration::from_secs(2));
        tracer.signal(Signal::SIGINT);
        let status = tracer.wait();
        assert_eq!(code(status), 0, "{format}: {}", tracer.log.join("\n"));
        let (rows, ended_by) = complete(format, &file);
        assert!(rows > 300, "{format}: {rows}");
        assert!(
            ended_by.is_none_or(|why| why == EndedBy::Signal),
            "{format}"
        );
    }
}

#[test]
fn sigint_leaves_a_complete_summary() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("summary");
    let mut tracer = Process::start(command("--format json", &file, "block:100000:1000"));
    tracer.wait_for_line("probing");
    std::thread::sleep(Duration::from_secs(2));
    tracer.signal(Signal::SIGINT);
    let status = tracer.wait();
    assert_eq!(code(status), 0, "{}", tracer.log.join("\n"));
    let text = std::fs::read_to_string(&file).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(summary["end"]["ended_by"], "signal");
    let threads = summary["threads"].as_array().unwrap();
    let blocked = threads.iter().map(|it| it["counters"]["blocked"].as_u64());
    assert!(blocked.flatten().any(|count| count > 300), "{summary}");
}

#[test]
fn a_size_limit_ends_with_a_complete_file_within_it() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    for (format, flags) in FORMATS {
        let flags = format!("--format {format} --max-size 300K {flags}");
        let mut tracer = Process::start(command(&flags, &file, "yield:60000:2000"));
        tracer.wait();
        let bytes = std::fs::metadata(&file).unwrap().len();
        // Rows that are held back to be put in order are taken for longer than they are.
        let least = if format == "legacy-csv" { 100 } else { 250 };
        assert!(
            (least << 10..=300 << 10).contains(&bytes),
            "{format}: {bytes}"
        );
        let ended_by = complete(format, &file).1;
        assert!(
            ended_by.is_none_or(|why| why == EndedBy::MaxSize),
            "{format}: {ended_by:?}"
        );
    }
}

/// Memory of a process now, KiB.
fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn the_tracer_does_not_grow_with_its_file() {
    const BOUND_KIB: u64 = 64 << 10;
    let least_bytes = length::of(2, 4) * (BOUND_KIB << 10);
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    for format in ["csv", "perfetto"] {
        let flags = format!("--format {format} --buffer 4M");
        let mut tracer = Process::start(command(&flags, &file, "yield:300000:5000"));
        tracer.wait_for_line("probing");
        // Rows wait in memory for a moment to be put in order, more of them on a busy machine, so
        // that what is held goes up and down: it is compared with a file of several times its bound.
        let deadline = Instant::now() + Duration::from_secs(240);
        let (mut most_kib, mut bytes) = (0, 0);
        while bytes < least_bytes && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(100));
            most_kib = most_kib.max(resident_kib(tracer.pid()));
            bytes = std::fs::metadata(&file).unwrap().len();
        }
        tracer.signal(Signal::SIGINT);
        tracer.wait();
        assert!(
            bytes >= least_bytes,
            "{format}: {bytes} bytes in four minutes"
        );
        assert!(
            most_kib < BOUND_KIB,
            "{format}: {most_kib} KiB, {bytes} bytes"
        );
    }
}
