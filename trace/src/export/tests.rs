// SPDX-License-Identifier: GPL-2.0-only
//! Files as others read them: csv and serde_json, and for Perfetto another library than the one that
//! writes, by Perfetto's own definitions.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use perfetto_reader::TracePacket;
use perfetto_reader::track_event::Type;
use protobuf::Message;

use super::sink::CSV_BUFFER_BYTES;
use super::*;
use crate::schema::{
    COLUMNS, CSV_END_PREFIX, CSV_HEADER_PREFIX, Comm, End, EndedBy, Kind, Launches, Line, Name,
    Reason, Record,
};

/// A file in memory that outlives its writer.
#[derive(Clone, Default)]
struct Memory(Rc<RefCell<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn header() -> Header {
    Header {
        schema: 1,
        program: "0.1.0".to_owned(),
        clock: "CLOCK_MONOTONIC".to_owned(),
        start_ns: 900,
        start_unix_ns: 5,
        kernel: "6.18".to_owned(),
        scheduler: Some("lavd".to_owned()),
        cpus: 2,
        target: "process 10".to_owned(),
        launches: Launches::All,
    }
}

fn end() -> End {
    End {
        ended_by: EndedBy::Signal,
        end_ns: 20_000,
        window_ns: 19_000,
        windows: 1,
        counted: BTreeMap::from([(Kind::Launch, 5)]),
        lost: BTreeMap::from([(Kind::Launch, 4)]),
        missed: 0,
        missed_by: BTreeMap::new(),
    }
}

fn record(time_ns: u64, event: Kind) -> Record {
    Record {
        cpu: 1,
        tid: 12,
        tgid: 10,
        comm: Comm::new("a \"b\", c"),
        ..Record::new(time_ns, event)
    }
}

/// One thread that launches, waits for the GPU, is preempted, sleeps and is interrupted.
fn story() -> Vec<Record> {
    let irq = |time_ns, event, duration_ns, self_ns, irq, name: &str| Record {
        duration_ns: Some(duration_ns),
        self_ns: Some(self_ns),
        irq: Some(irq),
        irq_name: Some(Name::new(name)),
        ..record(time_ns, event)
    };
    vec![
        record(1_000, Kind::ThreadStart),
        Record {
            reason: Some(Reason::New),
            duration_ns: Some(100),
            wait_ns: Some(100),
            ..record(1_100, Kind::SwitchIn)
        },
        Record {
            symbol: Some(Name::new("cuLaunchKernel_ptsz")),
            grid_x: Some(7),
            grid_y: Some(2),
            grid_z: Some(3),
            block_x: Some(32),
            block_y: Some(4),
            block_z: Some(1),
            shared_bytes: Some(256),
            stream: Some(0x7f00_1234),
            ..record(1_200, Kind::Launch)
        },
        irq(1_500, Kind::HardIrq, 100, 100, 40, "eth0"),
        irq(1_600, Kind::SoftIrq, 300, 200, 3, "NET_RX"),
        Record {
            reason: Some(Reason::Preempted),
            state: Some('R'),
            duration_ns: Some(900),
            other_tid: Some(99),
            other_tgid: Some(98),
            other_comm: Some(Comm::new("hog")),
            ..record(2_000, Kind::SwitchOut)
        },
        Record {
            reason: Some(Reason::Preempted),
            duration_ns: Some(1_000),
            wait_ns: Some(1_000),
            ..record(3_000, Kind::SwitchIn)
        },
        Record {
            symbol: Some(Name::new("cuStreamSynchronize")),
            ..record(3_100, Kind::SyncEnter)
        },
        Record {
            reason: Some(Reason::Blocked),
            state: Some('S'),
            duration_ns: Some(200),
            ..record(3_200, Kind::SwitchOut)
        },
        Record {
            reason: Some(Reason::Irq),
            ..record(9_000, Kind::Wakeup)
        },
        Record {
            reason: Some(Reason::Blocked),
            duration_ns: Some(6_000),
            wait_ns: Some(200),
            ..record(9_200, Kind::SwitchIn)
        },
        Record {
            symbol: Some(Name::new("cuStreamSynchronize")),
            duration_ns: Some(6_200),
            ..record(9_300, Kind::SyncExit)
        },
        record(10_000, Kind::ThreadExit),
    ]
}

fn write(format: Format) -> Vec<u8> {
    written(format, &story())
}

#[test]
fn csv_has_header_columns_rows_and_end() {
    let text = String::from_utf8(write(Format::Csv)).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let json = lines[0].strip_prefix(CSV_HEADER_PREFIX).unwrap();
    assert_eq!(serde_json::from_str::<Header>(json).unwrap(), header());
    assert_eq!(lines[1], COLUMNS.join(","));
    let json = lines.last().unwrap().strip_prefix(CSV_END_PREFIX).unwrap();
    assert_eq!(serde_json::from_str::<End>(json).unwrap(), end());
    let mut reader = ::csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let read: Vec<Record> = reader.deserialize().map(Result::unwrap).collect();
    assert_eq!(read, story());
}

#[test]
fn ndjson_has_header_records_and_end() {
    let text = String::from_utf8(write(Format::Ndjson)).unwrap();
    let lines: Vec<Line> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.first(), Some(&Line::Header(header())));
    assert_eq!(lines.last(), Some(&Line::End(end())));
    let records: Vec<_> = lines
        .into_iter()
        .filter_map(|line| match line {
            Line::Record(record) => Some(*record),
            _ => None,
        })
        .collect();
    assert_eq!(records, story());
}

