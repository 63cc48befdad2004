// SPDX-License-Identifier: GPL-2.0-only
//! Whether two runs measured the same thing on the same kind of machine. What differs is either a reason to refuse
//! or, where it may be the very change that is judged, a warning.

use crate::matrix::Matrix;
use crate::plan::Plan;
use crate::record::facts::Facts;

/// Facts without which figures are those of different machines.
const MACHINE: &[&str] = &["cpu model", "cpus", "virtualisation"];
/// Facts that say what was tried, or change by themselves.
const EXPECTED: &[&str] = &["git revision", "scx_gpuaware", "load average"];

/// How a run was measured.
#[derive(Debug)]
pub struct Setting {
    pub plan: Plan,
    /// Where the cells ran, and its host in the lab.
    pub guest: Facts,
    pub host: Facts,
}

/// What differs between two settings, a line each.
#[derive(Debug, Default, PartialEq)]
pub struct Differences {
    /// The figures mean different things.
    pub fatal: Vec<String>,
    pub other: Vec<String>,
}

pub fn differences(before: &Setting, after: &Setting) -> Differences {
    let mut found = Differences::default();
    let (a, b) = (&before.plan, &after.plan);
    let fatal = |what: &str, a: String, b: String| {
        (a != b).then(|| format!("{what}: {a} before, {b} after"))
    };
    found.fatal.extend(
        [
            fatal("where it ran", format!("{:?}", a.on), format!("{:?}", b.on)),
            fatal("CPUs", a.cpus.to_string(), b.cpus.to_string()),
            fatal("launcher's CPUs", a.preferred.clone(), b.preferred.clone()),
            fatal(
                "baseline",
                a.matrix.baseline.clone(),
                b.matrix.baseline.clone(),
            ),
            fatal(
                "seconds of a cell",
                a.matrix.seconds.to_string(),
                b.matrix.seconds.to_string(),
            ),
            fatal(
                "stress-ng's settings",
                format!("{:?}", a.matrix.stress_ng),
                format!("{:?}", b.matrix.stress_ng),
            ),
            fatal(
                "cgroups",
                format!("{:?}", a.matrix.cgroups),
                format!("{:?}", b.matrix.cgroups),
            ),
            fatal(
                "bpf_stats",
                a.matrix.bpf_stats.to_string(),
                b.matrix.bpf_stats.to_string(),
            ),
            fatal("scratch disk", disk(&a.matrix), disk(&b.matrix)),
        ]
        .into_iter()
        .flatten(),
    );
    found.fatal.extend(workloads(&a.matrix, &b.matrix));
    for (side, a, b) in [
        ("", &before.guest, &after.guest),
        ("host's ", &before.host, &after.host),
    ] {
        facts(&mut found, side, a, b);
    }
    found
}

fn disk(matrix: &Matrix) -> String {
    format!("{} MiB, {:?}", matrix.lab.disk_mib, matrix.lab.disk_driver)
}

/// Workloads of the same name that are not the same.
fn workloads(before: &Matrix, after: &Matrix) -> Vec<String> {
    let differs = |w: &&crate::matrix::Workload| {
        let other = after.workloads.iter().find(|other| other.name == w.name);
        other.is_some_and(|other| other != *w)
    };
    let found = before.workloads.iter().filter(differs);
    found
        .map(|w| {
            format!(
                "workload {}: set differently: see plan.json of both",
                w.name
            )
        })
        .collect()
}

/// What both know and do not agree on.
fn facts(found: &mut Differences, side: &str, before: &Facts, after: &Facts) {
    for (name, a) in before {
        let Some(b) = after.get(name).filter(|b| *b != a) else {
            continue;
        };
        let line = format!("{side}{name}: {a} before, {b} after");
        if MACHINE.contains(&name.as_str()) {
            found.fatal.push(line);
        } else if !EXPECTED.contains(&name.as_str()) {
            found.other.push(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples::plan;

    fn setting(facts: &[(&str, &str)]) -> Setting {
        let facts = facts.iter();
        Setting {
            plan: plan(),
            guest: facts
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            host: Facts::new(),
        }
    }

    #[test]
    fn the_same_setting_has_no_differences_whatever_is_tried_in_it() {
        let before = setting(&[("kernel", "6.18"), ("git revision", "a"), ("turbo", "on")]);
        let mut after = setting(&[("kernel", "6.18"), ("git revision", "b")]);
        after.plan.seed += 1;
        after.plan.matrix.rounds += 1;
        assert_eq!(differences(&before, &after), Differences::default());
    }

    #[test]
    fn another_machine_or_measure_is_fatal_and_another_kernel_is_not() {
        let before = setting(&[("kernel", "6.18"), ("cpu model", "x")]);
        let mut after = setting(&[("kernel", "7.1"), ("cpu model", "y")]);
        after.plan.matrix.seconds = 1.0;
        after.plan.cpus = 4;
        after.plan.matrix.workloads[0].trace = Some(crate::matrix::Trace::Summary);
        let found = differences(&before, &after);
        assert_eq!(
            found.fatal,
            [
                "CPUs: 2 before, 4 after",
                "seconds of a cell: 2.5 before, 1 after",
                "workload qwen3: set differently: see plan.json of both",
                "cpu model: x before, y after",
            ]
        );
        assert_eq!(found.other, ["kernel: 6.18 before, 7.1 after"]);
    }
}
