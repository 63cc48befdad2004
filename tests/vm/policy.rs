// SPDX-License-Identifier: GPL-2.0-only
//! Policies where the scheduler can be loaded: bad ones load nothing.

use crate::process::{code, repository, scx_gpuaware};
use crate::tier;

use super::machine::{Scheduler, loaded};

#[test]
#[ignore = "runs in the lab: make test"]
fn malformed_policies_load_nothing() {
    tier::in_lab(|| {
        let folder = repository().join("tests/data/policies/bad");
        for entry in std::fs::read_dir(folder)
            .expect("malformed policies")
            .flatten()
        {
            let path = entry.path();
            let args = ["--policy", path.to_str().unwrap()];
            let output = scx_gpuaware(&args).output().expect("starting scx_gpuaware");
            assert_eq!(code(output.status), 2, "{}", path.display());
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(!error.contains("attached"), "{error}");
            assert_eq!(loaded(), None, "{}", path.display());
        }
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
