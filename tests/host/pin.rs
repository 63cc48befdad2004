// SPDX-License-Identifier: GPL-2.0-only
//! Pins on real threads, which needs neither rights nor the scheduler: affinities of one's own
//! processes are anybody's to set.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use scx_gpuaware::policy::Policy;
use scx_gpuaware::policy::cpuset::CpuSet;
use scx_gpuaware::sched::pin::Pinning;
use scx_gpuaware::sched::pin::threads::{affinity, set_affinity};

use crate::process::{Process, copy_program, eventually};

/// Until a thread is old enough to be looked at.
const SETTLES: Duration = Duration::from_millis(200);

/// Processes with names of their own, and a place for the state.
struct Machine {
    folder: tempfile::TempDir,
    cpus: Vec<u32>,
}

impl Machine {
    fn new() -> Self {
        let cpus: Vec<u32> = affinity(0).unwrap().iter().collect();
        assert!(cpus.len() > 1, "one CPU: there is nowhere to pin to");
        Self {
            folder: tempfile::tempdir().unwrap(),
            cpus,
        }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state.json")
    }

    fn named(&self, program: &str, name: &str) -> Command {
        let link = self.folder.path().join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(program, &link).unwrap();
        }
        Command::new(link)
    }

    /// A process that sleeps under `name`.
    fn sleeper(&self, name: &str) -> Process {
        let mut command = self.named("/bin/sleep", name);
        command.arg("300");
        Process::start(command)
    }

    /// A process that is called `names[0]` and takes the others one by one, when told by [`Self::rename`].
    fn renamer(&self, names: &[&str]) -> Process {
        let mut command = self.named("/bin/sh", names[0]);
        let script = "folder=$1; shift; for name; do until [ -e $folder/go-$name ]; do sleep 0.05; done; \
                      printf %s $name >/proc/$$/comm; echo renamed >&2; done; while :; do sleep 0.05; done";
        let folder = self.folder.path();
        command
            .args(["-c", script, "sh"])
            .arg(folder)
            .args(&names[1..]);
        Process::start(command)
    }

    fn rename(&self, process: &mut Process, name: &str) {
        std::fs::write(self.folder.path().join(format!("go-{name}")), "").unwrap();
        process.wait_for_line("renamed");
    }

    /// Threads named `comm` are to stay on `cpus`.
    fn policy(&self, pins: &[(&str, &str)]) -> Policy {
        let pins = pins.iter().map(|(comm, cpus)| {
            format!("[[pin]]\nmatch = {{ comm = \"{comm}\" }}\ncpus = \"{cpus}\"\n")
        });
        Policy::parse(&pins.collect::<String>()).unwrap()
    }

    fn pinning(&self, policy: &Policy) -> Pinning {
        Pinning::start(policy, &self.state()).unwrap()
    }

    /// The CPU with this number among those that the test may use, as a list.
    fn cpu(&self, index: usize) -> String {
        self.cpus[index].to_string()
    }

    fn both(&self) -> String {
        CpuSet::new(self.cpus[..2].iter().copied()).to_string()
    }
}

fn cpus_of(process: &Process) -> String {
    affinity(process.pid()).unwrap().to_string()
}

fn settle() {
    std::thread::sleep(SETTLES);
}

#[test]
fn threads_get_cpus_in_turn_or_share_them_and_get_theirs_back() {
    let machine = Machine::new();
    let rr = format!("[{}:1, {}:1]rr", machine.cpu(0), machine.cpu(1));
    let policy = machine.policy(&[("pina-*", &rr), ("pinb-*", &machine.both())]);
    let turns: Vec<_> = (0..3)
        .map(|n| machine.sleeper(&format!("pina-{n}")))
        .collect();
    let [shared, other] = ["pinb-1", "pinc"].map(|name| machine.sleeper(name));
    let before = cpus_of(&other);
    settle();
    let mut pinning = machine.pinning(&policy);
    pinning.follow();
    let got: Vec<_> = turns.iter().map(cpus_of).collect();
    assert_eq!(got, [machine.cpu(0), machine.cpu(1), machine.cpu(0)]);
    assert_eq!(cpus_of(&shared), machine.both());
    assert_eq!(cpus_of(&other), before);
    assert!(machine.state().exists());
    drop(pinning);
    for process in turns.iter().chain([&shared]) {
        assert_eq!(cpus_of(process), before);
    }
    assert!(!machine.state().exists());
}

