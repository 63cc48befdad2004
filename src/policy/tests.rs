// SPDX-License-Identifier: GPL-2.0-only
//! From text to a policy or to what is wrong with it.

use std::time::Duration;

use super::cpuset::CpuSet;
use super::*;

fn refusal(text: &str) -> String {
    match Document::parse(text) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.to_string(),
    }
}

fn warnings(text: &str) -> String {
    let document = Document::parse(text).unwrap_or_else(|error| panic!("{error}"));
    report::in_file(&document.warnings, "policy")
}

fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} in {message}");
    }
}

/// DESIGN's example, with what else there is.
pub const EVERY_KEY: &str = r#"
version = 1
[cpusets]
near_gpu = "8-15"
even = "[0:4:2]rr"
ff_affinity = "tag1[0:4:1]rr, tag2[5:4:1]"
[preferred]
cpus = "near_gpu"
smt = "shared"
lend = true
hold_us = 500
[irq]
avoid = false
heavy_percent = 7.5
steer = true
[identify]
probes = "auto"
sweep_us = 20000
max_pause_us = 1000000
expire_s = 60
[class.launch]
slice_us = 10000
match = [{ cuda_launch = true }, { cgroup = "gpu.slice/**" }]
[class.handoff]
slice_us = 2000
match = [{ wakes = "launch" }, { comm = "EngineCore*" }, { connects_to = "127.0.0.1:8000" }]
[class.background]
slice_us = 2000
min_share = "10%"
match = { exe = "/usr/bin/make", cmdline = "make -j*" }
[guard]
trust_uids = [0, 1000]
hint_gid = 44
max_share = "60%"
[[pin]]
match = { comm = "map*" }
cpus = "even | tag1"
[[pin]]
match = [{ comm = "reduce*" }]
cpus = "tag2"
"#;

#[test]
fn empty_policy_is_the_default() {
    let policy = Policy::parse("").unwrap();
    assert!(policy.launch.rules[0].cuda_launch);
    assert!(policy.preferred.cpus.is_none());
    assert_eq!(policy.preferred.hold, AUTO_HOLD);
    assert_eq!(policy.preferred.max.cpus(32), 8);
    assert_eq!(policy.preferred.max.cpus(2), 1);
    assert_eq!(Max::Percent(0.29).cpus(100), 29);
    assert_eq!(Max::Count(9).cpus(4), 4);
}

#[test]
fn reads_every_key() {
    let document = Document::parse(EVERY_KEY).unwrap_or_else(|error| panic!("{error}"));
    assert!(document.warnings.is_empty(), "{:#?}", document.warnings);
    let policy = document.policy;
    assert_eq!(policy.preferred.cpus, Some("8-15".parse().unwrap()));
    assert_eq!(policy.preferred.smt, Smt::Shared);
    assert_eq!(policy.preferred.hold.cap, Duration::from_micros(500));
    assert_eq!(policy.irq.heavy_percent, 7.5);
    assert!(policy.irq.steer && !policy.irq.avoid && policy.preferred.lend);
    assert_eq!(policy.launch.slice, Duration::from_millis(10));
    let globs: Vec<_> = policy
        .launch
        .rules
        .iter()
        .filter_map(Rule::only_cgroup)
        .map(CgroupGlob::text)
        .collect();
    assert_eq!(globs, ["gpu.slice/**"]);
    assert_eq!(policy.handoff.rules.len(), 3);
    assert!(policy.handoff.rules[0].needs_watching());
    assert_eq!(policy.background.min_share, 0.1);
    assert_eq!(policy.background.rules[0].terms(), ["exe", "cmdline"]);
    assert_eq!(policy.guard.trust_uids, Some(vec![0, 1000]));
    assert_eq!(policy.guard.max_share, 0.6);
    let labels = |pin: &Pin| -> Vec<_> {
        let groups = pin.groups.iter().map(|&index| &policy.groups[index]);
        groups.filter_map(|group| group.label.as_deref()).collect()
    };
    assert_eq!(labels(&policy.pins[0]), ["even", "tag1"]);
    assert_eq!(labels(&policy.pins[1]), ["tag2"]);
}

#[test]
fn unknown_keys_are_all_reported_with_the_nearest_spelling() {
    let message = refusal("[preferred]\ncpu = \"1\"\nhold_ms = 2\n[class.launcher]\n");
    assert_says(
        &message,
        &[
            "policy:2: error: preferred.cpu: unknown key: expected cpus",
            "did you mean cpus?",
            "policy:3: error: preferred.hold_ms",
            "hold_us, in microseconds?",
            "policy:4: error: class.launcher",
            "did you mean launch?",
        ],
    );
}

#[test]
fn one_wrong_value_does_not_hide_the_next() {
    let message = refusal(
        "[class.launch]\nslice_us = \"20ms\"\nmatch = [{ cgroup = \"a[\" }, { comm = 3 }]\n\
         [class.background]\nmin_share = 5\n[guard]\ntrust_uids = [0, \"root\"]\n",
    );
    assert_says(
        &message,
        &[
            "policy:2: error: class.launch.slice_us: \"20ms\"",
            "write 20000",
            "policy:3: error: class.launch.match[0].cgroup: \"a[\" is not a cgroup glob",
            "policy:3: error: class.launch.match[1].comm: 3: expected text",
            "policy:5: error: class.background.min_share: 5: expected",
            "write \"5%\"",
            "policy:7: error: guard.trust_uids: \"root\": expected a user id",
        ],
    );
}

