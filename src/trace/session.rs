// SPDX-License-Identifier: GPL-2.0-only
//! One run of the tracer: starts it, moves events from the kernel to the file, ends it, collects
//! what was counted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use gpuaware_trace::export::Sink;
use gpuaware_trace::outcome::Outcome;
use gpuaware_trace::schema::{End, EndedBy, Header, Kind, Launches, VERSION};
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use log::warn;
use nix::time::{ClockId, clock_gettime};

use crate::bpf::trace_intf as intf;
use crate::policy::cpuset::CpuSet;
use crate::shutdown::Shutdown;

use super::calls::Calls;
use super::decode::{self, Raw};
use super::kernel::{Kernel, Setup};
use super::order::Order;
use super::target::{self, Started, Target, Watch};
use super::threads::Ended;
use super::window::{Action, Windows};

/// Longest pause between two looks at the kernel side: the ring buffer must not fill meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The same without events: each look may take a CPU from a thread that is traced.
const LOOK_EVERY_WITHOUT_EVENTS: Duration = Duration::from_millis(200);
/// The same for this long after programs have started or threads have ended, which are few places for.
const LOOK_EVERY_WHEN_LIVELY: Duration = Duration::from_millis(50);
const LIVELY_FOR: Duration = Duration::from_secs(1);
/// Events taken from the ring buffer at a time.
const BATCH: usize = 1 << 16;
/// What the end of a file may take of its size limit.
const END_BYTES: u64 = 4096;

/// What to trace, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Who.
    pub target: Target,
    /// Every launch, or windows.
    pub launches: Launches,
    /// Ring buffer for events, bytes, a power of 2; `None`: counters only.
    pub buffer_bytes: Option<u32>,
    /// For how long at most.
    pub duration: Option<Duration>,
    /// Size of the file at most.
    pub max_bytes: Option<u64>,
    /// The sched_ext scheduler that is loaded.
    pub scheduler: Option<String>,
}

/// Traces until the target has ended, the time or the size is up, or `shutdown` is asked for. `each_look` is what the
/// caller has to do meanwhile, ten times a second or more; it is told whether tracing is over.
///
/// # Errors
/// Not enough rights, a kernel without the BPF features, no such target, a file that cannot be
/// written.
pub fn run(
    plan: &Plan,
    begin_file: impl FnOnce(&Header) -> Result<Option<Box<dyn Sink>>>,
    each_look: &mut dyn FnMut(bool) -> Result<()>,
    shutdown: &Shutdown,
) -> Result<Outcome> {
    // Before the programs are loaded, which takes a while: who ends meanwhile is seen to.
    let watch = plan.target.watch()?;
    let mut object = MaybeUninit::uninit();
    let setup = Setup {
        buffer_bytes: plan.buffer_bytes,
        launchers: matches!(plan.target, Target::Launchers),
        cgroup: plan.target.cgroup_id()?,
    };
    let kernel = Kernel::load(setup, &mut object)?;
    let mut session = Session::new(plan, watch, kernel)?;
    let header = session.header()?;
    session.sink = begin_file(&header)?;
    session.begin(&header)?;
    let ended_by = session.follow(each_look, shutdown)?;
    each_look(true)?;
    session.finish(header, ended_by)
}

/// The run.
struct Session<'a> {
    plan: &'a Plan,
    watch: Watch,
    kernel: Kernel<'a>,
    ring: RingBuffer<'static>,
    inbox: Rc<RefCell<Inbox>>,
    order: Order,
    calls: Calls,
    windows: Option<Windows>,
    /// Begin of the window that is open.
    window: Option<u64>,
    nr_windows: u64,
    window_ns: u64,
    start_ns: u64,
    sink: Option<Box<dyn Sink>>,
    size_is_up: bool,
    /// Events that came too late for the file's size limit, by kind.
    cut: BTreeMap<Kind, u64>,
    started: Option<Started>,
    ended: Ended,
    lost_notices_seen: u64,
    lively_until: Duration,
}

/// What the ring buffers delivered.
#[derive(Default)]
struct Inbox {
    events: Vec<Raw>,
    notices: Vec<intf::trace_notice>,
}

