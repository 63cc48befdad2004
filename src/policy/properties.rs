// SPDX-License-Identifier: GPL-2.0-only
//! What holds for every text: no parser fails on any, and what is accepted means the same when it is
//! printed and read back. `PROPTEST_CASES` says how many texts are tried, 256 by default.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::affinity::{Assignment, CpuGroup, labelled_groups};
use super::cpuset::{CpuSet, MAX_CPU};
use super::effective::{AsToml, Entry, entries};
use super::{Document, PolicyError};

/// Text that is nearly a CPU list, or nearly FastFlow syntax.
fn nearly_cpus() -> impl Strategy<Value = String> {
    prop_oneof!["[0-9,: -]{0,24}", "[a-b0-9\\[\\],: r-]{0,32}", ".{0,16}"]
}

fn cpu() -> impl Strategy<Value = u32> {
    prop_oneof![0..8u32, 0..=MAX_CPU, Just(MAX_CPU), MAX_CPU..MAX_CPU + 3]
}

/// FastFlow syntax that is right but for its numbers.
fn fastflow() -> impl Strategy<Value = String> {
    let entry = prop_oneof![
        cpu().prop_map(|start| start.to_string()),
        (cpu(), 0..40u32).prop_map(|(start, count)| format!("{start}:{count}")),
        (cpu(), 0..40u32, 0..9u32)
            .prop_map(|(start, count, stride)| format!("{start}:{count}:{stride}")),
    ];
    (vec(entry, 1..6), select(vec!["", "rr", " rr "]))
        .prop_map(|(entries, end)| format!("[{}]{end}", entries.join(", ")))
}

/// A line of a policy: a known key or table, a value that may or may not be right for it.
fn line() -> impl Strategy<Value = String> {
    let table = select(vec![
        "[cpusets]",
        "[preferred]",
        "[irq]",
        "[class.launch]",
        "[class.handoff]",
        "[class.background]",
        "[guard]",
        "[identify]",
        "[[pin]]",
        "[class]",
        "[nothing]",
    ]);
    let key = select(vec![
        "version",
        "cpus",
        "max",
        "smt",
        "lend",
        "lend_yields_us",
        "hold_us",
        "avoid",
        "heavy_percent",
        "steer",
        "slice_us",
        "probes",
        "entry_points",
        "sweep_us",
        "max_pause_us",
        "expire_s",
        "min_share",
        "match",
        "trust_uids",
        "trust_devices",
        "hint_gid",
        "max_share",
        "ff_affinity",
        "a",
        "b",
        "cpu",
    ]);
    let value = prop_oneof![
        select(vec![
            "1",
            "0",
            "-1",
            "true",
            "false",
            "\"auto\"",
            "\"5%\"",
            "\"100%\"",
            "5",
            "20000",
            "0.5",
            "\"shared\"",
            "\"whole-core\"",
            "[]",
            "[0, 1000]",
            "\"a\"",
            "\"a | b\"",
            "{}",
            "[{}]",
            "9223372036854775807",
            "1979-05-27",
            "nan",
            "\"a[0:4]rr, b[4:4]\"",
            "\"\"",
        ])
        .prop_map(str::to_owned),
        fastflow().prop_map(|text| format!("{text:?}")),
        nearly_cpus().prop_map(|text| format!("{text:?}")),
        vec(rule(), 0..4).prop_map(|rules| format!("[{}]", rules.join(", "))),
        rule(),
    ];
    prop_oneof![
        1 => table.prop_map(str::to_owned),
        4 => (key, value).prop_map(|(key, value)| format!("{key} = {value}")),
    ]
}

fn rule() -> impl Strategy<Value = String> {
    let term = select(vec![
        "cuda_launch = true",
        "cuda_launch = false",
        "wakes = \"launch\"",
        "spins_with = \"launch\"",
        "comm = \"a*\"",
        "comm = \"ab\"",
        "comm = \"a-very-long-thread-name\"",
        "exe = \"/usr/bin/*\"",
        "exe = \"x\"",
        "cgroup = \"g/**\"",
        "cgroup = \"g/a\"",
        "cgroup = \"[\"",
        "cmdline = \"*\"",
        "connects_to = \"127.0.0.1:1\"",
        "connects_to = \"unix:/x\"",
        "connects_to = 3",
    ]);
    vec(term, 0..3).prop_map(|terms| format!("{{ {} }}", terms.join(", ")))
}

