// SPDX-License-Identifier: GPL-2.0-only
//! One run of a machine: start, stream, wait, and leave nothing behind.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::prctl;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::console::Console;
use super::files::Files;
use super::guest;
use super::hostload::HostLoad;
use super::kernel::Kernel;
use super::machine::{self, Accel, Parts, Port};
use super::mainloop;
use super::spec::{Lab, TIMED_OUT};
use super::stream::Until;
use super::tools::Tools;
use super::vcpus;
use crate::interrupt;
use crate::sched_attr::{self, Policy};
use crate::watchdog::{Cleanup, Guarded};

/// How long a boot may take, which is some 7 s on an emulated CPU and several times that on a busy machine. One that has lost
/// its timer never ends.
const BOOT_LIMIT: Duration = Duration::from_secs(120);

/// How long a guest that has panicked may take to stop, a command's last output to arrive.
const GRACE: Duration = Duration::from_secs(5);

/// What the threads that watch the machine tell.
#[derive(Debug)]
enum Event {
    /// A line from the guest script.
    Status(String),
    /// One of the command's streams is complete.
    Drained,
    Panicked,
    /// QEMU and virtme-run are gone.
    Stopped,
    Signal(i32),
}

/// Runs the machine and the command in it; see `Lab::run`.
pub fn run(
    lab: &Lab,
    command: &[String],
    tools: &Tools,
    kernel: &Kernel,
    accel: Accel,
) -> Result<u8> {
    machine::check(lab)?;
    let files = Files::create(lab, command, kernel)?;
    let console = Arc::new(Mutex::new(Console::default()));
    let (events, inbox) = mpsc::channel();
    let _listening = Listening::start(&files, accel, &events)?;
    let _signals = Signals::watch(&events)?;
    let started = Instant::now();
    let _load = HostLoad::start(files.dir.path())?;
    let machine = Machine::start(lab, tools, accel, &files, kernel)?;
    machine.watch_console(&console, lab.show_console, events)?;
    let result = Wait {
        lab,
        started,
        exit: None,
        drained: 0,
        ready: false,
        panicked: false,
    }
    .until_over(&inbox);
    // Nothing of the machine may outlive its answer.
    drop(machine);
    let console = console.lock().unwrap_or_else(PoisonError::into_inner);
    let last_lines = console.tail();
    match result? {
        Over::Panicked { ready: true } if console.stale_int3() => {
            Err(Fault::StaleInt3 { last_lines }.into())
        }
        over => report(over, lab, last_lines),
    }
}

/// The machine failed and not what ran in it: a new start may do better.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A defect of the emulation: docs/bench.md.
    #[error(
        "the guest kernel panicked at a breakpoint that it had taken back, which the emulation still showed it: start it again (lab --restarts N does; docs/bench.md){last_lines}"
    )]
    StaleInt3 { last_lines: String },
    /// The command was not started, whatever the guest met.
    #[error("{why} before the guest had booted (lab --restarts N starts it again){last_lines}")]
    NotBooted {
        why: &'static str,
        last_lines: String,
    },
}

/// Turns the end into an exit code or an error, with its message.
fn report(over: Over, lab: &Lab, last_lines: String) -> Result<u8> {
    let limit = lab.timeout.as_secs();
    let not_booted = |why, last_lines| Err(Fault::NotBooted { why, last_lines }.into());
    match over {
        Over::Exit(code) => Ok(code),
        Over::Signal(signal) => {
            eprintln!("lab: signal {signal}: the machine was stopped");
            Ok(u8::try_from(128 + signal).unwrap_or(1))
        }
        Over::TimedOut { ready: true } => {
            eprintln!(
                "lab: the command reached the time limit of {limit} s; the machine was stopped"
            );
            Ok(TIMED_OUT)
        }
        Over::TimedOut { ready: false } if lab.timeout <= BOOT_LIMIT => {
            eprintln!(
                "lab: not booted at the time limit of {limit} s; the machine was stopped{last_lines}"
            );
            Ok(TIMED_OUT)
        }
        Over::TimedOut { ready: false } => not_booted("two minutes went by", last_lines),
        Over::SetUpFailed(why) => bail!("the guest's set-up failed: {why}"),
        Over::Panicked { ready: true } => bail!("the guest kernel panicked{last_lines}"),
        Over::Panicked { ready: false } => not_booted("the kernel panicked", last_lines),
        Over::Stopped { ready: true } => {
            bail!("the guest stopped before the command had ended{last_lines}")
        }
        Over::Stopped { ready: false } => not_booted("the machine stopped", last_lines),
    }
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
enum Over {
    Exit(u8),
    Signal(i32),
    TimedOut { ready: bool },
    SetUpFailed(String),
    Panicked { ready: bool },
    Stopped { ready: bool },
}

/// Waits for the end of a run.
struct Wait<'a> {
    lab: &'a Lab,
    started: Instant,
    exit: Option<u8>,
    drained: usize,
    ready: bool,
    panicked: bool,
}

