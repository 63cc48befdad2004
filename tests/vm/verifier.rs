// SPDX-License-Identifier: GPL-2.0-only
//! What the verifier works through for each program, as veristat counts it: a jump says that a
//! program has grown a path that nobody meant, long before a kernel refuses it.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use crate::process::{Process, code, lab_folder, scx_gpuaware};
use crate::tier;

use super::machine::Scheduler;

/// `name instructions` a line, from a 6.18 kernel. A change that is meant is recorded here: the test
/// prints what it has found.
const RECORDED: &str = include_str!("../data/verified-instructions.txt");
/// The series that the record is of: another verifier prunes otherwise.
const SERIES: &str = "6.18.";
/// Times the recorded number, for the scheduler's programs…
const JUMP: f64 = 1.1;
/// …and for others, whose numbers differ from load to load.
const JUMP_OF_OTHERS: f64 = 1.25;
/// Programs that are too small for a factor.
const SMALL: u64 = 500;
/// The verifier gives up at a million.
const MOST: u64 = 250_000;

/// Instructions that the verifier has worked through, by program of process `pid`.
fn verified(pid: i32) -> BTreeMap<String, u64> {
    let output = Command::new("bpftool")
        .args(["--json", "prog", "show"])
        .output()
        .expect("bpftool");
    let listed: Vec<serde_json::Value> =
        serde_json::from_slice(&output.stdout).expect("bpftool's JSON");
    let name_of: BTreeMap<u64, &str> = listed
        .iter()
        .filter_map(|program| Some((program["id"].as_u64()?, program["name"].as_str()?)))
        .collect();
    let mut programs = BTreeMap::new();
    for file in std::fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("fdinfo") {
        let text = std::fs::read_to_string(file.expect("an entry").path()).unwrap_or_default();
        let value = |key: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().parse().ok()
        };
        if let (Some(id), Some(count)) = (value("prog_id:"), value("verified_insns:"))
            && let Some(name) = name_of.get(&id)
        {
            programs.insert((*name).to_owned(), count);
        }
    }
    programs
}

fn verified_of_the_tracer() -> BTreeMap<String, u64> {
    let mut command = scx_gpuaware(&["trace", "--", "sleep", "60"]);
    command.env("LD_LIBRARY_PATH", lab_folder());
    command.stdout(Stdio::null());
    let mut tracer = Process::start(command);
    tracer.wait_for_line("probing");
    let found = verified(tracer.pid());
    tracer.signal(Signal::SIGINT);
    let status = tracer.wait();
    assert_eq!(code(status), 0, "{:#?}", tracer.log);
    found
}

#[test]
#[ignore = "runs in the lab: make test"]
fn no_program_has_become_much_harder_to_verify() {
    tier::in_lab(|| {
        let scheduler = Scheduler::start(&[]);
        let mut found = verified(scheduler.process.pid());
        scheduler.stop();
        let tracer = verified_of_the_tracer().into_iter();
        found.extend(tracer.map(|(name, count)| (format!("trace/{name}"), count)));
        let listing: String = found
            .iter()
            .map(|(name, count)| format!("{name} {count}\n"))
            .collect();
        println!("{listing}");
        for name in ["gpuaware_enqueue", "launch", "trace/switched"] {
            assert!(found.contains_key(name), "{listing}");
        }
        assert!(found.values().all(|&count| count < MOST), "{listing}");
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("osrelease");
        if !release.starts_with(SERIES) {
            return;
        }
        let recorded: BTreeMap<&str, u64> = RECORDED
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, count)| (name, count.parse().expect("a count")))
            .collect();
        for (name, count) in &found {
            let before = recorded.get(name.as_str());
            let before = before.unwrap_or_else(|| panic!("{name} is not recorded:\n{listing}"));
            let is_ours = name.starts_with("gpuaware_");
            let jump = if is_ours { JUMP } else { JUMP_OF_OTHERS };
            let most = ((*before).max(SMALL) as f64 * jump) as u64;
            assert!(*count <= most, "{name}: {before} became {count}\n{listing}");
        }
        for name in recorded.keys() {
            let is_loaded = found.contains_key(*name);
            assert!(is_loaded, "{name} is recorded and not loaded:\n{listing}");
        }
    });
}
