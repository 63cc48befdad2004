// SPDX-License-Identifier: GPL-2.0-only
//! Rules by name, executable and arguments: for threads that are there, that start, that are renamed.

use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use nix::unistd::gettid;
use scx_gpuaware::identify::marks::{Mark, Pins};
use scx_gpuaware::identify::{Class, Identify, Source};
use scx_gpuaware::policy::Policy;

use super::place::{Place, identify_until, identify_within, marks_of};
use crate::process::{Process, gpu_launch};

/// Who needs a class has it by then.
const IN_TIME: Duration = Duration::from_millis(250);

fn policy(rules: &str) -> Policy {
    Policy::parse(&format!(
        "[class.launch]\nmatch = []\n[class.handoff]\nmatch = [{rules}]\n"
    ))
    .unwrap()
}

fn sleeper(seconds: &str) -> Command {
    let mut command = Command::new("sleep");
    command.arg(seconds).stdin(Stdio::null());
    command
}

fn mark_of(pins: &Pins, tid: i32) -> Option<Mark> {
    let marks = pins.list().expect("listing marks");
    marks.into_iter().find(|mark| mark.tid == tid)
}

#[test]
fn all_terms_must_match_processes_that_are_there_and_that_start() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let there = Process::start(sleeper("61.25"));
    let mut object = MaybeUninit::uninit();
    let rule = "{ comm = \"sle*\", exe = \"**/{sleep,coreutils}\", cmdline = \"sleep 61.?5\" }";
    let mut identify = Identify::start(&policy(rule), pins.clone(), &mut object).unwrap();
    let mark = mark_of(&pins, there.pid()).expect("a mark from the start");
    assert_eq!((mark.class, mark.source), (Class::Handoff, Source::Rule));
    assert!(mark.evidence.contains("sleep 61.?5"), "{}", mark.evidence);
    let starts = Process::start(sleeper("61.75"));
    let other = Process::start(sleeper("62"));
    let found = identify_within(&mut identify, IN_TIME, |_| {
        mark_of(&pins, starts.pid()).is_some()
    });
    assert!(found, "not within {IN_TIME:?}");
    assert!(mark_of(&pins, other.pid()).is_none());
}

/// Its child has never started a program, and nobody has seen the one that did.
#[test]
fn a_daemon_whose_parent_has_ended_before_anybody_looked_goes_by_its_program() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let rule = "{ cmdline = \"*rule-of-a-daemon*\" }";
    let mut identify = Identify::start(&policy(rule), pins.clone(), &mut object).unwrap();
    let mut command = Command::new("sh");
    // As daemon(3) does it: the first child ends too.
    let script = "( ( i=0; while [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done ) & echo \"daemon $!\" >&2 ) &";
    command
        .args(["-c", script, "rule-of-a-daemon"])
        .stdin(Stdio::null());
    let mut parent = Process::start(command);
    parent.wait_for_line("daemon");
    parent.wait();
    let said = parent
        .log
        .iter()
        .find_map(|line| line.strip_prefix("daemon "));
    let daemon: i32 = said.unwrap().trim().parse().unwrap();
    let found = identify_within(&mut identify, IN_TIME, |_| mark_of(&pins, daemon).is_some());
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(daemon),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    assert!(found, "{:?}", pins.list());
}

