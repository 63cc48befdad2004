// SPDX-License-Identifier: GPL-2.0-only
//! A protobuf trace for ui.perfetto.dev: for each thread a track with its calls, one with its
//! state (running, runnable, preempted, yielded, blocked), one with interrupts on top of it, and a
//! counter of how long it waited for a CPU. Windows of launches and losses have tracks of their own.

#[cfg(test)]
mod tests;
mod tracks;

use std::collections::HashMap;
use std::io::Write;

use anyhow::{Context, Result};
use prost::Message;

use super::perfetto_proto::{
    CounterDescriptor, DebugAnnotation, Trace, TracePacket, TrackDescriptor, TrackEvent, Type,
    UNIT_COUNT,
};
use super::sink::{Counted, Sink};
use crate::schema::{Comm, End, Header, Kind, Reason, Record};

/// Ids of tracks that belong to no thread.
const WINDOWS: u64 = 1;
const LOST: u64 = 2;
const SESSION: u64 = 3;

/// The tracks of a thread.
#[derive(Clone, Copy)]
enum Sort {
    Process = 1,
    Calls = 2,
    State = 3,
    Irqs = 4,
    Wait = 5,
}

/// Threads and processes have serial numbers from 1: the kernel gives an id to one after another.
fn uuid(sort: Sort, serial: u64) -> u64 {
    serial << 3 | sort as u64
}

/// A process of which threads have tracks.
struct Process {
    serial: u64,
    threads: usize,
    since_ns: u64,
    /// What it was called then.
    comm: Comm,
    is_named: bool,
}

/// What is open on the tracks of a thread.
struct Open {
    serial: u64,
    tgid: i32,
    comm: Comm,
    /// Whether its state is known: a slice of it has begun.
    in_state: bool,
    calls: u32,
}

/// A Perfetto trace that is being written.
pub struct Perfetto<W: Write> {
    out: Counted<W>,
    buffer: Vec<u8>,
    serials: u64,
    processes: HashMap<i32, Process>,
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
            serials: 0,
            processes: HashMap::new(),
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
            counter: counter.map(|unit| CounterDescriptor { unit: Some(unit) }),
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

    fn serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    fn of(&self, sort: Sort, tid: i32) -> u64 {
        uuid(sort, self.threads.get(&tid).map_or(0, |open| open.serial))
    }

    /// A slice of the thread's state begins.
    fn begin_state(
        &mut self,
        record: &Record,
        name: &str,
        annotations: impl IntoIterator<Item = Option<DebugAnnotation>>,
    ) -> Result<()> {
        if let Some(open) = self.threads.get_mut(&record.tid) {
            open.in_state = true;
        }
        let track = self.of(Sort::State, record.tid);
        self.named(Type::SliceBegin, record.time_ns, track, name, annotations)
    }

    /// Ends the state that the thread is in, if one is known.
    fn end_state(&mut self, record: &Record) -> Result<()> {
        let open = self.threads.get_mut(&record.tid);
        if open.is_some_and(|open| std::mem::take(&mut open.in_state)) {
            let track = self.of(Sort::State, record.tid);
            self.end_slice(record.time_ns, track)?;
        }
        Ok(())
    }

    fn switch(&mut self, record: &Record) -> Result<()> {
        self.end_state(record)?;
        let class = text("sched_class", record.sched_class);
        let dsq = number("dsq", record.dsq);
        if record.event == Kind::SwitchIn {
            let annotations = [number("cpu", Some(record.cpu)), class, dsq];
            self.begin_state(record, "running", annotations)?;
            let wait_ns = record.wait_ns.unwrap_or_default();
            let track = self.of(Sort::Wait, record.tid);
            return self.counter(record.time_ns, track, wait_ns);
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
        self.begin_state(record, reason.name(), annotations)
    }

    fn wakeup(&mut self, record: &Record) -> Result<()> {
        self.end_state(record)?;
        let annotations = [
            text("waker", record.other_comm),
            number("waker_tid", record.other_tid.map(i32::unsigned_abs)),
            text("from", record.reason.map(Reason::name)),
        ];
        self.begin_state(record, "runnable", annotations)
    }

    fn call(&mut self, record: &Record) -> Result<()> {
        let track = self.of(Sort::Calls, record.tid);
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
                // When it returns is not probed: a slice without length.
                let begin = Type::SliceBegin;
                self.named(begin, record.time_ns, track, name.as_str(), annotations)?;
                self.end_slice(record.time_ns, track)
            }
            Kind::GraphLaunch | Kind::SyncEnter => {
                if let Some(open) = self.threads.get_mut(&record.tid) {
                    open.calls += 1;
                }
                self.named(
                    Type::SliceBegin,
                    record.time_ns,
                    track,
                    name.as_str(),
                    [stream],
                )
            }
            _ => {
                match self.threads.get_mut(&record.tid) {
                    Some(open) if open.calls > 0 => open.calls -= 1,
                    _ => return Ok(()),
                }
                self.end_slice(record.time_ns, track)
            }
        }
    }

    fn irq(&mut self, record: &Record) -> Result<()> {
        let track = self.of(Sort::Irqs, record.tid);
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
        for thread in self.threads.values_mut() {
            let calls = std::mem::take(&mut thread.calls);
            open.extend((0..calls).map(|_| uuid(Sort::Calls, thread.serial)));
        }
        for track in open {
            self.end_slice(time_ns, track)?;
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
                let track = self.of(Sort::Calls, record.tid);
                self.named(Type::Instant, time_ns, track, "migrate", annotations)
            }
            Kind::ThreadExit => {
                self.end_state(record)?;
                self.forget(record.tid)
            }
            Kind::ThreadStart => Ok(()),
            _ => self.call(record),
        }
    }

    fn end(mut self: Box<Self>, end: &End) -> Result<()> {
        let unnamed = self.processes.iter().filter(|(_, it)| !it.is_named);
        let unnamed: Vec<_> = unnamed.map(|(&id, it)| (id, it.serial, it.comm)).collect();
        for (tgid, serial, comm) in unnamed {
            let main = self.threads.get(&tgid).map(|open| open.comm);
            self.describe_process(tgid, serial, Some(main.unwrap_or(comm)))?;
        }
        self.counter(end.end_ns, LOST, end.nr_lost())?;
        let missed = end.missed_by.iter();
        let missed = missed.map(|(why, &count)| number(&format!("missed {why}"), Some(count)));
        let lost: Vec<_> = end
            .lost
            .iter()
            .map(|(kind, &count)| number(&format!("lost {}", kind.name()), Some(count)))
            .chain([number("missed", Some(end.missed))])
            .chain(missed)
            .collect();
        let name = format!("end: {} events lost", end.nr_lost());
        self.named(Type::Instant, end.end_ns, SESSION, &name, lost)?;
        self.out.flush().context("writing the end")
    }

    fn nr_bytes(&self) -> u64 {
        self.out.bytes
    }
}
