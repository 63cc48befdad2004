// SPDX-License-Identifier: GPL-2.0-only
//! The tracer's kernel side: loads `bpf/trace.bpf.c`, sets what it is told, reads what it counted.

use std::collections::BTreeMap;
use std::io::Read;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::AsFd;

use anyhow::{Context, Result, anyhow, bail};
use gpuaware_trace::outcome::{IrqTotal, PreemptorTotal};
use gpuaware_trace::schema::Kind;
use gpuaware_trace::thread::Thread;
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, OpenObject, Program, ProgramInput};
use nix::errno::Errno;

use crate::bpf::trace::{OpenTraceSkel, TraceSkel, TraceSkelBuilder};
use crate::bpf::trace_intf as intf;
use crate::identify::marks;

use super::decode::{irq_name, name};
use super::threads::settled;
use super::wire::{entries, has_tracepoint, plain, read, write};

/// Why events are passed over, in the order of `enum trace_miss`.
const MISSES: [&str; intf::trace_miss_TRACE_NR_MISSES as usize] =
    ["no_memory", "too_deep", "unpaired_irq", "unseen_switch"];

/// What must be known before loading.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Size of the ring buffer of events, a power of 2; `None`: no events, counters only.
    pub buffer_bytes: Option<u32>,
    /// Trace every process that launches.
    pub launchers: bool,
    /// Trace this cgroup and all below it; 0: none.
    pub cgroup: u64,
}

/// The loaded programs. Detached when dropped.
pub struct Kernel<'obj> {
    // Dropped in this order: links before the programs that they attach.
    _observers: Vec<Link>,
    list_threads: Link,
    /// The programs and maps.
    pub skel: TraceSkel<'obj>,
}

