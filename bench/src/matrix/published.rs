// SPDX-License-Identifier: GPL-2.0-only
//! What a study of pipelines published: its tables and figures as data with their source, and the rows of the matrix
//! that they stand beside. A file of its own, because several matrices may repeat parts of one study.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::datafile::{self, DataError};
use crate::record::neighbour::Neighbour;

/// The key `[published]` of a matrix.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFile {
    /// A path from the matrix's folder.
    file: String,
    /// The names of those that this matrix repeats.
    figures: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Who published it, where.
    pub source: String,
    /// What it was measured on.
    pub setting: String,
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
}

/// A table or a figure of theirs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// As the study numbers it.
    pub name: String,
    pub title: String,
    /// What the reader must know to compare.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What the horizontal axis of a picture says; absent: a table is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
    #[serde(default, rename = "row", skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<PublishedRow>,
}

/// One of theirs, one of ours, or both side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    /// Rows with the same name are one line of a picture.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// Ours: a workload of the matrix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Ours are ratios, over this workload's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// Absent: the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    #[serde(default)]
    pub neighbour: Neighbour,
    /// Theirs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<Measure, Value>,
}

/// A number, or what the study says in its place, such as "below 2".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number or a text")]
pub enum Value {
    Number(f64),
    Text(String),
}

/// What is compared. All but the first few are of a pipeline's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Measure {
    ItemsPerS,
    /// Of speed, over the baseline's beside the same neighbour.
    GainPercent,
    MeanMs,
    P50Ms,
    P99Ms,
    /// From arrival until being ready for whoever calls the server.
    PrepareMs,
    /// Until whoever calls the server has taken an item.
    HandOverMs,
    /// Until the server has answered.
    CallsMs,
    /// The slowest of all hand-overs, copying included.
    SlowestHandOverMs,
    /// Requests that took longer.
    Over200MsPercent,
    Over500MsPercent,
    /// Loads an item that missed the last-level cache, over the baseline's.
    LlcMissesPercent,
}

impl Measure {
    /// As in files, and above a column.
    const NAMES: [(Self, &str, &str); 12] = [
        (Self::ItemsPerS, "items_per_s", "items/s"),
        (Self::GainPercent, "gain_percent", "gain %"),
        (Self::MeanMs, "mean_ms", "mean ms"),
        (Self::P50Ms, "p50_ms", "p50 ms"),
        (Self::P99Ms, "p99_ms", "p99 ms"),
        (Self::PrepareMs, "prepare_ms", "before the hand-over ms"),
        (Self::HandOverMs, "hand_over_ms", "hand-over ms"),
        (Self::CallsMs, "calls_ms", "calls ms"),
        (
            Self::SlowestHandOverMs,
            "slowest_hand_over_ms",
            "slowest hand-over ms",
        ),
        (
            Self::Over200MsPercent,
            "over_200_ms_percent",
            "over 200 ms %",
        ),
        (
            Self::Over500MsPercent,
            "over_500_ms_percent",
            "over 500 ms %",
        ),
        (Self::LlcMissesPercent, "llc_misses_percent", "LLC misses %"),
    ];

    pub fn heading(self) -> &'static str {
        let mut names = Self::NAMES.iter();
        names
            .find(|(known, ..)| *known == self)
            .map_or("", |(.., heading)| heading)
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Self::NAMES.iter();
        let name = names.find(|(known, ..)| known == self);
        f.write_str(name.map_or("", |(_, name, _)| name))
    }
}

impl From<Measure> for String {
    fn from(measure: Measure) -> Self {
        measure.to_string()
    }
}

impl TryFrom<String> for Measure {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut names = Self::NAMES.iter();
        let found = names.find(|(_, name, _)| *name == text);
        found.map(|(measure, ..)| *measure).ok_or_else(|| {
            let known: Vec<&str> = Self::NAMES.iter().map(|(_, name, _)| *name).collect();
            format!("expected {}, got {text:?}", known.join(", "))
        })
    }
}

impl PublishedFile {
    /// The study's figures that the matrix `matrix` repeats.
    pub(super) fn read(&self, matrix: &Path) -> Result<Published, DataError> {
        let folder = matrix.parent().unwrap_or(Path::new("."));
        let mut published: Published = datafile::read(&folder.join(&self.file))?;
        let known: Vec<String> = published.figures.iter().map(|f| f.name.clone()).collect();
        if let Some(stray) = self.figures.iter().find(|name| !known.contains(name)) {
            return Err(DataError::Usage(format!(
                "{}: published.figures: expected some of {}, got {stray:?}",
                matrix.display(),
                known.join(", ")
            )));
        }
        published
            .figures
            .retain(|figure| self.figures.contains(&figure.name));
        Ok(published)
    }
}

impl Figure {
    pub fn measures(&self) -> BTreeSet<Measure> {
        let rows = self.rows.iter();
        rows.flat_map(|row| row.values.keys().copied()).collect()
    }
}

