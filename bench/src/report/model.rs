// SPDX-License-Identifier: GPL-2.0-only
//! All that a report is made of.

use serde::Serialize;

use crate::plan::Plan;
use crate::record::facts::Facts;
use crate::study::Summary;

/// As JSON it is summary.json.
#[derive(Debug, Serialize)]
pub struct Report {
    pub plan: Plan,
    pub summary: Summary,
    pub guest: Facts,
    pub host: Facts,
}