impl Wait<'_> {
    fn until_over(mut self, inbox: &Receiver<Event>) -> Result<Over> {
        let mut deadline = self.started + self.lab.timeout.min(BOOT_LIMIT);
        loop {
            let event = match inbox.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => return Ok(self.at_deadline()),
                Err(RecvTimeoutError::Disconnected) => bail!("nobody watches the machine any more"),
            };
            match &event {
                Event::Status(line) if line == "ready" => {
                    deadline = self.started + self.lab.timeout;
                }
                Event::Status(line) if line.starts_with("exit ") => soon(&mut deadline),
                Event::Panicked => soon(&mut deadline),
                _ => {}
            }
            if let Some(over) = self.take(event)? {
                return Ok(over);
            }
        }
    }

    fn at_deadline(&self) -> Over {
        match self.exit {
            _ if self.panicked => Over::Panicked { ready: self.ready },
            Some(code) => Over::Exit(code),
            None => Over::TimedOut { ready: self.ready },
        }
    }

    fn take(&mut self, event: Event) -> Result<Option<Over>> {
        match event {
            Event::Signal(signal) => {
                interrupt::noticed();
                return Ok(Some(Over::Signal(signal)));
            }
            Event::Panicked => self.panicked = true,
            Event::Drained => self.drained += 1,
            Event::Stopped if self.panicked => {
                return Ok(Some(Over::Panicked { ready: self.ready }));
            }
            Event::Stopped => {
                let stopped = Over::Stopped { ready: self.ready };
                return Ok(Some(self.exit.map_or(stopped, Over::Exit)));
            }
            Event::Status(line) => match line.split_once(' ').unwrap_or((&line, "")) {
                ("ready", _) => {
                    self.ready = true;
                    eprintln!(
                        "lab: booted in {:.1} s",
                        self.started.elapsed().as_secs_f64()
                    );
                }
                ("exit", code) => {
                    self.exit = Some(
                        code.parse()
                            .with_context(|| format!("exit code {code:?}"))?,
                    )
                }
                ("error", why) => return Ok(Some(Over::SetUpFailed(why.to_owned()))),
                _ => {}
            },
        }
        // The mark ends stdout and stderr.
        Ok(self.exit.filter(|_| self.drained == 2).map(Over::Exit))
    }
}

/// No later than after the grace.
fn soon(deadline: &mut Instant) {
    *deadline = (*deadline).min(Instant::now() + GRACE);
}

/// The threads at this end of the guest's ports.
struct Listening {
    sockets: Vec<PathBuf>,
}

impl Listening {
    fn start(files: &Files, accel: Accel, events: &Sender<Event>) -> Result<Self> {
        let mut sockets = Vec::new();
        for port in Port::ALL {
            let path = port.socket(files.dir.path());
            let listener = UnixListener::bind(&path)
                .with_context(|| format!("cannot listen on {}", path.display()))?;
            sockets.push(path);
            let events = events.clone();
            let mark = guest::end_bytes(&files.end_mark);
            thread::spawn(move || {
                let Ok((socket, _)) = listener.accept() else {
                    return;
                };
                match port {
                    Port::Status => read_status(socket, accel, &events),
                    Port::Stdout => pass_on(socket, &mark, &mut std::io::stdout(), &events),
                    Port::Stderr => pass_on(socket, &mark, &mut std::io::stderr(), &events),
                }
            });
        }
        Ok(Self { sockets })
    }
}

impl Drop for Listening {
    /// Frees a thread to which QEMU never connected.
    fn drop(&mut self) {
        for socket in &self.sockets {
            let _ = UnixStream::connect(socket);
        }
    }
}

fn read_status(socket: UnixStream, accel: Accel, events: &Sender<Event>) {
    for line in BufReader::new(&socket).lines() {
        let Ok(line) = line else { return };
        if line == "ready" && accel == Accel::Emulation {
            arrange_threads(&socket);
        }
        if events.send(Event::Status(line)).is_err() {
            return;
        }
    }
}

