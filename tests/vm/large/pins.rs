// SPDX-License-Identifier: GPL-2.0-only
//! The six pinning strategies of the WindFlow slides, as policies for a pipeline that sets no affinity itself:
//! every thread works on the CPUs that the strategy says and on no others.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{repository, within};
use crate::vm::shared::Reloadable;
use crate::{length, tier};

/// Loading, starting and finding threads takes a while under emulation.
const LIMIT: Duration = Duration::from_secs(40);
/// The policies are written for two chiplets of four CPUs. For each strategy the CPUs of source0, source1, flatmap0, flatmap1, aggreg0, aggreg1, sink0, sink1.
const STRATEGIES: [(&str, [&str; 8]); 6] = [
    ("rr-chiplet", ["0", "1", "2", "3", "0", "1", "2", "3"]),
    ("rr-chiplets", ["0", "4", "1", "5", "2", "6", "3", "7"]),
    (
        "operator-sets",
        ["0", "0", "1-3", "1-3", "4-6", "4-6", "7", "7"],
    ),
    ("source-sink", ["0", "1", "4", "5", "6", "7", "2", "3"]),
    ("pipeline", ["0", "4", "1", "5", "2", "6", "3", "7"]),
    (
        "odd-even",
        [
            "1,3,5,7", "1,3,5,7", "1,3,5,7", "0,2,4,6", "1,3,5,7", "0,2,4,6", "0,2,4,6", "0,2,4,6",
        ],
    ),
];

/// Which threads worked on which CPUs in one second, for how many items.
type Second = BTreeMap<String, BTreeMap<u32, u64>>;

/// The pipeline with two replicas of each operator. Killed when dropped.
struct Pipeline {
    child: std::process::Child,
    seconds: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Pipeline {
    fn start() -> Self {
        let mut command = Command::new(repository().join("target/release/pipeline"));
        let mut child = command
            .args([
                "windflow",
                "--set",
                "stage.source.arrive.rate=100",
                "--watch",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the pipeline of make build");
        let stdout = child.stdout.take().expect("a pipe");
        let seconds = BufReader::new(stdout).lines();
        Self { child, seconds }
    }

    fn next_second(&mut self) -> Second {
        let line = self.seconds.next().expect("a line a second").unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is wrong with `second`: threads that did not work, or on another CPU than they should.
fn wrong(second: &Second, expected: &[&str; 8]) -> Vec<String> {
    let operators = ["source", "flatmap", "aggreg", "sink"];
    let names = operators
        .iter()
        .flat_map(|name| [format!("{name}0"), format!("{name}1")]);
    let mut wrong = Vec::new();
    for (name, list) in names.zip(expected) {
        let cpus: scx_gpuaware::policy::cpuset::CpuSet = list.parse().unwrap();
        let allowed: BTreeSet<u32> = cpus.iter().collect();
        let worked: BTreeSet<u32> = second[&name].keys().copied().collect();
        if worked.is_empty() || !worked.is_subset(&allowed) {
            wrong.push(format!("{name}: {worked:?}, expected {allowed:?}"));
        }
    }
    wrong
}

/// Every thread of the pipeline works where `strategy` says.
fn assert_works(strategy: &str, expected: &[&str; 8], pipeline: &mut Pipeline) {
    let end = Instant::now() + LIMIT;
    // Reports of one second in a row.
    let (mut nr_right, wanted) = (0, length::of(2, 3));
    while nr_right < wanted {
        let wrong = wrong(&pipeline.next_second(), expected);
        nr_right = if wrong.is_empty() { nr_right + 1 } else { 0 };
        assert!(Instant::now() < end, "{strategy}: {wrong:#?}");
    }
}

/// Every thread of the pipeline may run everywhere, again within `limit`.
fn assert_restored(strategy: &str, pipeline: &Pipeline, limit: Duration) {
    let tasks = format!("/proc/{}/task", pipeline.child.id());
    let confined = || -> Vec<String> {
        let tasks = std::fs::read_dir(&tasks).unwrap().flatten();
        let status = tasks.map(|task| std::fs::read_to_string(task.path().join("status")).unwrap());
        let is_confined = |status: &String| !status.contains("Cpus_allowed_list:\t0-7\n");
        status.filter(is_confined).collect()
    };
    let restored = within(limit, || confined().is_empty().then_some(()));
    assert!(
        restored.is_some(),
        "before {strategy}: not restored: {:#?}",
        confined()
    );
}

#[test]
#[ignore = "runs in the lab: make test"]
fn threads_work_where_the_strategies_of_windflow_say() {
    tier::in_large_lab(|| {
        let mut reloadable = Reloadable::start("");
        let mut pipeline = Pipeline::start();
        for (number, (strategy, expected)) in STRATEGIES.iter().enumerate() {
            let path = repository().join(format!("scheds/policies/windflow-{strategy}.toml"));
            let policy = std::fs::read_to_string(path).unwrap();
            // All threads are free in between, so that each strategy has to pin each of them.
            if number > 0 {
                reloadable.change("", "is in force");
                assert_restored(strategy, &pipeline, LIMIT);
            }
            reloadable.change(&policy, "is in force");
            assert_works(strategy, expected, &mut pipeline);
        }
        reloadable.assert_never_unloaded();
        reloadable.scheduler.stop();
        assert_restored("the end", &pipeline, Duration::ZERO);
    });
}
