// SPDX-License-Identifier: GPL-2.0-only
//! What a run would start, for `--dry-run`: each arm's scheduler and workloads, and the neighbours, as commands that one
//! can type. Nothing is started or made.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use super::inside;
use crate::arm::{Arm, NeighbourSettings, WorkloadSettings};
use crate::neighbour;
use crate::plan::{Plan, Where};
use crate::record::neighbour::Neighbour;
use crate::words::quote;
use crate::workload;

/// The commands of all arms. In the lab and in a simulation nobody types them.
pub fn of(plan: &Plan, disk: Option<&Path>, target: &Path) -> String {
    let mut text = String::new();
    if plan.on == Where::Host {
        for (name, arm) in &plan.arms {
            let arm = arm.with_programs_in(target);
            // A String takes all that is written.
            let _ = write!(
                text,
                "\n{name}: {}\n{}",
                arm.description,
                arm_lines(plan, &arm, disk, target)
            );
        }
    }
    text
}

fn arm_lines(plan: &Plan, arm: &Arm, disk: Option<&Path>, target: &Path) -> String {
    let mut lines = Vec::new();
    if let Some(why) = inside::missing(arm, &plan.preferred) {
        lines.push(("not here".to_owned(), why));
    }
    if let Some(scheduler) = &arm.scheduler {
        let started = [Some(&scheduler.command), scheduler.companion.as_ref()];
        for words in started.into_iter().flatten() {
            lines.push((
                "scheduler".to_owned(),
                shell(words.iter().map(String::as_str)),
            ));
        }
    }
    lines.extend(cgroup(&arm.workload).map(|what| ("workload".to_owned(), what)));
    let place = workload::Place {
        target,
        preferred: &plan.preferred,
    };
    for workload in &plan.matrix.workloads {
        let commands = workload::commands(workload, &arm.workload, plan.matrix.seconds, place);
        match commands {
            Ok(commands) => lines.extend(typed(&workload.name, &commands)),
            Err(error) => lines.push((workload.name.clone(), format!("not here: {error:#}"))),
        }
    }
    lines.extend(confined(&arm.neighbours).map(|what| ("neighbours".to_owned(), what)));
    let place = neighbour::Place {
        scratch: Path::new("FOLDER"),
        disk,
        preferred: &plan.preferred,
        stress_ng: &plan.matrix.stress_ng,
    };
    for &neighbour in plan
        .matrix
        .neighbours
        .iter()
        .filter(|&&one| one != Neighbour::None)
    {
        let commands = neighbour::commands(neighbour, &arm.neighbours, place);
        lines.extend(typed(&neighbour.to_string(), &commands));
    }
    lines
        .iter()
        .map(|(what, line)| format!("  {what}: {line}\n"))
        .collect()
}

fn typed(what: &str, commands: &[Command]) -> Vec<(String, String)> {
    let line = |command: &Command| {
        let set = command.get_envs().filter_map(|(name, value)| {
            let (name, value) = (name.to_string_lossy(), value?.to_string_lossy());
            Some(format!("{name}={}", quoted(&value)))
        });
        let words = [command.get_program()]
            .into_iter()
            .chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        let words = shell(words.iter().map(AsRef::as_ref));
        let all: Vec<String> = set.chain([words]).collect();
        (what.to_owned(), all.join(" "))
    };
    commands.iter().map(line).collect()
}

/// What the arm does to the workload's cgroup.
fn cgroup(settings: &WorkloadSettings) -> Option<String> {
    let name = settings.cgroup.as_deref()?;
    let isolated = if settings.isolated {
        ", an isolated partition"
    } else {
        ""
    };
    let cpus = settings
        .cpuset
        .as_deref()
        .map(|cpus| format!(", cpuset.cpus = {cpus}{isolated}"));
    let weight = settings
        .weight
        .map(|weight| format!(", cpu.weight = {weight}"));
    Some(format!(
        "in the cgroup {name}{}{}",
        cpus.unwrap_or_default(),
        weight.unwrap_or_default()
    ))
}

/// And to the neighbours'.
fn confined(settings: &NeighbourSettings) -> Option<String> {
    let cpus = settings
        .cpuset
        .as_deref()
        .map(|cpus| format!("cpuset.cpus = {cpus}"));
    let idle = settings.idle.then(|| "cpu.idle = 1".to_owned());
    let weight = settings
        .weight
        .map(|weight| format!("cpu.weight = {weight}"));
    let all: Vec<String> = [cpus, idle, weight].into_iter().flatten().collect();
    (!all.is_empty()).then(|| format!("in a cgroup of their own, {}", all.join(", ")))
}

fn shell<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

/// As a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%{}".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    quote(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_take_them_apart() {
        assert_eq!(quoted("--bs=4k"), "--bs=4k");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's $HOME"), "'it'\\''s $HOME'");
    }

    #[test]
    fn what_an_arm_does_to_cgroups_is_said() {
        let settings = WorkloadSettings {
            cgroup: Some("gpu".to_owned()),
            cpuset: Some("6-7".to_owned()),
            isolated: true,
            ..WorkloadSettings::default()
        };
        let said = cgroup(&settings).unwrap();
        assert_eq!(
            said,
            "in the cgroup gpu, cpuset.cpus = 6-7, an isolated partition"
        );
        assert_eq!(cgroup(&WorkloadSettings::default()), None);
        let settings = NeighbourSettings {
            idle: true,
            ..NeighbourSettings::default()
        };
        assert_eq!(
            confined(&settings).unwrap(),
            "in a cgroup of their own, cpu.idle = 1"
        );
    }
}
