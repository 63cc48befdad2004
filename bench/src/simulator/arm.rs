// SPDX-License-Identifier: GPL-2.0-only
//! What an arm does, in the simulator's terms, or why the simulator cannot do it. Pure.

use serde_json::{Map, Value, json};

use crate::arm::{Arm, Scheduler};
use crate::cpus;
use crate::need::Need;

/// Keys of a policy that do nothing but choose preferred CPUs.
pub const CHOOSING: [&str; 2] = ["preferred.cpus", "preferred.max"];

/// What an arm means for a cell.
#[derive(Debug, Default, PartialEq)]
pub struct How {
    pub scheduler: &'static str,
    pub policy: Map<String, Value>,
    /// The policy's text, where the scheduler itself chooses the preferred CPUs.
    pub chooses: Option<String>,
    /// `None`: all.
    pub launcher_cpus: Option<Vec<usize>>,
    pub neighbour_cpus: Option<Vec<usize>>,
    pub nice: i32,
}

type Refusal = String;

/// Of an arm on a machine of so many CPUs.
pub fn how(arm: &Arm, nr_cpus: usize) -> Result<How, Refusal> {
    let mut how = How {
        scheduler: "eevdf",
        ..How::default()
    };
    if let Some(scheduler) = &arm.scheduler {
        how.scheduler = scheduler_of(scheduler)?;
        (how.policy, how.chooses) = policy_of(arm, scheduler)?;
    }
    // Of a kernel before 6.6 the scheduler is what counts.
    let is_cfs = arm.needs.contains(&Need::Cfs) && arm.scheduler.is_none();
    if is_cfs {
        how.scheduler = "cfs";
    }
    how.prefix(&arm.workload.prefix)?;
    how.isolate(arm, nr_cpus)?;
    let (workload, neighbours) = (&arm.workload, &arm.neighbours);
    let missing = [
        (arm.boot.kernel.is_some() && !is_cfs, "a kernel of its own"),
        (!workload.threads.is_empty(), "settings of single threads"),
        (workload.weight.is_some(), "the weight of a cgroup"),
        (neighbours.weight.is_some(), "the weight of a cgroup"),
        (neighbours.idle, "cpu.idle"),
        (
            !neighbours.prefix.is_empty(),
            "a prefix of the neighbours' commands",
        ),
    ];
    match missing.into_iter().find(|(there, _)| *there) {
        Some((_, what)) => Err(format!("the simulator does not model {what}")),
        None => Ok(how),
    }
}

fn list(text: &str) -> Result<Vec<usize>, Refusal> {
    cpus::parse_list(text).map(|cpus| cpus.into_iter().collect())
}

fn scheduler_of(scheduler: &Scheduler) -> Result<&'static str, Refusal> {
    match (scheduler.ops.as_str(), &scheduler.companion) {
        ("gpuaware", None) => Ok("gpuaware"),
        ("simple", None) => Ok("fifo"),
        (ops, None) => Err(format!(
            "the simulator runs the kernel's own scheduler, gpuaware and simple, not {ops}"
        )),
        (ops, Some(_)) => Err(format!("the simulator runs no companion of {ops}")),
    }
}

/// What the policy that its command names changes, and its text if it has a say in which CPUs are preferred.
fn policy_of(
    arm: &Arm,
    scheduler: &Scheduler,
) -> Result<(Map<String, Value>, Option<String>), Refusal> {
    let (mut policy, mut chooses) = (Map::new(), String::new());
    let mut words = scheduler.command.iter().skip(1);
    let mut is_told = false;
    while let Some(word) = words.next() {
        match (word.as_str(), words.next()) {
            // As the plan has them.
            ("--preferred-cpus", Some(_)) => is_told = true,
            ("--policy", Some(file)) => {
                let name = file
                    .strip_prefix("{file:")
                    .and_then(|rest| rest.strip_suffix('}'));
                let text = name.and_then(|name| arm.files.get(name));
                let text = text.ok_or_else(|| format!("there is no policy {file}"))?;
                policy = tunables(text)?;
                chooses.clone_from(text);
            }
            _ => return Err(format!("the simulator does not know the argument {word}")),
        }
    }
    let chooses = (scheduler.ops == "gpuaware" && !is_told).then_some(chooses);
    Ok((policy, chooses))
}