impl<'obj> Kernel<'obj> {
    /// Loads and attaches everything but the probes of libcuda. Nothing is traced yet.
    ///
    /// # Errors
    /// Not enough rights, a kernel without the BPF features.
    pub fn load(setup: Setup, object: &'obj mut MaybeUninit<OpenObject>) -> Result<Self> {
        let mut open = TraceSkelBuilder::default()
            .open(object)
            .context("opening the tracing programs")?;
        configure(&mut open, setup)?;
        let skel = open.load().context("loading the tracing programs")?;
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

    /// Begins or ends tracing.
    pub fn set_running(&mut self, running: bool) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            write(&mut bss.running, running.into());
        }
    }

    /// Opens the window with this serial number at `now_ns`.
    pub fn open_window(&mut self, serial: u32, now_ns: u64) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            write(&mut bss.window_since_ns, now_ns);
            write(&mut bss.window, serial);
        }
    }

    /// Closes it.
    pub fn close_window(&mut self) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            write(&mut bss.window, 0);
        }
    }

    /// How long all windows that were closed have been open.
    pub fn set_sampled(&mut self, sampled_ns: u64) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            write(&mut bss.sampled_ns, sampled_ns);
        }
    }

    /// Children of this thread of ours are traced; 0 ends that.
    pub fn set_spawner(&mut self, tid: i32) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            write(&mut bss.spawner, tid);
        }
    }

    /// Traces thread `tid`. `false`: there is none.
    ///
    /// # Errors
    /// No memory.
    pub fn trace_task(&self, tid: i32) -> Result<bool> {
        let mut request = tid.to_ne_bytes();
        let output = self
            .skel
            .progs
            .trace_task
            .test_run(ProgramInput {
                context_in: Some(&mut request),
                ..ProgramInput::default()
            })
            .with_context(|| format!("tracing thread {tid}"))?;
        match Errno::from_raw(-(output.return_value as i32)) {
            Errno::ESRCH => Ok(false),
            _ if output.return_value == 0 => Ok(true),
            errno => bail!("tracing thread {tid}: {errno}"),
        }
    }

    /// Threads that are traced and have not ended, as of `now_ns`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn live_threads(&self, now_ns: u64, sampled_ns: u64) -> Result<Vec<Thread>> {
        let mut bytes = Vec::new();
        Iter::new(&self.list_threads)
            .context("starting the task iterator")?
            .read_to_end(&mut bytes)
            .context("reading the task iterator")?;
        Ok(bytes
            .chunks_exact(size_of::<intf::trace_thread_record>())
            .map(|chunk| settled(&plain(chunk), now_ns, sampled_ns))
            .collect())
    }

    /// Is a thread neither listed any more nor off its CPU for good? A process can be waited for before
    /// its last thread is.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn has_leavers(&self) -> Result<bool> {
        let totals = self.kind_totals()?;
        let nr = |kind| totals.get(&kind).map_or(0, |(counted, _)| *counted);
        let nr_live = self.live_threads(0, 0)?.len() as u64;
        Ok(nr(Kind::ThreadExit) + nr_live < nr(Kind::ThreadStart))
    }

    /// Takes the threads that ended since the last call.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take_finished(&self) -> Result<Vec<Thread>> {
        let map = &self.skel.maps.finished;
        let keys: Vec<_> = map.keys().collect();
        let mut threads = Vec::with_capacity(keys.len());
        for key in keys {
            let found = map.lookup_and_delete(&key);
            let Some(bytes) = found.context("reading threads that ended")? else {
                continue;
            };
            let record: intf::trace_thread_record = plain(&bytes);
            threads.push(settled(&record, record.end_ns, 0));
        }
        Ok(threads)
    }

    /// Events that happened and events that were lost on the way, by kind.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn kind_totals(&self) -> Result<BTreeMap<Kind, (u64, u64)>> {
        let map = &self.skel.maps.kind_totals;
        let mut totals = BTreeMap::new();
        for kind in Kind::ALL
            .iter()
            .take(intf::trace_kind_TRACE_NR_KINDS as usize)
        {
            let per_cpu = map
                .lookup_percpu(&(*kind as u32).to_ne_bytes(), MapFlags::ANY)
                .context("reading event counts")?;
            let (mut counted, mut lost) = (0, 0);
            for bytes in per_cpu.iter().flatten() {
                let total: intf::trace_kind_total = plain(bytes);
                counted += total.counted;
                lost += total.lost;
            }
            totals.insert(*kind, (counted, lost));
        }
        Ok(totals)
    }

    /// Interrupts on top of traced threads, by sort.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn irq_totals(&self) -> Result<Vec<IrqTotal>> {
        let totals = entries(&self.skel.maps.irq_totals)?;
        Ok(totals
            .iter()
            .filter_map(|(key, value)| {
                let key: intf::trace_irq_key = plain(key);
                let total: intf::trace_irq_total = plain(value);
                let kind = *Kind::ALL.get(key.kind as usize)?;
                Some(IrqTotal {
                    kind,
                    number: key.nr,
                    name: irq_name(kind, key.nr, &total.name),
                    count: total.count,
                    self_ns: total.self_ns,
                    worst_ns: total.worst_ns,
                })
            })
            .collect())
    }

    /// Who preempted traced threads.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn preemptors(&self) -> Result<Vec<PreemptorTotal>> {
        let totals = entries(&self.skel.maps.preemptors)?;
        Ok(totals
            .iter()
            .map(|(key, value)| {
                let key: intf::trace_preemptor_key = plain(key);
                let total: intf::trace_preemptor_total = plain(value);
                PreemptorTotal {
                    victim_tgid: key.victim_tgid,
                    comm: name(&key.comm),
                    count: total.count,
                    ns: total.ns,
                }
            })
            .collect())
    }

    /// Preemptions that found no room in the table of preemptors.
    pub fn lost_preemptors(&self) -> u64 {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or(0, |bss| read(&bss.nr_lost_preemptors))
    }

    /// Interrupts that found no room in the table of interrupts.
    pub fn lost_irqs(&self) -> u64 {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or(0, |bss| read(&bss.nr_lost_irqs))
    }

    /// Starts of programs and launches of new processes that user space was not told of.
    pub fn lost_notices(&self) -> u64 {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or(0, |bss| read(&bss.nr_lost_notices))
    }

    /// Events that the kernel passed by, so that not even their kind was counted, by why: counted by
    /// the programs themselves, or skipped because a program was interrupted by itself.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn missed(&self) -> Result<BTreeMap<String, u64>> {
        let mut ours = BTreeMap::new();
        for program in self.programs() {
            let id = Program::id_from_fd(program.as_fd()).context("asking for a program's id")?;
            ours.insert(id, program.name().to_string_lossy());
        }
        let skipped = ProgInfoIter::default().filter_map(|info| {
            let program = ours.get(&info.id)?;
            Some((format!("skipped_{program}"), info.recursion_misses))
        });
        let counters = self
            .skel
            .maps
            .bss_data
            .iter()
            .flat_map(|bss| &bss.nr_missed);
        let counted = MISSES.iter().zip(counters);
        Ok(counted
            .map(|(why, counter)| ((*why).to_owned(), read(counter)))
            .chain(skipped)
            .filter(|(_, count)| *count > 0)
            .collect())
    }

    /// Those that are loaded and may be skipped.
    fn programs(&self) -> impl Iterator<Item = &libbpf_rs::ProgramMut<'obj>> {
        let progs = &self.skel.progs;
        let all = [
            &progs.task_made,
            &progs.task_first_woken,
            &progs.task_moved,
            &progs.program_started,
            &progs.switched,
            &progs.task_waking,
            &progs.task_woken,
            &progs.task_migrates,
            &progs.hard_irq_entry,
            &progs.hard_irq_exit,
            &progs.soft_irq_entry,
            &progs.soft_irq_exit,
            &progs.cuda_init,
            &progs.launch,
            &progs.launch_ex,
            &progs.graph_launch,
            &progs.graph_launch_return,
            &progs.sync,
            &progs.sync_return,
            &progs.local_timer_entry,
            &progs.local_timer_exit,
            &progs.reschedule_entry,
            &progs.reschedule_exit,
            &progs.call_function_entry,
            &progs.call_function_exit,
            &progs.call_function_single_entry,
            &progs.call_function_single_exit,
            &progs.irq_work_entry,
            &progs.irq_work_exit,
        ];
        all.into_iter().filter(|program| program.autoload())
    }
}