/// Once the guest is up: QEMU's threads, as this machine's scheduler should take them. Not where the lab has only what nobody
/// else wants (SCHED_IDLE), or its timers would go before others, and its CPUs wait for a core while another one is idle.
fn arrange_threads(socket: &UnixStream) {
    if sched_attr::of(Pid::from_raw(0)).is_ok_and(|own| own.policy == Some(Policy::Idle)) {
        return;
    }
    if let Err(error) = mainloop::put_first(socket) {
        eprintln!(
            "lab: the guest's timers may be late under load: SCHED_FIFO for QEMU's main thread: {error}"
        );
    }
    if let Err(error) = vcpus::pin(socket) {
        eprintln!("lab: idle CPUs of the guest may wake late: a core for each: {error:#}");
    }
}

/// Copies one of the command's streams. When nobody reads ours any more, the rest is dropped: the
/// command goes on, as it is its exit code that was asked for.
fn pass_on(mut socket: UnixStream, mark: &[u8], to: &mut dyn Write, events: &Sender<Event>) {
    let mut until = Until::new(mark);
    let mut buffer = vec![0; 64 * 1024];
    let mut write = |bytes: &[u8]| {
        let _ = to.write_all(bytes).and_then(|()| to.flush());
    };
    while let Ok(length @ 1..) = socket.read(&mut buffer) {
        write(&until.push(&buffer[..length]));
        if until.ended() {
            let _ = events.send(Event::Drained);
            return;
        }
    }
    write(&until.finish());
}

/// Turns signals to this process into events while it lives.
struct Signals {
    handle: signal_hook::iterator::Handle,
}

impl Signals {
    fn watch(events: &Sender<Event>) -> Result<Self> {
        let handled = [SIGINT, SIGTERM, SIGHUP].into_iter();
        let handled = handled.filter(|&signal| !interrupt::is_ignored(signal));
        let mut signals =
            signal_hook::iterator::Signals::new(handled).context("cannot handle signals")?;
        let handle = signals.handle();
        let events = events.clone();
        thread::spawn(move || {
            for signal in signals.forever() {
                if events.send(Event::Signal(signal)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { handle })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// virtme-run, QEMU and virtiofsd: one process group, killed when dropped.
struct Machine {
    child: Mutex<Child>,
    group: Pid,
    /// Also when this process is killed.
    _guarded: Guarded,
}

impl Machine {
    fn start(
        lab: &Lab,
        tools: &Tools,
        accel: Accel,
        files: &Files,
        kernel: &Kernel,
    ) -> Result<Self> {
        let disk = files.disk_path();
        let parts = Parts {
            image: &kernel.image,
            busybox: kernel.busybox.as_deref(),
            dir: files.dir.path(),
            guest_script: &files.guest_script,
            disk: disk.as_deref(),
            rw_mounts: &files.rw_mounts,
        };
        let child = Command::new(&tools.virtme_run)
            .args(machine::arguments(lab, accel, &parts))
            // Its sockets and pid files go where ours are.
            .env("TMPDIR", files.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", tools.virtme_run.display()))?;
        let group = Pid::from_raw(child.id().cast_signed());
        // QEMU and virtiofsd outlive virtme-run when all are killed: they become ours to wait for.
        let _ = prctl::set_child_subreaper(true);
        Ok(Self {
            child: Mutex::new(child),
            group,
            _guarded: Guarded::new(Cleanup::Group(group.as_raw())),
        })
    }

    /// Reads the console and the complaints of QEMU and virtme-run, which share a pipe.
    fn watch_console(
        &self,
        console: &Arc<Mutex<Console>>,
        show: bool,
        events: Sender<Event>,
    ) -> Result<()> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = child
            .stderr
            .take()
            .ok_or_else(|| anyhow!("virtme-run has no stderr"))?;
        let console = Arc::clone(console);
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n') {
                let Ok(line) = line else { break };
                let line = String::from_utf8_lossy(&line);
                if show {
                    eprintln!("console: {}", line.trim_end());
                }
                let mut console = console.lock().unwrap_or_else(PoisonError::into_inner);
                let before = console.panicked();
                console.push(&line);
                if console.panicked() && !before {
                    let _ = events.send(Event::Panicked);
                }
            }
            let _ = events.send(Event::Stopped);
        });
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The child is waited for only here, so its number, the group's, is still its own.
        let _ = killpg(self.group, Signal::SIGKILL);
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.wait();
        // Until none of the group is left: what comes next may measure this machine.
        while waitpid(Pid::from_raw(-self.group.as_raw()), None).is_ok() {}
        let _ = prctl::set_child_subreaper(false);
    }
}