impl<'a> Session<'a> {
    fn new(plan: &'a Plan, watch: Watch, kernel: Kernel<'a>) -> Result<Self> {
        let inbox = Rc::new(RefCell::new(Inbox::default()));
        let ring = receive(&kernel, &inbox)?;
        let search_path = match &plan.target {
            Target::Command(_) => std::env::var_os("LD_LIBRARY_PATH"),
            _ => None,
        };
        let calls = Calls::new(&kernel.skel, search_path.as_deref());
        Ok(Self {
            plan,
            watch,
            kernel,
            ring,
            inbox,
            order: Order::default(),
            calls,
            windows: None,
            window: None,
            nr_windows: 0,
            window_ns: 0,
            start_ns: 0,
            sink: None,
            size_is_up: false,
            cut: BTreeMap::new(),
            started: None,
            ended: Ended::default(),
            lost_notices_seen: 0,
            lively_until: LIVELY_FOR,
        })
    }

    fn header(&mut self) -> Result<Header> {
        if self.plan.launches == Launches::All {
            // Takes a while: not part of what is traced.
            self.calls.arm(&self.kernel.skel);
        }
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .context("reading the kernel's release")?;
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online")
            .context("reading the CPUs that are online")?;
        let online: CpuSet = online.trim().parse().context("CPUs that are online")?;
        self.start_ns = now_ns(ClockId::CLOCK_MONOTONIC)?;
        Ok(Header {
            schema: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            clock: "CLOCK_MONOTONIC".to_owned(),
            start_ns: self.start_ns,
            start_unix_ns: now_ns(ClockId::CLOCK_REALTIME)?,
            kernel: kernel.trim().to_owned(),
            scheduler: self.plan.scheduler.clone(),
            cpus: u32::try_from(online.len()).unwrap_or(u32::MAX),
            target: self.plan.target.describe(),
            launches: self.plan.launches,
        })
    }

    fn begin(&mut self, header: &Header) -> Result<()> {
        self.kernel.set_running(true);
        match header.launches {
            Launches::All => self.open_window(header.start_ns),
            Launches::Sampled {
                window_ns,
                period_ns,
            } => {
                self.windows = Some(Windows::new(
                    Duration::from_nanos(window_ns),
                    Duration::from_nanos(period_ns),
                    Duration::ZERO,
                    fastrand::f64(),
                ));
            }
        }
        self.plan.target.begin(&self.kernel)?;
        if let Target::Command(words) = &self.plan.target {
            self.started = Some(Started::spawn(words, &mut self.kernel)?);
        }
        Ok(())
    }

    /// Time since tracing began.
    fn elapsed(&self) -> Result<Duration> {
        let now_ns = now_ns(ClockId::CLOCK_MONOTONIC)?;
        Ok(Duration::from_nanos(now_ns.saturating_sub(self.start_ns)))
    }

    /// Moves events until there is a reason to end.
    fn follow(
        &mut self,
        each_look: &mut dyn FnMut(bool) -> Result<()>,
        shutdown: &Shutdown,
    ) -> Result<EndedBy> {
        loop {
            each_look(false)?;
            let more = self.take_batch()?;
            self.write_ready()?;
            let finished = self.kernel.take_finished()?;
            let now = self.elapsed()?;
            if !finished.is_empty() || !self.inbox.borrow().notices.is_empty() {
                self.lively_until = now + LIVELY_FOR;
            }
            for thread in finished {
                self.ended.push(thread);
            }
            self.follow_processes(now)?;
            self.step_windows(now)?;
            if let Some(ended_by) = self.reason_to_end(now, shutdown) {
                return Ok(ended_by);
            }
            if !more {
                // Attaching the probes took a while, which must not make their window longer.
                let now = self.elapsed()?;
                let pause = self.pause(now);
                match &self.started {
                    Some(command) => command.wait(pause),
                    None => shutdown.sleep(pause),
                }
            }
        }
    }

    /// Costs it no launches, and no thread's time, if a new program is noticed late?
    fn may_be_late(&self) -> bool {
        let follows_children_only =
            matches!(self.plan.target, Target::Command(_) | Target::Processes(_));
        self.plan.launches != Launches::All && follows_children_only
    }

