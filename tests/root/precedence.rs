// SPDX-License-Identifier: GPL-2.0-only
//! Who wins when more than one says something of a thread, and how long it holds.

use std::mem::MaybeUninit;
use std::process::Stdio;
use std::time::Duration;

use nix::unistd::Pid;
use scx_gpuaware::identify::cgroups::XATTR;
use scx_gpuaware::identify::{Class, Identify, Source};
use scx_gpuaware::policy::Policy;

use super::cgroups::{Folder, add_to, hierarchy};
use super::late::{copy_of_libcuda, python};
use super::place::{Place, identify_until, identify_within, marks_of};
use crate::process::{NEVER, Process, busy_loop, gpu_launch, repository};

/// Who needs a class has it by then.
const IN_TIME: Duration = Duration::from_millis(250);

/// Launches on, and does what standard input says, line by line.
const OBEDIENT: &str = "sys.path.insert(0, HINTS)
import gpuaware, select
gpuaware.PINS = PINS
lib = load()
while True:
    lib.cuLaunchKernel(*[None] * 11)
    if select.select([sys.stdin], [], [], 0.005)[0]:
        line = sys.stdin.readline()
        if not line: break
        exec(line)
        say('done')
";

/// A process that launches and obeys.
struct Obedient {
    process: Process,
}

impl Obedient {
    fn start(place: &Place, library: &std::path::Path) -> Self {
        let head = format!(
            "HINTS = {:?}\nPINS = {:?}\n",
            repository().join("hints"),
            place.pins().dir()
        );
        let mut command = python(&format!("{head}{OBEDIENT}"), library);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        Self {
            process: Process::start(command),
        }
    }

    fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Has it run a line of Python.
    fn run(&mut self, line: &str) {
        self.process.write_line(line);
        self.process.wait_for_line("done");
    }
}

fn verdicts(place: &Place, pid: i32) -> Vec<(Class, Source)> {
    let marks = marks_of(&place.pins(), pid).into_iter();
    marks
        .filter(|mark| mark.tid == pid)
        .map(|mark| (mark.class, mark.source))
        .collect()
}

#[test]
fn a_launcher_that_stops_is_forgotten_and_found_again() {
    let Some(place) = Place::new() else { return };
    let policy = "[identify]\nexpire_s = 2\nmax_pause_us = 200000\n";
    let policy = Policy::parse(policy).unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy, place.pins(), &mut object).unwrap();
    let (_folder, copy) = copy_of_libcuda();
    let mut program = Obedient::start(&place, &copy);
    let pid = program.pid();
    let is_marked = || verdicts(&place, pid) == [(Class::Launch, Source::Uprobe)];
    let marked = identify_until(&mut identify, |_| is_marked());
    assert!(marked);
    // As long as it launches it stays so.
    let lost = identify_within(&mut identify, Duration::from_secs(6), |_| !is_marked());
    assert!(!lost);
    program.process.write_line("time.sleep(8)");
    let forgotten = identify_until(&mut identify, |_| verdicts(&place, pid).is_empty());
    assert!(forgotten, "{:?}", verdicts(&place, pid));
    let found = identify_until(&mut identify, |_| is_marked());
    assert!(found);
}

#[test]
fn the_operator_goes_before_the_program_and_the_program_before_what_is_seen() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let name = format!("gpuaware-precedence-{}", std::process::id());
    let tagged = Folder::new(hierarchy().join(&name));
    xattr::set(&tagged.0, XATTR, b"background").unwrap();
    let policy = format!(
        "[class.launch]\nmatch = [{{ cuda_launch = true }}]\n\
         [class.handoff]\nmatch = [{{ cgroup = \"{name}\" }}]\n\
         [class.background]\nmatch = [{{ comm = \"named\" }}]\n"
    );
    let policy = Policy::parse(&policy).unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy, pins.clone(), &mut object).unwrap();
    let (_folder, copy) = copy_of_libcuda();
    let mut program = Obedient::start(&place, &copy);
    let pid = program.pid();
    let mut becomes = |limit: Duration, class: Class, source: Source| {
        let reached = identify_within(&mut identify, limit, |_| {
            verdicts(&place, pid) == [(class, source)]
        });
        assert!(
            reached,
            "not {class:?} by {source:?}: {:?}",
            verdicts(&place, pid)
        );
    };
    becomes(NEVER, Class::Launch, Source::Uprobe);
    program.run("gpuaware.hint('handoff')");
    becomes(IN_TIME, Class::Handoff, Source::Hint);
    program.run("open('/proc/self/comm', 'w').write('named')");
    becomes(IN_TIME, Class::Background, Source::Rule);
    tagged.add(&program.process);
    becomes(IN_TIME, Class::Handoff, Source::Cgroup);
    let evidence = &marks_of(&pins, pid)[0].evidence;
    assert!(
        evidence.ends_with(&format!("by {{ cgroup = \"{name}\" }}")),
        "the glob goes before the xattr: {evidence}"
    );
    pins.mark(pid, Some(Class::Launch)).unwrap();
    becomes(IN_TIME, Class::Launch, Source::Mark);
    // And back.
    pins.mark(pid, None).unwrap();
    becomes(IN_TIME, Class::Handoff, Source::Cgroup);
    add_to(&hierarchy(), &program.process);
    becomes(IN_TIME, Class::Background, Source::Rule);
    program.run("open('/proc/self/comm', 'w').write('other')");
    becomes(IN_TIME, Class::Handoff, Source::Hint);
    program.run("gpuaware.hint(None)");
    // It was unmarked by hand: it is one that is not known, until a sweep meets it.
    becomes(NEVER, Class::Launch, Source::Uprobe);
    drop(program);
    std::thread::sleep(Duration::from_millis(50));
    drop(tagged);
}