/// A policy that is right, changed at one place.
fn damaged() -> impl Strategy<Value = String> {
    let position = 0..super::tests::EVERY_KEY.len();
    (position, 0..6usize, "\\PC{0,3}").prop_map(|(start, length, put)| {
        let text = super::tests::EVERY_KEY;
        let end = (start + length).min(text.len());
        format!("{}{put}{}", &text[..start], &text[end..])
    })
}

fn shown(document: &Document) -> (Vec<(String, Option<toml::Value>)>, String) {
    let entries = entries(document, None);
    let (file, list) = ("policy", &entries[..]);
    let text = AsToml {
        entries: list,
        file,
    }
    .to_string();
    let value = |entry: Entry| (entry.key, entry.value);
    (entries.into_iter().map(value).collect(), text)
}

/// The CPUs of a machine that are online.
fn online() -> impl Strategy<Value = CpuSet> {
    let cpus = prop_oneof![vec(0..12u32, 1..12), vec(0..=MAX_CPU, 1..64)];
    cpus.prop_map(CpuSet::new)
}

/// Everything that is wrong with `text` is explained at a place that exists.
fn explained(PolicyError(found): &PolicyError, text: &str) -> Result<(), TestCaseError> {
    let nr_lines = text.split('\n').count();
    prop_assert!(!found.is_empty());
    for diagnostic in found {
        prop_assert!((1..=nr_lines).contains(&diagnostic.line), "{diagnostic}");
        prop_assert!(!diagnostic.problem.is_empty());
    }
    Ok(())
}

/// Accepted texts read back as shown, and fit the same machines; what is refused, by itself or on a
/// machine with `cpus`, is explained.
fn explained_or_the_same_again(text: &str, cpus: &CpuSet) -> Result<(), TestCaseError> {
    match Document::parse(text) {
        Ok(document) => {
            let fits = document.check_on(cpus);
            if let Err(error) = &fits {
                explained(error, text)?;
            }
            let (values, text) = shown(&document);
            let again = Document::parse(&text)
                .map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            prop_assert_eq!(shown(&again).0, values);
            prop_assert_eq!(again.check_on(cpus).is_ok(), fits.is_ok(), "{}", text);
            prop_assert!(
                document
                    .policy
                    .pins
                    .iter()
                    .all(|pin| !pin.groups.is_empty())
            );
        }
        Err(error) => explained(&error, text)?,
    }
    Ok(())
}

proptest! {
    #[test]
    fn accepted_cpu_lists_read_back_the_same(text in nearly_cpus()) {
        if let Ok(set) = text.parse::<CpuSet>() {
            prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
        }
    }

    #[test]
    fn every_set_of_cpus_can_be_written(cpus in vec(0..=MAX_CPU, 1..64)) {
        let set = CpuSet::new(cpus);
        prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
    }

    #[test]
    fn accepted_groups_read_back_the_same(text in prop_oneof![fastflow(), nearly_cpus()]) {
        if let Ok(group) = text.parse::<CpuGroup>() {
            let again = group.to_string().parse::<CpuGroup>().unwrap();
            prop_assert_eq!(again.set(), group.set());
            prop_assert_eq!(again.assignment(), group.assignment());
            if group.assignment() == Assignment::RoundRobin {
                prop_assert_eq!(again, group);
            }
        }
    }

    #[test]
    fn labelled_groups_are_those_of_their_parts(groups in vec(fastflow(), 1..4)) {
        let parts: Result<Vec<CpuGroup>, _> = groups.iter().map(|group| group.parse()).collect();
        let text: Vec<_> = groups.iter().enumerate().map(|(index, group)| format!("l{index}{group}")).collect();
        let whole = labelled_groups(&text.join(", "));
        prop_assert_eq!(whole.is_ok(), parts.is_ok());
        if let (Ok(whole), Ok(parts)) = (whole, parts) {
            let whole: Vec<_> = whole.into_iter().map(|(_, group)| group).collect();
            prop_assert_eq!(whole, parts);
        }
    }

    #[test]
    fn lines_of_a_policy_are_explained_or_read_back(lines in vec(line(), 0..14), cpus in online()) {
        explained_or_the_same_again(&lines.join("\n"), &cpus)?;
    }

    #[test]
    fn a_damaged_policy_is_explained_or_read_back(text in damaged(), cpus in online()) {
        explained_or_the_same_again(&text, &cpus)?;
    }

    #[test]
    fn any_text_is_explained_or_read_back(text in "\\PC{0,80}(\n\\PC{0,40}){0,4}", cpus in online()) {
        let _ = labelled_groups(&text);
        explained_or_the_same_again(&text, &cpus)?;
    }
}
