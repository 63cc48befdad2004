// SPDX-License-Identifier: GPL-2.0-only
//! With the scheduler loaded: what threads are seen doing, whose sightings count, how long they do, and
//! what the operator says by hand.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use scx_gpuaware::identify::marks::{Mark, Pins};
use scx_gpuaware::identify::{Class, Source};
use scx_gpuaware::sched::stats::Totals;

use crate::process::{Process, eventually, gpu_launch, scx_gpuaware};
use crate::root::handoff::{Threads, talk, tcp};
use crate::tier;

use super::machine::{Scheduler, metrics};
use super::shared::beside_the_scheduler;

fn marks_of(pid: i32) -> Vec<Mark> {
    let marks = Pins::default().list().expect("listing marks");
    marks.into_iter().filter(|mark| mark.tgid == pid).collect()
}

fn own_verdict(tid: i32) -> Option<(Class, Source)> {
    let marks = marks_of(std::process::id() as i32).into_iter();
    let mut own = marks.filter(|mark| mark.tid == tid);
    own.next().map(|mark| (mark.class, mark.source))
}

fn becomes(expected: Option<(Class, Source)>, verdict: impl Fn() -> Option<(Class, Source)>) {
    let reached = eventually(|| (verdict() == expected).then_some(()));
    assert!(reached.is_some(), "not {expected:?} but {:?}", verdict());
}

fn cli(args: &[&str]) {
    let output = scx_gpuaware(args).output().expect("scx_gpuaware");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
}

#[test]
#[ignore = "runs in the lab: make test"]
fn wakers_of_launchers_and_clients_are_handoff_and_expire() {
    tier::in_lab(|| {
        let (client, server, port) = tcp("127.0.0.1:0");
        let policy = format!(
            "[identify]\nexpire_s = 2\nmax_pause_us = 500000\n[class.handoff]\n\
         match = [{{ wakes = \"launch\" }}, {{ connects_to = \"127.0.0.1:{port}\" }}]\n"
        );
        let scheduler = Scheduler::with_policy(&policy);
        let mut launching = Threads::new();
        let (work, worked) = std::sync::mpsc::channel();
        let launcher = launching.start(Duration::ZERO, move || {
            let _ = worked.recv_timeout(Duration::from_millis(200));
        });
        let mut others = Threads::new();
        let waker = others.start(Duration::from_millis(10), move || {
            let _ = work.send(());
        });
        let client = talk(&mut others, client, server);
        let idle = others.start(Duration::from_millis(20), || {});
        becomes(Some((Class::Handoff, Source::Connects)), || {
            own_verdict(client)
        });
        assert_eq!(own_verdict(waker), None, "nobody launches");
        cli(&["mark", "--class", "launch", "--tid", &launcher.to_string()]);
        becomes(Some((Class::Handoff, Source::Wakes)), || own_verdict(waker));
        assert_eq!(own_verdict(idle), None);
        cli(&["unmark", "--tid", &launcher.to_string()]);
        // It wakes as ever, but no launcher.
        becomes(None, || own_verdict(waker));
        assert_eq!(
            own_verdict(client),
            Some((Class::Handoff, Source::Connects)),
            "who goes on stays"
        );
        scheduler.stop();
        drop((others, launching));
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn launches_of_who_is_not_trusted_are_shown_as_refused() {
    tier::in_lab(|| {
        let scheduler = Scheduler::with_policy("[guard]\ntrust_uids = [12345]\n");
        let mut command = gpu_launch("--profile eager --duration 20");
        command.stdout(Stdio::null());
        let launcher = Process::start(command);
        let first = || {
            let marks = marks_of(launcher.pid()).into_iter();
            marks.map(|mark| (mark.class, mark.source)).next()
        };
        becomes(Some((Class::Background, Source::Refused)), first);
        let mut totals = Totals::connect().expect("the statistics");
        let now = totals.read().expect("the statistics");
        assert!(now.sightings_refused > 0);
        assert_eq!((now.launchers_found, now.launch_wakeups), (0, 0));
        scheduler.stop();
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_rescan_arms_the_probes_and_all_of_a_process_can_be_unmarked() {
    beside_the_scheduler("", |scheduler| {
        let mut command = gpu_launch("--profile eager --threads 2 --duration 60");
        command.stdout(Stdio::null());
        let launcher = Process::start(command);
        let paused = || (metrics().probe_state == "paused").then_some(());
        let both = || (marks_of(launcher.pid()).len() == 2).then_some(());
        assert!(eventually(both).is_some(), "{:?}", marks_of(launcher.pid()));
        let mut totals = Totals::connect().expect("the statistics");
        let mut pause_is_short = || {
            let state = totals.read().expect("the statistics");
            (state.probe_pause_us <= 400_000).then_some(())
        };
        let ask: [(&str, &dyn Fn()); 2] = [
            ("rescan", &|| cli(&["rescan"])),
            ("SIGUSR1", &|| scheduler.process.signal(Signal::SIGUSR1)),
        ];
        for (what, ask) in ask {
            assert!(eventually(paused).is_some(), "{what}");
            // Its main thread is a stranger: pauses grow. Who asks has them short again.
            std::thread::sleep(Duration::from_secs(3));
            assert!(pause_is_short().is_none(), "{what}");
            ask();
            assert!(eventually(&mut pause_is_short).is_some(), "{what}");
        }
        let pid = launcher.pid().to_string();
        cli(&["mark", "--class", "background", "--pid", &pid]);
        let by_hand = |mark: &Mark| mark.source == Source::Mark;
        assert!(marks_of(launcher.pid()).iter().all(by_hand));
        assert!(marks_of(launcher.pid()).len() >= 3, "its main thread too");
        cli(&["unmark", "--pid", &pid]);
        assert!(!marks_of(launcher.pid()).iter().any(by_hand));
    });
}