impl Published {
    /// What is wrong with it in a matrix of these arms, neighbours and workloads.
    pub(super) fn mistake(
        &self,
        arms: &[String],
        neighbours: &[Neighbour],
        workloads: &[&str],
    ) -> Option<String> {
        let rows = self.figures.iter().flat_map(|figure| {
            let rows = figure.rows.iter();
            rows.map(move |row| (figure, row))
        });
        rows.filter_map(|(figure, row)| {
            let mistake = row.mistake(arms, neighbours, workloads)?;
            Some(format!(
                "published {}, {}: {mistake}",
                figure.name, row.name
            ))
        })
        .next()
    }
}

impl PublishedRow {
    fn mistake(
        &self,
        arms: &[String],
        neighbours: &[Neighbour],
        workloads: &[&str],
    ) -> Option<String> {
        let known = |name: &&String| workloads.contains(&name.as_str());
        let mut names = self.workload.iter().chain(&self.over);
        if let Some(stray) = names.find(|name| !known(name)) {
            let all = workloads.join(", ");
            return Some(format!(
                "workload, over: expected some of {all}, got {stray:?}"
            ));
        }
        if let Some(stray) = self.arm.iter().find(|arm| !arms.contains(arm)) {
            let all = arms.join(", ");
            return Some(format!(
                "arm: expected one of the matrix's ({all}), got {stray:?}"
            ));
        }
        if !neighbours.contains(&self.neighbour) {
            let got = self.neighbour;
            return Some(format!(
                "neighbour: expected one of the matrix's, got {got}"
            ));
        }
        (self.values.is_empty() && self.workload.is_none())
            .then(|| "expected values, a workload or both, got neither".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;

    const TEXT: &str = "source = \"s\"\nsetting = \"t\"\n[[figure]]\nname = \"Table 1\"\ntitle = \"strategies\"\nrow = [\n\
        { name = \"CS0\", workload = \"p1\", values = { items_per_s = 0.67, over_200_ms_percent = \"below 2\" } },\n\
        { name = \"ours\", workload = \"p1\", arm = \"gpuaware\", neighbour = \"cpu\" },\n]\n";

    fn mistake(text: &str) -> Option<String> {
        let published: Published = toml::from_str(text).unwrap();
        let arms = ["eevdf", "gpuaware"].map(str::to_owned);
        published.mistake(&arms, &[Neighbour::None, Neighbour::Cpu], &["p1"])
    }

    #[test]
    fn a_row_without_a_place_in_the_matrix_is_a_mistake() {
        assert_eq!(mistake(TEXT), None);
        for (from, to, words) in [
            (
                "\"p1\"",
                "\"p2\"",
                "published Table 1, CS0: workload, over: expected some of p1, got \"p2\"",
            ),
            (
                "\"gpuaware\"",
                "\"lavd\"",
                "Table 1, ours: arm: expected one of the matrix's (eevdf, gpuaware), got \"lavd\"",
            ),
            (
                "\"cpu\"",
                "\"disk\"",
                "neighbour: expected one of the matrix's, got disk",
            ),
            (
                ", workload = \"p1\", arm = \"gpuaware\", neighbour = \"cpu\"",
                "",
                "got neither",
            ),
        ] {
            let text = mistake(&TEXT.replacen(from, to, 1)).unwrap();
            assert!(text.contains(words), "{text}");
        }
        let error =
            toml::from_str::<Published>(&TEXT.replace("items_per_s", "tokens")).unwrap_err();
        assert!(
            error.message().starts_with("expected items_per_s, "),
            "{error}"
        );
    }

    #[test]
    fn a_plan_carries_what_the_file_said() {
        let published: Published = toml::from_str(TEXT).unwrap();
        let json = serde_json::to_string(&published).unwrap();
        assert_eq!(serde_json::from_str::<Published>(&json).unwrap(), published);
        let measures: Vec<String> = published.figures[0]
            .measures()
            .into_iter()
            .map(String::from)
            .collect();
        assert_eq!(measures, ["items_per_s", "over_200_ms_percent"]);
    }

    #[test]
    fn the_matrices_of_studies_have_what_these_published() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("matrices");
        let of = |name: &str| {
            let matrix = Matrix::read(&folder.join(format!("{name}.toml"))).unwrap();
            let published = matrix.published.unwrap();
            assert!(!published.source.is_empty() && !published.setting.is_empty());
            let names: Vec<String> = published.figures.into_iter().map(|f| f.name).collect();
            names.join(", ")
        };
        assert_eq!(
            of("seed-vectraflow"),
            "Table 1, Table 2, Table 3, Table 4, Figures 3 to 5"
        );
        assert_eq!(
            of("seed-vortex"),
            "Figure 7, Figures 8 and 15, Figure 9, Figure 10, Figure 11, Figure 12"
        );
        assert_eq!(of("seed-windflow"), "SD and WC, FD and TM, Cache misses");
    }

    #[test]
    fn a_figure_that_the_study_has_not_is_a_mistake() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("s.toml"), TEXT).unwrap();
        let read = |figure: &str| {
            let file = PublishedFile {
                file: "s.toml".to_owned(),
                figures: vec![figure.to_owned()],
            };
            file.read(&dir.path().join("m.toml"))
        };
        assert_eq!(read("Table 1").unwrap().figures.len(), 1);
        let error = read("Table 9").unwrap_err().to_string();
        assert!(
            error.ends_with("m.toml: published.figures: expected some of Table 1, got \"Table 9\""),
            "{error}"
        );
    }
}