#[test]
fn wrong_shapes_are_named_in_plain_words() {
    assert_says(
        &refusal("preferred = 3"),
        &["preferred: integer `3`: expected a table"],
    );
    assert_says(
        &refusal("[[irq]]\navoid = true"),
        &["policy:1: error: irq: a list of tables: write [irq], not [[irq]]"],
    );
    assert_says(
        &refusal("[preferred]\ncpus = [1, 2]"),
        &["preferred.cpus", "a list"],
    );
    assert_says(
        &refusal("[class.launch]\nmatch = \"x\""),
        &["class.launch.match", "{ comm"],
    );
    assert_says(
        &refusal("[preferred]\ncpus = \"1\n"),
        &["policy:2: error: not TOML"],
    );
}

#[test]
fn labels_must_exist_be_used_and_be_unlike_lists() {
    let message = refusal("[cpusets]\nnear_gpu = \"0-3\"\n[preferred]\ncpus = \"near_gpus\"\n");
    assert_says(
        &message,
        &["preferred.cpus: \"near_gpus\" is no label", "near_gpu?"],
    );
    assert_says(
        &warnings("[cpusets]\nx = \"0\""),
        &["cpusets.x: nobody uses"],
    );
    assert_says(
        &refusal("[cpusets]\n3 = \"0\""),
        &["label \"3\": expected a letter"],
    );
    assert_says(&refusal("[cpusets]\nauto = \"0\""), &["meaning of its own"]);
    let twice = "[cpusets]\nff_affinity = \"x[0], x[1]\"\n";
    assert_says(&refusal(twice), &["label \"x\" is on line 2 already"]);
}

#[test]
fn rules_that_contradict_are_refused_and_unreachable_ones_warned_of() {
    let message = refusal(
        "[class.launch]\nmatch = [{ comm = \"a\" }]\n[class.background]\nmatch = [{ comm = \"a\" }]\n",
    );
    assert_says(
        &message,
        &[
            "policy:4: error: class.background.match[0]: contradicts class.launch.match",
            "line 2",
        ],
    );
    let message = warnings(
        "[class.launch]\nmatch = [{ comm = \"a*\" }, { comm = \"a*\" }]\n\
         [class.handoff]\nmatch = [{ comm = \"abc\", exe = \"/x\" }, { comm = \"EngineCoreProcess_0\" }]\n",
    );
    assert_says(
        &message,
        &[
            "policy:2: warning: class.launch.match[1]: the same rule",
            "policy:4: warning: class.handoff.match[0]: unreachable: { comm = \"a*\" }",
            "cuts thread names to 15 bytes: write \"EngineCoreProce*\"",
        ],
    );
    let pins = "pin = [{ match = { comm = \"a\" }, cpus = \"0\" }, { match = { comm = \"a\" }, cpus = \"1\" }]";
    assert_says(&refusal(pins), &["pin[1].match: contradicts [[pin]]"]);
}

#[test]
fn terms_stay_in_the_class_that_they_are_for() {
    let background = "[class.background]\nmatch = [{ cuda_launch = true }]";
    assert_says(&refusal(background), &["belongs in class.launch.match"]);
    let launch = "[class.launch]\nmatch = [{ wakes = \"launch\" }]";
    assert_says(&refusal(launch), &["belongs in class.handoff.match"]);
    let pin = "[[pin]]\nmatch = { connects_to = \"127.0.0.1:1\" }\ncpus = \"0\"";
    assert_says(&refusal(pin), &["comm, exe and cmdline only"]);
    assert_says(
        &refusal("[class.launch]\nmatch = [{}]"),
        &["a rule without terms"],
    );
    assert_says(&refusal("[[pin]]\ncpus = \"0\""), &["a pin needs both"]);
}

#[test]
fn values_that_cannot_be_together_are_refused() {
    let shares = "[class.background]\nmin_share = \"30%\"\n[guard]\nmax_share = \"80%\"\n";
    assert_says(&refusal(shares), &["policy:4", "line 2", "more than 100%"]);
    let wait = "[class.background]\nslice_us = 100000\nmin_share = \"1%\"\n";
    assert_says(&refusal(wait), &["would wait 10.0 s"]);
    let named = "[preferred]\ncpus = \"0-3\"\nmax = 2\n";
    assert_says(
        &refusal(named),
        &["preferred.max: 2, while preferred.cpus names 4"],
    );
    let hold = "[preferred]\nlend = false\nhold_us = 100\n";
    assert_says(&warnings(hold), &["preferred.hold_us: has no effect"]);
    let irq = "[irq]\navoid = false\nheavy_percent = 3\n";
    assert_says(&warnings(irq), &["irq.heavy_percent: has no effect"]);
}

#[test]
fn a_machine_without_the_cpus_refuses_the_policy() {
    let online: CpuSet = "0-3".parse().unwrap();
    let message = |text: &str| {
        Document::parse(text)
            .unwrap()
            .check_on(&online)
            .unwrap_err()
    };
    let cpus = message("[preferred]\ncpus = \"2-5\"\n").to_string();
    assert_says(
        &cpus,
        &[
            "policy:2: error: preferred.cpus: CPU 4-5 is not online",
            "0-3",
        ],
    );
    let label = message("[cpusets]\nx = \"[0:8:2]\"\n").to_string();
    assert_says(&label, &["cpusets.x: CPU 4,6,8,10,12,14 is not online"]);
    let all = message("[preferred]\ncpus = \"0-3\"\nlend = false\n").to_string();
    assert_says(&all, &["preferred.lend: false, while", "nothing is left"]);
    let many = message("[preferred]\nmax = 5\n").to_string();
    assert_says(&many, &["preferred.max: 5 CPUs: this machine has 4"]);
}
