// SPDX-License-Identifier: GPL-2.0-only
//! A published study's table, to stand beside our own figures. Data with its source, nothing else:
//! on other hardware only what is relative to clean can be compared.

use serde::{Deserialize, Serialize};

use crate::record::neighbour::Neighbour;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Who published it, where.
    pub source: String,
    /// What it was measured on.
    pub setting: String,
    /// The workload of the matrix that stands for theirs.
    pub workload: String,
    /// The one with enough requests for a p99; absent: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_workload: Option<String>,
    /// The same workload traced, for what a tracer finds and costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traced_workload: Option<String>,
    #[serde(rename = "row")]
    pub rows: Vec<ReferenceRow>,
    /// Of the traced workload.
    #[serde(rename = "soft_irq", default, skip_serializing_if = "Vec::is_empty")]
    pub soft_irqs: Vec<ReferenceSoftIrq>,
}

/// Softirqs of one kind in one scenario of theirs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferenceSoftIrq {
    pub neighbour: Neighbour,
    pub arm: String,
    /// As the kernel names it: `NET_RX`.
    pub kind: String,
    pub count: u64,
    pub total_us: f64,
}

/// One scenario of theirs, by the names of ours. What a study does not give is left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferenceRow {
    pub neighbour: Neighbour,
    pub arm: String,
    pub tokens_per_s: f64,
    /// Context switches, by their count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches_per_1000_launches: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_mean_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_mean_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_p99_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_p99_ms: Option<f64>,
    /// Per 1,000 launches, by a tracer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_irqs_per_1000_launches: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_irqs_per_1000_launches: Option<f64>,
    /// Tokens/s that the tracer costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracer_cost_percent: Option<f64>,
}

impl Reference {
    pub fn row(&self, neighbour: Neighbour, arm: &str) -> Option<&ReferenceRow> {
        self.rows
            .iter()
            .find(|row| row.neighbour == neighbour && row.arm == arm)
    }

    /// Their scenario without a neighbour.
    pub fn clean(&self) -> Option<&ReferenceRow> {
        self.rows
            .iter()
            .find(|row| row.neighbour == Neighbour::None)
    }

    /// What is wrong with it in a matrix of these arms and workloads.
    pub fn mistake(&self, arms: &[String], workloads: &[&str]) -> Option<String> {
        let named = [
            ("workload", Some(&self.workload)),
            ("p99_workload", self.p99_workload.as_ref()),
            ("traced_workload", self.traced_workload.as_ref()),
        ];
        let unknown = |name: &&String| !workloads.contains(&name.as_str());
        let stray = named
            .into_iter()
            .find_map(|(key, name)| Some((key, name.filter(unknown)?)));
        if let Some((key, name)) = stray {
            let all = workloads.join(", ");
            return Some(format!(
                "reference.{key}: expected one of {all}, got {name:?}"
            ));
        }
        if self.clean().is_none() {
            return Some("reference: expected a row beside \"none\", got no such".to_owned());
        }
        if !self.soft_irqs.is_empty() && self.traced_workload.is_none() {
            let wanted =
                "reference.soft_irq: expected a traced_workload that they stand beside, got none";
            return Some(wanted.to_owned());
        }
        let is_empty = |its: &&ReferenceSoftIrq| its.count == 0 || its.total_us <= 0.0;
        if let Some(its) = self.soft_irqs.iter().find(is_empty) {
            return Some(format!(
                "reference.soft_irq: expected count and total_us above 0, got {} and {} of {:?}",
                its.count, its.total_us, its.kind
            ));
        }
        let rows = self.rows.iter().map(|row| ("row", &row.arm));
        let soft_irqs = self.soft_irqs.iter().map(|its| ("soft_irq", &its.arm));
        let stray = |(_, arm): &(&str, &String)| !arms.contains(arm);
        let (key, stray) = rows.chain(soft_irqs).find(stray)?;
        Some(format!(
            "reference.{key}: expected one of the matrix's arms ({}), got {stray:?}",
            arms.join(", "),
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::matrix::Matrix;

    const TEXT: &str = "source = \"s\"\nsetting = \"t\"\nworkload = \"qwen3\"\n\
        [[row]]\nneighbour = \"none\"\narm = \"eevdf\"\ntokens_per_s = 50\n\
        [[row]]\nneighbour = \"cpu\"\narm = \"taskset-nice\"\ntokens_per_s = 45.5\n";

    #[test]
    fn rows_are_found_by_the_names_of_ours() {
        let reference: Reference = toml::from_str(TEXT).unwrap();
        assert_eq!(reference.clean().map(|row| row.tokens_per_s), Some(50.0));
        let row = reference.row(Neighbour::Cpu, "taskset-nice").unwrap();
        assert_eq!(row.tokens_per_s, 45.5);
        assert_eq!(reference.row(Neighbour::Cpu, "eevdf"), None);
    }

    #[test]
    fn a_row_without_a_place_in_the_matrix_is_a_mistake() {
        let reference: Reference = toml::from_str(TEXT).unwrap();
        let arms = ["eevdf", "taskset-nice"].map(str::to_owned);
        assert_eq!(reference.mistake(&arms, &["qwen3"]), None);
        let mistake = |arms: &[String], workload| reference.mistake(arms, &[workload]).unwrap();
        assert!(mistake(&arms[..1], "qwen3").contains("got \"taskset-nice\""));
        assert!(mistake(&arms, "eager").contains("expected one of eager, got \"qwen3\""));
        let traced = TEXT.replacen("\n[[row]]", "\ntraced_workload = \"t\"\n[[row]]", 1);
        let reference: Reference = toml::from_str(&traced).unwrap();
        let mistake = reference.mistake(&arms, &["qwen3"]).unwrap();
        assert_eq!(
            mistake,
            "reference.traced_workload: expected one of qwen3, got \"t\""
        );
        let soft_irq = "[[soft_irq]]\nneighbour = \"cpu\"\narm = \"fifo\"\nkind = \"RCU\"\ncount = 1\ntotal_us = 1\n";
        let reference: Reference = toml::from_str(&format!("{TEXT}{soft_irq}")).unwrap();
        let mistake = reference.mistake(&arms, &["qwen3"]).unwrap();
        assert!(mistake.contains("expected a traced_workload"), "{mistake}");
        let reference: Reference = toml::from_str(&format!("{traced}{soft_irq}")).unwrap();
        let mistake = reference.mistake(&arms, &["qwen3", "t"]).unwrap();
        assert!(mistake.starts_with("reference.soft_irq: ") && mistake.ends_with("got \"fifo\""));
        let none = format!("{traced}{}", soft_irq.replace("count = 1", "count = 0"));
        let reference: Reference = toml::from_str(&none).unwrap();
        let mistake = reference.mistake(&arms, &["qwen3", "t"]).unwrap();
        assert!(
            mistake.ends_with("above 0, got 0 and 1 of \"RCU\""),
            "{mistake}"
        );
    }

    #[test]
    fn the_studies_tables_say_where_they_come_from() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("matrices");
        for name in ["seed-qwen3", "seed-llama"] {
            let matrix = Matrix::read(&folder.join(format!("{name}.toml"))).unwrap();
            let reference = matrix.reference.unwrap();
            assert_eq!(reference.rows.len(), 6, "{name}: six scenarios");
            assert!(!reference.source.is_empty() && !reference.setting.is_empty());
        }
    }
}