fn configure(open: &mut OpenTraceSkel<'_>, setup: Setup) -> Result<()> {
    let rodata = open
        .maps
        .rodata_data
        .as_deref_mut()
        .ok_or_else(|| anyhow!("the tracing programs have no settings"))?;
    rodata.record_events = setup.buffer_bytes.is_some();
    rodata.trace_launchers = setup.launchers;
    rodata.target_cgroup = setup.cgroup;
    if let Some(bytes) = setup.buffer_bytes {
        open.maps
            .events
            .set_max_entries(bytes)
            .context("sizing the ring buffer")?;
    }
    let progs = &mut open.progs;
    for (vector, entry, exit) in [
        (
            "local_timer",
            &mut progs.local_timer_entry,
            &mut progs.local_timer_exit,
        ),
        (
            "reschedule",
            &mut progs.reschedule_entry,
            &mut progs.reschedule_exit,
        ),
        (
            "call_function",
            &mut progs.call_function_entry,
            &mut progs.call_function_exit,
        ),
        (
            "call_function_single",
            &mut progs.call_function_single_entry,
            &mut progs.call_function_single_exit,
        ),
        (
            "irq_work",
            &mut progs.irq_work_entry,
            &mut progs.irq_work_exit,
        ),
    ] {
        let known = has_tracepoint(&format!("{vector}_entry"))?;
        entry.set_autoload(known);
        exit.set_autoload(known);
    }
    Ok(())
}

fn attach(skel: &TraceSkel<'_>) -> Result<Vec<Link>> {
    let progs = &skel.progs;
    // Exits before entries: an entry without its exit would put the stack out of step.
    let always = [
        (&progs.task_made, "task_newtask"),
        (&progs.task_first_woken, "sched_wakeup_new"),
        (&progs.task_moved, "cgroup_attach_task"),
        (&progs.program_started, "sched_process_exec"),
        (&progs.switched, "sched_switch"),
        (&progs.task_waking, "sched_waking"),
        (&progs.task_woken, "sched_wakeup"),
        (&progs.task_migrates, "sched_migrate_task"),
        (&progs.hard_irq_exit, "irq_handler_exit"),
        (&progs.hard_irq_entry, "irq_handler_entry"),
        (&progs.soft_irq_exit, "softirq_exit"),
        (&progs.soft_irq_entry, "softirq_entry"),
    ];
    let where_known = [
        (&progs.local_timer_exit, "local_timer_exit"),
        (&progs.local_timer_entry, "local_timer_entry"),
        (&progs.reschedule_exit, "reschedule_exit"),
        (&progs.reschedule_entry, "reschedule_entry"),
        (&progs.call_function_exit, "call_function_exit"),
        (&progs.call_function_entry, "call_function_entry"),
        (
            &progs.call_function_single_exit,
            "call_function_single_exit",
        ),
        (
            &progs.call_function_single_entry,
            "call_function_single_entry",
        ),
        (&progs.irq_work_exit, "irq_work_exit"),
        (&progs.irq_work_entry, "irq_work_entry"),
    ];
    always
        .into_iter()
        .chain(
            where_known
                .into_iter()
                .filter(|(program, _)| program.autoload()),
        )
        .map(|(program, tracepoint)| {
            program
                .attach()
                .with_context(|| format!("attaching to tracepoint {tracepoint}"))
        })
        .collect()
}
