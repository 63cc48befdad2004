// SPDX-License-Identifier: GPL-2.0-only
//! The recorder's kernel side: loads `bpf/trace_profile.bpf.c` and reads what it counted of the whole host.

use std::io::Read;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use gpuaware_trace::profile::{Count, Interrupts};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, OpenObject};

use crate::bpf::profile::{OpenTraceProfileSkel, TraceProfileSkel, TraceProfileSkelBuilder};
use crate::bpf::profile_intf as intf;
use crate::identify::marks;

use super::wire::{has_tracepoint, plain, read, write};

/// The loaded programs. Detached when dropped.
pub struct Recorder<'obj> {
    // Dropped in this order: links before the programs that they attach.
    _observers: Vec<Link>,
    list_threads: Link,
    skel: TraceProfileSkel<'obj>,
}

impl<'obj> Recorder<'obj> {
    /// Loads and attaches everything. Nothing is recorded yet.
    ///
    /// # Errors
    /// Not enough rights, a kernel without the BPF features.
    pub fn load(object: &'obj mut MaybeUninit<OpenObject>) -> Result<Self> {
        let mut open = TraceProfileSkelBuilder::default()
            .open(object)
            .context("opening the recording programs")?;
        only_known_vectors(&mut open)?;
        let skel = open.load().context("loading the recording programs")?;
        marks::know_loader(skel.progs.know_loader.as_fd())?;
        let observers = attach(&skel)?;
        let list_threads = skel
            .progs
            .list_threads
            .attach()
            .context("attaching the task iterator")?;
        Ok(Self {
            _observers: observers,
            list_threads,
            skel,
        })
    }

    /// Begins at `now_ns` of the monotonic clock.
    pub fn begin(&mut self, now_ns: u64) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            write(&mut bss.started_ns, now_ns);
            write(&mut bss.running, 1);
        }
    }

    /// Ends. What was counted stays.
    pub fn end(&mut self) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            write(&mut bss.running, 0);
        }
    }

    /// Takes the threads that ended since the last call.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take_ended(&self) -> Result<Vec<intf::profile_thread>> {
        let map = &self.skel.maps.ended;
        let keys: Vec<_> = map.keys().collect();
        let mut threads = Vec::with_capacity(keys.len());
        for key in keys {
            let found = map.lookup_and_delete(&key);
            let found = found.context("reading threads that ended")?;
            threads.extend(found.map(|bytes| plain::<intf::profile_thread>(&bytes)));
        }
        Ok(threads)
    }

    /// Threads that were seen and have not ended, and how many there are besides.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn live_threads(&self) -> Result<(Vec<intf::profile_thread>, u64)> {
        let mut bytes = Vec::new();
        Iter::new(&self.list_threads)
            .context("starting the task iterator")?
            .read_to_end(&mut bytes)
            .context("reading the task iterator")?;
        let chunks = bytes.chunks_exact(size_of::<intf::profile_thread>());
        let bss = self.skel.maps.bss_data.as_deref();
        let nr_quiet = bss.map_or(0, |bss| read(&bss.nr_quiet));
        Ok((chunks.map(plain).collect(), nr_quiet))
    }

    /// Of each CPU, by its number on the host.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn interrupts(&self) -> Result<Vec<Interrupts>> {
        let mut cpus = Vec::new();
        for sort in 0..intf::profile_sort_PROFILE_NR_SORTS {
            let per_cpu = self
                .skel
                .maps
                .irqs
                .lookup_percpu(&sort.to_ne_bytes(), MapFlags::ANY)
                .context("reading interrupts")?
                .unwrap_or_default();
            cpus.resize(per_cpu.len().max(cpus.len()), Interrupts::default());
            for (cpu, bytes) in cpus.iter_mut().zip(&per_cpu) {
                let counted: intf::profile_irqs = plain(bytes);
                *of_sort(cpu, sort) = Count(counted.count, counted.self_ns);
            }
        }
        Ok(cpus)
    }

    /// Threads, switches and interrupts that could not be counted.
    pub fn missed(&self) -> u64 {
        let counters = self.skel.maps.bss_data.iter();
        counters.flat_map(|bss| &bss.nr_missed).map(read).sum()
    }
}

fn of_sort(cpu: &mut Interrupts, sort: u32) -> &mut Count {
    match sort {
        intf::profile_sort_PROFILE_HARD => &mut cpu.hard,
        intf::profile_sort_PROFILE_SOFT => &mut cpu.soft,
        intf::profile_sort_PROFILE_TIMER => &mut cpu.timer,
        _ => &mut cpu.ipi,
    }
}

fn only_known_vectors(open: &mut OpenTraceProfileSkel<'_>) -> Result<()> {
    let progs = &mut open.progs;
    for (tracepoint, program) in [
        ("local_timer_entry", &mut progs.local_timer_entry),
        ("local_timer_exit", &mut progs.local_timer_exit),
        ("reschedule_entry", &mut progs.reschedule_entry),
        ("reschedule_exit", &mut progs.reschedule_exit),
        ("call_function_entry", &mut progs.call_function_entry),
        ("call_function_exit", &mut progs.call_function_exit),
        (
            "call_function_single_entry",
            &mut progs.call_function_single_entry,
        ),
        (
            "call_function_single_exit",
            &mut progs.call_function_single_exit,
        ),
        ("irq_work_entry", &mut progs.irq_work_entry),
        ("irq_work_exit", &mut progs.irq_work_exit),
    ] {
        program.set_autoload(has_tracepoint(tracepoint)?);
    }
    Ok(())
}

fn attach(skel: &TraceProfileSkel<'_>) -> Result<Vec<Link>> {
    let progs = &skel.progs;
    // Exits before entries: an entry without its exit would put the stack out of step.
    [
        &progs.switched,
        &progs.task_waking,
        &progs.hard_irq_exit,
        &progs.hard_irq_entry,
        &progs.soft_irq_exit,
        &progs.soft_irq_entry,
        &progs.local_timer_exit,
        &progs.local_timer_entry,
        &progs.reschedule_exit,
        &progs.reschedule_entry,
        &progs.call_function_exit,
        &progs.call_function_entry,
        &progs.call_function_single_exit,
        &progs.call_function_single_entry,
        &progs.irq_work_exit,
        &progs.irq_work_entry,
    ]
    .into_iter()
    .filter(|program| program.autoload())
    .map(|program| {
        program
            .attach()
            .with_context(|| format!("attaching {}", program.name().to_string_lossy()))
    })
    .collect()
}
