// SPDX-License-Identifier: GPL-2.0-only
//! Kernel threads that may run on one CPU only, and have more to do than a moment takes.

use std::path::Path;
use std::process::Command;

use crate::process::{Process, busy_loops};
use crate::tier;

use super::machine::{pin, set_affinity};
use super::shared::beside_the_scheduler;
use super::sharing::shares;

const KSM: &str = "/sys/kernel/mm/ksm";

/// Lets ksmd look for equal pages without a pause, until dropped.
struct Busy;

impl Busy {
    fn start() -> Self {
        for (file, value) in [
            ("sleep_millisecs", "0"),
            ("pages_to_scan", "100000"),
            ("run", "1"),
        ] {
            std::fs::write(Path::new(KSM).join(file), value).expect("KSM");
        }
        Self
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = std::fs::write(Path::new(KSM).join("run"), "0");
    }
}

/// Has memory that ksmd looks at, all of it different.
const MERGEABLE: &str = "import mmap, os, sys, time
memory = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(12)
for at in range(0, 64 << 20, 4096): memory[at:at + 16] = os.urandom(16)
print('started', file=sys.stderr, flush=True)
time.sleep(1000)
";

fn ksmd() -> Option<i64> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let mut tids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.find(|tid: &i64| {
        std::fs::read_to_string(format!("/proc/{tid}/comm")).is_ok_and(|comm| comm.trim() == "ksmd")
    })
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_kernel_thread_of_one_cpu_that_never_sleeps_shares_it() {
    beside_the_scheduler("", |_| {
        let Some(ksmd) = ksmd() else {
            tier::skip("this kernel has no ksmd");
            return;
        };
        let mut command = Command::new("python3");
        command.args(["-c", MERGEABLE]);
        let mut memory = Process::start(command);
        memory.wait_for_line("started");
        set_affinity(ksmd, &[0]);
        let busy = Busy::start();
        let hog = busy_loops(1);
        pin(&hog[0], 0);
        let [got] = shares([&hog]);
        drop(busy);
        println!("beside ksmd it got {got:.3} of the CPU");
        // ksmd is nice 5: three quarters are the hog's.
        assert!(
            (0.4..0.9).contains(&got),
            "beside ksmd it got {got:.3} of the CPU"
        );
    });
}