#[test]
fn who_cannot_be_remembered_is_pinned_once_that_is_possible() {
    let machine = Machine::new();
    let policy = machine.policy(&[("pinr", &machine.cpu(0))]);
    let process = machine.sleeper("pinr");
    let before = cpus_of(&process);
    settle();
    let mut pinning = machine.pinning(&policy);
    // In the way of the state's draft.
    let obstacle = machine.folder.path().join("state.json.new");
    std::fs::create_dir(&obstacle).unwrap();
    pinning.follow();
    assert_eq!(cpus_of(&process), before);
    std::fs::remove_dir(&obstacle).unwrap();
    pinning.follow();
    assert_eq!(cpus_of(&process), machine.cpu(0));
}

#[test]
fn the_next_start_restores_what_a_killed_run_has_pinned() {
    let machine = Machine::new();
    let policy = machine.policy(&[("pind", &machine.cpu(0))]);
    let [pinned, changed] = ["pind", "pind"].map(|name| machine.sleeper(name));
    let before = cpus_of(&pinned);
    settle();
    let mut killed = machine.pinning(&policy);
    killed.follow();
    std::mem::forget(killed);
    let own: CpuSet = machine.cpu(1).parse().unwrap();
    set_affinity(changed.pid(), Some(&own)).unwrap();
    assert_eq!(cpus_of(&pinned), machine.cpu(0));
    drop(machine.pinning(&machine.policy(&[])));
    assert_eq!(cpus_of(&pinned), before);
    assert_eq!(cpus_of(&changed), machine.cpu(1), "what it set itself");
    assert!(!machine.state().exists());
}

#[test]
fn who_came_from_cpus_that_are_offline_by_now_may_run_anywhere() {
    let machine = Machine::new();
    let process = machine.sleeper("pinoff");
    let before = cpus_of(&process);
    settle();
    let mut killed = machine.pinning(&machine.policy(&[("pinoff", &machine.cpu(0))]));
    killed.follow();
    std::mem::forget(killed);
    let text = std::fs::read_to_string(machine.state()).unwrap();
    let mut state: serde_json::Value = serde_json::from_str(&text).unwrap();
    let pinned = &mut state["affinities"][0];
    assert_eq!(
        pinned["pid"].as_i64().or(pinned["tid"].as_i64()),
        Some(process.pid().into())
    );
    pinned["original"] = "1000".into();
    std::fs::write(machine.state(), state.to_string()).unwrap();
    drop(machine.pinning(&machine.policy(&[])));
    assert_eq!(cpus_of(&process), before);
    assert!(!machine.state().exists());
}

#[test]
fn it_does_not_pin_itself() {
    let machine = Machine::new();
    let (stop, wait) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("pinself".to_owned());
    let thread = thread.spawn(move || {
        tell.send(nix::unistd::gettid().as_raw()).unwrap();
        let _ = wait.recv();
    });
    let tid = told.recv().unwrap();
    let before = affinity(tid).unwrap();
    let other = machine.sleeper("pinself");
    settle();
    let mut pinning = machine.pinning(&machine.policy(&[("pinself", &machine.cpu(0))]));
    pinning.follow();
    assert_eq!(cpus_of(&other), machine.cpu(0));
    assert_eq!(affinity(tid).unwrap(), before);
    drop(stop);
    thread.unwrap().join().unwrap();
}

#[test]
fn an_affinity_that_a_program_sets_itself_is_left_alone() {
    let machine = Machine::new();
    let policy = machine.policy(&[("pine", &machine.cpu(0)), ("pine2", &machine.both())]);
    let mut process = machine.renamer(&["pine", "pine2"]);
    settle();
    let mut pinning = machine.pinning(&policy);
    pinning.follow();
    assert_eq!(cpus_of(&process), machine.cpu(0));
    let own: CpuSet = machine.cpu(1).parse().unwrap();
    set_affinity(process.pid(), Some(&own)).unwrap();
    // Another pin matches it now.
    machine.rename(&mut process, "pine2");
    pinning.follow();
    assert_eq!(cpus_of(&process), machine.cpu(1));
    drop(pinning);
    assert_eq!(cpus_of(&process), machine.cpu(1));
}

#[test]
fn a_thread_that_names_itself_later_gets_the_cpus_of_its_name() {
    let machine = Machine::new();
    let policy = machine.policy(&[("pinf", &machine.cpu(0)), ("ping", &machine.cpu(1))]);
    let mut process = machine.renamer(&["pinf", "ping", "pinh"]);
    let before = cpus_of(&process);
    settle();
    let mut pinning = machine.pinning(&policy);
    pinning.follow();
    assert_eq!(cpus_of(&process), machine.cpu(0));
    for (name, cpus) in [("ping", machine.cpu(1)), ("pinh", before)] {
        machine.rename(&mut process, name);
        pinning.follow();
        assert_eq!(cpus_of(&process), cpus, "{name}");
    }
}

