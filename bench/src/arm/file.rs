// SPDX-License-Identifier: GPL-2.0-only
//! An arm file as it is written: it may include another, and what it says replaces what that one says, key by
//! key. Reads, checks what no single key shows, and settles.

use std::path::Path;

use toml::Table;

use super::model::{Arm, Boot};
use crate::datafile::{self, DataError};
use crate::kernel_release;

impl Arm {
    /// Reads the arm with all that it includes and fills in the launcher's CPUs and the others.
    pub fn read(file: &Path, preferred: &str, others: &str) -> Result<Self, DataError> {
        let tables = datafile::with_included("arm", file, |at| {
            let text = datafile::text(at)?;
            // As an arm first: a mistake has its file, line and key.
            let arm: Self = datafile::parse(at, &text)?;
            Ok((datafile::parse::<Table>(at, &text)?, arm.include))
        })?;
        let mut table = tables.into_iter().reduce(over).unwrap_or_default();
        table.remove("include");
        let usage = |mistake: String| DataError::Usage(format!("{}: {mistake}", file.display()));
        let mut arm: Self = table.try_into().map_err(|error| usage(error.to_string()))?;
        if let Some(scheduler) = &mut arm.scheduler {
            scheduler.place_args();
        }
        if let Some(mistake) = arm.mistake() {
            return Err(usage(mistake));
        }
        arm.read_files(file.parent().unwrap_or(Path::new(".")))?;
        Ok(arm.with_cpus(preferred, others))
    }

    fn mistake(&mut self) -> Option<String> {
        if self.description.is_empty() {
            let missing =
                "description: expected a value here or in a file that it includes, got none";
            return Some(missing.to_owned());
        }
        let Boot {
            own_boot,
            args,
            kernel,
        } = &self.boot;
        if *own_boot != (!args.is_empty() || kernel.is_some()) {
            let expected = "boot: expected own_boot = true exactly when args or a kernel are given";
            return Some(expected.to_owned());
        }
        if let Some(Err(mistake)) = kernel.as_deref().map(kernel_release::named) {
            return Some(format!("boot.kernel: {mistake}"));
        }
        if let Some(scheduler) = &mut self.scheduler {
            if scheduler.commands().any(|command| command.is_empty()) {
                let expected =
                    "scheduler: expected commands of a program and its arguments, got an empty one";
                return Some(expected.to_owned());
            }
            if scheduler.ops.is_empty() {
                let expected =
                    "scheduler.ops: expected what /sys/kernel/sched_ext/root/ops shows, got none";
                return Some(expected.to_owned());
            }
        }
        self.cgroup_mistake()
    }

    fn cgroup_mistake(&self) -> Option<String> {
        let workload = &self.workload;
        if let Some(cgroup) = &workload.cgroup
            && (cgroup.is_empty() || cgroup.contains('/') || cgroup.starts_with('.'))
        {
            return Some(format!(
                "workload.cgroup: expected the name of one folder, got {cgroup:?}"
            ));
        }
        if workload.cgroup.is_none() && (workload.cpuset.is_some() || workload.weight.is_some()) {
            let expected = "workload.cpuset, workload.weight: expected with a workload.cgroup";
            return Some(expected.to_owned());
        }
        if workload.isolated && workload.cpuset.is_none() {
            return Some("workload.isolated: expected with a workload.cpuset".to_owned());
        }
        if self.neighbours.idle && self.neighbours.weight.is_some() {
            let expected =
                "neighbours.weight: expected without neighbours.idle, which leaves no weight";
            return Some(expected.to_owned());
        }
        let weights = [
            ("workload", workload.weight),
            ("neighbours", self.neighbours.weight),
        ];
        weights.into_iter().find_map(|(whose, weight)| {
            let weight = weight.filter(|weight| !(1..=10_000).contains(weight))?;
            Some(format!("{whose}.weight: expected 1 to 10000, got {weight}"))
        })
    }
}

