// SPDX-License-Identifier: GPL-2.0-only
//! What `preferred.lend_yields_us = "auto"` comes to on this machine: for how long at a time a thread that waits by
//! `sched_yield()` lends its CPU.

use std::fs::read_to_string;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use log::info;
use nix::sched::sched_getcpu;
use nix::time::{ClockId, clock_getres};

use super::pin::threads::set_affinity;
use crate::policy::AUTO_LEND;
use crate::policy::cpuset::CpuSet;

/// A moment has so many switches' time in it at least: two of them, there and back, are a tenth.
const SWITCHES: u32 = 20;
/// Timers that are coarser than this fire at ticks.
const FINE: Duration = Duration::from_micros(1);

/// The switch is measured for so long: a governor gets the CPU up to speed meanwhile.
const MEASURED_FOR: Duration = Duration::from_millis(50);
/// Nobody waits longer for the result: a real-time task may have the CPU to itself.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(1);

/// Zero: nothing is lent. The log says so. Measured once, when it is asked for first: no scheduler of ours is to run then.
pub fn auto() -> Duration {
    static AUTO: OnceLock<Duration> = OnceLock::new();
    *AUTO.get_or_init(|| {
        let (lent, why) = match measured() {
            Ok(switch) => {
                let us = switch.as_secs_f64() * 1e6;
                let why = format!("a switch between threads takes {us:.1} us");
                (moment(switch), why)
            }
            Err(error) => (Duration::ZERO, format!("{error:#}")),
        };
        let us = lent.as_micros() as u64;
        info!(event = "measured", lend_yields_us = us; "lend_yields_us = \"auto\" means {us} here: {why}");
        lent
    })
}

/// What a switch takes.
///
/// # Errors
/// It cannot be measured, or a timer would not end a moment in time.
fn measured() -> Result<Duration> {
    let kernel = nix::sys::utsname::uname()?;
    let cmdline = read_to_string("/proc/cmdline").context("reading /proc/cmdline")?;
    if timers_run_in_threads(&kernel.version().to_string_lossy(), &cmdline) {
        bail!("this kernel's timers run in threads");
    }
    if Duration::from(clock_getres(ClockId::CLOCK_MONOTONIC)?) > FINE {
        bail!("this kernel's timers fire at ticks");
    }
    switch().context("what a switch takes here is not known")
}

fn moment(switch: Duration) -> Duration {
    if switch <= AUTO_LEND / SWITCHES {
        AUTO_LEND
    } else {
        Duration::ZERO
    }
}

/// Does the kernel's version (`uname -v`), or its command line, say that the timers of BPF run in threads?
fn timers_run_in_threads(version: &str, cmdline: &str) -> bool {
    let is_realtime = version.split_whitespace().any(|word| word == "PREEMPT_RT");
    let is_threaded = |word: &str| word.split('=').next() == Some("threadirqs");
    is_realtime || cmdline.split_whitespace().any(is_threaded)
}

/// From one thread to another one of the same CPU that it wakes through a pipe, its system calls included: the shortest
/// of many, as others may use that CPU.
fn switch() -> Result<Duration> {
    let cpu = sched_getcpu()?;
    let (there, back) = (pipe()?, pipe()?);
    let (tell, told) = channel();
    // Each ends when the other one has: the pipe is closed then. Who could not run before does so when it can.
    Builder::new().spawn(move || echo(cpu, there.0, back.1))?;
    Builder::new().spawn(move || tell.send(round_trips(cpu, there.1, back.0)))?;
    let shortest = told.recv_timeout(GIVEN_UP_AFTER).context("nobody ran")??;
    Ok(shortest / 2)
}

fn stay_on(cpu: usize) -> Result<()> {
    let this_thread = 0;
    set_affinity(this_thread, Some(&CpuSet::new([cpu as u32])))
        .with_context(|| format!("going to CPU {cpu}"))
}

fn echo(cpu: usize, mut from: PipeReader, mut to: PipeWriter) -> Result<()> {
    stay_on(cpu)?;
    let mut byte = [0];
    while from.read(&mut byte)? > 0 {
        to.write_all(&byte)?;
    }
    Ok(())
}

fn round_trips(cpu: usize, mut to: PipeWriter, mut from: PipeReader) -> Result<Duration> {
    stay_on(cpu)?;
    let (began, mut shortest) = (Instant::now(), Duration::MAX);
    while began.elapsed() < MEASURED_FOR {
        let start = Instant::now();
        to.write_all(&[0])?;
        from.read_exact(&mut [0])?;
        shortest = shortest.min(start.elapsed());
    }
    Ok(shortest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_worth_their_switches() {
        let micros = Duration::from_micros;
        assert_eq!(moment(micros(1)), micros(100));
        assert_eq!(moment(micros(5)), micros(100));
        assert_eq!(moment(micros(6)), Duration::ZERO);
        assert_eq!(moment(Duration::MAX), Duration::ZERO);
    }

    #[test]
    fn kernels_whose_timers_run_in_threads_say_so() {
        let rt = "#1 SMP PREEMPT_RT Debian 6.18.15-1 (2026-03-01)";
        assert!(timers_run_in_threads(rt, ""));
        assert!(timers_run_in_threads("", "quiet threadirqs ro\n"));
        assert!(timers_run_in_threads("", "threadirqs=1\n"));
        let usual = "#1 SMP PREEMPT_DYNAMIC Debian 6.18.15-1 (2026-03-01)";
        assert!(!timers_run_in_threads(usual, "quiet nothreadirqs ro\n"));
    }

    #[test]
    fn a_switch_costs_something() {
        let cost = switch().unwrap();
        println!("{cost:?}");
        assert!(cost > Duration::ZERO && cost < MEASURED_FOR, "{cost:?}");
    }
}
