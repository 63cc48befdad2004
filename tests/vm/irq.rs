// SPDX-License-Identifier: GPL-2.0-only
//! Steering real interrupts, without the scheduler: affinities are no business of sched_ext.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use scx_gpuaware::policy::cpuset::CpuSet;
use scx_gpuaware::sched::steer::{PROCFS, Report, Steer};

use crate::process::eventually;
use crate::tier;

fn read(path: &Path) -> String {
    let text = std::fs::read_to_string(path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.trim().to_owned()
}

/// Those of [`affinities`] that matter and can be changed: somebody handles the interrupt, and the
/// kernel takes what it has already.
pub fn movable() -> BTreeMap<PathBuf, String> {
    let is_handled = |file: &Path| {
        let entries = file.parent().and_then(|irq| std::fs::read_dir(irq).ok());
        let mut entries = entries.into_iter().flatten().flatten();
        file.ends_with("smp_affinity_list") && entries.any(|entry| entry.path().is_dir())
    };
    let mut all = affinities();
    all.retain(|file, affinity| is_handled(file) && std::fs::write(file, affinity).is_ok());
    all
}

/// Every affinity of the machine, by its file.
pub fn affinities() -> BTreeMap<PathBuf, String> {
    let default = Path::new("/proc/irq/default_smp_affinity").to_owned();
    let irqs = std::fs::read_dir("/proc/irq").unwrap().flatten();
    let lists = irqs.map(|irq| irq.path().join("smp_affinity_list"));
    let files = lists.filter(|file| file.exists()).chain([default]);
    files.map(|file| (file.clone(), read(&file))).collect()
}

/// The interrupt of virtiofs by which the host says that it has forgotten files.
struct Forgets {
    folder: PathBuf,
}

impl Forgets {
    fn find() -> Self {
        let irqs = std::fs::read_dir("/proc/irq").unwrap().flatten();
        let handled_by = |folder: &Path| {
            let handlers = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let mut names = handlers.map(|handler| handler.file_name());
            names.any(|name| name.to_string_lossy().ends_with("-hiprio"))
        };
        let folder = irqs
            .map(|irq| irq.path())
            .find(|folder| handled_by(folder))
            .expect("the interrupt of virtiofs for forgotten files");
        Self { folder }
    }

    fn cpus(&self, file: &str) -> CpuSet {
        read(&self.folder.join(file)).parse().expect("a CPU list")
    }

    /// An interrupt moves when it fires.
    fn moves_away_from(&self, cpu: u32) -> bool {
        let moved = eventually(|| {
            let _ = std::fs::read_dir("/usr/bin").map(Iterator::count);
            std::fs::write("/proc/sys/vm/drop_caches", "2").expect("dropping caches");
            (!self.cpus("effective_affinity_list").contains(cpu)).then_some(())
        });
        moved.is_some()
    }
}

fn online() -> CpuSet {
    let online = read(Path::new("/sys/devices/system/cpu/online"));
    online.parse().expect("a CPU list")
}

fn follow(steer: &mut Steer, preferred: u32) -> Report {
    steer.follow(&CpuSet::new([preferred]), &online())
}

#[test]
#[ignore = "runs in the lab: make test"]
fn interrupts_leave_the_preferred_cpu_and_come_back() {
    tier::in_lab(|| {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("irq-affinity.json");
        let before = affinities();
        let forgets = Forgets::find();
        let effective = forgets.cpus("effective_affinity_list");
        let preferred = effective.iter().next().expect("a CPU");

        let mut steer = Steer::start(Path::new(PROCFS), &state).unwrap();
        let report = follow(&mut steer, preferred);
        assert_eq!(report.problem, None);
        assert!(report.nr_steered > 0, "{report:?}");
        let elsewhere = online().difference(&CpuSet::new([preferred]));
        assert_eq!(forgets.cpus("smp_affinity_list"), elsewhere);
        assert!(forgets.moves_away_from(preferred), "{report:?}");
        // Queues whose driver manages their affinity stay, and are not asked again.
        assert_eq!(report.nr_left_alone, report.refused.len(), "{report:?}");
        assert!(follow(&mut steer, preferred).refused.is_empty());
        drop(steer);
        assert_eq!(affinities(), before);
        assert!(!state.exists());
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn affinities_of_a_killed_run_are_restored_by_the_next() {
    tier::in_lab(|| {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("irq-affinity.json");
        let before = affinities();
        // SAFETY: the child calls what glibc keeps usable after a fork of a process with threads
        // (memory, files), and ends without returning.
        match unsafe { fork() }.expect("fork") {
            ForkResult::Child => {
                let mut steer = Steer::start(Path::new(PROCFS), &state).expect("starting");
                follow(&mut steer, 0);
                let _ = nix::sys::signal::raise(Signal::SIGKILL);
                std::process::abort();
            }
            ForkResult::Parent { child } => {
                let status = waitpid(child, None).expect("waiting");
                let killed = matches!(status, WaitStatus::Signaled(_, Signal::SIGKILL, _));
                assert!(killed, "{status:?}");
            }
        }
        assert_ne!(affinities(), before);
        assert!(state.exists());
        let steer = Steer::start(Path::new(PROCFS), &state).unwrap();
        assert_eq!(affinities(), before);
        assert!(!state.exists());
        drop(steer);
    });
}