#[test]
fn legacy_rows_have_its_19_columns_in_its_order() {
    let text = String::from_utf8(write(Format::LegacyCsv)).unwrap();
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some(
            "timestamp_ns,event_type,pid,tid,comm,cpu,grid_x,grid_y,grid_z,block_x,block_y,block_z,\
             shared_mem,stream,last_offcpu_ns,last_oncpu_ns,irq_num,irq_name,duration_ns"
        )
    );
    let rows: Vec<_> = lines.collect();
    let comm = "\"a \"\"b\"\", c\"";
    assert_eq!(
        rows,
        [
            format!("0,schedSwitch,10,12,{comm},1,,,,,,,,,0,1100,,,"),
            format!("100,cuLaunchKernel,10,12,{comm},1,7,2,3,32,4,1,256,0x7f001234,0,0,,,"),
            format!("200,softirqEntry,10,12,{comm},1,,,,,,,,,,,3,NET_RX,0"),
            format!("300,hardirqEntry,10,12,{comm},1,,,,,,,,,,,40,eth0,0"),
            format!("400,hardirqExit,10,12,{comm},1,,,,,,,,,,,40,eth0,100"),
            format!("500,softirqExit,10,12,{comm},1,,,,,,,,,,,3,NET_RX,300"),
            format!("900,schedSwitch,10,12,{comm},1,,,,,,,,,2000,0,,,"),
            format!("1900,schedSwitch,10,12,{comm},1,,,,,,,,,0,3000,,,"),
            format!("2000,syncEnter,10,12,{comm},1,,,,,,,,,,,,,"),
            format!("2100,schedSwitch,10,12,{comm},1,,,,,,,,,3200,0,,,"),
            format!("8100,schedSwitch,10,12,{comm},1,,,,,,,,,0,9200,,,"),
            format!("8200,syncExit,10,12,{comm},1,,,,,,,,,,,,,"),
            "8200,lost,0,0,,0,,,,,,,,,,,,,4".to_owned(),
        ]
    );
}

#[test]
fn a_legacy_file_in_which_events_were_missed_has_one_row_more_of_19_columns_that_says_so() {
    let file = Memory::default();
    let mut sink = begin(Format::LegacyCsv, Box::new(file.clone()), &header()).unwrap();
    for record in story() {
        sink.record(&record).unwrap();
    }
    let end = End {
        lost: BTreeMap::new(),
        missed: 3,
        missed_by: BTreeMap::from([("too_deep".to_owned(), 1), ("unseen_switch".to_owned(), 2)]),
        ..end()
    };
    sink.end(&end).unwrap();
    let bytes = file.0.take();
    let mut reader = ::csv::Reader::from_reader(bytes.as_slice());
    let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
    let of_the_tool = [
        "cuLaunchKernel",
        "sync",
        "schedSwitch",
        "hardirq",
        "softirq",
    ];
    let (ours, said): (Vec<_>, Vec<_>) = rows
        .iter()
        .partition(|row| of_the_tool.iter().any(|kind| row[1].starts_with(kind)));
    assert_eq!(ours.len(), 12);
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(
        (said[0].len(), &said[0][1], &said[0][18]),
        (19, "lost", "3")
    );
}

