// SPDX-License-Identifier: GPL-2.0-only
//! What a check says of a host.

use serde::Serialize;

use crate::listed;

/// Names that are listed before "and N more".
const LISTED: usize = 4;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Works, but less well or not as one might think.
    Warning,
    /// The scheduler cannot start, or cannot do its work.
    Problem,
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// How bad it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do, where it is not as it should be.
    pub remedy: Option<String>,
}

/// Verdict, what was found, what to do.
pub type Judgement = (Verdict, String, Option<String>);

pub fn ok(found: impl Into<String>) -> Judgement {
    (Verdict::Ok, found.into(), None)
}

pub fn warning(found: impl Into<String>, remedy: impl Into<String>) -> Judgement {
    (Verdict::Warning, found.into(), Some(remedy.into()))
}

pub fn problem(found: impl Into<String>, remedy: impl Into<String>) -> Judgement {
    (Verdict::Problem, found.into(), Some(remedy.into()))
}

/// The first of `names`, and how many more there are.
pub fn listed(names: &[String]) -> String {
    listed::listed(names, LISTED)
}
