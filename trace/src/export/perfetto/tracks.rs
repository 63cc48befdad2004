// SPDX-License-Identifier: GPL-2.0-only
//! The tracks of threads and processes: when they are described, and what they are called.

use std::io::Write;

use anyhow::Result;

use super::super::perfetto_proto::{
    ProcessDescriptor, ThreadDescriptor, TrackDescriptor, UNIT_TIME_NS,
};
use super::{Open, Perfetto, Process, Sort, uuid};
use crate::schema::{Comm, Reason, Record};

impl<W: Write> Perfetto<W> {
    /// Describes the thread of a record and its process, and again when they are called otherwise: by
    /// exec, or by themselves.
    pub(super) fn introduce(&mut self, record: &Record) -> Result<()> {
        let (tid, tgid) = (record.tid, record.tgid);
        if let Some(open) = self.threads.get_mut(&tid) {
            if std::mem::replace(&mut open.comm, record.comm) != record.comm {
                let serial = open.serial;
                self.thread(serial, record)?;
            }
            return self.name_process(record);
        }
        self.process(record)?;
        let serial = self.serial();
        let open = Open {
            serial,
            tgid,
            comm: record.comm,
            in_state: false,
            calls: 0,
        };
        self.threads.insert(tid, open);
        self.thread(serial, record)?;
        let thread = uuid(Sort::Calls, serial);
        self.track(uuid(Sort::State, serial), Some(thread), "state", None)?;
        self.track(uuid(Sort::Irqs, serial), Some(thread), "interrupts", None)?;
        let wait = uuid(Sort::Wait, serial);
        self.track(wait, Some(thread), "wait for a CPU", Some(UNIT_TIME_NS))
    }

    fn thread(&mut self, serial: u64, record: &Record) -> Result<()> {
        let process = self.processes.get(&record.tgid);
        self.descriptor(TrackDescriptor {
            uuid: Some(uuid(Sort::Calls, serial)),
            parent_uuid: process.map(|process| uuid(Sort::Process, process.serial)),
            thread: Some(ThreadDescriptor {
                pid: Some(record.tgid),
                tid: Some(record.tid),
                thread_name: Some(record.comm.to_string()),
            }),
            ..TrackDescriptor::default()
        })
    }

    /// A record's process has one thread more.
    fn process(&mut self, record: &Record) -> Result<()> {
        if let Some(process) = self.processes.get_mut(&record.tgid) {
            process.threads += 1;
            return Ok(());
        }
        let process = Process {
            serial: self.serial(),
            threads: 1,
            since_ns: record.time_ns,
            comm: record.comm,
            is_named: record.reason != Some(Reason::New),
        };
        let (serial, is_named) = (process.serial, process.is_named);
        self.processes.insert(record.tgid, process);
        self.describe_process(record.tgid, serial, is_named.then_some(record.comm))
    }

    /// The first name that is written is the one that is shown: a process that has just been made, which
    /// has its maker's, gets its own once it has started a program, or does not seem to.
    fn name_process(&mut self, record: &Record) -> Result<()> {
        const SETTLED_NS: u64 = 10_000_000;
        let Some(process) = self.processes.get_mut(&record.tgid) else {
            return Ok(());
        };
        let is_settled =
            record.comm != process.comm || record.time_ns >= process.since_ns + SETTLED_NS;
        if process.is_named || record.tid != record.tgid || !is_settled {
            return Ok(());
        }
        process.is_named = true;
        let serial = process.serial;
        self.describe_process(record.tgid, serial, Some(record.comm))
    }

    pub(super) fn describe_process(
        &mut self,
        tgid: i32,
        serial: u64,
        name: Option<Comm>,
    ) -> Result<()> {
        self.descriptor(TrackDescriptor {
            uuid: Some(uuid(Sort::Process, serial)),
            process: Some(ProcessDescriptor {
                pid: Some(tgid),
                process_name: name.map(|name| name.to_string()),
            }),
            ..TrackDescriptor::default()
        })
    }

    /// The thread is gone: its id, and its process's, may come back as others'.
    pub(super) fn forget(&mut self, tid: i32) -> Result<()> {
        let Some(open) = self.threads.remove(&tid) else {
            return Ok(());
        };
        let Some(process) = self.processes.get_mut(&open.tgid) else {
            return Ok(());
        };
        process.threads -= 1;
        if process.threads > 0 {
            return Ok(());
        }
        let (serial, is_named) = (process.serial, process.is_named);
        self.processes.remove(&open.tgid);
        if is_named {
            return Ok(());
        }
        self.describe_process(open.tgid, serial, Some(open.comm))
    }
}
