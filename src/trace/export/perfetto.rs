// SPDX-License-Identifier: GPL-2.0-only
//! A protobuf trace for ui.perfetto.dev: for each thread a track with its calls, one with its
//! state (running, runnable, preempted, yielded, blocked), one with interrupts on top of it, and a
//! counter of how long it waited for a CPU. Windows of launches and losses have tracks of their own.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use anyhow::{Context, Result};
use prost::Message;

use super::perfetto_proto::{
    CounterDescriptor, DebugAnnotation, ProcessDescriptor, ThreadDescriptor, Trace, TracePacket,
    TrackDescriptor, TrackEvent, Type, UNIT_COUNT, UNIT_TIME_NS,
};
use super::{Counted, Sink};
use crate::trace::schema::{End, Header, Kind, Reason, Record};

/// Ids of tracks that belong to no thread.
const WINDOWS: u64 = 1;
const LOST: u64 = 2;
const SESSION: u64 = 3;

/// The tracks of a thread: its id is theirs, with one of these on top.
#[derive(Clone, Copy)]
enum Sort {
    Process = 1,
    Calls = 2,
    State = 3,
    Irqs = 4,
    Wait = 5,
}

fn uuid(sort: Sort, id: i32) -> u64 {
    (sort as u64) << 32 | u64::from(id.unsigned_abs())
}

/// What is open on the tracks of a thread.
#[derive(Default)]
struct Open {
    state: Option<Reason>,
    running: bool,
    calls: u32,
}

/// A Perfetto trace that is being written.
pub struct Perfetto<W: Write> {
    out: Counted<W>,
    buffer: Vec<u8>,
    processes: HashSet<i32>,
    threads: HashMap<i32, Open>,
}

fn number(name: &str, value: Option<impl Into<u64>>) -> Option<DebugAnnotation> {
    Some(DebugAnnotation {
        name: Some(name.to_owned()),
        uint_value: Some(value?.into()),
        string_value: None,
    })
}

fn text(name: &str, value: Option<impl ToString>) -> Option<DebugAnnotation> {
    Some(DebugAnnotation {
        name: Some(name.to_owned()),
        uint_value: None,
        string_value: Some(value?.to_string()),
    })
}

impl<W: Write> Perfetto<W> {
    /// Describes the tracks that belong to no thread.
    pub fn begin(out: Counted<W>, header: &Header) -> Result<Self> {
        let mut file = Self {
            out,
            buffer: Vec::new(),
            processes: HashSet::new(),
            threads: HashMap::new(),
        };
        file.track(WINDOWS, None, "launches recorded", None)?;
        file.track(LOST, None, "events lost", Some(UNIT_COUNT))?;
        file.track(SESSION, None, "scx_gpuaware trace", None)?;
        let annotations = [
            text("kernel", Some(&header.kernel)),
            text("scheduler", header.scheduler.as_ref()),
            text("target", Some(&header.target)),
            text("launches", serde_json::to_string(&header.launches).ok()),
            number("start_unix_ns", Some(header.start_unix_ns)),
        ];
        let name = format!("begin, schema {}", header.schema);
        file.named(Type::Instant, header.start_ns, SESSION, &name, annotations)?;
        Ok(file)
    }

