// SPDX-License-Identifier: GPL-2.0-only
//! Weights, limits and CPUs of cgroups: that somebody tries to leave, that come and go all the time, that are taken.

use std::path::Path;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::process::{Process, busy_loops, eventually};
use crate::{length, tier};

use super::machine::{Cgroup, Scheduler, dump_map, map_ids, metrics, preferred_cpus, sleeper};
use super::shared::beside_the_scheduler;
use super::sharing::{has_cgroup_set_bandwidth, has_cgroup_set_idle, shares};

#[test]
#[ignore = "runs in the lab: make test"]
fn cpu_max_limits_a_cgroup_of_many_threads() {
    beside_the_scheduler("", |_| {
        if !has_cgroup_set_bandwidth() {
            tier::skip("this kernel does not tell schedulers of cpu.max");
            return;
        }
        let limited = Cgroup::new("limited");
        limited.set("cpu.max", "20000 100000");
        let processes = busy_loops(60);
        for process in &processes {
            limited.add(process);
        }
        // Between two bursts both CPUs are idle, and a timer that takes an old time for now loses periods: see
        // now.bpf.h. In nearly half of all windows it did.
        let windows: Vec<_> = (0..length::of(2, 3))
            .map(|_| shares([&processes])[0])
            .collect();
        let served = |process: &&Process| !process.cpu_time().is_zero();
        let nr_served = processes.iter().filter(served).count();
        println!("20 % of a CPU became {windows:.3?}");
        for got in &windows {
            assert!(
                (0.17..0.27).contains(got),
                "20 % of a CPU became {windows:.3?}"
            );
        }
        assert_eq!(nr_served, processes.len(), "the others never ran");
        // Who is killed dies when it is its turn to run: all at once.
        limited.set("cpu.max", "max");
        limited.set("cgroup.kill", "1");
        drop(processes);
    });
}

/// Cgroups one in the other, with the cpu controller in each. Removed innermost first.
struct Nest(Vec<Cgroup>);

impl Nest {
    fn new(top: &str, depth: usize) -> Self {
        let mut path = top.to_owned();
        let mut nest = vec![Cgroup::new(&path)];
        for _ in 1..depth {
            nest[nest.len() - 1].set("cgroup.subtree_control", "+cpu");
            path.push_str("/n");
            nest.push(Cgroup::new(&path));
        }
        Self(nest)
    }

    fn top(&self) -> &Cgroup {
        &self.0[0]
    }

    fn innermost(&self) -> &Cgroup {
        &self.0[self.0.len() - 1]
    }
}

