// SPDX-License-Identifier: GPL-2.0-only
//! A commented policy for one machine: every key with its default, to be changed by hand.

use std::fmt::Write;

use super::cpuset::CpuSet;

/// What the policy is written for.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Online CPUs.
    pub online: CpuSet,
    /// Number of cores.
    pub nr_cores: usize,
    /// CPUs of each last-level cache.
    pub llcs: Vec<CpuSet>,
    /// CPUs on the nodes of the GPUs, each set once.
    pub near_gpus: Vec<CpuSet>,
    /// What `"auto"` chooses.
    pub preferred: CpuSet,
}

const KEYS: &str = r##"
[preferred]
# CPUs that launchers prefer: "auto", a label of [cpusets] or a list.
# {preferred} is what "auto" takes here while nothing else is known.
cpus = "auto"
# How many CPUs "auto" takes at most: part of the online ones, or a number.
#max = "25%"
# A launcher gets a whole core, or each hardware thread is a CPU like any other ("shared").
#smt = "whole-core"
# May everybody else use preferred CPUs that nobody needs?
#lend = true
# For how long at a time, microseconds, a thread that waits for the GPU or a queue by sched_yield()
# lends its CPU to background. "auto": 100 where switches are cheap, else 0, which keeps it.
#lend_yields_us = "auto"
# Longest time, microseconds, that a CPU is held idle for a launcher that sleeps. 0: never.
#hold_us = "auto"

[irq]
# Keep preferred CPUs away from those that serve many interrupts?
#avoid = true
# A CPU is IRQ-heavy above this part of its time, percent.
#heavy_percent = 5
# Move movable interrupts off the preferred CPUs?
#steer = false

[identify]
# When launches are probed: while that finds something new, "always" or "off".
#probes = "auto"
# Whose functions: "libcuda", the driver's; "libcudart", a shared runtime's; or "both".
#entry_points = "libcuda"
# How long one sweep probes at least, and the longest pause between two, microseconds.
#sweep_us = 10000
#max_pause_us = 5000000
# What was observed is forgotten this long after the last sighting, seconds. 0: never.
#expire_s = 600

# Threads that feed the GPU.
[class.launch]
# How long one runs before another launcher's turn, microseconds.
#slice_us = 20000
# Who belongs to the class: any rule suffices, all terms of a rule must hold.
# For instance { cgroup = "gpu.slice/**" } for everything in a systemd slice.
match = [{ cuda_launch = true }]

# Threads that hand requests over to launchers.
[class.handoff]
#slice_us = 3000
#match = [{ wakes = "launch" }, { spins_with = "launch" }, { connects_to = "127.0.0.1:8000" }]

# Everybody else.
[class.background]
#slice_us = 4000
# Part of a CPU that background gets where launchers would leave nothing.
#min_share = "5%"
# Who stays background whatever is observed.
#match = [{ cgroup = "batch.slice/**" }]

[guard]
# Users whose observed marks count. Absent: everybody's.
#trust_uids = [0]
# Devices of which a process must have one open for its launches to count. Absent: none.
#trust_devices = ["/dev/nvidia*"]
# Group whose members may hint what their threads do (hints/gpuaware.h). Absent: only root.
#hint_gid = 0
# Part of all CPUs that launch and handoff together get while others wait.
#max_share = "50%"
"##;

/// The policy for `machine`.
pub fn render(machine: &Machine) -> String {
    let mut text = String::new();
    let nr_cpus = machine.online.len();
    let _ = writeln!(
        text,
        "# Policy of scx_gpuaware, written for a machine with {nr_cpus} CPUs ({}) on {} cores, {}.\n\
         # A key behind a single # has the default; docs/policy.md describes them all.\n\
         version = 1\n",
        machine.online,
        machine.nr_cores,
        match machine.llcs.len() {
            1 => "one last-level cache".to_owned(),
            nr => format!("{nr} last-level caches"),
        }
    );
    let _ = writeln!(
        text,
        "# Groups of CPUs by label: Linux lists, or FastFlow syntax [START:COUNT:STRIDE]rr.\n[cpusets]"
    );
    for (index, llc) in machine.llcs.iter().enumerate() {
        let _ = writeln!(text, "#llc{index} = \"{llc}\"");
    }
    for (index, cpus) in machine.near_gpus.iter().enumerate() {
        let _ = writeln!(text, "#near_gpu{index} = \"{cpus}\"");
    }
    text.push_str(&KEYS.replace("{preferred}", &machine.preferred.to_string()));
    if let Some(llc) = machine.llcs.first() {
        let _ = writeln!(
            text,
            "\n# Threads that stay on given CPUs: here each on one CPU of the first cache, in turn.\n\
             #[[pin]]\n#match = {{ comm = \"worker*\" }}\n#cpus = \"{}\"",
            in_turn(llc)
        );
    }
    text
}

/// `[0:4, 8:4]rr`
fn in_turn(cpus: &CpuSet) -> String {
    let list = cpus.to_string();
    let entries = list.split(',').map(|range| {
        let ends = range.split_once('-');
        let ends = ends.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        match ends {
            Some((first, last)) => {
                let (first, last): (u32, u32) = (first, last);
                format!("{first}:{}", last - first + 1)
            }
            None => range.to_owned(),
        }
    });
    format!("[{}]rr", entries.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Document;
    use crate::policy::shape::Shape;

    fn machine() -> Machine {
        Machine {
            online: "0-15".parse().unwrap(),
            nr_cores: 8,
            llcs: vec!["0-3,8-11".parse().unwrap(), "4-7,12-15".parse().unwrap()],
            near_gpus: vec!["8-15".parse().unwrap()],
            preferred: "6-7,14-15".parse().unwrap(),
        }
    }

    #[test]
    fn is_a_policy_without_warnings() {
        let document = Document::parse(&render(&machine())).unwrap();
        assert!(document.warnings.is_empty(), "{:#?}", document.warnings);
        document.check_on(&machine().online).unwrap();
    }

    #[test]
    fn every_key_that_is_commented_out_is_right_too() {
        let text = render(&machine());
        let all: Vec<_> = text
            .lines()
            .map(|line| {
                line.strip_prefix('#')
                    .filter(|rest| !rest.starts_with(' '))
                    .unwrap_or(line)
            })
            .collect();
        let document = Document::parse(&all.join("\n")).unwrap_or_else(|error| panic!("{error}"));
        document.check_on(&machine().online).unwrap();
        for path in Shape::of_policy().paths() {
            let optional = path.contains("match.") || path.contains("ff_affinity");
            let written = path.replace("pin.", "pin[0].");
            assert!(optional || document.line(&written).is_some(), "{path}");
        }
        assert_eq!(
            document.policy.groups[3].cpus.cpus(),
            [0, 1, 2, 3, 8, 9, 10, 11]
        );
    }
}