/// The packets, as the other library reads them.
fn packets() -> Vec<TracePacket> {
    packets_of(&story())
}

/// Id of the track of that name.
fn track(packets: &[TracePacket], name: &str) -> u64 {
    let named = |packet: &&TracePacket| packet.track_descriptor().name() == name;
    let packet = packets.iter().find(named).unwrap();
    packet.track_descriptor().uuid()
}

/// Slices of a track as name, begin and end, by the rules of Perfetto: packets sorted by time, an
/// end closes what began last.
fn slices(packets: &[TracePacket], track: u64) -> Vec<(String, u64, u64)> {
    let mut events: Vec<_> = packets
        .iter()
        .filter(|packet| packet.has_track_event() && packet.track_event().track_uuid() == track)
        .collect();
    events.sort_by_key(|packet| packet.timestamp());
    let (mut open, mut slices) = (Vec::new(), Vec::new());
    for packet in events {
        let name = packet.track_event().name().to_owned();
        match packet.track_event().type_() {
            Type::TYPE_SLICE_BEGIN => open.push((name, packet.timestamp())),
            Type::TYPE_SLICE_END => {
                let (name, begin) = open.pop().expect("something to end");
                slices.push((name, begin, packet.timestamp()));
            }
            Type::TYPE_INSTANT => slices.push((name, packet.timestamp(), packet.timestamp())),
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?} never ends");
    slices.sort_by_key(|&(_, begin, _)| begin);
    slices
}

#[test]
fn perfetto_shows_states_calls_and_interrupts() {
    let packets = packets();
    let thread = packets
        .iter()
        .find(|packet| packet.track_descriptor().thread.tid() == 12)
        .unwrap();
    assert_eq!(thread.track_descriptor().thread.pid(), 10);
    assert_eq!(thread.track_descriptor().thread.thread_name(), "a \"b\", c");
    let calls = thread.track_descriptor().uuid();
    let slice = |name: &str, begin, end| (name.to_owned(), begin, end);
    assert_eq!(
        slices(&packets, calls),
        [
            slice("cuLaunchKernel_ptsz", 1_200, 1_200),
            slice("cuStreamSynchronize", 3_100, 9_300),
        ]
    );
    assert_eq!(
        slices(&packets, track(&packets, "state")),
        [
            slice("running", 1_100, 2_000),
            slice("preempted", 2_000, 3_000),
            slice("running", 3_000, 3_200),
            slice("blocked", 3_200, 9_000),
            slice("runnable", 9_000, 9_200),
            slice("running", 9_200, 10_000),
        ]
    );
    assert_eq!(
        slices(&packets, track(&packets, "interrupts")),
        [slice("NET_RX", 1_300, 1_600), slice("eth0", 1_400, 1_500)]
    );
}

fn written(format: Format, records: &[Record]) -> Vec<u8> {
    let file = Memory::default();
    let mut sink = begin(format, Box::new(file.clone()), &header()).unwrap();
    for record in records {
        sink.record(record).unwrap();
    }
    sink.end(&end()).unwrap();
    file.0.take()
}

fn packets_of(records: &[Record]) -> Vec<TracePacket> {
    let bytes = written(Format::Perfetto, records);
    let trace = perfetto_reader::Trace::parse_from_bytes(&bytes);
    trace.unwrap().packet
}

#[test]
fn perfetto_shows_windows_and_graphs() {
    let call = |time_ns, event, name| Record {
        symbol: Some(Name::new(name)),
        ..record(time_ns, event)
    };
    let packets = packets_of(&[
        Record::new(1_000, Kind::WindowOpen),
        call(1_100, Kind::GraphLaunch, "cuGraphLaunch"),
        call(1_300, Kind::GraphLaunchExit, "cuGraphLaunch"),
        call(1_500, Kind::SyncEnter, "cuCtxSynchronize"),
        Record::new(2_000, Kind::WindowClose),
    ]);
    let slice = |name: &str, begin, end| (name.to_owned(), begin, end);
    assert_eq!(
        slices(&packets, track(&packets, "launches recorded")),
        [slice("window", 1_000, 2_000)]
    );
    let named = |packet: &&TracePacket| packet.track_descriptor().thread.tid() == 12;
    let calls = packets
        .iter()
        .find(named)
        .unwrap()
        .track_descriptor()
        .uuid();
    assert_eq!(
        slices(&packets, calls),
        [
            slice("cuGraphLaunch", 1_100, 1_300),
            // Its end is after the window: it lasts at least until there.
            slice("cuCtxSynchronize", 1_500, 2_000),
        ]
    );
}

#[test]
fn perfetto_tells_threads_apart_that_have_one_id_after_another() {
    let of = |time_ns, event, tgid| Record {
        tgid,
        ..record(time_ns, event)
    };
    let packets = packets_of(&[
        of(1_000, Kind::ThreadStart, 10),
        of(2_000, Kind::ThreadExit, 10),
        of(3_000, Kind::ThreadStart, 20),
        of(4_000, Kind::ThreadExit, 20),
        of(5_000, Kind::ThreadStart, 10),
    ]);
    let described = packets
        .iter()
        .filter(|packet| packet.has_track_descriptor());
    let mut uuids: Vec<_> = described
        .map(|packet| packet.track_descriptor().uuid())
        .collect();
    // Three of no thread; three times a process and four tracks.
    assert_eq!(uuids.len(), 3 + 3 * 5);
    uuids.sort_unstable();
    uuids.dedup();
    assert_eq!(uuids.len(), 18);
    let parents = packets.iter().filter_map(|packet| {
        let track = packet.track_descriptor();
        let process = |other: &&TracePacket| other.track_descriptor().uuid() == track.parent_uuid();
        let parent = packets
            .iter()
            .find(process)
            .filter(|_| track.thread.is_some())?;
        Some((track.thread.pid(), parent.track_descriptor().process.pid()))
    });
    assert_eq!(parents.collect::<Vec<_>>(), [(10, 10), (20, 20), (10, 10)]);
}

#[test]
fn perfetto_says_who_preempted_and_what_was_launched() {
    let packets = packets();
    let annotation = |slice: &str, name: &str| {
        let packet = packets
            .iter()
            .find(|packet| packet.track_event().name() == slice)
            .unwrap();
        let annotations = &packet.track_event().debug_annotations;
        let found = annotations.iter().find(|found| found.name() == name);
        found.unwrap().string_value().to_owned()
    };
    assert_eq!(annotation("preempted", "next"), "hog");
    assert_eq!(annotation("cuLaunchKernel_ptsz", "grid"), "7x2x3");
    assert_eq!(annotation("begin, schema 1", "scheduler"), "lavd");
}

#[test]
fn perfetto_counts_waits_and_losses() {
    let packets = packets();
    let values = |track: u64| -> Vec<i64> {
        let of_track = packets
            .iter()
            .filter(|packet| packet.has_track_event() && packet.track_event().track_uuid() == track)
            .filter(|packet| packet.track_event().type_() == Type::TYPE_COUNTER);
        of_track
            .map(|packet| packet.track_event().counter_value())
            .collect()
    };
    assert_eq!(values(track(&packets, "wait for a CPU")), [100, 1_000, 200]);
    assert_eq!(values(track(&packets, "events lost")), [4]);
    let lost = packets
        .iter()
        .any(|packet| packet.track_event().name() == "end: 4 events lost");
    assert!(lost);
}

#[test]
fn sizes_are_those_of_the_files() {
    for format in [Format::Csv, Format::Ndjson, Format::Perfetto] {
        let file = Memory::default();
        let mut sink = begin(format, Box::new(file.clone()), &header()).unwrap();
        for _ in 0..10_000 {
            sink.record(&story()[2]).unwrap();
        }
        let promised = sink.nr_bytes();
        let size = file.0.borrow().len() as u64;
        assert!(
            (size..size + 2 * CSV_BUFFER_BYTES as u64).contains(&promised),
            "{format:?}: {promised} of {size}"
        );
    }
}

#[test]
fn a_legacy_file_is_never_greater_than_was_said() {
    let file = Memory::default();
    let mut sink = begin(Format::LegacyCsv, Box::new(file.clone()), &header()).unwrap();
    for _ in 0..10_000 {
        // Of one moment: all are held back, to be put in order.
        sink.record(&story()[2]).unwrap();
    }
    let promised = sink.nr_bytes();
    let complete = End {
        lost: BTreeMap::new(),
        ..end()
    };
    sink.end(&complete).unwrap();
    let size = file.0.borrow().len() as u64;
    assert!((size..2 * size).contains(&promised), "{promised} of {size}");
}