impl Drop for Nest {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

#[test]
#[ignore = "runs in the lab: make test"]
fn no_nesting_leaves_the_weight_or_the_limit_of_a_cgroup() {
    beside_the_scheduler("", |_| {
        let (deep, other) = (Nest::new("deep", 40), Cgroup::new("other"));
        deep.top().set("cpu.weight", "25");
        let groups = [busy_loops(2), busy_loops(2)];
        for (processes, cgroup) in groups.iter().zip([deep.innermost(), &other]) {
            for process in processes {
                cgroup.add(process);
            }
        }
        let [nested, beside] = shares([&groups[0], &groups[1]]);
        println!("25:100 became {nested:.3}:{beside:.3}");
        assert!(
            (3.5..4.5).contains(&(beside / nested)),
            "25:100 became {nested:.3}:{beside:.3}"
        );
        if has_cgroup_set_bandwidth() {
            deep.top().set("cpu.max", "20000 100000");
            let [got, _] = shares([&groups[0], &groups[1]]);
            assert!(
                (0.15..0.27).contains(&got),
                "20 % of a CPU became {:.1} %",
                got * 100.0
            );
        }
        deep.top().set("cpu.max", "max");
        drop(groups);
        drop((deep, other));
    });
}

/// What is runnable in the cgroup with the inode of `path`.
fn runnable_in(path: &Path) -> i64 {
    use std::os::unix::fs::MetadataExt;
    let id = std::fs::metadata(path).expect("a folder").ino();
    let contexts = dump_map("cgroup_ctxs");
    let of = contexts.iter().find(|(key, _)| *key == id);
    let (_, context) = of.unwrap_or_else(|| panic!("{} has no context", path.display()));
    context["runnable_weight"].as_i64().expect("a weight")
}

/// Two in each cgroup sleep and wake all the time, and the cgroups' weights change: the last that goes to sleep
/// and the first that wakes meet. When all are gone nothing may be left of them.
#[test]
#[ignore = "runs in the lab: make test"]
fn cgroups_that_sleep_and_wake_leave_nothing_counted() {
    beside_the_scheduler("", |_| {
        let above = Cgroup::new("above");
        above.set("cgroup.subtree_control", "+cpu");
        let cgroups: Vec<_> = (0..8)
            .map(|nr| Cgroup::new(&format!("above/{nr}")))
            .collect();
        let nap = || sleeper("while :; do read -t 0.0001 -u 4; done");
        let sleepers: Vec<_> = cgroups
            .iter()
            .flat_map(|cgroup| {
                let both = [nap(), nap()];
                both.iter().for_each(|process| cgroup.add(process));
                both
            })
            .collect();
        let end = Instant::now() + Duration::from_secs(length::of(5, 20));
        for weight in [50, 100, 300, 1000].iter().cycle() {
            if Instant::now() > end {
                break;
            }
            for cgroup in &cgroups {
                cgroup.set("cpu.weight", &weight.to_string());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(sleepers);
        let left = || runnable_in(above.path());
        let empty = eventually(|| (left() == 0).then_some(()));
        assert!(empty.is_some(), "a weight of {} is left of nobody", left());
        drop(cgroups);
        drop(above);
    });
}

/// Fills the table of contexts with cgroups that there are not.
fn fill() {
    const BATCH: usize = 4096;
    let [id] = map_ids("cgroup_ctxs")[..] else {
        panic!("one map");
    };
    let map = MapHandle::from_map_id(id).expect("the contexts");
    let values = vec![0; BATCH * map.value_size() as usize];
    // Far beyond the ids of real ones.
    for first in (1u64 << 48..).step_by(BATCH) {
        let ids = (first..first + BATCH as u64).flat_map(u64::to_ne_bytes);
        let ids: Vec<u8> = ids.collect();
        let filled = map.update_batch(&ids, &values, BATCH as u32, MapFlags::ANY, MapFlags::ANY);
        if let Err(error) = filled {
            println!("full after {}: {error}", first - (1u64 << 48));
            return;
        }
    }
}

#[test]
#[ignore = "runs in the lab: make test"]
fn cgroups_that_find_no_room_are_said_and_count_as_the_one_above() {
    tier::in_lab(|| {
        let mut scheduler = Scheduler::start(&[]);
        let above = Cgroup::new("above");
        above.set("cgroup.subtree_control", "+cpu");
        fill();
        let within = Cgroup::new("above/within");
        let log = &mut scheduler.process;
        log.wait_for_line("do not hold: there are more than");
        assert_eq!(metrics().cgroups_left_out, 1);
        if has_cgroup_set_bandwidth() {
            above.set("cpu.max", "20000 100000");
            let processes = busy_loops(2);
            for process in &processes {
                within.add(process);
            }
            let [got] = shares([&processes]);
            assert!((0.15..0.27).contains(&got), "20 % of a CPU became {got:.3}");
        }
        drop(within);
        drop(above);
        scheduler.stop();
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn an_idle_cgroup_gets_next_to_nothing_or_a_warning_names_it() {
    tier::in_lab(|| {
        let idle = Cgroup::new("batch");
        idle.set("cpu.idle", "1");
        let scheduler = Scheduler::start(&[]);
        let log = &scheduler.process.log;
        let warns = |line: &String| line.contains("cpu.idle") && line.contains("batch");
        assert_eq!(log.iter().any(warns), !has_cgroup_set_idle(), "{log:#?}");
        if has_cgroup_set_idle() {
            let other = Cgroup::new("other");
            let groups = [busy_loops(2), busy_loops(2)];
            for (processes, cgroup) in groups.iter().zip([&idle, &other]) {
                for process in processes {
                    cgroup.add(process);
                }
            }
            let [left, got] = shares([&groups[0], &groups[1]]);
            assert!(left < got / 8.0, "idle {left:.3}, the other {got:.3}");
            idle.set("cpu.idle", "0");
            let [left, got] = shares([&groups[0], &groups[1]]);
            assert!(
                (0.85..1.15).contains(&(left / got)),
                "{left:.3} and {got:.3}"
            );
        }
        scheduler.stop();
    });
}

/// No launcher outside the partition can come there.
#[test]
#[ignore = "runs in the lab: make test"]
fn a_cpu_that_a_partition_takes_is_preferred_no_more() {
    beside_the_scheduler("[irq]\navoid = false\n", |_| {
        let cpu = preferred_cpus().iter().last().expect("a preferred CPU");
        let becomes = |is_preferred: bool| {
            let reached =
                eventually(|| (preferred_cpus().contains(cpu) == is_preferred).then_some(()));
            let now = metrics();
            assert!(
                reached.is_some(),
                "CPU {cpu}: preferred is not {is_preferred}: {:?}, {}",
                now.preferred_cpus,
                now.preferred_reason
            );
        };
        let partition = Cgroup::new("partition");
        partition.set("cpuset.cpus", &cpu.to_string());
        partition.set("cpuset.cpus.partition", "isolated");
        let state = std::fs::read_to_string(partition.path().join("cpuset.cpus.partition"));
        assert_eq!(state.unwrap().trim(), "isolated");
        becomes(false);
        drop(partition);
        becomes(true);
    });
}
