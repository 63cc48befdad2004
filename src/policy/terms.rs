// SPDX-License-Identifier: GPL-2.0-only
//! From the rules of the file to rules whose terms are where they belong.

use std::ops::Range;

use super::conflict::{Conflicts, Owner};
use super::file::{RuleFile, Rules};
use super::report::Report;
use super::rule::Rule;
use super::scalar::{At, CgroupTerm};

/// The rules of `list` that are right, which `conflicts` looks at later.
pub fn rules(
    list: At<Rules>,
    owner: Owner,
    conflicts: &mut Conflicts,
    report: &mut Report<'_>,
) -> Vec<Rule> {
    let mut rules = Vec::new();
    for At { value, span } in list.list() {
        if let Some(rule) = rule(value, &span, owner, report) {
            conflicts.add(owner, rule.clone(), span);
            rules.push(rule);
        }
    }
    rules
}

/// One rule; `None` if it is wrong or matches nobody.
fn rule(
    file: RuleFile,
    span: &Range<usize>,
    owner: Owner,
    report: &mut Report<'_>,
) -> Option<Rule> {
    let misplaced = report_misplaced(&file, owner, report);
    let off = file.cuda_launch.as_ref().filter(|term| !term.value.0);
    if let Some(comm) = &file.comm
        && let Some(cut) = comm.value.0.cut_to_comm()
    {
        let problem =
            format!("unreachable: the kernel cuts thread names to 15 bytes: write \"{cut}*\"");
        report.warning(comm.span.clone(), problem);
    }
    if let Some(cgroup) = &file.cgroup {
        report_unescaped(cgroup, report);
    }
    let rule = Rule {
        cuda_launch: file.cuda_launch.as_ref().is_some_and(|term| term.value.0),
        wakes_launch: file.wakes.is_some(),
        spins_with_launch: file.spins_with.is_some(),
        connects_to: file.connects_to.map(|term| term.value.0),
        cgroup: file.cgroup.map(|term| term.value.0),
        comm: file.comm.map(|term| term.value.0),
        exe: file.exe.map(|term| term.value.0),
        cmdline: file.cmdline.map(|term| term.value.0),
    };
    match (off, rule.terms().is_empty()) {
        (Some(off), true) => report.warning(
            off.span.clone(),
            "matches nobody: leave the rule out, match = [] switches identification by launches off",
        ),
        (Some(off), false) => report.error(
            off.span.clone(),
            "there is no rule for threads that do not launch: leave cuda_launch out",
        ),
        (None, true) if !misplaced => report.error_once(
            span.clone(),
            "a rule without terms: expected one or more of cuda_launch, wakes, spins_with, \
             connects_to, cgroup, comm, exe, cmdline",
        ),
        _ if !misplaced => return Some(rule),
        _ => {}
    }
    None
}

/// In a basic string TOML itself turns systemd's `\x2d` into a dash, and no cgroup with an escaped name matches.
fn report_unescaped(cgroup: &At<CgroupTerm>, report: &mut Report<'_>) {
    let written = report.written(&cgroup.span).to_owned();
    let Some(body) = written
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
    else {
        return;
    };
    let mut after_backslashes = body.split("\\\\").filter_map(|part| part.split_once("\\x"));
    if let Some((_, code)) = after_backslashes.next() {
        let code = code.get(..2).unwrap_or_default();
        let problem = format!(
            "\"\\x{code}\" between double quotes is another character to TOML, not what systemd has in the name: write \
             it between single quotes, '{}'",
            body.replace("\\\\", "\\")
        );
        report.error(cgroup.span.clone(), problem);
    }
}

/// Terms that are watched for have one home each; true if one is elsewhere.
fn report_misplaced(file: &RuleFile, owner: Owner, report: &mut Report<'_>) -> bool {
    let launch = file.cuda_launch.as_ref().map(|term| &term.span);
    let wakes = file.wakes.as_ref().map(|term| &term.span);
    let spins = file.spins_with.as_ref().map(|term| &term.span);
    let connects = file.connects_to.as_ref().map(|term| &term.span);
    let mut misplaced = false;
    for (at, home, name) in [
        (launch, Owner::Launch, "class.launch"),
        (wakes, Owner::Handoff, "class.handoff"),
        (spins, Owner::Handoff, "class.handoff"),
        (connects, Owner::Handoff, "class.handoff"),
    ] {
        if let Some(at) = at.filter(|_| owner != home) {
            let problem = match owner {
                Owner::Pin => "a pin goes by cgroup, comm, exe and cmdline only".to_owned(),
                _ => format!("this term belongs in {name}.match"),
            };
            report.error(at.clone(), problem);
            misplaced = true;
        }
    }
    misplaced
}
