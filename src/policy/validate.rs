// SPDX-License-Identifier: GPL-2.0-only
//! From the file's types to a policy: labels are resolved, and what is well-formed by itself but
//! cannot be as a whole is refused.

use std::ops::Range;
use std::time::Duration;

use super::conflict::{Conflicts, Owner};
use super::file::{
    BackgroundFile, ClassFile, File, GuardFile, IdentifyFile, IrqFile, PinFile, PreferredFile,
};
use super::groups::{CpusNamed, Groups};
use super::limits::{self, MAX_TRUSTED_UIDS};
use super::model::{Arming, Background, Class, Guard, Identify, Irq, Max, Pin, Policy, Preferred};
use super::report::Report;
use super::scalar::{At, Flag};
use super::terms::rules;

/// Longest that background may have to wait for its minimum share, far below the 20 s after which
/// the kernel throws a scheduler out.
const MAX_BACKGROUND_WAIT: Duration = Duration::from_secs(5);

/// Validates `file`; the policy means nothing if the report has errors afterwards.
pub fn policy(file: File, report: &mut Report<'_>) -> (Policy, Vec<CpusNamed>) {
    let mut policy = Policy::default();
    let mut groups = Groups::read(&file.cpusets, report);
    let mut conflicts = Conflicts::default();
    together(&file, report);
    preferred(&file.preferred, &mut policy.preferred, &mut groups, report);
    irq(file.irq, &mut policy.irq);
    identify(file.identify, &mut policy.identify, report);
    let (launch, handoff) = (file.class.launch, file.class.handoff);
    class(
        launch,
        &mut policy.launch,
        Owner::Launch,
        &mut conflicts,
        report,
    );
    class(
        handoff,
        &mut policy.handoff,
        Owner::Handoff,
        &mut conflicts,
        report,
    );
    let background_file = file.class.background;
    background(
        background_file,
        &mut policy.background,
        &mut conflicts,
        report,
    );
    for At { value, span } in file.pin {
        let pin = pin(value, span, &mut groups, &mut conflicts, report);
        policy.pins.extend(pin);
    }
    // A rule that lost a wrong term looks wider than it is.
    if !report.has_errors() {
        conflicts.report(report);
        conflicts.warn_of_names(report);
    }
    limits::report_excess(conflicts.rules(), report);
    let by_launches = policy.launch.rules.iter().any(|rule| rule.cuda_launch);
    guard(file.guard, &mut policy.guard, by_launches, report);
    let (groups, named) = groups.finish(report);
    policy.groups = groups;
    (policy, named)
}

