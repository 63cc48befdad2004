// SPDX-License-Identifier: GPL-2.0-only
//! The runs that are quoted, studied anew from their raw cells.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use super::index::{FILE, Index};
use crate::plan::Plan;
use crate::record::{self, Cell, RunDir};
use crate::report::{self, Report};
use crate::study::compare::Run;
use crate::study::pool::{self, Pool};

pub struct Loaded {
    /// Those with a section of their own, and those of README's table, by name.
    pub reports: BTreeMap<String, Report>,
    pub pool: Vec<Pool>,
}

impl Loaded {
    pub fn read(root: &Path, index: &Index) -> Result<Self> {
        let folder = |run: &str| root.join("bench/runs").join(run);
        let shown = index.shown().map(|(kept, _)| &kept.run);
        let rows = index.readme.rows.iter().map(|row| &row.run);
        let mut reports = BTreeMap::new();
        for run in shown.chain(rows).chain(&index.readme.verdicts) {
            if !reports.contains_key(run) {
                let report =
                    report::read(&folder(run)).with_context(|| format!("{FILE}: run {run:?}"))?;
                reports.insert(run.clone(), report);
            }
        }
        let pooled: Vec<(Plan, Vec<Cell>)> = index
            .pool
            .runs
            .iter()
            .map(|run| {
                let dir = RunDir::open(&folder(run))?;
                Ok((
                    record::read_json(&folder(run).join("plan.json"))?,
                    dir.cells()?,
                ))
            })
            .collect::<Result<_>>()?;
        let named = index.pool.runs.iter().zip(&pooled);
        let runs: Vec<(&str, Run)> = named
            .map(|(name, (plan, cells))| (name.as_str(), Run { plan, cells }))
            .collect();
        Ok(Self {
            reports,
            pool: pool::pool(&runs, &index.pool.arm, None),
        })
    }

    /// The run that README's row of the subject is from.
    pub fn subject(&self, index: &Index) -> Result<&Report> {
        let rows = index.readme.rows.iter();
        rows.filter_map(|row| Some((row, self.reports.get(&row.run)?)))
            .find(|(row, report)| row.arms.contains(&report.plan.matrix.subject))
            .map(|(_, report)| report)
            .with_context(|| format!("{FILE}: no row of README is of its run's subject"))
    }
}