    fn pause(&self, now: Duration) -> Duration {
        let longest = match self.plan.buffer_bytes {
            Some(_) => LOOK_EVERY,
            None if now < self.lively_until || !self.may_be_late() => LOOK_EVERY_WHEN_LIVELY,
            None => LOOK_EVERY_WITHOUT_EVENTS,
        };
        let windows = self.windows.as_ref();
        let window = windows.map_or(longest, |windows| windows.next_step(now));
        let left = self.plan.duration.map(|end| end.saturating_sub(now));
        longest.min(window).min(left.unwrap_or(longest))
    }

    fn reason_to_end(&mut self, now: Duration, shutdown: &Shutdown) -> Option<EndedBy> {
        if self.size_is_up {
            return Some(EndedBy::MaxSize);
        }
        if self
            .started
            .as_mut()
            .is_some_and(|started| started.status().is_some())
        {
            return Some(EndedBy::Command);
        }
        if self.watch.has_ended() {
            return Some(EndedBy::Target);
        }
        if shutdown.is_asked() {
            return Some(EndedBy::Signal);
        }
        let duration = self.plan.duration?;
        (now >= duration).then_some(EndedBy::Duration)
    }

    /// Takes what the kernel side has delivered, in bounded pieces. Is there more?
    fn take_batch(&mut self) -> Result<bool> {
        let taken = self.ring.consume_raw_n(BATCH);
        if taken < 0 {
            return Err(std::io::Error::from_raw_os_error(-taken)).context("reading events");
        }
        for raw in self.inbox.borrow_mut().events.drain(..) {
            self.order.push(raw);
        }
        Ok(taken as usize == BATCH)
    }

    fn write_ready(&mut self) -> Result<()> {
        let ready = self.order.release();
        self.write(&ready)
    }

    fn write(&mut self, events: &[Raw]) -> Result<()> {
        let Some(sink) = &mut self.sink else {
            return Ok(());
        };
        for raw in events {
            let full = self
                .plan
                .max_bytes
                .is_some_and(|most| sink.nr_bytes() + END_BYTES >= most);
            self.size_is_up |= full;
            if self.size_is_up {
                if let Some(kind) = decode::kind(raw) {
                    *self.cut.entry(kind).or_default() += 1;
                }
            } else if let Some(record) = decode::record(raw) {
                sink.record(&record)?;
            }
        }
        Ok(())
    }

    fn follow_processes(&mut self, now: Duration) -> Result<()> {
        let notices = std::mem::take(&mut self.inbox.borrow_mut().notices);
        for notice in notices {
            match notice.what {
                intf::trace_notice_what_TRACE_NOTICE_PROCESS => {
                    target::trace_process(&self.kernel, notice.tgid)?;
                }
                _ => self.calls.started(notice.tgid.unsigned_abs(), now),
            }
        }
        let lost = self.kernel.lost_notices();
        if lost != self.lost_notices_seen {
            self.lost_notices_seen = lost;
            self.calls.any_started(now);
        }
        if self.calls.look(&self.kernel.skel, now) > 0 && self.plan.launches == Launches::All {
            warn!(
                "a libcuda was found only {:.3} s after tracing began: earlier launches through it \
                 are not in the trace",
                now.as_secs_f64()
            );
        }
        Ok(())
    }

    fn step_windows(&mut self, now: Duration) -> Result<()> {
        let Some(windows) = &mut self.windows else {
            return Ok(());
        };
        match windows.step(now, fastrand::f64()) {
            Some(Action::Open) => {
                // Only what comes after all probes are attached belongs to the window.
                self.calls.arm(&self.kernel.skel);
                let now_ns = now_ns(ClockId::CLOCK_MONOTONIC)?;
                windows.opened(Duration::from_nanos(now_ns.saturating_sub(self.start_ns)));
                self.open_window(now_ns);
            }
            Some(Action::Close) => {
                self.close_window()?;
                self.calls.disarm();
            }
            None => {}
        }
        Ok(())
    }