/// Has a program that runs what it is told start a process, which sleeps.
fn child_of(process: &mut Process) -> Killed {
    process.write_line("child = os.fork() or time.sleep(60) or os._exit(0); say('child', child)");
    process.wait_for_line("child ");
    let line = process.log.last().unwrap();
    let child = line.strip_prefix("child ").unwrap().trim();
    Killed(Pid::from_raw(child.parse().unwrap()))
}

/// What a program that runs what it is told starts another program by.
const BECOME_SLEEP: &str = "os.execvp('sleep', ['sleep', '60'])";

fn is_sleep(pid: i32) -> bool {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    comm.is_ok_and(|comm| comm.trim() == "sleep")
}

#[test]
fn marks_by_hand_outlive_exec_and_are_not_inherited_and_cgroups_are() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let tagged = Folder::new(hierarchy().join(format!("gpuaware-fork-{}", std::process::id())));
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let (_folder, copy) = copy_of_libcuda();
    let mut process = Process::start(python("for line in sys.stdin: exec(line)\n", &copy));
    let pid = process.pid();
    pins.mark(pid, Some(Class::Launch)).unwrap();
    let child = child_of(&mut process);
    assert!(verdicts(&place, child.0.as_raw()).is_empty());
    tagged.add(&process);
    xattr::set(&tagged.0, XATTR, b"handoff").unwrap();
    let inheriting = child_of(&mut process);
    let expected = [(Class::Handoff, Source::Cgroup)];
    let reached = identify_within(&mut identify, IN_TIME, |_| {
        verdicts(&place, inheriting.0.as_raw()) == expected
    });
    assert!(reached, "{:?}", verdicts(&place, inheriting.0.as_raw()));
    process.write_line(BECOME_SLEEP);
    let has_become_sleep = identify_until(&mut identify, |_| is_sleep(pid));
    assert!(has_become_sleep);
    assert_eq!(verdicts(&place, pid), [(Class::Launch, Source::Mark)]);
    drop((inheriting, child, process));
    std::thread::sleep(Duration::from_millis(50));
    drop(tagged);
}

/// What the thread has done that it is launch for.
const OWN_DOING: [(&str, Source); 2] = [
    ("pass", Source::Uprobe),
    ("assert gpuaware.hint('launch')", Source::Hint),
];

/// A program that is launch for what it has done.
fn marked(place: &Place, identify: &mut Identify<'_>, (line, source): (&str, Source)) -> Obedient {
    let (_folder, copy) = copy_of_libcuda();
    let mut program = Obedient::start(place, &copy);
    program.run(line);
    let pid = program.pid();
    let reached = identify_until(identify, |_| {
        verdicts(place, pid) == [(Class::Launch, source)]
    });
    assert!(reached, "{source:?}: {:?}", verdicts(place, pid));
    program
}

#[test]
fn what_a_thread_has_done_is_neither_inherited_nor_outlives_exec() {
    let Some(place) = Place::new() else { return };
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), place.pins(), &mut object).unwrap();
    for doing in OWN_DOING {
        let mut program = marked(&place, &mut identify, doing);
        let child = child_of(&mut program.process);
        let inherited = identify_within(&mut identify, IN_TIME, |_| {
            !verdicts(&place, child.0.as_raw()).is_empty()
        });
        assert!(!inherited, "{doing:?}");
        let pid = program.pid();
        assert_eq!(verdicts(&place, pid), [(Class::Launch, doing.1)]);
        program.process.write_line(BECOME_SLEEP);
        let is_new = identify_until(&mut identify, |_| {
            is_sleep(pid) && verdicts(&place, pid).is_empty()
        });
        assert!(is_new, "{doing:?}: {:?}", verdicts(&place, pid));
    }
}

#[test]
fn a_reused_tid_inherits_nothing() {
    const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let mut is_reused = |start: &mut dyn FnMut(&mut Identify<'_>) -> Process| {
        // Another process may start in between.
        (0..50).any(|_| {
            let process = start(&mut identify);
            let pid = process.pid();
            assert_eq!(marks_of(&pins, pid).len(), 1);
            drop(process);
            std::fs::write(LAST_PID, (pid - 1).to_string()).unwrap();
            let next = Process::start(busy_loop());
            assert!(marks_of(&pins, next.pid()).is_empty());
            next.pid() == pid
        })
    };
    let by_hand = is_reused(&mut |_| {
        let process = Process::start(busy_loop());
        pins.mark(process.pid(), Some(Class::Launch)).unwrap();
        process
    });
    assert!(by_hand, "no TID was reused");
    for doing in OWN_DOING {
        let reused = is_reused(&mut |identify| marked(&place, identify, doing).process);
        assert!(reused, "no TID was reused: {doing:?}");
    }
}

/// A process of ours that is no child of ours. Killed when dropped.
struct Killed(Pid);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(self.0, nix::sys::signal::Signal::SIGKILL);
    }
}

#[test]
fn a_launcher_that_goes_on_outlives_its_expiry() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let policy = Policy::parse("[identify]\nexpire_s = 2\nmax_pause_us = 400000\n").unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy, pins.clone(), &mut object).unwrap();
    let mut command = gpu_launch("--profile eager --duration 60");
    command.stdout(Stdio::null());
    let launcher = Process::start(command);
    let is_marked = |_: &Identify<'_>| !marks_of(&pins, launcher.pid()).is_empty();
    assert!(identify_until(&mut identify, is_marked));
    let lost = identify_within(&mut identify, Duration::from_secs(7), |_| {
        marks_of(&pins, launcher.pid()).is_empty()
    });
    assert!(!lost, "{:?}", identify.sightings());
}
