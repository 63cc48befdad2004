// SPDX-License-Identifier: GPL-2.0-only
//! A Perfetto file of a real trace, read with another library than the one that writes, by Perfetto's own definitions.

use std::collections::BTreeMap;

use perfetto_reader::TracePacket;
use perfetto_reader::track_event::Type;
use protobuf::Message;

use super::alone;
use super::known::{Phase, command};
use crate::process::code;

/// The packets of a file.
pub fn packets(bytes: &[u8]) -> Vec<TracePacket> {
    let trace = perfetto_reader::Trace::parse_from_bytes(bytes);
    trace.expect("a Perfetto trace").packet
}

/// Slices of each track as name, begin and end, by the rules of Perfetto: packets sorted by time, an
/// end closes what began last. What never ends does so with the trace.
fn slices(packets: &[TracePacket]) -> BTreeMap<u64, Vec<(String, u64, u64)>> {
    let mut events: Vec<_> = packets.iter().filter(|one| one.has_track_event()).collect();
    events.sort_by_key(|packet| packet.timestamp());
    let mut open = BTreeMap::<u64, Vec<(String, u64)>>::new();
    let mut slices = BTreeMap::<u64, Vec<(String, u64, u64)>>::new();
    for packet in events {
        let (event, at_ns) = (packet.track_event(), packet.timestamp());
        let track = event.track_uuid();
        match event.type_() {
            Type::TYPE_SLICE_BEGIN => {
                open.entry(track)
                    .or_default()
                    .push((event.name().to_owned(), at_ns));
            }
            Type::TYPE_SLICE_END => {
                let begun = open.get_mut(&track).and_then(Vec::pop);
                let (name, begin_ns) = begun.expect("something to end");
                slices
                    .entry(track)
                    .or_default()
                    .push((name, begin_ns, at_ns));
            }
            _ => {}
        }
    }
    slices
}

#[test]
fn a_real_trace_has_its_threads_with_their_calls_and_states() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.pftrace");
    let output = command(
        "--format perfetto --all-launches",
        &file,
        "block:1:1000 launch:1000 graph:50 sync:20 hog:500 crowd:50",
    )
    .output()
    .unwrap();
    assert_eq!(code(output.status), 0);
    let phases = String::from_utf8_lossy(&output.stdout);
    let phases: Vec<Phase> = phases
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let packets = packets(&std::fs::read(&file).unwrap());
    let tracks: Vec<_> = packets
        .iter()
        .filter(|packet| packet.has_track_descriptor())
        .map(|packet| packet.track_descriptor())
        .collect();
    let others = tracks
        .iter()
        .filter(|track| track.thread.is_none() && track.process.is_none());
    let mut uuids: Vec<_> = others.map(|track| track.uuid()).collect();
    let nr_described = uuids.len();
    uuids.sort_unstable();
    uuids.dedup();
    assert_eq!(uuids.len(), nr_described, "each track is described once");
    let slices = slices(&packets);
    // Main thread, the three phases that call nothing, one of which has a hog, and the crowd's. Who is called otherwise later
    // is described again; the last name of a thread counts, the first of a process.
    let threads = tracks.iter().filter(|track| track.thread.is_some());
    let threads: BTreeMap<u64, &str> = threads
        .map(|track| (track.uuid(), track.thread.thread_name()))
        .collect();
    assert_eq!(threads.len(), 1 + 3 + 1 + 50);
    let called = |name: &str| threads.values().filter(|it| **it == name).count();
    // The phases that call run in the main thread, which is called as the last of them; a hog as its phase.
    assert_eq!(
        (called("scx_gpuaware"), called("known")),
        (0, 0),
        "{threads:?}"
    );
    assert_eq!((called("sync"), called("hog")), (1, 2), "{threads:?}");
    let mut processes = tracks.iter().filter(|track| track.process.is_some());
    let named = processes.find(|track| track.process.has_process_name());
    // It waited for the first phase's thread before it renamed its own: it was seen under the name of its program.
    assert_eq!(named.unwrap().process.process_name(), "known");
    let calls = |name: &str, phase: &Phase| {
        let thread = tracks.iter().find(|track| track.thread.tid() == phase.tid);
        let of_thread = &slices[&thread.unwrap().uuid()];
        let within = phase.from_ns..phase.to_ns;
        let is = |slice: &&(String, u64, u64)| slice.0 == name && within.contains(&slice.1);
        of_thread.iter().filter(is).count()
    };
    assert_eq!(calls("cuLaunchKernel", &phases[1]), 1000);
    assert_eq!(calls("cuGraphLaunch", &phases[2]), 50);
    assert_eq!(calls("cuStreamSynchronize", &phases[3]), 20);
    let hog = &phases[4];
    let thread = tracks.iter().find(|track| track.thread.tid() == hog.tid);
    let state = tracks
        .iter()
        .find(|track| track.parent_uuid() == thread.unwrap().uuid() && track.name() == "state");
    let states = &slices[&state.unwrap().uuid()];
    // One state after the other, without a gap.
    assert!(
        states.windows(2).all(|two| two[0].2 == two[1].1),
        "{states:?}"
    );
    let preempted = states
        .iter()
        .filter(|(name, begin, _)| name == "preempted" && (hog.from_ns..hog.to_ns).contains(begin));
    assert_eq!(preempted.count() as u64, hog.nivcsw);
}
