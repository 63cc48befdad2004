// SPDX-License-Identifier: GPL-2.0-only
//! From text to a policy or to what is wrong with it.

use std::time::Duration;

use super::cpuset::CpuSet;
use super::model::AUTO_HOLD;
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
lend_yields_us = 100
hold_us = 500
[irq]
avoid = false
heavy_percent = 7.5
steer = true
[identify]
probes = "auto"
entry_points = "both"
sweep_us = 20000
max_pause_us = 1000000
expire_s = 60
[class.launch]
slice_us = 10000
match = [{ cuda_launch = true }, { cgroup = "gpu.slice/**" }]
[class.handoff]
slice_us = 2000
match = [{ wakes = "launch" }, { spins_with = "launch" }, { comm = "EngineCore*", cgroup = "system.slice/**" }, { connects_to = "127.0.0.1:8000" }]
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
    assert_eq!(policy.preferred.lend_yields, None);
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
    assert_eq!(
        policy.preferred.lend_yields,
        Some(Duration::from_micros(100))
    );
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
    assert_eq!(policy.handoff.rules.len(), 4);
    let watched = policy
        .handoff
        .rules
        .iter()
        .filter(|rule| rule.needs_watching());
    assert_eq!(watched.count(), 3);
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
fn what_who_yields_lends_is_said_in_words_or_microseconds() {
    for wrong in ["10", "\"often\""] {
        let message = refusal(&format!("[preferred]\nlend_yields_us = {wrong}\n"));
        let expected = "expected \"auto\", 0 or a whole number of microseconds from 20 to 1000";
        assert_says(&message, &[wrong, expected]);
    }
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

/// Nobody is told to write what is refused again.
#[test]
fn a_way_out_is_in_range() {
    for (text, key) in [
        ("[class.background]\nmin_share = 60\n", "min_share"),
        ("[class.background]\nmin_share = 0.6\n", "min_share"),
        ("[class.launch]\nslice_us = \"5s\"\n", "slice_us"),
        ("[irq]\nheavy_percent = \"150%\"\n", "heavy_percent"),
    ] {
        let message = refusal(text);
        assert!(
            message.contains(key) && !message.contains(": write "),
            "{message}"
        );
    }
    let message = refusal("[[pin]]\nmatch = { comm = \"a\" }\ncpus = \"autos\"\n");
    assert!(!message.contains("did you mean auto"), "{message}");
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
    assert_unreachable(
        "{ cgroup = \"b/**\", comm = \"a*\" }",
        "{ cgroup = \"b/**\" }",
    );
    assert_unreachable("{ cuda_launch = true, comm = \"a*\" }", "{ comm = \"a*\" }");
    let endpoints = "[class.handoff]\nmatch = [{ connects_to = \"0.0.0.0:80\" }, { connects_to = \"[::1]:80\" }]";
    assert_says(
        &warnings(endpoints),
        &["class.handoff.match[1]: unreachable: { connects_to = \"0.0.0.0:80\" }"],
    );
    let pins = "pin = [{ match = { comm = \"{source,sink}*\" }, cpus = \"0\" }, { match = { comm = \"source0\" }, cpus = \"1\" }]";
    assert_says(&warnings(pins), &["pin[1].match: unreachable"]);
    let pins = "pin = [{ match = { comm = \"a\" }, cpus = \"0\" }, { match = { comm = \"a\" }, cpus = \"1\" }]";
    assert_says(&refusal(pins), &["pin[1].match: contradicts [[pin]]"]);
}

#[test]
fn warns_of_names_that_everybody_can_give_himself() {
    let of = |class: &str, rule: &str| warnings(&format!("[class.{class}]\nmatch = [{rule}]\n"));
    for rule in [
        "{ comm = \"a\" }",
        "{ exe = \"**/a\" }",
        "{ comm = \"a\", cmdline = \"a*\" }",
    ] {
        for class in ["launch", "handoff"] {
            let expected = format!("policy:2: warning: class.{class}.match[0]: every user can");
            assert_says(&of(class, rule), &[&expected, "add a cgroup"]);
        }
        assert_eq!(of("background", rule), "", "it takes nothing from others");
    }
    for rule in [
        "{ comm = \"a\", cgroup = \"system.slice/**\" }",
        "{ exe = \"/usr/bin/a\", comm = \"a\" }",
        "{ comm = \"a\", connects_to = \"127.0.0.1:1\" }",
        "{ wakes = \"launch\" }",
    ] {
        assert_eq!(of("handoff", rule), "", "{rule}");
    }
    assert_eq!(
        warnings("pin = [{ match = { comm = \"a\" }, cpus = \"0\" }]"),
        ""
    );
}

/// A rule of launch that nothing is left to by one of background, which is judged before it.
fn assert_unreachable(launch: &str, background: &str) {
    let message = warnings(&format!(
        "[class.launch]\nmatch = [{launch}]\n[class.background]\nmatch = [{background}]\n"
    ));
    let first = format!("unreachable: {background} of class.background.match (line 4)");
    assert_says(
        &message,
        &["policy:2: warning: class.launch.match[0]", &first],
    );
}

#[test]
fn terms_stay_in_the_class_that_they_are_for() {
    let background = "[class.background]\nmatch = [{ cuda_launch = true }]";
    assert_says(&refusal(background), &["belongs in class.launch.match"]);
    let launch = "[class.launch]\nmatch = [{ wakes = \"launch\" }]";
    assert_says(&refusal(launch), &["belongs in class.handoff.match"]);
    let spins = "[class.launch]\nmatch = [{ spins_with = \"launch\" }]";
    assert_says(&refusal(spins), &["belongs in class.handoff.match"]);
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
    // No guard, as `policy show` prints it: background keeps the least share that it has by default.
    let unguarded = "[class.background]\nmin_share = \"5%\"\n[guard]\nmax_share = \"100%\"\n";
    assert_eq!(Policy::parse(unguarded).unwrap().guard.max_share, 1.0);
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
fn warns_of_marks_that_would_come_and_go() {
    let with = |rest: &str| warnings(&format!("[identify]\nexpire_s = 19\n{rest}\n"));
    assert_says(
        &with(""),
        &[
            "policy:2: warning: identify.expire_s: 19 s is short",
            "max_pause_us = 5000000",
            "expected 20 s or more",
        ],
    );
    assert_eq!(with("max_pause_us = 4000000"), "");
    assert_eq!(
        with("probes = \"always\""),
        "",
        "launchers are seen all the time"
    );
    assert_eq!(warnings("[identify]\nexpire_s = 0\n"), "", "never");
}

/// A policy with `nr` rules of class handoff, one a line from line 2 on.
fn with_rules(nr: usize, rule: impl Fn(usize) -> String) -> String {
    let rules: Vec<_> = (0..nr).map(|n| format!("{{ {} }},\n", rule(n))).collect();
    format!("[class.handoff]\nmatch = [{}]\n", rules.concat())
}

#[test]
fn more_than_the_kernel_can_judge_is_refused_where_it_is_written() {
    let comms = |nr| with_rules(nr, |n| format!("comm = \"a{n}\""));
    Policy::parse(&comms(64)).unwrap();
    assert_says(
        &refusal(&comms(66)),
        &[
            "policy:66: error: class.handoff.match[64]: rule 65",
            "expected at most 64",
            "comm = \"{a,b}\"",
        ],
    );
    let in_use = |n| format!("connects_to = \"127.0.0.1:{}\", comm = \"a{n}\"", n / 2 + 1);
    Policy::parse(&with_rules(64, in_use)).unwrap();
    let endpoints = with_rules(33, |n| format!("connects_to = \"127.0.0.1:{}\"", 8000 + n));
    assert_says(
        &refusal(&endpoints),
        &[
            "policy:34: error: class.handoff.match[32]: endpoint 33",
            "at most 32",
            "0.0.0.0:PORT",
        ],
    );
    let cgroups = |nr| with_rules(nr, |n| format!("cgroup = \"a{n}/**\""));
    Policy::parse(&cgroups(512)).unwrap();
    assert_says(
        &refusal(&cgroups(513)),
        &["policy:514: error: class.handoff.match[512]", "at most 512"],
    );
    let uids: Vec<_> = (0..4097).map(|uid| uid.to_string()).collect();
    let uids = format!("[guard]\ntrust_uids = [{}]\n", uids.join(", "));
    assert_says(
        &refusal(&uids),
        &["policy:2: error: guard.trust_uids[4096]", "at most 4096"],
    );
    let pins = (0..100).map(|n| format!("[[pin]]\nmatch = {{ comm = \"a{n}\" }}\ncpus = \"0\"\n"));
    Policy::parse(&pins.collect::<String>()).unwrap();
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

#[test]
fn devices_are_paths_below_dev_with_wildcards_in_the_last_part() {
    let devices = |text: &str| {
        let policy = Policy::parse(&format!("[guard]\ntrust_devices = [{text}]\n"));
        policy.map(|policy| policy.guard.trust_devices.map(|globs| globs.len()))
    };
    assert_eq!(
        devices(r#""/dev/nvidia*", "/dev/dri/renderD12?""#).unwrap(),
        Some(2)
    );
    for wrong in [
        r#""nvidia""#,
        r#""/tmp/nvidia0""#,
        r#""/dev/*/renderD128""#,
        "195",
    ] {
        let error = devices(wrong).unwrap_err().to_string();
        assert!(error.contains("guard.trust_devices"), "{wrong}: {error}");
    }
}