#[test]
fn a_thread_goes_by_its_own_name_and_its_children_by_theirs() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let rule = "{ comm = \"rule-*\" }";
    let mut identify = Identify::start(&policy(rule), pins.clone(), &mut object).unwrap();
    let (say, said) = channel();
    let (end, ended) = channel::<()>();
    let name = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let thread = name("rule-parent").spawn(move || {
        let parent = gettid().as_raw();
        // Before it names itself it has the name of its parent.
        let child = std::thread::Builder::new();
        let (say_child, child_said) = channel();
        let child = child.spawn(move || {
            say_child.send(gettid().as_raw()).unwrap();
            let _ = ended.recv();
        });
        say.send((parent, child_said.recv().unwrap())).unwrap();
        child.unwrap().join().unwrap();
    });
    let (parent, child) = said.recv().unwrap();
    let found = identify_within(&mut identify, IN_TIME, |_| {
        mark_of(&pins, parent).is_some() && mark_of(&pins, child).is_some()
    });
    assert!(found, "{:?}", pins.list());
    std::fs::write(format!("/proc/self/task/{parent}/comm"), "other").unwrap();
    let gone = identify_within(&mut identify, IN_TIME, |_| mark_of(&pins, parent).is_none());
    assert!(gone && mark_of(&pins, child).is_some(), "{:?}", pins.list());
    end.send(()).unwrap();
    thread.unwrap().join().unwrap();
}

#[test]
fn another_program_is_judged_anew() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let rules = "{ cmdline = \"sleep 63\" }";
    let mut identify = Identify::start(&policy(rules), pins.clone(), &mut object).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "read go; exec sleep 63"]);
    command.stdin(Stdio::piped());
    let mut process = Process::start(command);
    let pid = process.pid();
    let has_mark = |_: &Identify<'_>| !marks_of(&pins, pid).is_empty();
    assert!(!identify_within(&mut identify, IN_TIME, has_mark));
    process.write_line("");
    assert!(identify_until(&mut identify, has_mark));
}

#[test]
fn another_policy_judges_everybody_anew() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let process = Process::start(sleeper("64"));
    let mut object = MaybeUninit::uninit();
    let first = policy("{ comm = \"nobody-has\" }, { cmdline = \"sleep 64\" }");
    let mut identify = Identify::start(&first, pins.clone(), &mut object).unwrap();
    assert_eq!(marks_of(&pins, process.pid()).len(), 1);
    // The number of the rule that matched is one of another rule now.
    let second = policy("{ comm = \"nobody-has\" }, { comm = \"nor-this\" }");
    identify.follow(&second).unwrap();
    assert!(marks_of(&pins, process.pid()).is_empty());
    identify.follow(&first).unwrap();
    assert_eq!(marks_of(&pins, process.pid()).len(), 1);
}

#[test]
fn a_policy_with_the_same_rules_judges_nobody_anew() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let process = Process::start(sleeper("65"));
    let mut object = MaybeUninit::uninit();
    let first = policy("{ cmdline = \"sleep 65\" }");
    let mut identify = Identify::start(&first, pins.clone(), &mut object).unwrap();
    let named = || mark_of(&pins, process.pid()).expect("a mark").first_seen_ns;
    let since = named();
    let mut other = first.clone();
    other.background.slice *= 2;
    identify.follow(&other).unwrap();
    assert_eq!(named(), since);
    identify
        .follow(&policy(
            "{ comm = \"nobody-has\" }, { cmdline = \"sleep 65\" }",
        ))
        .unwrap();
    assert_ne!(named(), since, "by a rule with another number");
}

#[test]
fn launches_of_users_that_are_not_trusted_do_not_count() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let policy = Policy::parse("[guard]\ntrust_uids = [12345]\n").unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy, pins.clone(), &mut object).unwrap();
    let mut command = gpu_launch("--profile eager --duration 20");
    command.stdout(Stdio::null());
    let process = Process::start(command);
    let seen = identify_until(&mut identify, |_| {
        !marks_of(&pins, process.pid()).is_empty()
    });
    assert!(seen, "refused threads are shown");
    for mark in marks_of(&pins, process.pid()) {
        assert_eq!(
            (mark.class, mark.source),
            (Class::Background, Source::Refused)
        );
        assert!(
            mark.evidence.contains("uid 0 is not in"),
            "{}",
            mark.evidence
        );
        assert!(mark.evidence.contains("libcuda.so"), "{}", mark.evidence);
    }
    assert!(identify.sightings().refused > 0);
}