/// The keys of a policy that mean something in the simulator; others are refused, unless they say who launches, which it
/// is told, or which CPUs are preferred, which the scheduler itself chooses for it.
pub fn tunables(text: &str) -> Result<Map<String, Value>, Refusal> {
    let table: toml::Table = text.parse().map_err(|error| format!("policy: {error}"))?;
    let mut found = Map::new();
    let sections = table.iter().filter(|(name, _)| *name != "version");
    for (path, value) in sections.flat_map(|(name, value)| leaves(name, value)) {
        let refusal = || {
            format!("policy: the simulator has nothing for {path} = {value}: see docs/simulator.md")
        };
        let (key, value) = match path.as_str() {
            "class.launch.match" | "class.handoff.match" | "class.background.match" => continue,
            path if CHOOSING.contains(&path) => continue,
            "preferred.hold_us" | "preferred.lend_yields_us" if value.as_str() == Some("auto") => {
                continue;
            }
            "preferred.hold_us" => ("hold_us", whole(value)),
            "preferred.lend_yields_us" => ("lend_yields_us", whole(value)),
            "preferred.lend" => ("lend", value.as_bool().map(Value::from)),
            "preferred.smt" => ("whole_core", whole_core(value)),
            "class.launch.slice_us" => ("launch_slice_us", whole(value)),
            "class.handoff.slice_us" => ("handoff_slice_us", whole(value)),
            "class.background.slice_us" => ("background_slice_us", whole(value)),
            "class.background.min_share" => ("min_share", share(value)),
            "guard.max_share" => ("max_share", share(value)),
            _ => return Err(refusal()),
        };
        found.insert(key.to_owned(), value.ok_or_else(refusal)?);
    }
    Ok(found)
}

/// `section.key` and its value, tables taken apart.
fn leaves<'a>(path: &str, value: &'a toml::Value) -> Vec<(String, &'a toml::Value)> {
    match value.as_table() {
        Some(table) => {
            let inner = table.iter();
            inner
                .flat_map(|(key, value)| leaves(&format!("{path}.{key}"), value))
                .collect()
        }
        None => vec![(path.to_owned(), value)],
    }
}

fn whole(value: &toml::Value) -> Option<Value> {
    let number = value.as_integer()?;
    u64::try_from(number).ok().map(Value::from)
}

/// `"whole-core"` or `"shared"`
fn whole_core(value: &toml::Value) -> Option<Value> {
    let word = value.as_str()?;
    matches!(word, "whole-core" | "shared").then(|| json!(word == "whole-core"))
}

/// `"5%"`
fn share(value: &toml::Value) -> Option<Value> {
    let percent: f64 = value.as_str()?.strip_suffix('%')?.parse().ok()?;
    Some(json!(percent / 100.0))
}

