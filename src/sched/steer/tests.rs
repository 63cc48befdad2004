// SPDX-License-Identifier: GPL-2.0-only
//! Steering on a `/proc` of our own.

use std::fs;
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::*;

/// A `/proc` with eight CPUs, and a place for the state.
struct Machine {
    folder: tempfile::TempDir,
    /// What the files of immovable interrupts are.
    sealed: Vec<fs::File>,
}

impl Machine {
    fn new() -> Self {
        let machine = Self {
            folder: tempfile::tempdir().unwrap(),
            sealed: Vec::new(),
        };
        fs::create_dir_all(machine.root().join("irq")).unwrap();
        machine.set_default("ff");
        machine
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("proc")
    }

    fn state(&self) -> PathBuf {
        self.folder
            .path()
            .join("run/scx_gpuaware/irq-affinity.json")
    }

    fn irq(&self, irq: u32) -> PathBuf {
        self.root().join(format!("irq/{irq}"))
    }

    fn add(&self, irq: u32, handler: &str, affinity: &str) {
        fs::create_dir_all(self.irq(irq).join(handler)).unwrap();
        self.set(irq, affinity);
        fs::write(self.irq(irq).join("effective_affinity_list"), "0\n").unwrap();
    }

    /// One whose affinity reads as any other's and refuses to be written, as a managed one does.
    fn add_immovable(&mut self, irq: u32, handler: &str, affinity: &str) {
        self.add(irq, handler, affinity);
        let sealed = memfd_create(c"affinity", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        let mut sealed = fs::File::from(sealed);
        writeln!(sealed, "{affinity}").unwrap();
        let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK;
        fcntl(&sealed, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        let file = self.irq(irq).join("smp_affinity_list");
        fs::remove_file(&file).unwrap();
        let target = format!("/proc/{}/fd/{}", std::process::id(), sealed.as_raw_fd());
        std::os::unix::fs::symlink(target, file).unwrap();
        self.sealed.push(sealed);
    }

    fn set(&self, irq: u32, affinity: &str) {
        fs::write(
            self.irq(irq).join("smp_affinity_list"),
            affinity.to_owned() + "\n",
        )
        .unwrap();
    }

    fn get(&self, irq: u32) -> String {
        let text = fs::read_to_string(self.irq(irq).join("smp_affinity_list")).unwrap();
        text.trim().to_owned()
    }

    fn set_default(&self, mask: &str) {
        fs::write(self.root().join("irq/default_smp_affinity"), mask).unwrap();
    }

    fn default(&self) -> String {
        let text = fs::read_to_string(self.root().join("irq/default_smp_affinity")).unwrap();
        text.trim().to_owned()
    }

    fn start(&self) -> Steer {
        Steer::start(&self.root(), &self.state()).unwrap()
    }
}

fn follow(steer: &mut Steer, preferred: &str) -> Report {
    steer.follow(&preferred.parse().unwrap(), &"0-7".parse().unwrap())
}

#[test]
fn follows_the_set_and_restores_when_dropped() {
    let machine = Machine::new();
    machine.add(24, "eth0-rx-0", "0-7");
    machine.add(25, "nvme0q1", "6");
    machine.add(26, "ahci", "0-3");
    let mut steer = machine.start();
    assert!(!machine.state().exists(), "nothing has been changed yet");
    let report = follow(&mut steer, "6-7");
    assert_eq!(
        (machine.get(24), machine.get(25)),
        ("0-5".into(), "0-5".into())
    );
    assert_eq!(machine.get(26), "0-3");
    assert_eq!(machine.default(), "0000003f");
    assert_eq!(
        (report.nr_steered, report.moved.len()),
        (2, 3),
        "{report:?}"
    );
    assert!(
        report.moved.contains(&"24 (eth0-rx-0)".to_owned()),
        "{report:?}"
    );

    let report = follow(&mut steer, "0-1");
    assert_eq!(
        (machine.get(24), machine.get(25)),
        ("2-7".into(), "6".into())
    );
    assert_eq!(machine.get(26), "2-3");
    assert_eq!(report.nr_steered, 2);

    drop(steer);
    assert_eq!(machine.get(24), "0-7");
    assert_eq!(machine.get(25), "6");
    assert_eq!(machine.get(26), "0-3");
    assert_eq!(machine.default(), "000000ff");
    assert!(!machine.state().exists());
}

#[test]
fn the_next_start_restores_what_a_killed_run_has_left() {
    let machine = Machine::new();
    machine.add(24, "eth0-rx-0", "0-7");
    machine.add(25, "eth0-rx-1", "0-7");
    machine.add(27, "gone", "0-7");
    let mut steer = machine.start();
    follow(&mut steer, "6-7");
    // What a kill -9 leaves behind: no destructor runs.
    std::mem::forget(steer);
    assert_eq!(machine.get(24), "0-5");
    // Meanwhile one was set by an operator, one has vanished, one was born under our default.
    machine.set(25, "2");
    fs::remove_dir_all(machine.irq(27)).unwrap();
    machine.add(28, "born", "0-5");

    let steer = machine.start();
    assert_eq!(machine.get(24), "0-7");
    assert_eq!(machine.get(25), "2");
    assert_eq!(machine.get(28), "0-7");
    assert_eq!(machine.default(), "000000ff");
    assert!(!machine.state().exists());
    drop(steer);
    assert_eq!(machine.get(24), "0-7");
}

#[test]
fn the_state_is_written_before_the_first_change() {
    let machine = Machine::new();
    machine.add(24, "eth0-rx-0", "0-7");
    // A folder where the file has to be.
    let obstacle = machine.state().with_extension("json.new");
    fs::create_dir_all(&obstacle).unwrap();
    let mut steer = machine.start();
    let report = follow(&mut steer, "6-7");
    assert!(report.problem.unwrap().contains("irq-affinity.json"));
    assert_eq!(machine.get(24), "0-7");
    assert_eq!(machine.default(), "ff");
    // Mended, it goes on.
    fs::remove_dir(&obstacle).unwrap();
    assert_eq!(follow(&mut steer, "6-7").problem, None);
    assert_eq!(machine.get(24), "0-5");
}

#[test]
fn an_immovable_interrupt_is_named_once_and_keeps_nobody_else() {
    let mut machine = Machine::new();
    machine.add_immovable(24, "nvme0q7", "7");
    machine.add(25, "eth0-rx-0", "0-7");
    let mut steer = machine.start();
    let report = follow(&mut steer, "7");
    assert_eq!(report.refused.len(), 1, "{report:?}");
    assert!(
        report.refused[0].starts_with("24 (nvme0q7): "),
        "{report:?}"
    );
    assert_eq!((report.nr_steered, report.nr_left_alone), (1, 1));
    assert_eq!(machine.get(25), "0-6");
    for preferred in ["7", "6-7"] {
        let report = follow(&mut steer, preferred);
        assert!(report.refused.is_empty(), "{report:?}");
        assert_eq!(report.nr_left_alone, 1);
    }
    drop(steer);
    assert_eq!(
        (machine.get(24), machine.get(25)),
        ("7".into(), "0-7".into())
    );
}

#[test]
fn somebody_elses_affinity_is_left_as_it_is() {
    let machine = Machine::new();
    machine.add(24, "eth0-rx-0", "0-7");
    machine.add(25, "eth0-rx-1", "0-7");
    let mut steer = machine.start();
    follow(&mut steer, "7");
    machine.set(24, "3");
    machine.set_default("0f");
    let report = follow(&mut steer, "7");
    assert_eq!(report.taken_over.len(), 2, "{report:?}");
    machine.set(25, "5");
    drop(steer);
    assert_eq!((machine.get(24), machine.get(25)), ("3".into(), "5".into()));
    assert_eq!(machine.default(), "0f");
}

#[test]
fn interrupts_come_and_go() {
    let machine = Machine::new();
    machine.add(24, "eth0-rx-0", "0-7");
    // Nobody handles this one.
    fs::create_dir_all(machine.irq(3)).unwrap();
    machine.set(3, "0-7");
    let mut steer = machine.start();
    follow(&mut steer, "7");
    machine.add(25, "eth0-rx-1", "7");
    fs::remove_dir_all(machine.irq(24)).unwrap();
    let report = follow(&mut steer, "7");
    assert_eq!(report.moved, ["25 (eth0-rx-1)"]);
    assert_eq!(machine.get(3), "0-7");
    fs::remove_dir_all(machine.irq(25)).unwrap();
    drop(steer);
    assert!(!machine.state().exists());
}

#[test]
fn a_state_that_is_not_ours_stops_the_start() {
    let machine = Machine::new();
    fs::create_dir_all(machine.state().parent().unwrap()).unwrap();
    fs::write(machine.state(), "{}").unwrap();
    let error = Steer::start(&machine.root(), &machine.state()).unwrap_err();
    assert!(
        format!("{error:#}").contains("irq-affinity.json"),
        "{error:#}"
    );
}

#[test]
fn sees_irqbalance() {
    let machine = Machine::new();
    assert!(!proc_irq::irqbalance_runs(&machine.root()));
    let process = machine.root().join("4711");
    fs::create_dir(&process).unwrap();
    fs::write(process.join("comm"), "irqbalance\n").unwrap();
    assert!(proc_irq::irqbalance_runs(&machine.root()));
}
