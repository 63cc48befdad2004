// SPDX-License-Identifier: GPL-2.0-only
//! A matrix file as it is written: every key optional, because another file may give it. What a file
//! says replaces what the file that it includes says, key by key.

use std::path::Path;

use serde::Deserialize;

use super::model::{Cgroups, LabSettings, Matrix};
use super::published::PublishedFile;
use super::reference::Reference;
use super::scalar::{Count, CpuList, Kernel, Mib, Names, Neighbours, Seconds, SecondsOrZero};
use super::sweep::Sweep;
use super::workload::Workloads;
use crate::datafile::{self, DataError};
use crate::lab::DiskDriver;
use crate::record::neighbour::StressNg;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixFile {
    /// The stem of a file in the same folder, or a path from there.
    include: Option<String>,
    description: Option<String>,
    rounds: Option<Count>,
    seconds: Option<Seconds>,
    warmup_seconds: Option<SecondsOrZero>,
    boots: Option<Count>,
    neighbours: Option<Neighbours>,
    arms: Option<Names>,
    baseline: Option<String>,
    subject: Option<String>,
    reserved: Option<String>,
    preferred: Option<CpuList>,
    bpf_stats: Option<bool>,
    stress_ng: Option<StressNg>,
    cgroups: Option<Cgroups>,
    lab: Option<LabFile>,
    #[serde(rename = "workload")]
    workloads: Option<Workloads>,
    #[serde(rename = "sweep")]
    sweeps: Option<Vec<Sweep>>,
    reference: Option<Reference>,
    published: Option<PublishedFile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LabFile {
    kernel: Option<Kernel>,
    disk_mib: Option<Mib<16>>,
    disk_driver: Option<DiskDriver>,
    cpus: Option<u32>,
    memory_mib: Option<Mib<1024>>,
}

impl Matrix {
    pub fn read(file: &Path) -> Result<Self, DataError> {
        let name = file.display().to_string();
        let mut written = MatrixFile::read(file)?;
        let published = written.published.take();
        let mut matrix = written.settle(&name)?;
        matrix.published = published.map(|study| study.read(file)).transpose()?;
        matrix.check(&name)?;
        Ok(matrix)
    }
}

impl MatrixFile {
    /// The file with all that it includes.
    pub fn read(file: &Path) -> Result<Self, DataError> {
        let files = datafile::with_included("matrix", file, |at| {
            let mut file: Self = datafile::read(at)?;
            let include = file.include.take();
            Ok((file, include))
        })?;
        Ok(files.into_iter().reduce(Self::over).unwrap_or_default())
    }

    /// `self` where it says something, else `base`.
    fn over(self, base: Self) -> Self {
        let lab = match (self.lab, base.lab) {
            (Some(own), Some(base)) => Some(LabFile {
                kernel: own.kernel.or(base.kernel),
                disk_mib: own.disk_mib.or(base.disk_mib),
                disk_driver: own.disk_driver.or(base.disk_driver),
                cpus: own.cpus.or(base.cpus),
                memory_mib: own.memory_mib.or(base.memory_mib),
            }),
            (own, base) => own.or(base),
        };
        let inherits_arms = self.arms.is_none();
        let inherits_workloads = self.workloads.is_none();
        Self {
            include: None,
            description: self.description.or(base.description),
            rounds: self.rounds.or(base.rounds),
            seconds: self.seconds.or(base.seconds),
            warmup_seconds: self.warmup_seconds.or(base.warmup_seconds),
            boots: self.boots.or(base.boots),
            neighbours: self.neighbours.or(base.neighbours),
            arms: self.arms.or(base.arms),
            baseline: self.baseline.or(base.baseline),
            subject: self.subject.or(base.subject),
            // It is one of the arms.
            reserved: self.reserved.or(base.reserved.filter(|_| inherits_arms)),
            preferred: self.preferred.or(base.preferred),
            bpf_stats: self.bpf_stats.or(base.bpf_stats),
            stress_ng: self.stress_ng.or(base.stress_ng),
            cgroups: self.cgroups.or(base.cgroups),
            lab,
            workloads: self.workloads.or(base.workloads),
            // They repeat the workloads.
            sweeps: self.sweeps.or(base.sweeps.filter(|_| inherits_workloads)),
            // It is the answer to one file's question, not to those of all that include it.
            reference: self.reference,
            published: self.published,
        }
    }

    /// Fills in the defaults; `file` is for the error when a key without one is missing.
    pub fn settle(self, file: &str) -> Result<Matrix, DataError> {
        let missing = |key: &str| {
            DataError::Usage(format!(
                "{file}: {key}: expected a value here or in a file that it includes, got none"
            ))
        };
        let lab = self.lab.unwrap_or_default();
        let defaults = LabSettings::default();
        let mut matrix = Matrix {
            description: self.description.ok_or_else(|| missing("description"))?,
            rounds: self.rounds.ok_or_else(|| missing("rounds"))?.0,
            seconds: self.seconds.ok_or_else(|| missing("seconds"))?.0,
            warmup_seconds: self.warmup_seconds.map_or(1.0, |seconds| seconds.0),
            boots: self.boots.map_or(1, |boots| boots.0),
            neighbours: self.neighbours.ok_or_else(|| missing("neighbours"))?.0,
            arms: self.arms.ok_or_else(|| missing("arms"))?.0,
            baseline: self.baseline.unwrap_or_else(|| "eevdf".to_owned()),
            subject: self.subject.unwrap_or_else(|| "gpuaware".to_owned()),
            reserved: self.reserved,
            preferred: self
                .preferred
                .map_or_else(|| "auto".to_owned(), |list| list.0),
            bpf_stats: self.bpf_stats.unwrap_or_default(),
            stress_ng: self.stress_ng.unwrap_or_default(),
            cgroups: self.cgroups.unwrap_or_default(),
            lab: LabSettings {
                kernel: lab.kernel.map_or(defaults.kernel, |kernel| kernel.0),
                disk_mib: lab.disk_mib.map_or(defaults.disk_mib, |mib| mib.0),
                disk_driver: lab.disk_driver.unwrap_or(defaults.disk_driver),
                cpus: lab.cpus.or(defaults.cpus),
                memory_mib: lab.memory_mib.map_or(defaults.memory_mib, |mib| mib.0),
            },
            workloads: self.workloads.ok_or_else(|| missing("[[workload]]"))?.0,
            sweeps: self.sweeps.unwrap_or_default(),
            reference: self.reference,
            published: None,
        };
        for sweep in &matrix.sweeps {
            let mistake = |mistake| DataError::Usage(format!("{file}: [[sweep]]: {mistake}"));
            sweep.expand(&mut matrix.workloads).map_err(mistake)?;
        }
        Ok(matrix)
    }
}

#[cfg(test)]
impl Matrix {
    pub fn parse(text: &str) -> Self {
        toml::from_str::<MatrixFile>(text)
            .unwrap()
            .settle("sample")
            .unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const BASE: &str = "description = \"base\"\nrounds = 5\nseconds = 2\nneighbours = [\"none\"]\n\
                        arms = [\"eevdf\"]\nsubject = \"eevdf\"\nbpf_stats = true\n[lab]\nkernel = \"7.0\"\ndisk_mib = 64\n\
                        [[workload]]\nname = \"q\"\nprofile = \"q\"\n";

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn a_file_overrides_what_it_includes_key_by_key() {
        let own = "include = \"base\"\nrounds = 2\n[lab]\ndisk_mib = 128\nmemory_mib = 8192\n";
        let dir = folder(&[("base.toml", BASE), ("own.toml", own)]);
        let matrix = Matrix::read(&dir.path().join("own.toml")).unwrap();
        assert_eq!((matrix.rounds, matrix.seconds), (2, 2.0));
        assert_eq!(
            (matrix.lab.kernel.as_str(), matrix.lab.disk_mib),
            ("7.0", 128)
        );
        assert_eq!(matrix.lab.memory_mib, 8192);
        assert_eq!(
            (matrix.description.as_str(), matrix.bpf_stats),
            ("base", true)
        );
    }

    #[test]
    fn sweeps_go_with_the_workloads_that_they_repeat() {
        let base = BASE.replace(
            "profile = \"q\"",
            "program = \"pipeline\"\ngraph = \"windflow\"",
        );
        let sweep =
            "[[sweep]]\nworkloads = [\"q\"]\nset = [\"k\"]\nvalues = [1, 2.5]\nlabel = \"l\"\n";
        let other = "include = \"base\"\n[[workload]]\nname = \"other\"\nprofile = \"q\"\n";
        let dir = folder(&[
            ("base.toml", &format!("{base}{sweep}")),
            ("same.toml", "include = \"base\"\n"),
            ("other.toml", other),
        ]);
        let names = |file: &str| -> Vec<String> {
            let matrix = Matrix::read(&dir.path().join(file)).unwrap();
            matrix.workloads.into_iter().map(|w| w.name).collect()
        };
        assert_eq!(names("same.toml"), ["q-1", "q-2.5"]);
        assert_eq!(names("other.toml"), ["other"]);
    }

    #[test]
    fn mistakes_name_the_file_that_has_them() {
        let dir = folder(&[
            ("base.toml", &BASE.replace("rounds = 5", "rounds = 0")),
            ("own.toml", "include = \"base\"\n"),
            ("loop.toml", "include = \"loop\"\n"),
            ("lost.toml", "include = \"nowhere\"\n"),
            ("bare.toml", "description = \"d\"\n"),
            ("boot.toml", &BASE.replace("\"7.0\"", "\"v7.0\"")),
            ("path.toml", &BASE.replace("\"7.0\"", "\"./vmlinuz\"")),
            (
                "arms.toml",
                &BASE.replace("[\"eevdf\"]", "[\"eevdf\", \"my/arm\"]"),
            ),
            ("work.toml", &BASE.replace("name = \"q\"", "name = \"q/1\"")),
        ]);
        let error = |name: &str| {
            Matrix::read(&dir.path().join(name))
                .unwrap_err()
                .to_string()
        };
        let text = error("own.toml");
        assert!(
            text.contains("base.toml:2: rounds: expected a whole"),
            "{text}"
        );
        let text = error("loop.toml");
        assert!(text.contains("does one include itself?"), "{text}");
        let text = error("lost.toml");
        assert!(text.starts_with("no matrix \"nowhere\""), "{text}");
        let text = error("boot.toml");
        assert!(
            text.contains("boot.toml:9: kernel: expected a series such as 6.18")
                && text.ends_with("got \"v7.0\""),
            "{text}"
        );
        let path = Matrix::read(&dir.path().join("path.toml")).unwrap();
        assert_eq!(path.lab.kernel, "./vmlinuz");
        let text = error("arms.toml");
        assert!(
            text.contains("arms.toml:5: arms: expected names without a slash, got \"my/arm\""),
            "{text}"
        );
        let text = error("work.toml");
        assert!(
            text.contains("name: expected one without a slash, got \"q/1\""),
            "{text}"
        );
        let text = error("bare.toml");
        assert!(
            text.contains("bare.toml: rounds: expected a value here"),
            "{text}"
        );
    }
}