impl How {
    /// What stands before the workload's command.
    fn prefix(&mut self, prefix: &[String]) -> Result<(), Refusal> {
        let mut words = prefix.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match (word, words.next(), words.next()) {
                ("taskset", Some("-c"), Some(cpus)) => self.launcher_cpus = Some(list(cpus)?),
                ("nice", Some("-n"), Some(level)) => {
                    let level = level.parse().ok();
                    let level = level.filter(|level| (-20..20).contains(level));
                    self.nice =
                        level.ok_or_else(|| format!("expected a nice level: {prefix:?}"))?;
                }
                _ => {
                    return Err(format!(
                        "the simulator knows taskset -c and nice -n before a workload, not {word}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// CPUs that the kernel or a cpuset keeps for some.
    fn isolate(&mut self, arm: &Arm, nr_cpus: usize) -> Result<(), Refusal> {
        if let Some(list_of) = &arm.neighbours.cpuset {
            self.neighbour_cpus = Some(list(list_of)?);
        }
        if let Some(cpuset) = &arm.workload.cpuset {
            self.launcher_cpus = Some(list(cpuset)?);
            if arm.workload.isolated {
                self.keep_away(&list(cpuset)?, nr_cpus);
            }
        }
        const QUIET: [&str; 4] = ["nohz_full=", "rcu_nocbs=", "irqaffinity=", "isolcpus="];
        for word in &arm.boot.args {
            if !QUIET.iter().any(|known| word.starts_with(known)) {
                return Err(format!(
                    "the simulator has nothing for the boot argument {word}"
                ));
            }
            if let Some(isolated) = word.strip_prefix("isolcpus=") {
                let is_cpus = |part: &&str| part.starts_with(|first: char| first.is_ascii_digit());
                let parts: Vec<&str> = isolated.split(',').filter(is_cpus).collect();
                self.keep_away(&list(&parts.join(","))?, nr_cpus);
            }
        }
        Ok(())
    }

    fn keep_away(&mut self, taken: &[usize], nr_cpus: usize) {
        let others = (0..nr_cpus).filter(|cpu| !taken.contains(cpu));
        self.neighbour_cpus = Some(others.collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(text: &str) -> Arm {
        toml::from_str(&format!("description = \"x\"\n{text}")).unwrap()
    }

    fn refusal(text: &str) -> String {
        how(&arm(text), 4).unwrap_err()
    }

    #[test]
    fn operators_arms_are_cpus_and_weights() {
        let plain = how(&arm(""), 4).unwrap();
        assert_eq!((plain.scheduler, plain.nice), ("eevdf", 0));
        let both = "[workload]\nprefix = [\"taskset\", \"-c\", \"2-3\", \"nice\", \"-n\", \"-10\"]";
        let both = how(&arm(both), 4).unwrap();
        assert_eq!((both.launcher_cpus, both.nice), (Some(vec![2, 3]), -10));
        assert_eq!(both.neighbour_cpus, None);
        let cfs = "needs = [\"cfs\"]\n[boot]\nown_boot = true\nkernel = \"6.1\"";
        assert_eq!(how(&arm(cfs), 4).unwrap().scheduler, "cfs");
        let boot = "[boot]\nargs = [\"isolcpus=managed_irq,domain,2-3\", \"nohz_full=2-3\"]";
        let boot = how(&arm(boot), 4).unwrap();
        assert_eq!(boot.neighbour_cpus, Some(vec![0, 1]));
        let cpuset = "[workload]\ncgroup = \"l\"\ncpuset = \"3\"\nisolated = true\n[neighbours]\ncpuset = \"0-1\"";
        let cpuset = how(&arm(cpuset), 4).unwrap();
        assert_eq!(cpuset.launcher_cpus, Some(vec![3]));
        assert_eq!(cpuset.neighbour_cpus, Some(vec![0, 1, 2]));
    }

    #[test]
    fn a_policy_is_its_tunables() {
        let text = |policy: &str| {
            format!(
                "[scheduler]\ncommand = [\"scx_gpuaware\", \"--preferred-cpus\", \"1\", \"--policy\", \"{{file:p}}\"]\n\
                 ops = \"gpuaware\"\n[files]\np = '''\nversion = 1\n{policy}'''\n"
            )
        };
        let policy = |policy: &str| how(&arm(&text(policy)), 4).map(|how| how.policy);
        let given = "[preferred]\nhold_us = 0\nlend = false\nsmt = \"shared\"\n[class.background]\nmin_share = \"10%\"\n\
                     [class.launch]\nmatch = [{ comm = \"launch-*\" }]\n";
        let wanted = json!({"hold_us": 0, "lend": false, "whole_core": false, "min_share": 0.1});
        assert_eq!(Value::Object(policy(given).unwrap()), wanted);
        assert!(policy("").unwrap().is_empty());
        assert!(policy("[preferred]\nmax = 2\n").unwrap().is_empty());
        let text = policy("[identify]\nprobes = \"always\"\n").unwrap_err();
        assert!(text.contains("identify.probes = \"always\""), "{text}");
        assert!(policy("[preferred]\nhold_us = -1\n").is_err());
        let lent = |us: &str| policy(&format!("[preferred]\nlend_yields_us = {us}\n"));
        assert!(lent("\"auto\"").unwrap().is_empty());
        let wanted = json!({"lend_yields_us": 100});
        assert_eq!(Value::Object(lent("100").unwrap()), wanted);
        assert!(lent("\"long\"").is_err());
    }

    #[test]
    fn who_is_told_no_cpus_chooses_them_by_the_policy() {
        let chooses = |args: &str| {
            let text = format!(
                "[scheduler]\ncommand = [\"s\"{args}]\nops = \"gpuaware\"\n[files]\np = \"version = 1\"\n"
            );
            how(&arm(&text), 4).unwrap().chooses
        };
        let policy = ", \"--policy\", \"{file:p}\"";
        assert_eq!(chooses(""), Some(String::new()));
        assert_eq!(chooses(policy).as_deref(), Some("version = 1"));
        let told = ", \"--preferred-cpus\", \"1\"";
        assert_eq!(chooses(&format!("{told}{policy}")), None);
        assert_eq!(how(&arm(""), 4).unwrap().chooses, None);
    }

    #[test]
    fn what_the_simulator_cannot_do_is_refused_by_name() {
        for (arm, words) in [
            (
                "[workload]\nprefix = [\"chrt\", \"--fifo\", \"1\"]",
                "not chrt",
            ),
            ("[scheduler]\ncommand = [\"s\"]\nops = \"lavd\"", "not lavd"),
            ("[neighbours]\nidle = true", "cpu.idle"),
            ("[workload]\nweight = 100", "the weight of a cgroup"),
            (
                "[boot]\nown_boot = true\nkernel = \"6.1\"",
                "a kernel of its own",
            ),
            ("[boot]\nargs = [\"preempt=full\"]", "preempt=full"),
        ] {
            let text = refusal(arm);
            assert!(text.contains(words), "{arm}: {text}");
        }
    }
}