    fn open_window(&mut self, now_ns: u64) {
        self.nr_windows += 1;
        let serial = u32::try_from(self.nr_windows).unwrap_or(u32::MAX);
        self.window = Some(now_ns);
        self.kernel.open_window(serial, now_ns);
        self.order
            .push_ahead(decode::raw_of_window(Kind::WindowOpen, now_ns));
    }

    fn close_window(&mut self) -> Result<()> {
        let Some(opened_ns) = self.window.take() else {
            return Ok(());
        };
        self.kernel.close_window();
        let now_ns = now_ns(ClockId::CLOCK_MONOTONIC)?;
        self.window_ns += now_ns.saturating_sub(opened_ns);
        self.kernel.set_sampled(self.window_ns);
        self.order
            .push_ahead(decode::raw_of_window(Kind::WindowClose, now_ns));
        Ok(())
    }

    fn finish(mut self, header: Header, ended_by: EndedBy) -> Result<Outcome> {
        let has_ended = matches!(ended_by, EndedBy::Command | EndedBy::Target);
        for _ in 0..100 {
            if !has_ended || !self.kernel.has_leavers()? {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.close_window()?;
        self.kernel.set_running(false);
        let end_ns = now_ns(ClockId::CLOCK_MONOTONIC)?;
        // Programs that are in the middle of an event finish it meanwhile.
        std::thread::sleep(Duration::from_millis(2));
        let mut threads = self.kernel.live_threads(end_ns, self.window_ns)?;
        while self.take_batch()? || self.order.is_full() {
            self.write_ready()?;
        }
        let rest = self.order.release_all();
        self.write(&rest)?;
        let end = self.end(ended_by, end_ns)?;
        if let Some(sink) = self.sink.take() {
            sink.end(&end)?;
        }
        for thread in self.kernel.take_finished()? {
            self.ended.push(thread);
        }
        threads.extend(std::mem::take(&mut self.ended).into_threads());
        Ok(Outcome {
            header,
            end,
            threads,
            irqs: self.kernel.irq_totals()?,
            preemptors: self.kernel.preemptors()?,
            lost_preemptors: self.kernel.lost_preemptors(),
            lost_irqs: self.kernel.lost_irqs(),
            command: self.started.as_mut().and_then(Started::status),
        })
    }

    fn end(&self, ended_by: EndedBy, end_ns: u64) -> Result<End> {
        let mut counted = BTreeMap::from([
            (Kind::WindowOpen, self.nr_windows),
            (Kind::WindowClose, self.nr_windows),
        ]);
        let mut lost = self.cut.clone();
        for (kind, (nr_counted, nr_lost)) in self.kernel.kind_totals()? {
            counted.insert(kind, nr_counted);
            if nr_lost > 0 {
                *lost.entry(kind).or_default() += nr_lost;
            }
        }
        let missed_by = self.kernel.missed()?;
        Ok(End {
            ended_by,
            end_ns,
            window_ns: self.window_ns,
            windows: self.nr_windows,
            counted,
            lost,
            missed: missed_by.values().sum(),
            missed_by,
        })
    }
}

fn receive(kernel: &Kernel<'_>, inbox: &Rc<RefCell<Inbox>>) -> Result<RingBuffer<'static>> {
    let mut builder = RingBufferBuilder::new();
    let (events, notices) = (Rc::clone(inbox), Rc::clone(inbox));
    builder
        .add(&kernel.skel.maps.events, move |bytes| {
            events.borrow_mut().events.extend(decode::raw(bytes));
            0
        })
        .context("reading events")?;
    builder
        .add(&kernel.skel.maps.notices, move |bytes| {
            if let Some((what, tgid)) = bytes.split_first_chunk::<4>()
                && let Some(tgid) = tgid.first_chunk::<4>()
            {
                notices.borrow_mut().notices.push(intf::trace_notice {
                    what: u32::from_ne_bytes(*what),
                    tgid: i32::from_ne_bytes(*tgid),
                });
            }
            0
        })
        .context("reading notices")?;
    builder.build().context("reading events")
}

fn now_ns(clock: ClockId) -> Result<u64> {
    let now = clock_gettime(clock).context("reading the clock")?;
    Ok(Duration::from(now).as_nanos() as u64)
}
