// SPDX-License-Identifier: GPL-2.0-only
//! With the scheduler loaded: who needs a class has it in time, whatever gives it to them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use scx_gpuaware::identify::cgroups::XATTR;
use scx_gpuaware::identify::marks::{Mark, Pins};
use scx_gpuaware::identify::{Class, Source};

use crate::process::{Process, busy_loop, repository};

use super::machine::{CGROUPS, Cgroup, add_to_cgroup};
use super::shared::beside_the_scheduler;

/// Who needs a class has it by then.
const IN_TIME: Duration = Duration::from_millis(250);
/// Of so many times, the median counts: an emulated machine stands still now and then.
const ROUNDS: usize = 5;

/// What thread `tid` has. Read from the pin: `scx_gpuaware marks` takes longer to start
/// than what is measured.
fn mark_of(tid: i32) -> Option<Mark> {
    let marks = Pins::default().list().expect("listing marks");
    marks.into_iter().find(|mark| mark.tid == tid)
}

/// How long it takes until thread `tid` has `expected`.
fn delay(tid: i32, expected: Option<(Class, Source)>) -> Duration {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        if mark_of(tid).map(|mark| (mark.class, mark.source)) == expected {
            return start.elapsed();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("not {expected:?} but {:?}", mark_of(tid));
}

/// `change` and what it makes of thread `tid`, there and back again, in time.
fn changes(tid: i32, what: &str, expected: (Class, Source), mut change: impl FnMut(bool)) {
    let mut delays = Vec::new();
    for _ in 0..ROUNDS {
        change(true);
        delays.push(delay(tid, Some(expected)));
        change(false);
        delays.push(delay(tid, None));
    }
    delays.sort_unstable();
    let (median, worst) = (delays[ROUNDS], delays[delays.len() - 1]);
    println!("{what}: median {median:?}, worst {worst:?}");
    assert!(median <= IN_TIME, "{what}: {delays:?}");
}

#[test]
#[ignore = "runs in the lab: make test"]
fn cgroups_that_come_go_and_are_tagged_count_in_time() {
    beside_the_scheduler(
        "[class.launch]\nmatch = [{ cgroup = \"in-time/glob/**\" }]\n",
        |_| {
            let process = Process::start(busy_loop());
            let top = Cgroup::new("in-time");
            let by_cgroup = |class| (class, Source::Cgroup);
            let mut made = None;
            changes(
                process.pid(),
                "a folder that is made and removed",
                by_cgroup(Class::Launch),
                |there| {
                    if there {
                        let folder = Cgroup::new("in-time/glob");
                        folder.add(&process);
                        made = Some(folder);
                    } else {
                        add_to_cgroup(std::path::Path::new(CGROUPS), &process);
                        made = None;
                    }
                },
            );
            top.add(&process);
            changes(
                process.pid(),
                "an xattr",
                by_cgroup(Class::Handoff),
                |there| match there {
                    true => xattr::set(top.path(), XATTR, b"handoff").expect("tagging"),
                    false => xattr::remove(top.path(), XATTR).expect("taking the tag away"),
                },
            );
            add_to_cgroup(std::path::Path::new(CGROUPS), &process);
            drop(process);
        },
    );
}

#[test]
#[ignore = "runs in the lab: make test"]
fn names_count_in_time() {
    beside_the_scheduler(
        "[class.handoff]\nmatch = [{ comm = \"in-time*\" }]\n",
        |_| {
            // Nobody else may rename it.
            let mut command = Command::new("sh");
            command
                .args([
                    "-c",
                    "while read -r name; do echo \"$name\" >/proc/$$/comm; done",
                ])
                .stdin(Stdio::piped());
            let mut process = Process::start(command);
            changes(
                process.pid(),
                "a thread that is renamed",
                (Class::Handoff, Source::Rule),
                |there| {
                    let name = if there { "in-time-1" } else { "sh" };
                    process.write_line(name);
                },
            );
        },
    );
}

/// Hints on and off, as standard input says.
const HINTING: &str = "import gpuaware, sys
for line in sys.stdin: gpuaware.hint(line.strip() or None)
";

#[test]
#[ignore = "runs in the lab: make test"]
fn hints_count_in_time() {
    beside_the_scheduler("", |_| {
        let mut command = Command::new("python3");
        command
            .args(["-c", HINTING])
            .env("PYTHONPATH", repository().join("hints"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped());
        let mut program = Process::start(command);
        // It has to have started before it can be in time.
        program.write_line("launch");
        let start = Instant::now();
        while mark_of(program.pid()).is_none() {
            assert!(start.elapsed() < Duration::from_secs(20), "no hint");
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut delays = Vec::new();
        for round in 0..2 * ROUNDS {
            let hints = round % 2 == 1;
            program.write_line(if hints { "launch" } else { "" });
            let expected = hints.then_some((Class::Launch, Source::Hint));
            delays.push(delay(program.pid(), expected));
        }
        delays.sort_unstable();
        println!("a hint: {delays:?}");
        assert!(delays[ROUNDS] <= IN_TIME, "{delays:?}");
    });
}
