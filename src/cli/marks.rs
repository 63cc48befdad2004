// SPDX-License-Identifier: GPL-2.0-only
//! `mark`, `unmark` and `marks`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use crate::identify::Class;
use crate::identify::marks::{Mark, Pins};
use crate::namespaces;
use crate::pidfd;
use crate::printable::printable;
use crate::proc::{self, PROC, numbers_in};
use crate::running;
use crate::sched;

use super::output::print;

/// How often a process that starts threads meanwhile is gone through again.
const MAX_ROUNDS: usize = 8;

/// What to mark.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Target {
    /// One thread.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    tid: Option<i32>,
    /// Every thread that the process has now.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,
}

/// Fails unless scx_gpuaware runs, as the scheduler or as `feed`. One that was killed leaves its pins behind: they would answer, and
/// mean nothing.
pub fn assert_running() -> Result<()> {
    // A scheduler that loads anew, because CPUs came or went, is not loaded for a moment.
    if !sched::is_loaded() && running::role().is_none() {
        bail!("scx_gpuaware does not run: start it first");
    }
    Ok(())
}

/// The pins of the scheduler that runs.
fn pins_in_use() -> Result<Pins> {
    assert_running()?;
    namespaces::check_proc()?;
    Ok(Pins::default())
}

/// Puts the target into `class`; `None` takes the mark away.
pub fn mark(target: &Target, class: Option<Class>) -> Result<()> {
    let pins = pins_in_use()?;
    let pid = match (target.tid, target.pid) {
        (Some(tid), _) => return pins.mark(tid, class),
        (None, Some(pid)) => pid,
        (None, None) => bail!("expected --tid or --pid"),
    };
    let process = pidfd::of_running(pid)?;
    let Done { marked, ended } =
        mark_threads(|| threads_of(pid), |tid| pins.mark_if_alive(tid, class))?;
    if marked == 0 && pidfd::has_ended(&process) {
        bail!("process {pid} ended meanwhile");
    }
    let mut summary = match class {
        Some(class) => format!(
            "process {pid}: {marked} of its threads are {} now",
            class.name()
        ),
        None => format!("process {pid}: {marked} of its threads have no mark now"),
    };
    if ended > 0 {
        summary += &format!("; {ended} ended meanwhile");
    }
    print(&(summary + "\n"))
}

/// What became of the threads of a process.
#[derive(Debug, Default, PartialEq, Eq)]
struct Done {
    marked: usize,
    ended: usize,
}

/// Marks every thread that is listed. Who starts meanwhile may have been started by a thread that was not marked
/// yet: they are listed until none is new.
fn mark_threads(
    list: impl Fn() -> Vec<i32>,
    mut mark: impl FnMut(i32) -> Result<bool>,
) -> Result<Done> {
    let mut seen = HashSet::new();
    let mut done = Done::default();
    for _ in 0..MAX_ROUNDS {
        let before = seen.len();
        for tid in list() {
            if seen.insert(tid) {
                match mark(tid)? {
                    true => done.marked += 1,
                    false => done.ended += 1,
                }
            }
        }
        if seen.len() == before {
            break;
        }
    }
    Ok(done)
}

/// Has the scheduler look at everything again.
pub fn rescan() -> Result<()> {
    pins_in_use()?.rescan()
}

/// None, if it has ended.
fn threads_of(pid: i32) -> Vec<i32> {
    numbers_in(Path::new(&format!("/proc/{pid}/task")))
}

/// A mark, as it is listed.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    mark: Mark,
    /// NVIDIA's GPUs that its process has open: the N of the host's `/dev/nvidiaN`.
    gpus: BTreeSet<u32>,
}

/// `marks`, with the GPUs that `gpus_of` each process are.
fn listed(marks: Vec<Mark>, gpus_of: impl Fn(i32) -> BTreeSet<u32>) -> Vec<Listed> {
    let mut of_process = BTreeMap::new();
    let marks = marks.into_iter().map(|mark| {
        let gpus = of_process
            .entry(mark.tgid)
            .or_insert_with(|| gpus_of(mark.tgid));
        Listed {
            gpus: gpus.clone(),
            mark,
        }
    });
    marks.collect()
}

/// Prints who has a class, and why.
pub fn list(json: bool) -> Result<()> {
    let of_process = |pid: i32| proc::gpus_open(&Path::new(PROC).join(pid.to_string()));
    let marks = listed(pins_in_use()?.list()?, of_process);
    if json {
        return print(&(serde_json::to_string_pretty(&marks)? + "\n"));
    }
    let mut table = format!(
        "{:>7} {:>7} {:<16} {:<10} {:<8} {:>9} {:>9} {:>4} {:<4}  EVIDENCE\n",
        "TID", "PID", "COMM", "CLASS", "SOURCE", "AGE", "SEEN", "NODE", "GPUS"
    );
    for mark in &marks {
        table += &row(mark);
        table.push('\n');
    }
    print(&table)
}

