// SPDX-License-Identifier: GPL-2.0-only
//! A comparison as data: which workloads beside which neighbours under which arms, how often and
//! for how long. Reading and checking only; `run` executes it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::cpus;
use crate::datafile::{self, DataError};
use crate::lab::DiskDriver;
use crate::neighbour::Neighbour;

/// A matrix file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// What question the comparison answers, for `list` and the report's head.
    pub description: String,
    #[serde(deserialize_with = "rounds")]
    pub rounds: u32,
    /// Seconds measured in every cell.
    #[serde(deserialize_with = "seconds")]
    pub seconds: f64,
    /// Seconds of each warm-up cell: one an arm after every boot, thrown away. 0: none.
    #[serde(
        default = "default_warmup_seconds",
        deserialize_with = "warmup_seconds"
    )]
    pub warmup_seconds: f64,
    /// How often every group of arms is booted, in turns, so that slow drift hits all alike.
    #[serde(default = "default_boots", deserialize_with = "rounds")]
    pub boots: u32,
    #[serde(deserialize_with = "neighbours")]
    pub neighbours: Vec<Neighbour>,
    #[serde(deserialize_with = "distinct_names")]
    pub arms: Vec<String>,
    /// The arm whose quiet cells are the clean reference of its boot.
    #[serde(default = "default_baseline")]
    pub baseline: String,
    /// The arm that the report compares with every other one.
    #[serde(default = "default_subject")]
    pub subject: String,
    /// CPUs that the arms may use for the launcher: "auto" or a list.
    #[serde(default = "auto", deserialize_with = "cpu_list")]
    pub preferred: String,
    #[serde(default)]
    pub lab: LabSettings,
    #[serde(rename = "workload", deserialize_with = "workloads")]
    pub workloads: Vec<Workload>,
}

/// The virtual machine that cells run in.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LabSettings {
    /// Kernel series, such as "6.18".
    pub kernel: String,
    /// Size of the scratch disk that fio writes to.
    #[serde(deserialize_with = "disk_mib")]
    pub disk_mib: u64,
    /// The scratch disk: "null_blk" (the guest's own memory) or "virtio_blk" (served by the host).
    pub disk_driver: DiskDriver,
    /// vCPUs; absent: as many as the host has, at most 8.
    pub cpus: Option<u32>,
}

/// One workload of a matrix: a program in one profile.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub name: String,
    #[serde(default)]
    pub program: Program,
    pub profile: String,
    /// How the launching thread waits for the GPU; absent: as the profile says.
    #[serde(default)]
    pub sync: Option<Sync>,
    /// Tokens before the measured window begins.
    #[serde(default = "default_warmup_tokens")]
    pub warmup_tokens: u32,
    /// More arguments for the program.
    #[serde(default)]
    pub args: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    #[default]
    GpuLaunch,
}

/// The driver's ways to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sync {
    Auto,
    Spin,
    Yield,
    Block,
}

impl Sync {
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Spin => "spin",
            Self::Yield => "yield",
            Self::Block => "block",
        }
    }
}

impl Matrix {
    pub fn read(file: &Path) -> Result<Self, DataError> {
        let matrix: Self = datafile::read(file)?;
        matrix.check(&file.display().to_string())?;
        Ok(matrix)
    }

    /// What no single key shows.
    fn check(&self, file: &str) -> Result<(), DataError> {
        for (key, arm) in [("baseline", &self.baseline), ("subject", &self.subject)] {
            if !self.arms.contains(arm) {
                return Err(DataError::Usage(format!(
                    "{file}: {key}: expected one of the matrix's arms ({}), got {arm:?}",
                    self.arms.join(", ")
                )));
            }
        }
        Ok(())
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

    /// Cells that one run measures.
    pub fn cells(&self) -> usize {
        self.rounds as usize * self.arms.len() * self.neighbours.len() * self.workloads.len()
    }

    pub fn seconds(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
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
        }
    }
}

fn default_warmup_seconds() -> f64 {
    1.0
}

fn default_boots() -> u32 {
    1
}

fn default_baseline() -> String {
    "eevdf".to_owned()
}

fn default_subject() -> String {
    "gpuaware".to_owned()
}

fn default_warmup_tokens() -> u32 {
    5
}

fn auto() -> String {
    "auto".to_owned()
}

/// The bounds of `seconds`, also for the flag of that name.
pub fn check_seconds(value: f64) -> Result<f64, String> {
    if (0.1..=3600.0).contains(&value) {
        Ok(value)
    } else {
        Err(format!("expected seconds from 0.1 to 3600, got {value}"))
    }
}

fn rounds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let value = Number::deserialize(deserializer)?;
    let rounds = value
        .whole(1, 1000)
        .and_then(|rounds| u32::try_from(rounds).ok());
    rounds.ok_or_else(|| {
        let value = value.value();
        de::Error::custom(format!(
            "expected a whole number from 1 to 1000, got {value}"
        ))
    })
}

/// TOML tells `3` from `3.0`; people do not.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number")]
enum Number {
    Whole(i64),
    Real(f64),
}

impl Number {
    /// The number if it is whole and within bounds.
    fn whole(&self, low: i64, high: i64) -> Option<u64> {
        match *self {
            Self::Whole(value) if (low..=high).contains(&value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    fn value(&self) -> f64 {
        match *self {
            Self::Whole(value) => value as f64,
            Self::Real(value) => value,
        }
    }
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    check_seconds(Number::deserialize(deserializer)?.value()).map_err(de::Error::custom)
}

fn warmup_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let value = Number::deserialize(deserializer)?.value();
    if value == 0.0 {
        Ok(0.0)
    } else {
        check_seconds(value).map_err(de::Error::custom)
    }
}

fn disk_mib<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let value = Number::deserialize(deserializer)?;
    value.whole(16, 1 << 20).ok_or_else(|| {
        let value = value.value();
        de::Error::custom(format!(
            "expected whole MiB from 16 to 1048576, got {value}"
        ))
    })
}

fn neighbours<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Neighbour>, D::Error> {
    let list = Vec::<Neighbour>::deserialize(deserializer)?;
    if !list.contains(&Neighbour::None) {
        return Err(de::Error::custom(
            "expected \"none\" among them: its cells are the clean reference",
        ));
    }
    if list.iter().collect::<BTreeSet<_>>().len() != list.len() {
        return Err(de::Error::custom("expected every neighbour once"));
    }
    Ok(list)
}

fn distinct_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let list = Vec::<String>::deserialize(deserializer)?;
    if list.is_empty() || list.iter().collect::<BTreeSet<_>>().len() != list.len() {
        return Err(de::Error::custom(
            "expected at least one name, every name once",
        ));
    }
    Ok(list)
}

fn cpu_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text != "auto" {
        cpus::parse_list(&text)
            .map_err(|error| de::Error::custom(format!("\"auto\" or: {error}")))?;
    }
    Ok(text)
}

fn workloads<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Workload>, D::Error> {
    let list = Vec::<Workload>::deserialize(deserializer)?;
    let names: BTreeSet<_> = list.iter().map(|workload| &workload.name).collect();
    if list.is_empty() || names.len() != list.len() {
        return Err(de::Error::custom(
            "expected at least one [[workload]], every name once",
        ));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        datafile::parse(Path::new("m.toml"), text)
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
        assert!(text.contains("missing field `profile`"), "{text}");
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
