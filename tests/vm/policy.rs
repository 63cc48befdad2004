// SPDX-License-Identifier: GPL-2.0-only
//! Policies where the scheduler can be loaded: bad ones load nothing.

use std::process::Stdio;

use crate::process::{Process, code, repository, scx_gpuaware};
use crate::tier;

use super::machine::{Scheduler, loaded, nr_cpus, times_enabled};

#[test]
#[ignore = "runs in the lab: make test"]
fn malformed_policies_load_nothing() {
    tier::in_lab(|| {
        let enabled = times_enabled();
        let folder = repository().join("tests/data/policies/bad");
        let files = std::fs::read_dir(folder).expect("malformed policies");
        let paths: Vec<_> = files.flatten().map(|entry| entry.path()).collect();
        assert!(!paths.is_empty());
        // Two CPUs start two at a time.
        for some in paths.chunks(2 * nr_cpus()) {
            let starts = some.iter().map(|path| {
                let mut command = scx_gpuaware(&["--policy", path.to_str().unwrap()]);
                command.stdout(Stdio::null());
                (path, Process::start(command))
            });
            for (path, mut process) in starts.collect::<Vec<_>>() {
                let status = process.wait();
                let log = process.log.join("\n");
                assert_eq!(code(status), 2, "{}: {log}", path.display());
                assert!(!log.contains("attached"), "{}: {log}", path.display());
                assert_eq!(loaded(), None, "{}", path.display());
            }
        }
        assert_eq!(times_enabled(), enabled, "one was loaded for a moment");
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_shipped_policy_loads() {
    tier::in_lab(|| {
        let path = repository().join("scheds/policies/single-gpu.toml");
        Scheduler::start(&["--policy", path.to_str().unwrap()]).stop();
    });
}
