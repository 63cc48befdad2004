// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel tells: programs that start, libraries that are opened, threads that are renamed.

use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::{RingBuffer, RingBufferBuilder};

use crate::bpf::identify::IdentifySkel;
use crate::bpf::{intf, text};

use super::counters;
use super::rest::Rest;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A process started a program.
    Execed {
        /// The process.
        tgid: u32,
    },
    /// A process may map a library that it did not.
    Mapped {
        /// The process.
        tgid: u32,
    },
    /// A thread is named otherwise.
    Renamed {
        /// The thread.
        tid: u32,
        /// Its process.
        tgid: u32,
        /// Its new name.
        comm: String,
    },
    /// A thread keeps yielding its CPU.
    Spins {
        /// The thread.
        tid: u32,
        /// Its process.
        tgid: u32,
    },
    /// Any process may have started a program and any thread be named otherwise: there was no room for
    /// all that happened.
    Lost,
    /// The operator asks for a look at everything.
    Rescan,
}

/// The events since the last time.
pub struct Events {
    ring: RingBuffer<'static>,
    received: mpsc::Receiver<Event>,
    lost_seen: u64,
    /// From looking at everything because of lost events: a thread that renames itself in a loop can have them lost
    /// all the time.
    rest: Rest,
    rescans_seen: u64,
    signalled: Arc<AtomicBool>,
}

impl Events {
    /// Of the programs of `skel`. From now on SIGUSR1 asks for a look at everything.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(skel: &IdentifySkel<'_>) -> Result<Self> {
        let (sender, received) = mpsc::channel();
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&skel.maps.events, move |bytes| {
                if let Some(event) = decode(bytes) {
                    // The receiver lives as long as the ring buffer.
                    let _ = sender.send(event);
                }
                0
            })
            .context("reading events")?;
        let signalled = Arc::default();
        signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&signalled))
            .context("handling SIGUSR1")?;
        Ok(Self {
            ring: builder.build().context("reading events")?,
            received,
            lost_seen: 0,
            rest: Rest::default(),
            rescans_seen: 0,
            signalled,
        })
    }

    /// The next time that events are taken everything is to be looked at, as after SIGUSR1.
    pub fn ask_rescan(&self) {
        self.signalled.store(true, Ordering::Relaxed);
    }

    /// Takes what has happened until `now`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take(&mut self, skel: &IdentifySkel<'_>, now: Duration) -> Result<Vec<Event>> {
        self.ring.consume().context("reading events")?;
        let mut events: Vec<_> = self.received.try_iter().collect();
        let (lost, rescans) = (counters::lost_events(skel), counters::rescans(skel));
        if lost != self.lost_seen && self.rest.is_over(now) {
            self.lost_seen = lost;
            events.push(Event::Lost);
        }
        let signalled = self.signalled.swap(false, Ordering::Relaxed);
        if signalled || rescans != self.rescans_seen {
            self.rescans_seen = rescans;
            events.push(Event::Rescan);
        }
        Ok(events)
    }

    /// Everything was looked at, from `now` on, because events were lost; that took `cpu`.
    pub fn looked(&mut self, now: Duration, cpu: Duration) {
        self.rest.begin(now, cpu);
    }
}

fn decode(bytes: &[u8]) -> Option<Event> {
    if bytes.len() < size_of::<intf::gpuaware_event>() {
        return None;
    }
    // SAFETY: long enough, and the struct is plain integers, valid for any bytes; the read
    // tolerates any alignment.
    let event: intf::gpuaware_event = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
    let tgid = event.tgid.try_into().ok()?;
    match event.kind {
        intf::gpuaware_event_kind_GPUAWARE_EVENT_EXECED => Some(Event::Execed { tgid }),
        intf::gpuaware_event_kind_GPUAWARE_EVENT_MAPPED => Some(Event::Mapped { tgid }),
        intf::gpuaware_event_kind_GPUAWARE_EVENT_SPINS => Some(Event::Spins {
            tid: event.tid.try_into().ok()?,
            tgid,
        }),
        intf::gpuaware_event_kind_GPUAWARE_EVENT_RENAMED => Some(Event::Renamed {
            tid: event.tid.try_into().ok()?,
            tgid,
            comm: text(&event.comm).into_owned(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_harm(bytes: Vec<u8>, name: [u8; 16]) {
            decode(&bytes);
            prop_assert!(!text(&name).contains('\0'));
        }
    }

    #[test]
    fn decodes_names_that_are_no_text_and_drops_what_is_too_short() {
        let mut bytes = Vec::new();
        for number in [7u32, 5, 1] {
            bytes.extend(number.to_ne_bytes());
        }
        assert_eq!(decode(&bytes), None);
        bytes.extend(*b"a\xff\nb\0garbage\0\0\0\0");
        assert_eq!(
            decode(&bytes),
            Some(Event::Renamed {
                tid: 7,
                tgid: 5,
                comm: "a\u{fffd}\nb".to_owned()
            })
        );
    }
}
