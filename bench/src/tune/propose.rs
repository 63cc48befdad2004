// SPDX-License-Identifier: GPL-2.0-only
//! Which policies are worth trying on a machine, the likeliest first. Pure.

use super::candidate::Candidate;
use super::look::Seen;

/// What runs, as far as proposals depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One thread that launches.
    Launcher,
    /// A server whose threads hand requests over.
    Server,
    /// Operators in threads of their own.
    Pipeline,
}

/// The share of all CPUs that the default may prefer.
const DEFAULT_MAX: f64 = 0.25;

/// As vLLM and llm_server call them.
const SERVER_THREADS: &str = r#"
[class.handoff]
match = [
  { wakes = "launch" },
  { comm = "{vllm,VLLM::APIServer}" },
  { comm = "tokenizer" },
  { comm = "detokenizer" },
]
"#;

/// Proposals for what was seen.
pub fn propose(seen: &Seen, kind: Kind) -> Vec<Candidate> {
    let mut all = Vec::new();
    if kind != Kind::Launcher {
        let wakes = "[class.handoff]\nmatch = [{ wakes = \"launch\" }]\n";
        let why = "threads that hand work to the launcher come right after it";
        all.push(Candidate::new("handoff", why, wakes));
    }
    if kind == Kind::Server {
        let why = "the server's threads that take requests and write answers, by name";
        all.push(Candidate::new("handoff-named", why, SERVER_THREADS));
    }
    all.extend(interrupts(seen));
    all.extend(holds());
    all.extend(counts(seen));
    all.extend(shares());
    all.extend(slices());
    if seen.cpus > seen.cores {
        let why = "a launcher gets a hardware thread, and its sibling works on";
        all.push(Candidate::new(
            "smt-shared",
            why,
            "[preferred]\nsmt = \"shared\"\n",
        ));
    }
    let why = "who waits by sched_yield() keeps its CPU: nothing that it waits for comes late";
    all.push(Candidate::new(
        "keep-yields",
        why,
        "[preferred]\nlend_yields_us = 0\n",
    ));
    let why = "preferred CPUs are nobody else's, at the price of their idle time";
    all.push(Candidate::new(
        "no-lending",
        why,
        "[preferred]\nlend = false\n",
    ));
    all
}

fn interrupts(seen: &Seen) -> Vec<Candidate> {
    let steer = if seen.irq_on_preferred {
        "interrupts keep a preferred CPU busy: they are moved away"
    } else {
        "interrupts that come with load are moved off preferred CPUs"
    };
    let mut all = vec![Candidate::new("irq-steer", steer, "[irq]\nsteer = true\n")];
    if !seen.irq_heavy.is_empty() {
        let why = "CPUs with interrupts are taken too: near the GPU may be worth more";
        all.push(Candidate::new("irq-ignored", why, "[irq]\navoid = false\n"));
    }
    all
}

fn holds() -> Vec<Candidate> {
    let hold = |us: u32, why: &str| {
        let policy = format!("[preferred]\nhold_us = {us}\n");
        Candidate::new(&format!("hold-{us}"), why, &policy)
    };
    vec![
        hold(
            0,
            "no CPU waits for a launcher that sleeps: others get more done",
        ),
        hold(
            2000,
            "a CPU waits longer for a launcher that sleeps: it wakes to a free one",
        ),
        hold(100, "a CPU waits for short sleeps only"),
    ]
}

/// Other numbers of preferred CPUs than the default's.
fn counts(seen: &Seen) -> Vec<Candidate> {
    let of = |share: f64| ((seen.cpus as f64 * share) as usize).max(1);
    let mut counts = vec![1, of(0.125), of(0.5)];
    counts.retain(|&count| count != of(DEFAULT_MAX));
    counts.sort_unstable();
    counts.dedup();
    let candidate = |count: usize| {
        let why = if count < of(DEFAULT_MAX) {
            "fewer CPUs are preferred: less is taken from others"
        } else {
            "more CPUs are preferred: no launcher waits for another"
        };
        let policy = format!("[preferred]\nmax = {count}\n");
        Candidate::new(&format!("max-{count}"), why, &policy)
    };
    counts.into_iter().map(candidate).collect()
}

