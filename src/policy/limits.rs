// SPDX-License-Identifier: GPL-2.0-only
//! How many rules a policy may have: the kernel judges by masks and maps of fixed size.

use super::conflict::{Owner, Placed};
use super::report::Report;
use super::rule::Endpoint;

/// Rules that ask for more than a cgroup: a bit each.
pub const MAX_RULES: usize = 64;
/// Different endpoints: likewise.
pub const MAX_ENDPOINTS: usize = 32;
/// Rules by cgroup alone.
pub const MAX_CGROUP_RULES: usize = 512;
/// `guard.trust_uids`.
pub const MAX_TRUSTED_UIDS: usize = 4096;

/// Reports the first of the `placed` rules that is too much, of each kind. Pins are judged in user
/// space and may be many.
pub fn report_excess(placed: &[Placed], report: &mut Report<'_>) {
    let rules = || placed.iter().filter(|placed| placed.owner != Owner::Pin);
    let by_cgroup = |placed: &&Placed| placed.rule.only_cgroup().is_some();
    if let Some(Placed { span, .. }) = rules().filter(|rule| !by_cgroup(rule)).nth(MAX_RULES) {
        let problem = format!(
            "rule {} of those that ask for more than a cgroup: expected at most {MAX_RULES}, so join \
             names in one glob: comm = \"{{a,b}}\"",
            MAX_RULES + 1
        );
        report.error(span.clone(), problem);
    }
    if let Some(Placed { span, .. }) = rules().filter(by_cgroup).nth(MAX_CGROUP_RULES) {
        let problem = format!(
            "rule {} of those by cgroup alone: expected at most {MAX_CGROUP_RULES}, so join folders in \
             one glob: cgroup = \"{{a,b}}/**\"",
            MAX_CGROUP_RULES + 1
        );
        report.error(span.clone(), problem);
    }
    let mut endpoints: Vec<&Endpoint> = Vec::new();
    for Placed { rule, span, .. } in rules() {
        let endpoint = rule.connects_to.as_ref();
        endpoints.extend(endpoint.filter(|endpoint| !endpoints.contains(endpoint)));
        if endpoints.len() > MAX_ENDPOINTS {
            let problem = format!(
                "endpoint {} of connects_to: expected at most {MAX_ENDPOINTS} different ones, so write \
                 0.0.0.0:PORT for a port at every address, or go by comm or cgroup",
                MAX_ENDPOINTS + 1
            );
            return report.error(span.clone(), problem);
        }
    }
}