#[test]
fn what_a_pinned_thread_starts_is_not_pinned_for_that() {
    let machine = Machine::new();
    let policy = machine.policy(&[("pini", &machine.cpu(0))]);
    let mut command = machine.named("/bin/sh", "pini");
    let go = machine.folder.path().join("go");
    let script =
        "until [ -e \"$1\" ]; do sleep 0.05; done; echo started >&2; sleep 300 & echo $! >&2; wait";
    command.args(["-c", script, "sh"]).arg(&go);
    let mut parent = Process::start(command);
    let before = cpus_of(&parent);
    settle();
    let mut pinning = machine.pinning(&policy);
    pinning.follow();
    assert_eq!(cpus_of(&parent), machine.cpu(0));
    std::fs::write(&go, "").unwrap();
    parent.wait_for_line("started");
    parent.wait_for_line("");
    let child: i32 = parent.log.last().unwrap().parse().unwrap();
    let child_cpus = || affinity(child).unwrap().to_string();
    assert_eq!(child_cpus(), machine.cpu(0), "as Linux has it");
    let given_back = eventually(|| {
        pinning.follow();
        (child_cpus() == before).then_some(())
    });
    assert!(given_back.is_some(), "{}", child_cpus());
    assert_eq!(cpus_of(&parent), machine.cpu(0));
    drop(pinning);
    assert_eq!(cpus_of(&parent), before);
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(child),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
}

#[test]
fn cpus_that_the_kernel_refuses_are_named_and_nothing_is_left() {
    let machine = Machine::new();
    let policy = machine.policy(&[("pinj", "1023")]);
    assert!(!Path::new("/sys/devices/system/cpu/cpu1023").exists());
    let process = machine.sleeper("pinj");
    let before = cpus_of(&process);
    settle();
    let mut pinning = machine.pinning(&policy);
    pinning.follow();
    assert_eq!(cpus_of(&process), before);
    assert!(!machine.state().exists());
}

#[test]
fn another_policy_replaces_the_pins() {
    let machine = Machine::new();
    let [first, second] = ["pink", "pinl"].map(|name| machine.sleeper(name));
    let before = cpus_of(&first);
    settle();
    let mut pinning = machine.pinning(&machine.policy(&[("pink", &machine.cpu(0))]));
    pinning.follow();
    assert_eq!(
        [cpus_of(&first), cpus_of(&second)],
        [machine.cpu(0), before.clone()]
    );
    // The same pins again: nobody is moved, not even for a moment.
    pinning.set_policy(&machine.policy(&[("pink", &machine.cpu(0))]));
    assert_eq!(cpus_of(&first), machine.cpu(0));
    pinning.set_policy(&machine.policy(&[("pinl", &machine.cpu(1))]));
    pinning.follow();
    assert_eq!(
        [cpus_of(&first), cpus_of(&second)],
        [before, machine.cpu(1)]
    );
}

#[test]
fn names_of_any_bytes_are_pinned_by_name_executable_and_arguments() {
    let machine = Machine::new();
    let odd = |start: &str| {
        let name = [start.as_bytes(), b"\xff\\ \n\xfe"].concat();
        machine.folder.path().join(OsStr::from_bytes(&name))
    };
    let (linked, copied) = (odd("pino-"), odd("pinx-"));
    std::os::unix::fs::symlink("/bin/sleep", &linked).unwrap();
    copy_program("/bin/sleep".as_ref(), &copied);
    // U+FFFD stands for what is no UTF-8.
    let text = format!(
        "[[pin]]\nmatch = {{ comm = 'pino-\u{fffd}\\\\*\u{fffd}' }}\ncpus = \"{0}\"\n\
         [[pin]]\nmatch = {{ exe = \"**/pinx-*\", cmdline = \"*pinx-* 300\" }}\ncpus = \"{0}\"\n",
        machine.cpu(0)
    );
    let mut pinning = machine.pinning(&Policy::parse(&text).unwrap());
    let sleepers = [&linked, &copied].map(|program| {
        let mut command = Command::new(program);
        command.arg("300");
        Process::start(command)
    });
    settle();
    pinning.follow();
    for sleeper in &sleepers {
        assert_eq!(cpus_of(sleeper), machine.cpu(0));
    }
}