fn shares() -> Vec<Candidate> {
    let share = |percent: u32, why: &str| {
        let policy = format!("[guard]\nmax_share = \"{percent}%\"\n");
        Candidate::new(&format!("share-{percent}"), why, &policy)
    };
    vec![share(
        80,
        "launch and handoff may take more of all CPUs while others wait",
    )]
}

fn slices() -> Vec<Candidate> {
    let slice = |class: &str, us: u32, why: &str| {
        let policy = format!("[class.{class}]\nslice_us = {us}\n");
        Candidate::new(&format!("{class}-slice-{us}"), why, &policy)
    };
    vec![
        slice(
            "background",
            1000,
            "others run shorter at a time: a launcher finds a CPU sooner",
        ),
        slice(
            "background",
            10_000,
            "others run longer at a time: fewer switches, warmer caches",
        ),
        slice(
            "launch",
            5000,
            "launchers that share a CPU take turns sooner",
        ),
    ]
}

/// Whether a policy of scheds/policies is for such a machine and workload: the others name threads or cgroups that are
/// not there, or guard against users.
pub fn fits(policy: &str, seen: &Seen, kind: Kind) -> bool {
    match policy {
        "single-gpu" => seen.gpus <= 1,
        "dual-socket" => seen.nodes > 1,
        "llm-server" => kind == Kind::Server,
        name => name.starts_with("windflow-") && kind == Kind::Pipeline,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::look::samples::two_cpus;
    use super::*;

    fn names(seen: &Seen, kind: Kind) -> Vec<String> {
        let proposed = propose(seen, kind).into_iter();
        proposed.map(|candidate| candidate.name).collect()
    }

    #[test]
    fn servers_threads_have_the_names_that_the_arm_for_servers_gives_them() {
        let arm = include_str!("../../../scheds/arms/gpuaware-serving.policy");
        let [named, arm] = [SERVER_THREADS, arm].map(|text| {
            let policy: toml::Table = toml::from_str(text).unwrap();
            policy["class"].clone()
        });
        assert_eq!(named, arm);
    }

    #[test]
    fn proposals_follow_what_was_seen() {
        let small = names(&two_cpus(), Kind::Launcher);
        assert!(
            !small.iter().any(|name| name.starts_with("max-")),
            "{small:?}"
        );
        assert!(!small.contains(&"smt-shared".to_owned()), "{small:?}");
        assert!(
            small.contains(&"irq-ignored".to_owned()),
            "CPU 0 is busy with interrupts"
        );
        let large = Seen {
            cpus: 64,
            cores: 32,
            irq_heavy: BTreeSet::new(),
            ..two_cpus()
        };
        let large = names(&large, Kind::Server);
        for name in ["max-1", "max-8", "max-32", "smt-shared", "handoff"] {
            assert!(large.contains(&name.to_owned()), "{name}: {large:?}");
        }
        assert!(!large.contains(&"irq-ignored".to_owned()), "{large:?}");
    }

    #[test]
    fn every_proposal_changes_something_under_a_name_of_its_own() {
        let all = propose(&two_cpus(), Kind::Pipeline);
        let names: BTreeSet<&String> = all.iter().map(|candidate| &candidate.name).collect();
        assert_eq!(names.len(), all.len());
        for candidate in &all {
            assert!(
                !candidate.keys().is_empty() && !candidate.why.is_empty(),
                "{candidate:?}"
            );
        }
    }

    #[test]
    fn shipped_policies_are_for_some_machines() {
        let seen = two_cpus();
        assert!(
            fits("llm-server", &seen, Kind::Server) && !fits("llm-server", &seen, Kind::Launcher)
        );
        assert!(fits("windflow-pipeline", &seen, Kind::Pipeline));
        assert!(
            !fits("dual-socket", &seen, Kind::Server) && !fits("k8s-node", &seen, Kind::Server)
        );
    }
}
