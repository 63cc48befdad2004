// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::schema::{Comm, Launches};

fn header() -> Header {
    Header {
        schema: 1,
        program: "0".to_owned(),
        clock: "CLOCK_MONOTONIC".to_owned(),
        start_ns: 0,
        start_unix_ns: 0,
        kernel: "6.18".to_owned(),
        scheduler: None,
        cpus: 2,
        target: "cgroup /".to_owned(),
        launches: Launches::All,
    }
}

#[test]
fn what_has_ended_is_forgotten() {
    let (out, bytes) = (std::io::sink(), 0);
    let mut file = Perfetto::begin(Counted { out, bytes }, &header()).unwrap();
    for id in 1..1000 {
        for event in [Kind::ThreadStart, Kind::SwitchIn, Kind::ThreadExit] {
            let (tid, tgid) = (id, id / 2);
            let record = Record::new(1000, event);
            file.record(&Record {
                tid,
                tgid,
                ..record
            })
            .unwrap();
        }
    }
    assert!(file.threads.is_empty() && file.processes.is_empty());
}

/// What the file says that processes and threads are called, in its order.
fn names(bytes: &[u8]) -> Vec<(i32, String)> {
    let packets = Trace::decode(bytes).unwrap().packet;
    let tracks = packets
        .into_iter()
        .filter_map(|packet| packet.track_descriptor);
    let named = tracks.filter_map(|track| match (track.process, track.thread) {
        (Some(process), _) => Some((-process.pid?, process.process_name?)),
        (_, Some(thread)) => Some((thread.tid?, thread.thread_name?)),
        _ => None,
    });
    named.collect()
}

#[test]
fn who_is_called_otherwise_after_the_start_is_called_so() {
    let mut bytes = Vec::new();
    let counted = Counted {
        out: &mut bytes,
        bytes: 0,
    };
    let mut file = Perfetto::begin(counted, &header()).unwrap();
    let mut record = |time_ns: u64, event, tid: i32, comm: &str, reason| {
        let record = Record {
            tid,
            tgid: 7,
            comm: Comm::new(comm),
            reason,
            ..Record::new(time_ns, event)
        };
        file.record(&record).unwrap();
    };
    // A child of the tracer, before and after exec; its thread, before and after it has a name.
    record(1, Kind::ThreadStart, 7, "scx_gpuaware", Some(Reason::New));
    record(2, Kind::SwitchIn, 7, "scx_gpuaware", None);
    record(3, Kind::SwitchOut, 7, "serve", None);
    record(4, Kind::ThreadStart, 8, "serve", Some(Reason::New));
    record(5, Kind::SwitchIn, 8, "engine", None);
    record(6, Kind::SwitchOut, 8, "engine", None);
    record(7, Kind::ThreadExit, 8, "engine", None);
    record(8, Kind::ThreadExit, 7, "serve", None);
    let (process, main, engine) = (-7, 7, 8);
    let wanted = [
        (main, "scx_gpuaware"),
        (main, "serve"),
        (process, "serve"),
        (engine, "serve"),
        (engine, "engine"),
    ];
    let wanted = wanted.map(|(id, name)| (id, name.to_owned()));
    drop(file);
    assert_eq!(names(&bytes), wanted);
}

#[test]
fn processes_have_a_name_whatever_becomes_of_them() {
    let mut bytes = Vec::new();
    let counted = Counted {
        out: &mut bytes,
        bytes: 0,
    };
    let mut file = Box::new(Perfetto::begin(counted, &header()).unwrap());
    for (tgid, reason) in [(1, Reason::Unknown), (2, Reason::New), (3, Reason::New)] {
        let started = Record {
            tid: tgid,
            tgid,
            comm: Comm::new(&format!("p{tgid}")),
            reason: Some(reason),
            ..Record::new(1, Kind::ThreadStart)
        };
        file.record(&started).unwrap();
    }
    let exit = Record {
        tid: 2,
        tgid: 2,
        comm: Comm::new("p2"),
        ..Record::new(2, Kind::ThreadExit)
    };
    file.record(&exit).unwrap();
    let end: End = serde_json::from_value(serde_json::json!({"ended_by": "signal", "end_ns": 3,
        "window_ns": 3, "windows": 1, "counted": {}, "lost": {}, "missed": 0}))
    .unwrap();
    file.end(&end).unwrap();
    let mut processes = names(&bytes);
    processes.retain(|(id, _)| *id < 0);
    let wanted = [(-1, "p1"), (-2, "p2"), (-3, "p3")];
    assert_eq!(processes, wanted.map(|(id, name)| (id, name.to_owned())));
}
