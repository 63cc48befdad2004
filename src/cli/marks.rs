// SPDX-License-Identifier: GPL-2.0-only
//! `mark`, `unmark` and `marks`.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;

use crate::identify::marks::{Mark, Pins};
use crate::identify::{Class, printable};
use crate::proc::numbers_in;
use crate::sched;

use super::{feed, print};

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
    if !sched::is_loaded() && !feed::is_running() {
        bail!("scx_gpuaware does not run: start it first");
    }
    Ok(())
}

/// The pins of the scheduler that runs.
fn pins_in_use() -> Result<Pins> {
    assert_running()?;
    Ok(Pins::default())
}

/// Puts the target into `class`; `None` takes the mark away.
pub fn mark(target: &Target, class: Option<Class>) -> Result<()> {
    let pins = pins_in_use()?;
    let tids = match (target.tid, target.pid) {
        (Some(tid), _) => vec![tid],
        (None, Some(pid)) => threads_of(pid)?,
        (None, None) => bail!("expected --tid or --pid"),
    };
    for tid in tids {
        pins.mark(tid, class)?;
    }
    Ok(())
}

/// Has the scheduler look at everything again.
pub fn rescan() -> Result<()> {
    pins_in_use()?.rescan()
}

fn threads_of(pid: i32) -> Result<Vec<i32>> {
    let tids = numbers_in(Path::new(&format!("/proc/{pid}/task")));
    if tids.is_empty() {
        bail!("no process with PID {pid}");
    }
    Ok(tids)
}

/// Prints who has a class, and why.
pub fn list(json: bool) -> Result<()> {
    let marks = pins_in_use()?.list()?;
    if json {
        return print(&(serde_json::to_string_pretty(&marks)? + "\n"));
    }
    let mut table = format!(
        "{:>7} {:>7} {:<16} {:<10} {:<8} {:>9} {:>9}  EVIDENCE\n",
        "TID", "PID", "COMM", "CLASS", "SOURCE", "AGE", "SEEN"
    );
    for mark in &marks {
        table += &row(mark);
        table.push('\n');
    }
    print(&table)
}

fn row(mark: &Mark) -> String {
    let name = |value: serde_json::Result<String>| value.unwrap_or_default().replace('"', "");
    let ago = |ms: Option<u64>| {
        ms.map_or_else(
            || "-".to_owned(),
            |ms| format!("{:.1} s", ms as f64 / 1000.0),
        )
    };
    format!(
        "{:>7} {:>7} {:<16} {:<10} {:<8} {:>9} {:>9}  {}",
        mark.tid,
        mark.tgid,
        printable(&mark.comm),
        name(serde_json::to_string(&mark.class)),
        name(serde_json::to_string(&mark.source)),
        ago(mark.age_ms),
        ago(mark.last_seen_ms),
        printable(&mark.evidence),
    )
}

#[cfg(test)]
mod tests {
    use crate::identify::Source;

    use super::*;

    #[test]
    fn a_row_is_a_line_whatever_a_thread_calls_itself() {
        let mark = Mark {
            tid: 12,
            tgid: 10,
            comm: "a\n  1 init\x1b[".to_owned(),
            class: Class::Launch,
            source: Source::Uprobe,
            symbol: Some("cuLaunchKernel"),
            evidence: "cuLaunchKernel of /tmp/\n/libcuda.so.1".to_owned(),
            cgroup_id: 1,
            first_seen_ns: Some(1),
            age_ms: Some(61_500),
            last_seen_ms: Some(700),
            hits: 3,
        };
        let row = row(&mark);
        assert!(!row.contains(char::is_control), "{row:?}");
        let fields: Vec<_> = row.split_whitespace().collect();
        assert_eq!(fields[..2], ["12", "10"]);
        for field in ["launch", "uprobe", "61.5", "0.7"] {
            assert!(fields.contains(&field), "{field}: {row}");
        }
    }
}