fn row(Listed { mark, gpus }: &Listed) -> String {
    let name = |value: serde_json::Result<String>| value.unwrap_or_default().replace('"', "");
    let ago = |ms: Option<u64>| {
        ms.map_or_else(
            || "-".to_owned(),
            |ms| format!("{:.1} s", ms as f64 / 1000.0),
        )
    };
    format!(
        "{:>7} {:>7} {:<16} {:<10} {:<8} {:>9} {:>9} {:>4} {:<4}  {}",
        mark.tid,
        mark.tgid,
        printable(&mark.comm),
        name(serde_json::to_string(&mark.class)),
        name(serde_json::to_string(&mark.source)),
        ago(mark.age_ms),
        ago(mark.last_seen_ms),
        mark.gpu_node
            .map_or_else(|| "-".to_owned(), |node| node.to_string()),
        numbers(gpus),
        printable(&mark.evidence),
    )
}

fn numbers(of: &BTreeSet<u32>) -> String {
    if of.is_empty() {
        return "-".to_owned();
    }
    let numbers: Vec<_> = of.iter().map(u32::to_string).collect();
    numbers.join(",")
}

#[cfg(test)]
mod tests {
    use crate::identify::Source;

    use super::*;

    #[test]
    fn who_ends_meanwhile_is_passed_over_and_who_starts_is_not() {
        let listed = std::cell::RefCell::new(vec![vec![1, 3, 4], vec![1, 2, 3], vec![1, 2]]);
        let mut marked = Vec::new();
        let done = mark_threads(
            || listed.borrow_mut().pop().unwrap_or_default(),
            |tid| {
                marked.push(tid);
                Ok(tid != 2)
            },
        );
        assert_eq!(marked, [1, 2, 3, 4]);
        assert_eq!(
            done.unwrap(),
            Done {
                marked: 3,
                ended: 1
            }
        );
    }

    #[test]
    fn a_process_that_never_stops_starting_threads_is_left_in_the_end() {
        let next = std::cell::Cell::new(0);
        let list = || {
            next.set(next.get() + 1);
            vec![next.get()]
        };
        assert_eq!(mark_threads(list, |_| Ok(true)).unwrap().marked, MAX_ROUNDS);
    }

    #[test]
    fn another_refusal_ends_it() {
        assert!(mark_threads(|| vec![1, 2], |_| bail!("no room")).is_err());
    }

    fn mark() -> Mark {
        Mark {
            tid: 12,
            tgid: 10,
            comm: "a\n  1 init\x1b[".to_owned(),
            class: Class::Launch,
            source: Source::Uprobe,
            symbol: Some("cuLaunchKernel"),
            evidence: "cuLaunchKernel of /tmp/\n/libcuda.so.1".to_owned(),
            cgroup_id: 1,
            gpu_node: Some(1),
            first_seen_ns: Some(1),
            age_ms: Some(61_500),
            last_seen_ms: Some(700),
            hits: 3,
        }
    }

    #[test]
    fn a_mark_says_which_gpus_its_process_has_open() {
        let others = Mark { tgid: 11, ..mark() };
        let of_process = |pid: i32| match pid {
            10 => BTreeSet::from([2, 0]),
            _ => BTreeSet::new(),
        };
        let marks = listed(vec![mark(), others], of_process);
        let json = serde_json::to_value(&marks).unwrap();
        assert_eq!(json[0]["gpus"], serde_json::json!([0, 2]));
        assert_eq!(json[0]["tid"], 12);
        assert_eq!(json[1]["gpus"], serde_json::json!([]));
        assert!(row(&marks[0]).contains(" 0,2 "), "{}", row(&marks[0]));
    }

    #[test]
    fn a_row_is_a_line_whatever_a_thread_calls_itself() {
        let row = row(&Listed {
            mark: mark(),
            gpus: BTreeSet::new(),
        });
        assert!(!row.contains(char::is_control), "{row:?}");
        let fields: Vec<_> = row.split_whitespace().collect();
        assert_eq!(fields[..2], ["12", "10"]);
        for field in ["launch", "uprobe", "61.5", "0.7"] {
            assert!(fields.contains(&field), "{field}: {row}");
        }
    }
}
