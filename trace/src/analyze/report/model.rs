// SPDX-License-Identifier: GPL-2.0-only
//! All that a report shows.

use serde::Serialize;

use crate::analyze::compare::Comparison;
use crate::analyze::figures::Analysis;

/// All that was found out.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of the layout of this JSON.
    pub version: u32,
    /// One a file, in the order in which they were named.
    pub files: Vec<Analysis>,
    /// The files beside one another, if there are several arms.
    pub comparison: Option<Comparison>,
}

/// Version of the JSON.
pub const VERSION: u32 = 1;
