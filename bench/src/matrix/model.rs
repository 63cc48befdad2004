// SPDX-License-Identifier: GPL-2.0-only
//! A settled matrix, and what is derived from it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::published::Published;
use super::reference::Reference;
use super::sweep::Sweep;
use super::workload::{Program, Workload};
use crate::datafile::DataError;
use crate::lab::{DiskDriver, Lab};
use crate::record::neighbour::{Neighbour, StressNg};

/// Arms that take the launcher's CPUs from everybody else, the best known first.
const RESERVED: [&str; 2] = ["isolcpus", "cpuset-isolated"];

/// A settled matrix: what its file and those that it includes say, and the defaults.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Matrix {
    /// What question the comparison answers, for `list` and the report's head.
    pub description: String,
    pub rounds: u32,
    /// Seconds measured in every cell.
    pub seconds: f64,
    /// Seconds of each warm-up cell: one an arm after every boot, thrown away. 0: none.
    pub warmup_seconds: f64,
    /// How often every group of arms is booted, in turns, so that slow drift hits all alike.
    pub boots: u32,
    pub neighbours: Vec<Neighbour>,
    pub arms: Vec<String>,
    /// The arm whose quiet cells are the clean reference of its boot.
    pub baseline: String,
    /// The arm that the report compares with every other one.
    pub subject: String,
    /// The arm whose launcher has CPUs to itself, a yardstick for all; absent: the first of `RESERVED` that there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<String>,
    /// CPUs that the arms may use for the launcher: "auto" or a list.
    pub preferred: String,
    /// Count what the schedulers' BPF programs cost. It makes each of their runs dearer.
    #[serde(default)]
    pub bpf_stats: bool,
    /// What the neighbours `cpu` and `heavy` keep the CPUs busy with.
    #[serde(default)]
    pub stress_ng: StressNg,
    /// Whether workload and neighbours have cgroups of their own also where the arm has none.
    #[serde(default)]
    pub cgroups: Cgroups,
    pub lab: LabSettings,
    #[serde(rename = "workload")]
    pub workloads: Vec<Workload>,
    /// Which of the workloads are one with different values.
    #[serde(default, rename = "sweep", skip_serializing_if = "Vec::is_empty")]
    pub sweeps: Vec<Sweep>,
    /// A published table that the report shows beside ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
    /// A published study's tables and figures, of pipelines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}

/// The cgroups of workload and neighbours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cgroups {
    /// All are in the runner's, and share the CPUs thread by thread.
    #[default]
    Shared,
    /// One for the workload and one for the neighbours, with the cpu controller and the default weight: as
    /// services on a production host, which share the CPUs group by group.
    Separate,
}

/// The virtual machine that cells run in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LabSettings {
    /// Kernel series, such as "6.18".
    pub kernel: String,
    /// Size of the scratch disk that fio writes to.
    pub disk_mib: u64,
    /// The scratch disk: "null_blk" (the guest's own memory) or "virtio_blk" (served by the host).
    pub disk_driver: DiskDriver,
    /// vCPUs; absent: as many as the host has, at most 8.
    pub cpus: Option<u32>,
    /// The guest's memory.
    #[serde(default = "usual_memory")]
    pub memory_mib: u64,
}

/// Of runs that do not say how much they had, too.
fn usual_memory() -> u64 {
    Lab::default().memory_mib
}

impl Matrix {
    /// What no single key shows.
    pub(super) fn check(&self, file: &str) -> Result<(), DataError> {
        let named = [("baseline", &self.baseline), ("subject", &self.subject)];
        let reserved = self.reserved.iter().map(|arm| ("reserved", arm));
        for (key, arm) in named.into_iter().chain(reserved) {
            if !self.arms.contains(arm) {
                return Err(DataError::Usage(format!(
                    "{file}: {key}: expected one of the matrix's arms ({}), got {arm:?}",
                    self.arms.join(", ")
                )));
            }
        }
        if let Some(mistake) = self.workloads.iter().find_map(|w| self.limit_mistake(w)) {
            return Err(DataError::Usage(format!("{file}: {mistake}")));
        }
        let workloads: Vec<&str> = self.workloads.iter().map(|w| w.name.as_str()).collect();
        let mistake = |reference: &Reference| reference.mistake(&self.arms, &workloads);
        let misplaced = |study: &Published| study.mistake(&self.arms, &self.neighbours, &workloads);
        let mistake = (self.reference.as_ref().and_then(mistake))
            .or_else(|| self.published.as_ref().and_then(misplaced));
        match mistake {
            Some(mistake) => Err(DataError::Usage(format!("{file}: {mistake}"))),
            None => Ok(()),
        }
    }