    fn packet(&mut self, packet: TracePacket) -> Result<()> {
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(1),
            ..packet
        };
        self.buffer.clear();
        Trace {
            packet: vec![packet],
        }
        .encode(&mut self.buffer)
        .context("encoding a packet")?;
        self.out.write_all(&self.buffer).context("writing a packet")
    }

    fn descriptor(&mut self, descriptor: TrackDescriptor) -> Result<()> {
        self.packet(TracePacket {
            track_descriptor: Some(descriptor),
            ..TracePacket::default()
        })
    }

    fn track(
        &mut self,
        uuid: u64,
        parent: Option<u64>,
        name: &str,
        counter: Option<i32>,
    ) -> Result<()> {
        self.descriptor(TrackDescriptor {
            uuid: Some(uuid),
            parent_uuid: parent,
            name: Some(name.to_owned()),
            counter: counter.map(|unit| CounterDescriptor {
                unit: Some(unit),
                unit_name: None,
            }),
            ..TrackDescriptor::default()
        })
    }

    fn event(&mut self, time_ns: u64, event: TrackEvent) -> Result<()> {
        self.packet(TracePacket {
            timestamp: Some(time_ns),
            track_event: Some(event),
            ..TracePacket::default()
        })
    }

    /// A slice that begins, or an instant.
    fn named(
        &mut self,
        kind: Type,
        time_ns: u64,
        track: u64,
        name: &str,
        annotations: impl IntoIterator<Item = Option<DebugAnnotation>>,
    ) -> Result<()> {
        let event = TrackEvent {
            r#type: Some(kind.into()),
            track_uuid: Some(track),
            name: Some(name.to_owned()),
            debug_annotations: annotations.into_iter().flatten().collect(),
            ..TrackEvent::default()
        };
        self.event(time_ns, event)
    }

    fn end_slice(&mut self, time_ns: u64, track: u64) -> Result<()> {
        let event = TrackEvent {
            r#type: Some(Type::SliceEnd.into()),
            track_uuid: Some(track),
            ..TrackEvent::default()
        };
        self.event(time_ns, event)
    }

    fn counter(&mut self, time_ns: u64, track: u64, value: u64) -> Result<()> {
        let event = TrackEvent {
            r#type: Some(Type::Counter.into()),
            track_uuid: Some(track),
            counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
            ..TrackEvent::default()
        };
        self.event(time_ns, event)
    }

    /// Describes the thread of a record and its process, once.
    fn introduce(&mut self, record: &Record) -> Result<()> {
        let (tid, tgid) = (record.tid, record.tgid);
        if self.threads.contains_key(&tid) {
            return Ok(());
        }
        self.threads.insert(tid, Open::default());
        if self.processes.insert(tgid) {
            self.descriptor(TrackDescriptor {
                uuid: Some(uuid(Sort::Process, tgid)),
                process: Some(ProcessDescriptor {
                    pid: Some(tgid),
                    process_name: Some(record.comm.to_string()),
                }),
                ..TrackDescriptor::default()
            })?;
        }
        let thread = uuid(Sort::Calls, tid);
        self.descriptor(TrackDescriptor {
            uuid: Some(thread),
            parent_uuid: Some(uuid(Sort::Process, tgid)),
            thread: Some(ThreadDescriptor {
                pid: Some(tgid),
                tid: Some(tid),
                thread_name: Some(record.comm.to_string()),
            }),
            ..TrackDescriptor::default()
        })?;
        self.track(uuid(Sort::State, tid), Some(thread), "state", None)?;
        self.track(uuid(Sort::Irqs, tid), Some(thread), "interrupts", None)?;
        let wait = uuid(Sort::Wait, tid);
        self.track(wait, Some(thread), "wait for a CPU", Some(UNIT_TIME_NS))
    }

    fn open(&mut self, tid: i32) -> &mut Open {
        self.threads.entry(tid).or_default()
    }

    /// Ends the state that the thread is in, if one is known.
    fn end_state(&mut self, record: &Record) -> Result<()> {
        let open = self.open(record.tid);
        let known = open.running || open.state.is_some();
        open.running = false;
        open.state = None;
        if known {
            self.end_slice(record.time_ns, uuid(Sort::State, record.tid))?;
        }
        Ok(())
    }

    fn switch(&mut self, record: &Record) -> Result<()> {
        self.end_state(record)?;
        let track = uuid(Sort::State, record.tid);
        let class = text("sched_class", record.sched_class);
        let dsq = number("dsq", record.dsq);
        if record.event == Kind::SwitchIn {
            let annotations = [number("cpu", Some(record.cpu)), class, dsq];
            self.named(
                Type::SliceBegin,
                record.time_ns,
                track,
                "running",
                annotations,
            )?;
            self.open(record.tid).running = true;
            let wait_ns = record.wait_ns.unwrap_or_default();
            return self.counter(record.time_ns, uuid(Sort::Wait, record.tid), wait_ns);
        }
        let reason = record.reason.unwrap_or(Reason::Unknown);
        if reason == Reason::Exited {
            return Ok(());
        }
        let annotations = [
            text("next", record.other_comm),
            number("next_tid", record.other_tid.map(i32::unsigned_abs)),
            text("state", record.state),
            class,
            dsq,
        ];
        self.named(
            Type::SliceBegin,
            record.time_ns,
            track,
            reason.name(),
            annotations,
        )?;
        self.open(record.tid).state = Some(reason);
        Ok(())
    }

    fn wakeup(&mut self, record: &Record) -> Result<()> {
        self.end_state(record)?;
        let annotations = [
            text("waker", record.other_comm),
            number("waker_tid", record.other_tid.map(i32::unsigned_abs)),
            text("from", record.reason.map(Reason::name)),
        ];
        let track = uuid(Sort::State, record.tid);
        self.named(
            Type::SliceBegin,
            record.time_ns,
            track,
            "runnable",
            annotations,
        )?;
        self.open(record.tid).state = Some(Reason::Blocked);
        Ok(())
    }

    fn call(&mut self, record: &Record) -> Result<()> {
        let track = uuid(Sort::Calls, record.tid);
        let name = record.symbol.unwrap_or_default();
        let stream = number("stream", record.stream);
        match record.event {
            Kind::Launch => {
                let size = |x: Option<u32>, y: Option<u32>, z: Option<u32>| {
                    Some(format!("{}x{}x{}", x?, y?, z?))
                };
                let annotations = [
                    text("grid", size(record.grid_x, record.grid_y, record.grid_z)),
                    text(
                        "block",
                        size(record.block_x, record.block_y, record.block_z),
                    ),
                    number("shared_bytes", record.shared_bytes),
                    stream,
                ];
                self.named(
                    Type::Instant,
                    record.time_ns,
                    track,
                    name.as_str(),
                    annotations,
                )
            }
            Kind::GraphLaunch | Kind::SyncEnter => {
                self.open(record.tid).calls += 1;
                self.named(
                    Type::SliceBegin,
                    record.time_ns,
                    track,
                    name.as_str(),
                    [stream],
                )
            }
            _ => {
                let open = self.open(record.tid);
                if open.calls == 0 {
                    return Ok(());
                }
                open.calls -= 1;
                self.end_slice(record.time_ns, track)
            }
        }
    }

    fn irq(&mut self, record: &Record) -> Result<()> {
        let track = uuid(Sort::Irqs, record.tid);
        let start_ns = record.time_ns - record.duration_ns.unwrap_or_default().min(record.time_ns);
        let annotations = [
            text("kind", Some(record.event.name())),
            number("irq", record.irq),
            number("self_ns", record.self_ns),
            number("cpu", Some(record.cpu)),
        ];
        let name = record.irq_name.unwrap_or_default();
        self.named(
            Type::SliceBegin,
            start_ns,
            track,
            name.as_str(),
            annotations,
        )?;
        self.end_slice(record.time_ns, track)
    }

    /// Ends the calls whose end is not recorded any more.
    fn close_window(&mut self, time_ns: u64) -> Result<()> {
        let mut open = Vec::new();
        for (&tid, thread) in &mut self.threads {
            let calls = std::mem::take(&mut thread.calls);
            open.extend((0..calls).map(|_| tid));
        }
        for tid in open {
            self.end_slice(time_ns, uuid(Sort::Calls, tid))?;
        }
        self.end_slice(time_ns, WINDOWS)
    }
}

