// SPDX-License-Identifier: GPL-2.0-only
//! Groups of CPUs of one policy: labels are defined, looked up and counted as used.

use std::ops::Range;

use super::affinity::{CpuGroup, labelled_groups};
use super::cpuset::CpuSet;
use super::file::{CpusetsFile, FF_AFFINITY};
use super::model::NamedGroup;
use super::report::Report;
use super::scalar::{At, Text};
use super::spelling::did_you_mean;

/// CPUs that a key names.
#[derive(Debug, Clone)]
pub struct CpusNamed {
    pub key: String,
    pub line: usize,
    pub cpus: CpuSet,
}

/// Groups of CPUs, by label or not.
pub struct Groups {
    named: Vec<NamedGroup>,
    spans: Vec<Range<usize>>,
    used: Vec<bool>,
}

impl Groups {
    /// The groups of `[cpusets]`.
    pub fn read(file: &CpusetsFile, report: &mut Report<'_>) -> Self {
        let mut groups = Self {
            named: Vec::new(),
            spans: Vec::new(),
            used: Vec::new(),
        };
        for (label, At { value, span }) in &file.0 {
            let parsed = if label == FF_AFFINITY {
                labelled_groups(&value.0)
            } else {
                value.0.parse().map(|group| vec![(label.clone(), group)])
            };
            match parsed {
                Ok(list) => {
                    for (label, group) in list {
                        groups.add_label(label, group, span, report);
                    }
                }
                Err(error) => report.error(span.clone(), error.to_string()),
            }
        }
        groups
    }

    fn add_label(
        &mut self,
        label: String,
        group: CpuGroup,
        span: &Range<usize>,
        report: &mut Report<'_>,
    ) {
        let starts_well = label.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_');
        let plain = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
        if !starts_well || !label.chars().all(plain) {
            let problem =
                format!("label {label:?}: expected a letter, then letters, digits, - and _");
            return report.error(span.clone(), problem);
        }
        if label == "auto" {
            return report.error(
                span.clone(),
                "\"auto\" has a meaning of its own: choose another label",
            );
        }
        if let Some(other) = self.find(&label) {
            let problem = format!(
                "label {label:?} is on line {} already",
                report.line(&self.spans[other])
            );
            return report.error(span.clone(), problem);
        }
        self.push(Some(label), group, span, false);
    }

    fn push(
        &mut self,
        label: Option<String>,
        cpus: CpuGroup,
        span: &Range<usize>,
        used: bool,
    ) -> usize {
        self.named.push(NamedGroup { label, cpus });
        self.spans.push(span.clone());
        self.used.push(used);
        self.named.len() - 1
    }

    fn find(&self, label: &str) -> Option<usize> {
        self.named
            .iter()
            .position(|group| group.label.as_deref() == Some(label))
    }

    /// The group that `text` of the value `at` means: a label or CPUs.
    /// `others` may stand there too.
    fn one(
        &mut self,
        at: &At<Text>,
        text: &str,
        others: &[&str],
        report: &mut Report<'_>,
    ) -> Option<usize> {
        let text = text.trim();
        if let Some(index) = self.find(text) {
            self.used[index] = true;
            return Some(index);
        }
        let is_word = text.starts_with(|char: char| char.is_alphabetic()) && !text.contains('[');
        if is_word {
            let labels: Vec<_> = self
                .named
                .iter()
                .filter_map(|group| group.label.as_deref())
                .collect();
            let hint = did_you_mean(text, labels.iter().chain(others).copied());
            let problem = format!("{text:?} is no label of [cpusets] and no CPU list{hint}");
            report.error(at.span.clone(), problem);
            return None;
        }
        match text.parse() {
            Ok(group) => Some(self.push(None, group, &at.span, true)),
            Err(error) => {
                report.error(at.span.clone(), error.to_string());
                None
            }
        }
    }

    /// The CPUs that a label or a group means.
    pub fn cpus_of(&mut self, at: &At<Text>, report: &mut Report<'_>) -> Option<CpuSet> {
        let index = self.one(at, &at.value.0, &["auto"], report)?;
        Some(self.named[index].cpus.set())
    }

    /// The groups that a pin names, with `|` between them.
    pub fn several(&mut self, at: &At<Text>, report: &mut Report<'_>) -> Vec<usize> {
        at.value
            .0
            .split('|')
            .filter_map(|text| self.one(at, text, &[], report))
            .collect()
    }

    /// Warns of labels that nobody uses; returns the groups and what each key names.
    pub fn finish(self, report: &mut Report<'_>) -> (Vec<NamedGroup>, Vec<CpusNamed>) {
        let mut named = Vec::new();
        for ((group, span), used) in self.named.iter().zip(&self.spans).zip(&self.used) {
            if let Some(label) = group.label.as_ref().filter(|_| !used) {
                let problem = format!("nobody uses label {label:?}");
                report.warning(span.clone(), problem);
            }
            named.push(CpusNamed {
                key: report.key_at(span),
                line: report.line(span),
                cpus: group.cpus.set(),
            });
        }
        (self.named, named)
    }
}
