// SPDX-License-Identifier: GPL-2.0-only
//! From the file's types to a policy: labels are resolved, and what is well-formed by itself but
//! cannot be as a whole is refused.

use std::ops::Range;
use std::time::Duration;

use super::affinity::{CpuGroup, labelled_groups};
use super::conflict::Conflicts;
use super::document::CpusNamed;
use super::file::{
    BackgroundFile, ClassFile, CpusetsFile, FF_AFFINITY, File, PreferredFile, RuleFile, Rules,
};
use super::pin::{NamedGroup, Pin};
use super::report::Report;
use super::rule::Rule;
use super::scalar::{At, Text};
use super::spelling::did_you_mean;
use super::{Background, Class, Max, Policy, Preferred};

/// Longest that background may have to wait for its minimum share, far below the 20 s after which
/// the kernel throws a scheduler out.
const MAX_BACKGROUND_WAIT: Duration = Duration::from_secs(5);

/// Who a list of rules is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// `class.launch`
    Launch,
    /// `class.handoff`
    Handoff,
    /// `class.background`
    Background,
    /// `[[pin]]`
    Pin,
}

/// Validates `file`; the policy means nothing if the report has errors afterwards.
pub fn policy(file: File, report: &mut Report<'_>) -> (Policy, Vec<CpusNamed>) {
    let mut policy = Policy::default();
    let mut groups = Groups::read(&file.cpusets, report);
    limits(&file, report);
    policy.preferred = preferred(&file.preferred, policy.preferred, &mut groups, report);
    if let Some(avoid) = file.irq.avoid {
        policy.irq.avoid = avoid.value.0;
    }
    if let Some(percent) = file.irq.heavy_percent {
        policy.irq.heavy_percent = percent.value.0;
    }
    if let Some(steer) = file.irq.steer {
        policy.irq.steer = steer.value.0;
    }
    let mut conflicts = Conflicts::default();
    policy.launch = class(
        file.class.launch,
        policy.launch,
        Owner::Launch,
        &mut conflicts,
        report,
    );
    policy.handoff = class(
        file.class.handoff,
        policy.handoff,
        Owner::Handoff,
        &mut conflicts,
        report,
    );
    policy.background = background(
        file.class.background,
        policy.background,
        &mut conflicts,
        report,
    );
    for pin in file.pin {
        let list = match (pin.value.rules, &pin.value.cpus) {
            (Some(list), Some(_)) => rules(list, Owner::Pin, &mut conflicts, report),
            _ => {
                let missing = "a pin needs both: match = { comm = \"map*\" } and cpus = \"0-3\"";
                report.error_once(pin.span, missing);
                continue;
            }
        };
        let cpus = pin.value.cpus.map(|cpus| groups.several(&cpus, report));
        policy.pins.push(Pin {
            rules: list,
            groups: cpus.unwrap_or_default(),
        });
    }
    conflicts.report(report);
    if let Some(uids) = file.guard.trust_uids {
        if uids.value.is_empty() && policy.launch.rules.iter().any(|rule| rule.cuda_launch) {
            report.warning(
                uids.span,
                "nobody is trusted: cuda_launch in class.launch.match finds nobody; leave trust_uids \
                 out to trust everybody",
            );
        }
        policy.guard.trust_uids = Some(uids.value.iter().map(|uid| uid.value.0).collect());
    }
    if let Some(share) = file.guard.max_share {
        policy.guard.max_share = share.value.0;
    }
    let (groups, named) = groups.finish(report);
    policy.groups = groups;
    (policy, named)
}

/// Keys that only make sense together, or not together.
fn limits(file: &File, report: &mut Report<'_>) {
    let (irq, preferred) = (&file.irq, &file.preferred);
    let is_off = |flag: &Option<At<super::scalar::Flag>>, default: bool| {
        !flag.as_ref().map_or(default, |flag| flag.value.0)
    };
    if let Some(percent) = &irq.heavy_percent
        && is_off(&irq.avoid, true)
        && is_off(&irq.steer, false)
    {
        report.warning(
            percent.span.clone(),
            "has no effect: irq.avoid and irq.steer are both false",
        );
    }
    if let Some(hold) = &preferred.hold_us
        && is_off(&preferred.lend, true)
        && !hold.value.0.is_zero()
    {
        report.warning(
            hold.span.clone(),
            "has no effect: with preferred.lend = false CPUs are never given away, so none is held",
        );
    }
    if let (Some(most), Some(least)) = (&file.guard.max_share, &file.class.background.min_share)
        && most.value.0 + least.value.0 > 1.0
    {
        let problem = format!(
            "launch and handoff may take {}, while class.background.min_share (line {}) promises \
             background {}: together more than 100%",
            percent(most.value.0),
            report.line(&least.span),
            percent(least.value.0)
        );
        report.error(most.span.clone(), problem);
    }
    if let (Some(share), Some(At { value, span })) = (&file.guard.max_share, &preferred.max)
        && let Max::Percent(max) = value.0
        && max > share.value.0
    {
        let problem = format!(
            "more CPUs are preferred than launch and handoff may use while others wait: \
             guard.max_share (line {}) is {}",
            report.line(&share.span),
            percent(share.value.0)
        );
        report.warning(span.clone(), problem);
    }
}

fn percent(share: f64) -> String {
    format!("{}%", (share * 100_000.0).round() / 1000.0)
}