impl<W: Write> Sink for Perfetto<W> {
    fn record(&mut self, record: &Record) -> Result<()> {
        let time_ns = record.time_ns;
        match record.event {
            Kind::WindowOpen => {
                return self.named(Type::SliceBegin, time_ns, WINDOWS, "window", []);
            }
            Kind::WindowClose => return self.close_window(time_ns),
            _ => self.introduce(record)?,
        }
        match record.event {
            Kind::SwitchOut | Kind::SwitchIn => self.switch(record),
            Kind::Wakeup => self.wakeup(record),
            Kind::HardIrq | Kind::SoftIrq | Kind::VectorIrq => self.irq(record),
            Kind::Migrate => {
                let annotations = [
                    number("from_cpu", Some(record.cpu)),
                    number("to_cpu", record.to_cpu),
                ];
                let track = uuid(Sort::Calls, record.tid);
                self.named(Type::Instant, time_ns, track, "migrate", annotations)
            }
            Kind::ThreadExit => {
                self.end_state(record)?;
                // Its id may come back as another thread's.
                self.threads.remove(&record.tid);
                Ok(())
            }
            Kind::ThreadStart => Ok(()),
            _ => self.call(record),
        }
    }

    fn end(mut self: Box<Self>, end: &End) -> Result<()> {
        self.counter(end.end_ns, LOST, end.nr_lost())?;
        let lost: Vec<_> = end
            .lost
            .iter()
            .map(|(kind, &count)| number(&format!("lost {}", kind.name()), Some(count)))
            .chain([number("missed", Some(end.missed))])
            .collect();
        let name = format!("end: {} events lost", end.nr_lost());
        self.named(Type::Instant, end.end_ns, SESSION, &name, lost)?;
        self.out.flush().context("writing the end")
    }

    fn nr_bytes(&self) -> u64 {
        self.out.bytes
    }
}
