// SPDX-License-Identifier: GPL-2.0-only
//! What a run changes of the kernel's settings is put back, also when the runner is killed.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;

use crate::bench::{Bench, ON_HOST, assert_gone, end_of, script_that};
use crate::process::{Process, eventually};
use crate::tier;

const STEERING: &str = "/sys/class/net/lo/queues/rx-0/rps_cpus";
const CGROUPS: &str = "/sys/fs/cgroup";
const CONTROLLERS: &str = "/sys/fs/cgroup/cgroup.subtree_control";
const ISOLATED: &str = "/sys/fs/cgroup/cpuset.cpus.isolated";

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The cgroups that the bench has made.
fn cgroups() -> Vec<String> {
    let entries = fs::read_dir(CGROUPS).unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("gpuaware-bench"))
        .collect()
}

#[test]
#[ignore = "runs in the lab: make test"]
fn kill_9_puts_packet_steering_and_isolated_cpus_back() {
    tier::in_lab(|| {
        let script = script_that("sleep 1000 & echo $$ $! >pids.new; mv pids.new pids; wait");
        let bench = Bench::new(&script, "[\"none\", \"irq\"]", "");
        let isolated = "description = \"isolated\"\n[workload]\nprefix = [\"sh\"]\ncgroup = \"gpuaware-bench-launcher\"\n\
                    cpuset = \"{preferred}\"\nisolated = true\n";
        fs::write(bench.path("arms/plain.toml"), isolated).unwrap();
        // Only cells beside noise hang: packets are steered then.
        let hang = fs::read_to_string(bench.path("target/lab/gpu_launch")).unwrap();
        let only_steered = hang.replace(
            "if rm bad",
            &format!("if grep -q '[1-9]' {STEERING} && rm bad"),
        );
        fs::write(bench.path("target/lab/gpu_launch"), only_steered).unwrap();
        fs::write(bench.path("target/lab/bad"), "").unwrap();
        let (steering, isolated) = (read(STEERING), read(ISOLATED));
        let controllers = read(CONTROLLERS);

        let mut run = Process::start(bench.run(&bench.path("out"), ON_HOST));
        let hangs = eventually(|| Path::exists(&bench.path("target/lab/pids")).then_some(()));
        run.drain();
        assert!(hangs.is_some(), "{:#?}", run.log);
        assert_ne!(read(STEERING), steering, "the neighbour irq steers");
        assert_eq!(cgroups(), ["gpuaware-bench-launcher"]);
        assert_ne!(read(ISOLATED), isolated, "the arm isolates");

        run.signal(Signal::SIGKILL);
        run.wait();
        assert_gone(&bench.path("target/lab/pids"));
        let back =
            eventually(|| (cgroups().is_empty() && read(STEERING) == steering).then_some(()));
        assert!(
            back.is_some(),
            "{:?}, steering {:?}",
            cgroups(),
            read(STEERING)
        );
        assert_eq!(read(ISOLATED), isolated);
        assert_eq!(read(CONTROLLERS), controllers);

        let (code, log) = end_of(bench.resume(&bench.path("out")));
        assert_eq!(code, 0, "{log}");
    });
}
