// SPDX-License-Identifier: GPL-2.0-only
//! No descriptor is free for a while: nobody is taken for gone who cannot be looked at. These tests lower the limit of their
//! own process, in which no other test runs meanwhile.

use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use scx_gpuaware::identify::{Class, Identify};
use scx_gpuaware::policy::Policy;
use scx_gpuaware::sched::pin::Pinning;
use scx_gpuaware::sched::pin::threads::affinity;

use super::place::{Place, identify_until, marks_of};
use crate::process::{Process, alone_with_cuda, busy_loop, gpu_launch};

/// While it lives nothing can be opened.
struct Scarce {
    soft: u64,
    hard: u64,
}

impl Scarce {
    fn new() -> Self {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let free = nix::unistd::dup(std::io::stdin()).unwrap().as_raw_fd();
        setrlimit(Resource::RLIMIT_NOFILE, free as u64, hard).unwrap();
        Self { soft, hard }
    }
}

impl Drop for Scarce {
    fn drop(&mut self) {
        setrlimit(Resource::RLIMIT_NOFILE, self.soft, self.hard).unwrap();
    }
}

#[test]
fn a_round_that_fails_is_no_end_and_who_started_meanwhile_is_found() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let process = Process::start(busy_loop());
    // A rest may be due.
    let fails = |identify: &mut Identify<'_>, expected: bool| {
        (0..50).any(|_| {
            let wait = identify.step_anyway();
            std::thread::sleep(Duration::from_millis(20));
            (wait >= Duration::from_secs(1)) == expected
        })
    };
    assert!(fails(&mut identify, false));
    pins.mark(process.pid(), Some(Class::Launch)).unwrap();
    let mut command = gpu_launch("--profile eager --duration 60");
    command.stdout(Stdio::null());
    let launcher = Process::start(command);
    let scarce = Scarce::new();
    for _ in 0..20 {
        assert!(fails(&mut identify, true), "no round failed");
    }
    drop(scarce);
    assert!(fails(&mut identify, false), "none succeeds again");
    assert_eq!(marks_of(&pins, process.pid()).len(), 1);
    let found = identify_until(&mut identify, |_| {
        !marks_of(&pins, launcher.pid()).is_empty()
    });
    assert!(found, "{:?}", identify.sightings());
}

#[test]
fn who_is_pinned_gets_his_own_cpus_back_after_all() {
    let _alone = alone_with_cuda();
    let own = affinity(0).unwrap();
    let first = own.iter().next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("pin-scarce");
    std::os::unix::fs::symlink("/bin/sleep", &link).unwrap();
    let mut command = Command::new(link);
    command.arg("300");
    let process = Process::start(command);
    let policy = format!("[[pin]]\nmatch = {{ comm = \"pin-scarce\" }}\ncpus = \"{first}\"\n");
    let policy = Policy::parse(&policy).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let mut pinning = Pinning::start(&policy, &folder.path().join("state.json")).unwrap();
    let cpus = || affinity(process.pid()).unwrap().to_string();
    pinning.follow();
    assert_eq!(cpus(), first.to_string());
    let scarce = Scarce::new();
    pinning.follow();
    drop(scarce);
    pinning.follow();
    // Another policy without such a pin, which cannot be followed at once.
    let scarce = Scarce::new();
    pinning.set_policy(&Policy::default());
    drop(scarce);
    assert_eq!(cpus(), first.to_string());
    pinning.step();
    assert_eq!(cpus(), own.to_string());
    pinning.set_policy(&policy);
    pinning.follow();
    assert_eq!(cpus(), first.to_string());
    let scarce = Scarce::new();
    pinning.follow();
    drop(scarce);
    drop(pinning);
    assert_eq!(cpus(), own.to_string());
}