fn preferred(
    file: &PreferredFile,
    mut preferred: Preferred,
    groups: &mut Groups,
    report: &mut Report<'_>,
) -> Preferred {
    if let Some(max) = &file.max {
        preferred.max = max.value.0;
    }
    if let Some(cpus) = file.cpus.as_ref().filter(|cpus| cpus.value.0 != "auto") {
        let group = groups.one(cpus, &cpus.value.0, report);
        preferred.cpus = group.map(|index| groups.named[index].cpus.set());
        if let (Some(max), Some(cpus)) = (&file.max, &preferred.cpus) {
            limit_named(cpus.len(), max.value.0, max.span.clone(), report);
        }
    }
    if let Some(smt) = &file.smt {
        preferred.smt = smt.value.0;
    }
    if let Some(lend) = &file.lend {
        preferred.lend = lend.value.0;
    }
    if let Some(hold) = &file.hold_us {
        preferred.hold_cap = hold.value.0;
    }
    preferred
}

/// `preferred.max` beside CPUs that are named.
fn limit_named(named: usize, max: Max, span: Range<usize>, report: &mut Report<'_>) {
    match max {
        Max::Count(count) if named > count as usize => {
            let problem = format!(
                "{count}, while preferred.cpus names {named} CPUs: leave one of the two keys out"
            );
            report.error(span, problem);
        }
        _ => report.warning(
            span,
            "has no effect: it limits preferred.cpus = \"auto\", and CPUs are named",
        ),
    }
}

fn class(
    file: ClassFile,
    mut class: Class,
    owner: Owner,
    conflicts: &mut Conflicts,
    report: &mut Report<'_>,
) -> Class {
    if let Some(slice) = file.slice_us {
        class.slice = slice.value.0;
    }
    if let Some(list) = file.rules {
        class.rules = rules(list, owner, conflicts, report);
    }
    class
}

fn background(
    file: BackgroundFile,
    mut background: Background,
    conflicts: &mut Conflicts,
    report: &mut Report<'_>,
) -> Background {
    let written = [
        file.slice_us.as_ref().map(|slice| slice.span.clone()),
        file.min_share.as_ref().map(|share| share.span.clone()),
    ];
    if let Some(slice) = file.slice_us {
        background.slice = slice.value.0;
    }
    if let Some(share) = file.min_share {
        background.min_share = share.value.0;
    }
    if let Some(list) = file.rules {
        background.rules = rules(list, Owner::Background, conflicts, report);
    }
    let wait = background.slice.div_f64(background.min_share);
    if let Some(span) = written.into_iter().flatten().last()
        && wait > MAX_BACKGROUND_WAIT
    {
        let problem = format!(
            "background would wait {:.1} s for its turn (slice_us / min_share): expected at most {} \
             s, so raise min_share or lower slice_us",
            wait.as_secs_f64(),
            MAX_BACKGROUND_WAIT.as_secs()
        );
        report.error(span, problem);
    }
    background
}

fn rules(
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
    let observed = [
        (
            file.cuda_launch.as_ref().map(|term| &term.span),
            Owner::Launch,
            "class.launch",
        ),
        (
            file.wakes.as_ref().map(|term| &term.span),
            Owner::Handoff,
            "class.handoff",
        ),
        (
            file.connects_to.as_ref().map(|term| &term.span),
            Owner::Handoff,
            "class.handoff",
        ),
    ];
    let mut misplaced = false;
    for (at, home, name) in observed {
        if let Some(at) = at.filter(|_| owner != home) {
            let problem = match owner {
                Owner::Pin => "a pin goes by cgroup, comm, exe and cmdline only".to_owned(),
                _ => format!("this term belongs in {name}.match"),
            };
            report.error(at.clone(), problem);
            misplaced = true;
        }
    }
    let off = file.cuda_launch.as_ref().filter(|term| !term.value.0);
    if let Some(comm) = &file.comm
        && let Some(cut) = comm.value.0.cut_to_comm()
    {
        let problem =
            format!("unreachable: the kernel cuts thread names to 15 bytes: write \"{cut}*\"");
        report.warning(comm.span.clone(), problem);
    }
    let rule = Rule {
        cuda_launch: file.cuda_launch.as_ref().is_some_and(|term| term.value.0),
        wakes_launch: file.wakes.is_some(),
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
            "a rule without terms: expected one or more of cuda_launch, wakes, connects_to, cgroup, \
             comm, exe, cmdline",
        ),
        _ if !misplaced => return Some(rule),
        _ => {}
    }
    None
}

/// Groups of CPUs, by label or not.
struct Groups {
    named: Vec<NamedGroup>,
    spans: Vec<Range<usize>>,
    used: Vec<bool>,
}

impl Groups {
    fn read(file: &CpusetsFile, report: &mut Report<'_>) -> Self {
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
    fn one(&mut self, at: &At<Text>, text: &str, report: &mut Report<'_>) -> Option<usize> {
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
            let hint = did_you_mean(text, labels.iter().copied().chain(["auto"]));
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

    /// The groups that a pin names, with `|` between them.
    fn several(&mut self, at: &At<Text>, report: &mut Report<'_>) -> Vec<usize> {
        at.value
            .0
            .split('|')
            .filter_map(|text| self.one(at, text, report))
            .collect()
    }

    /// Warns of labels that nobody uses; returns the groups and what each key names.
    fn finish(self, report: &mut Report<'_>) -> (Vec<NamedGroup>, Vec<CpusNamed>) {
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
