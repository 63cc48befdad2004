// SPDX-License-Identifier: GPL-2.0-only
//! SIGINT and SIGTERM end every command soon, whatever it does at the moment.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::machine::{Scheduler, loaded};
use crate::process::{Process, code, scx_gpuaware};
use crate::tier;

/// A second is what is promised; the machine is emulated.
const SOON: Duration = Duration::from_secs(4);

fn end_soon(process: &mut Process, signal: Signal) -> i32 {
    let start = Instant::now();
    process.signal(signal);
    let status = process.wait();
    let took = start.elapsed();
    assert!(took < SOON, "{took:?}: {:#?}", process.log);
    code(status)
}

fn assert_nothing_is_left() {
    assert_eq!(loaded(), None);
    assert!(!Path::new("/sys/fs/bpf/scx_gpuaware").exists());
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_start_is_cut_short() {
    tier::in_lab(|| {
        for wait_ms in [50, 1_000, 2_500] {
            let mut starts = Process::start(scx_gpuaware(&[]));
            std::thread::sleep(Duration::from_millis(wait_ms));
            let code = end_soon(&mut starts, Signal::SIGTERM);
            assert!([0, 128 + 15].contains(&code), "{code}: {:#?}", starts.log);
            assert_nothing_is_left();
        }
        Scheduler::start(&[]).stop();
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_reload_that_does_not_come_to_an_end_is_cut_short() {
    tier::in_lab(|| {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("policy.toml");
        std::fs::write(&policy, "").unwrap();
        let args = ["--policy", policy.to_str().unwrap()];
        let mut scheduler = Process::start(scx_gpuaware(&args));
        scheduler.wait_for_line("attached");
        std::fs::remove_file(&policy).unwrap();
        // Nobody writes into it.
        nix::unistd::mkfifo(&policy, nix::sys::stat::Mode::S_IRWXU).unwrap();
        scheduler.signal(Signal::SIGHUP);
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(end_soon(&mut scheduler, Signal::SIGTERM), 128 + 15);
        assert_nothing_is_left();
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_monitor_does_not_sleep_through_a_signal_nor_wait_for_who_does_not_answer() {
    tier::in_lab(|| {
        let scheduler = Scheduler::start(&[]);
        let monitor = |interval: &str| {
            let mut command = scx_gpuaware(&["--monitor", interval]);
            command.stdout(Stdio::null());
            let monitor = Process::start(command);
            std::thread::sleep(Duration::from_secs(1));
            monitor
        };
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            assert_eq!(end_soon(&mut monitor("1000"), signal), 0);
        }
        let mut asks = monitor("0.1");
        scheduler.process.signal(Signal::SIGSTOP);
        std::thread::sleep(Duration::from_secs(1));
        let code = end_soon(&mut asks, Signal::SIGINT);
        scheduler.process.signal(Signal::SIGCONT);
        assert_eq!(code, 128 + 2);
        scheduler.stop();
    });
}
