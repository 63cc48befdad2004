// SPDX-License-Identifier: GPL-2.0-only
//! All that a report is made of.

use serde::Serialize;

use crate::matrix::Program;
use crate::plan::Plan;
use crate::record::facts::Facts;
use crate::study::{Parts, Row, Summary};

/// As JSON it is summary.json.
#[derive(Debug, Serialize)]
pub struct Report {
    pub plan: Plan,
    pub summary: Summary,
    pub guest: Facts,
    pub host: Facts,
}

impl Report {
    /// What the pipeline of a row says of its parts.
    pub fn parts(&self, row: &Row) -> Option<&Parts> {
        let key = (row.workload.as_str(), row.neighbour, row.arm.as_str());
        let mut parts = self.summary.pipelines.iter();
        parts.find(|p| (p.workload.as_str(), p.neighbour, p.arm.as_str()) == key)
    }

    /// What the speed of a workload is counted in.
    pub fn unit(&self, workload: &str) -> &'static str {
        let mut workloads = self.plan.matrix.workloads.iter();
        let workload = workloads.find(|known| known.name == workload);
        match workload.map(|workload| &workload.program) {
            Some(Program::Pipeline(_)) => "items/s",
            Some(Program::Recording(_)) => "turns/s",
            _ => "tokens/s",
        }
    }
}