/// Keys that only make sense together, or not together.
fn together(file: &File, report: &mut Report<'_>) {
    let (irq, preferred) = (&file.irq, &file.preferred);
    let is_off = |flag: &Option<At<Flag>>, default: bool| {
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
        && !hold.value.0.cap.is_zero()
    {
        report.warning(
            hold.span.clone(),
            "has no effect: with preferred.lend = false CPUs are never given away, so none is held",
        );
    }
    // A `min_share` up to its default fits beside any `max_share`; a larger one must leave room.
    if let (Some(most), Some(least)) = (&file.guard.max_share, &file.class.background.min_share)
        && least.value.0 > Policy::default().background.min_share
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
    preferred: &mut Preferred,
    groups: &mut Groups,
    report: &mut Report<'_>,
) {
    if let Some(max) = &file.max {
        preferred.max = max.value.0;
    }
    if let Some(cpus) = file.cpus.as_ref().filter(|cpus| cpus.value.0 != "auto") {
        preferred.cpus = groups.cpus_of(cpus, report);
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
    if let Some(lent) = &file.lend_yields_us {
        preferred.lend_yields = lent.value.0;
    }
    if let Some(hold) = &file.hold_us {
        preferred.hold = hold.value.0;
    }
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

fn irq(file: IrqFile, irq: &mut Irq) {
    if let Some(avoid) = file.avoid {
        irq.avoid = avoid.value.0;
    }
    if let Some(percent) = file.heavy_percent {
        irq.heavy_percent = percent.value.0;
    }
    if let Some(steer) = file.steer {
        irq.steer = steer.value.0;
    }
}

fn identify(file: IdentifyFile, identify: &mut Identify, report: &mut Report<'_>) {
    if let Some(probes) = file.probes {
        identify.probes = probes.value.0;
    }
    if let Some(points) = file.entry_points {
        identify.entry_points = points.value.0;
        if identify.probes == Arming::Off {
            report.warning(points.span, "has no effect: identify.probes is \"off\"");
        }
    }
    let expire_span = file.expire_s.map(|expire| {
        identify.expire = expire.value.0;
        expire.span
    });
    for (key, target) in [
        (
            file.sweep_us.map(|at| (at.value.0, at.span)),
            &mut identify.sweep,
        ),
        (
            file.max_pause_us.map(|at| (at.value.0, at.span)),
            &mut identify.max_pause,
        ),
    ] {
        let Some((duration, span)) = key else {
            continue;
        };
        *target = duration;
        if identify.probes != Arming::Auto {
            report.warning(span, "has no effect: it bounds identify.probes = \"auto\"");
        }
    }
    if let Some(span) = expire_span {
        expiry(identify, span, report);
    }
}

/// Launchers are looked for again from half of `expire_s` on, in sweeps that may be `max_pause_us` apart.
fn expiry(identify: &Identify, span: Range<usize>, report: &mut Report<'_>) {
    let enough = identify.max_pause * 4;
    if identify.probes == Arming::Auto && !identify.expire.is_zero() && identify.expire < enough {
        let problem = format!(
            "{} s is short beside identify.max_pause_us = {}: the marks of threads that launch all the \
             time would come and go; expected {} s or more, or a shorter pause",
            identify.expire.as_secs(),
            identify.max_pause.as_micros(),
            enough.as_secs_f64().ceil(),
        );
        report.warning(span, problem);
    }
}

fn guard(file: GuardFile, guard: &mut Guard, by_launches: bool, report: &mut Report<'_>) {
    if let Some(uids) = file.trust_uids {
        if uids.value.is_empty() && by_launches {
            report.warning(
                uids.span,
                "nobody is trusted: cuda_launch in class.launch.match finds nobody; leave trust_uids \
                 out to trust everybody",
            );
        }
        if let Some(uid) = uids.value.get(MAX_TRUSTED_UIDS) {
            let problem = format!(
                "user {} of the list: expected at most {MAX_TRUSTED_UIDS}; leave trust_uids out to \
                 trust everybody",
                MAX_TRUSTED_UIDS + 1
            );
            report.error(uid.span.clone(), problem);
        }
        guard.trust_uids = Some(uids.value.iter().map(|uid| uid.value.0).collect());
    }
    if let Some(devices) = file.trust_devices {
        if devices.value.is_empty() && by_launches {
            report.warning(
                devices.span,
                "no device is named: cuda_launch in class.launch.match finds nobody; leave trust_devices out \
                 to ask for none",
            );
        }
        let globs = devices.value.into_iter().map(|device| device.value.0);
        guard.trust_devices = Some(globs.collect());
    }
    if let Some(gid) = file.hint_gid {
        guard.hint_gid = Some(gid.value.0);
    }
    if let Some(share) = file.max_share {
        guard.max_share = share.value.0;
    }
}

fn pin(
    file: PinFile,
    span: Range<usize>,
    groups: &mut Groups,
    conflicts: &mut Conflicts,
    report: &mut Report<'_>,
) -> Option<Pin> {
    let (Some(list), Some(cpus)) = (file.rules, file.cpus) else {
        let missing = "a pin needs both: match = { comm = \"map*\" } and cpus = \"0-3\"";
        report.error_once(span, missing);
        return None;
    };
    Some(Pin {
        rules: rules(list, Owner::Pin, conflicts, report),
        groups: groups.several(&cpus, report),
    })
}

fn class(
    file: ClassFile,
    class: &mut Class,
    owner: Owner,
    conflicts: &mut Conflicts,
    report: &mut Report<'_>,
) {
    if let Some(slice) = file.slice_us {
        class.slice = slice.value.0;
    }
    if let Some(list) = file.rules {
        class.rules = rules(list, owner, conflicts, report);
    }
}

fn background(
    file: BackgroundFile,
    background: &mut Background,
    conflicts: &mut Conflicts,
    report: &mut Report<'_>,
) {
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
}