    /// Shares of clean need the baseline's quiet cells of every workload.
    fn limit_mistake(&self, workload: &Workload) -> Option<String> {
        let limit = |key: &str, own: Vec<&str>, all: Vec<&str>, needed: &str| {
            let stray = own.iter().find(|name| !all.contains(name));
            let lacks = !own.is_empty() && !own.contains(&needed);
            (stray.is_some() || lacks).then(|| {
                format!(
                    "workload {:?}: {key}: expected some of the matrix's ({}), {needed:?} among them, got {}",
                    workload.name,
                    all.join(", "),
                    own.join(", ")
                )
            })
        };
        let names = |names: &[Neighbour]| names.iter().map(|n| n.name()).collect::<Vec<_>>();
        let arms = workload.arms.iter().map(String::as_str).collect();
        let all = self.arms.iter().map(String::as_str).collect();
        limit("arms", arms, all, &self.baseline).or_else(|| {
            let own = names(&workload.neighbours);
            limit("neighbours", own, names(&self.neighbours), "none")
        })
    }

    /// Narrows to the named arms and neighbours; the baseline and the quiet cells always stay,
    /// because shares of clean need them.
    pub fn narrow(&mut self, arms: &[String], neighbours: &[String]) -> Result<(), DataError> {
        if !arms.is_empty() {
            if let Some(arm) = arms.iter().find(|arm| !self.arms.contains(arm)) {
                return Err(DataError::Usage(format!(
                    "--arms: expected some of {}, got {arm:?}",
                    self.arms.join(", ")
                )));
            }
            let baseline = self.baseline.clone();
            self.arms
                .retain(|arm| arms.contains(arm) || *arm == baseline);
        }
        if !neighbours.is_empty() {
            let known: Vec<&str> = self.neighbours.iter().map(|n| n.name()).collect();
            if let Some(name) = neighbours
                .iter()
                .find(|name| !known.contains(&name.as_str()))
            {
                return Err(DataError::Usage(format!(
                    "--neighbours: expected some of {}, got {name:?}",
                    known.join(", ")
                )));
            }
            self.neighbours.retain(|n| {
                *n == Neighbour::None || neighbours.iter().any(|name| name == n.name())
            });
        }
        Ok(())
    }

    /// The arm whose launcher has CPUs to itself; `None`: no such arm takes part.
    pub fn reserved_arm(&self) -> Option<&str> {
        let candidates = match &self.reserved {
            Some(arm) => &[arm.as_str()][..],
            None => &RESERVED,
        };
        let takes_part = |candidate: &&&str| self.arms.iter().any(|arm| arm == **candidate);
        candidates.iter().find(takes_part).copied()
    }

    /// Cells that one run measures.
    pub fn cells(&self) -> usize {
        self.rounds as usize * self.each_row().count()
    }

    /// Every (workload, neighbour, arm) that is measured, in the report's order.
    pub fn each_row(&self) -> impl Iterator<Item = (&str, Neighbour, &str)> {
        self.workloads.iter().flat_map(move |workload| {
            let neighbours = self.neighbours.iter();
            neighbours.flat_map(move |&neighbour| {
                let arms = self.arms.iter();
                arms.filter(move |arm| workload.is_measured(neighbour, arm))
                    .map(move |arm| (workload.name.as_str(), neighbour, arm.as_str()))
            })
        })
    }

    /// The file of the machine that its first recording is of.
    pub fn recorded_machine(&self) -> Option<&str> {
        self.workloads.iter().find_map(Workload::recording)
    }