/// `own` where it says something, else `base`.
fn over(own: Table, mut base: Table) -> Table {
    for (key, value) in own {
        let value = match (value, base.remove(&key)) {
            (toml::Value::Table(own), Some(toml::Value::Table(base))) => over(own, base).into(),
            (value, _) => value,
        };
        base.insert(key, value);
    }
    base
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::need::Need;

    fn shipped(name: &str) -> Arm {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scheds/arms");
        let file = datafile::find("arm", name, &folder).unwrap();
        Arm::read(&file, "6-7", "0-5").unwrap()
    }

    /// What is said of these files, by the name of the first.
    fn read(files: &[(&str, &str)]) -> Result<Arm, String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        Arm::read(&dir.path().join(files[0].0), "1", "0").map_err(|error| error.to_string())
    }

    #[test]
    fn shipped_arms_are_filled_in() {
        assert!(shipped("eevdf").scheduler.is_none());
        assert_eq!(
            shipped("taskset-nice").workload.prefix,
            ["taskset", "-c", "6-7", "nice", "-n", "-10"]
        );
        let excluded = shipped("cpuset-excluded");
        assert_eq!(excluded.neighbours.cpuset.as_deref(), Some("0-5"));
        let isolcpus = shipped("isolcpus");
        assert!(isolcpus.boot.own_boot);
        assert!(
            isolcpus.boot.args[0].starts_with("isolcpus=")
                && isolcpus.boot.args[0].ends_with("6-7")
        );
        let arm = shipped("gpuaware").with_programs_in(Path::new("/t"));
        let scheduler = arm.scheduler.unwrap();
        assert_eq!(
            scheduler.command,
            ["/t/release/scx_gpuaware", "--preferred-cpus", "6-7"]
        );
    }

    #[test]
    fn an_arm_says_only_what_differs_from_the_one_that_it_includes() {
        let base = "description = \"b\"\nneeds = [\"sched_ext\"]\n[scheduler]\nops = \"x\"\n\
                    command = [\"x\", \"{args}\", \"last\"]\nsettings = [\"x\", \"show\", \"{args}\"]\n\
                    [workload]\nprefix = [\"nice\"]\n";
        let own = "include = \"base\"\ndescription = \"o\"\n[scheduler]\nargs = [\"-n\", \"{preferred}\"]\n";
        let arm = read(&[("own.toml", own), ("base.toml", base)]).unwrap();
        assert_eq!(
            (arm.description.as_str(), &arm.needs[..]),
            ("o", &[Need::SchedExt][..])
        );
        assert_eq!(arm.workload.prefix, ["nice"]);
        let scheduler = arm.scheduler.unwrap();
        assert_eq!(scheduler.command, ["x", "-n", "1", "last"]);
        assert_eq!(scheduler.settings.unwrap(), ["x", "show", "-n", "1"]);
        let alone = read(&[("base.toml", base)]).unwrap().scheduler.unwrap();
        assert_eq!(alone.command, ["x", "last"]);
    }

    #[test]
    fn every_shipped_arm_can_be_read_and_written() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scheds/arms");
        for name in datafile::names(&folder).unwrap() {
            let arm = shipped(&name);
            let text = serde_json::to_string(&arm).unwrap();
            let back: Arm = serde_json::from_str(&text).unwrap();
            assert_eq!(back.needs, arm.needs, "{name}");
            for open in ["{nr_preferred}", "{preferred}", "{others}", "{args}"] {
                assert!(!text.contains(open), "{name}: {text}");
            }
        }
    }

    #[test]
    fn says_which_needs_there_are_and_which_file_is_missing() {
        let refusal = |text: &str| read(&[("x.toml", text)]).unwrap_err();
        let error = refusal("description = \"x\"\nneeds = [\"luck\"]\n");
        assert!(
            error.contains("x.toml:2: needs: expected sched_ext"),
            "{error}"
        );
        let error = refusal(
            "description = \"x\"\n[scheduler]\nops = \"x\"\ncommand = [\"x\", \"{file:y.json}\"]\n",
        );
        assert!(error.contains("y.json: cannot read"), "{error}");
    }

    #[test]
    fn mistakes_name_the_key_and_the_file_that_has_them() {
        for (text, expected) in [
            ("include = \"lost\"\n", "no arm \"lost\""),
            ("include = \"x\"\n", "x.toml: include: expected at most"),
            ("[workload]\nprefix = []\n", "x.toml: description: expected"),
            (
                "[neighbours]\nweigt = 1\n",
                "x.toml:2: weigt: unknown field",
            ),
            (
                "[workload]\nthreads = [{ comm = \"a\", nice = 40 }]\n",
                "x.toml:2: threads: nice: expected -20",
            ),
            (
                "description = \"x\"\n[scheduler]\nops = \"x\"\n",
                "scheduler: expected commands",
            ),
            (
                "description = \"x\"\n[scheduler]\ncommand = [\"x\"]\n",
                "scheduler.ops: expected",
            ),
            (
                "description = \"x\"\n[workload]\ncpuset = \"1\"\n",
                "expected with a workload.cgroup",
            ),
            (
                "description = \"x\"\n[workload]\ncgroup = \"../x\"\n",
                "workload.cgroup: expected",
            ),
            (
                "description = \"x\"\n[workload]\ncgroup = \"x\"\nisolated = true\n",
                "workload.isolated: expected",
            ),
            (
                "description = \"x\"\n[neighbours]\nidle = true\nweight = 1\n",
                "neighbours.weight: expected without",
            ),
            (
                "description = \"x\"\n[neighbours]\nweight = 0\n",
                "neighbours.weight: expected 1 to 10000, got 0",
            ),
            (
                "description = \"x\"\n[boot]\nargs = [\"quiet\"]\n",
                "x.toml: boot: expected own_boot = true",
            ),
            (
                "description = \"x\"\n[boot]\nown_boot = true\nkernel = \"v6.12\"\n",
                "x.toml: boot.kernel: expected a series such as 6.18",
            ),
        ] {
            let error = read(&[("x.toml", text)]).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let own = ("own.toml", "include = \"base\"\n");
        let error = read(&[own, ("base.toml", "descripton = \"b\"\n")]).unwrap_err();
        assert!(
            error.contains("base.toml:1: descripton: unknown field"),
            "{error}"
        );
    }

    #[test]
    fn an_arm_may_have_a_kernel_of_its_own() {
        let cfs = shipped("cfs");
        assert!(cfs.boot.own_boot && cfs.needs == [Need::Cfs]);
        assert!(
            cfs.boot
                .kernel
                .is_some_and(|kernel| !crate::kernel_release::has_eevdf(&kernel))
        );
    }

    #[test]
    fn in_separate_cgroups_what_the_arm_says_stays() {
        let eevdf = shipped("eevdf").in_separate_cgroups();
        assert_eq!(
            (eevdf.workload.weight, eevdf.neighbours.weight),
            (Some(100), Some(100))
        );
        assert!(eevdf.workload.cgroup.is_some() && eevdf.neighbours.confined());
        let isolated = shipped("cpuset-isolated");
        let cgroup = isolated.workload.cgroup.clone();
        assert_eq!(isolated.in_separate_cgroups().workload.cgroup, cgroup);
        let idle = shipped("neighbours-cpu-idle").in_separate_cgroups();
        assert_eq!((idle.neighbours.idle, idle.neighbours.weight), (true, None));
    }

    #[test]
    fn files_beside_an_arm_travel_with_it() {
        let mut arm = shipped("scx_layered-protected");
        let [contents] = arm.files.values().collect::<Vec<_>>()[..] else {
            panic!("one file: {:?}", arm.files)
        };
        let layers: serde_json::Value = serde_json::from_str(contents).unwrap();
        assert_eq!(
            layers[0]["kind"]["Grouped"]["cpus_range"],
            serde_json::json!([2, 2])
        );
        let hints = [&layers[0], &layers[1]].map(|layer| &layer["matches"][0][0]["HintEquals"]);
        assert_eq!(hints, [1, 2], "what scx_gpuaware feed writes");

        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("arms/x");
        arm.write_files(&folder).unwrap();
        let command = arm.scheduler.unwrap().command;
        let named = format!("f:{}", folder.join("scx_layered-protected.json").display());
        assert!(command.contains(&named), "{command:?}");
        assert!(folder.join("scx_layered-protected.json").is_file());
    }
}