    pub fn seconds(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// About how long it takes, boots left out: what stands around a measured window in the lab takes so long on
    /// average over the runs in bench/runs.
    pub fn about(&self) -> Duration {
        let serves = |workload: &Workload| !matches!(workload.program, Program::GpuLaunch(_));
        let extra = if self.workloads.iter().any(serves) {
            4.0
        } else {
            2.5
        };
        (self.seconds() + Duration::from_secs_f64(extra)) * self.cells() as u32
    }
}

impl Default for LabSettings {
    fn default() -> Self {
        Self {
            kernel: "6.18".to_owned(),
            disk_mib: 512,
            // The other one measures the host where the guest is emulated: docs/bench.md.
            disk_driver: DiskDriver::NullBlk,
            cpus: None,
            memory_mib: usual_memory(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use super::super::file::MatrixFile;
    use crate::datafile;

    const GOOD: &str = r#"
description = "d"
rounds = 2
seconds = 3
neighbours = ["none", "cpu"]
arms = ["eevdf", "gpuaware"]
[[workload]]
name = "qwen3"
profile = "qwen3"
"#;

    fn parse(text: &str) -> Result<Matrix, DataError> {
        datafile::parse::<MatrixFile>(Path::new("m.toml"), text)?.settle("m.toml")
    }

    fn error(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from));
        parse(&GOOD.replace(from, to)).unwrap_err().to_string()
    }

    #[test]
    fn reads_a_matrix_and_fills_in_defaults() {
        let matrix = parse(GOOD).unwrap();
        assert_eq!(matrix.cells(), 8);
        assert_eq!(matrix.seconds(), Duration::from_secs(3));
        assert_eq!(matrix.lab.kernel, "6.18");
        assert_eq!(matrix.baseline, "eevdf");
        matrix.check("m.toml").unwrap();
    }

    #[test]
    fn names_file_line_key_and_what_was_expected() {
        let text = error("rounds = 2", "rounds = 0");
        assert_eq!(
            text,
            "m.toml:3: rounds: expected a whole number from 1 to 1000, got 0"
        );
        let text = error("rounds = 2", "runds = 2");
        assert!(
            text.starts_with("m.toml:3: runds: unknown field `runds`, expected one of"),
            "{text}"
        );
        let text = error("seconds = 3", "seconds = \"x\"");
        assert_eq!(text, "m.toml:4: seconds: expected a number");
        let text = error("rounds = 2", "rounds = \"two\"");
        assert_eq!(text, "m.toml:3: rounds: expected a number");
        let text = error("\"cpu\"]", "\"gpu\"]");
        assert!(
            text.starts_with("m.toml:5: neighbours: unknown variant `gpu`"),
            "{text}"
        );
        let text = error("\"none\", ", "");
        assert!(
            text.contains("m.toml:5: neighbours: expected \"none\" among them"),
            "{text}"
        );
        let text = error("profile = \"qwen3\"", "");
        assert!(text.contains("profile: expected the name of one"), "{text}");
    }

    #[test]
    fn a_workload_may_leave_arms_and_neighbours_out_but_no_reference() {
        let with = |keys: &str| parse(&format!("{GOOD}{keys}\n")).unwrap();
        let less = with("arms = [\"eevdf\"]\nneighbours = [\"none\"]");
        less.check("m.toml").unwrap();
        assert_eq!(less.cells(), 2);
        let rows: Vec<_> = less.each_row().collect();
        assert_eq!(rows, [("qwen3", Neighbour::None, "eevdf")]);
        for (keys, words) in [
            (
                "arms = [\"gpuaware\"]",
                "arms: expected some of the matrix's (eevdf, gpuaware), \"eevdf\" among them, got gpuaware",
            ),
            ("arms = [\"eevdf\", \"lavd\"]", "got eevdf, lavd"),
            (
                "neighbours = [\"cpu\"]",
                "neighbours: expected some of the matrix's (none, cpu), \"none\" among them, got cpu",
            ),
        ] {
            let text = with(keys).check("m.toml").unwrap_err().to_string();
            assert!(text.starts_with("m.toml: workload \"qwen3\": "), "{text}");
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn refuses_a_baseline_that_is_no_arm() {
        let matrix = parse(&GOOD.replace("\"eevdf\", ", "")).unwrap();
        let text = matrix.check("m.toml").unwrap_err().to_string();
        assert_eq!(
            text,
            "m.toml: baseline: expected one of the matrix's arms (gpuaware), got \"eevdf\""
        );
    }

    #[test]
    fn the_arm_that_reserves_cpus_is_named_or_the_best_known_that_takes_part() {
        let with = |arms: &str, key: &str| {
            let text = GOOD.replace(
                r#"arms = ["eevdf", "gpuaware"]"#,
                &format!("{key}arms = {arms}"),
            );
            parse(&text).unwrap()
        };
        let all = r#"["eevdf", "cpuset-isolated", "gpuaware", "isolcpus"]"#;
        assert_eq!(with(all, "").reserved_arm(), Some("isolcpus"));
        let named = with(all, "reserved = \"cpuset-isolated\"\n");
        assert_eq!(named.reserved_arm(), Some("cpuset-isolated"));
        let lean = with(r#"["eevdf", "cpuset-isolated", "gpuaware"]"#, "");
        assert_eq!(lean.reserved_arm(), Some("cpuset-isolated"));
        assert_eq!(parse(GOOD).unwrap().reserved_arm(), None);
        let wrong = with(all, "reserved = \"isolcpu\"\n");
        let text = wrong.check("m.toml").unwrap_err().to_string();
        assert!(
            text.starts_with("m.toml: reserved: expected one of"),
            "{text}"
        );
        let mut narrow = named;
        narrow.narrow(&["gpuaware".into()], &[]).unwrap();
        assert_eq!(narrow.reserved_arm(), None);
    }

    #[test]
    fn narrowing_keeps_the_reference() {
        let mut matrix = parse(GOOD).unwrap();
        matrix
            .narrow(&["gpuaware".into()], &["cpu".into()])
            .unwrap();
        assert_eq!(matrix.arms, ["eevdf", "gpuaware"]);
        assert_eq!(matrix.neighbours, [Neighbour::None, Neighbour::Cpu]);
        let error = matrix
            .narrow(&["lavd".into()], &[])
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "--arms: expected some of eevdf, gpuaware, got \"lavd\""
        );
    }
}
