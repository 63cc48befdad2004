// SPDX-License-Identifier: GPL-2.0-only
//! From a trace of all threads to a strip: of the stretches of 40 ms in which launches were recorded the one with the
//! median number of them, so that nobody chooses.

use std::collections::BTreeMap;
use std::io::BufRead;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::model::{Change, Head, Strip};

const LENGTH_NS: u64 = 40_000_000;
const HEAD: &str = "# scx_gpuaware trace ";

/// What is needed of a trace's header.
#[derive(Deserialize)]
struct TraceHead {
    scheduler: Option<String>,
    kernel: String,
    cpus: u32,
}

/// What is needed of a trace's row.
#[derive(Debug, Clone, Deserialize)]
struct Row {
    time_ns: u64,
    event: String,
    cpu: Option<u32>,
    comm: Option<String>,
    reason: Option<String>,
    other_tid: Option<u32>,
    other_comm: Option<String>,
}

/// Who has a CPU from `at_ns` on.
struct Owner {
    at_ns: u64,
    cpu: u32,
    comm: String,
    reason: String,
}

/// # Errors
/// It is no trace of ours in CSV, or no window of it is long enough.
pub fn typical(mut trace: impl BufRead) -> Result<Strip> {
    let mut first = String::new();
    trace.read_line(&mut first)?;
    let head = first.strip_prefix(HEAD);
    let head = head.with_context(|| format!("expected a first line with {HEAD:?}"))?;
    let head: TraceHead = serde_json::from_str(head).context("its first line")?;
    let mut reader = csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .from_reader(trace);
    let rows: Vec<Row> = reader.deserialize().collect::<Result<_, _>>()?;
    let launches: Vec<u64> = rows
        .iter()
        .filter(|row| row.event == "launch")
        .map(|row| row.time_ns)
        .collect();
    if launches.is_empty() {
        bail!("no launch was recorded");
    }
    let mut stretches: Vec<(usize, u64)> = stretches(&rows)
        .into_iter()
        .map(|from| (within(&launches, from).count(), from))
        .collect();
    if stretches.is_empty() {
        bail!("no window of it is as long as 40 ms");
    }
    stretches.sort_unstable();
    let (_, from) = stretches[stretches.len() / 2];
    let microseconds = |ns: u64| ((ns - from) as f64 / 100.0).round() / 10.0;
    Ok(Strip {
        changes: changes(&owners(&rows), head.cpus, from)
            .into_iter()
            .map(|owner| Change {
                at_us: microseconds(owner.at_ns),
                cpu: owner.cpu,
                comm: owner.comm,
                reason: owner.reason,
            })
            .collect(),
        launches_us: within(&launches, from).map(microseconds).collect(),
        head: Head {
            scheduler: head.scheduler,
            kernel: head.kernel,
            cpus: head.cpus,
            length_us: LENGTH_NS as f64 / 1e3,
            stretches: stretches.len(),
        },
    })
}

fn within(times: &[u64], from: u64) -> impl Iterator<Item = u64> + '_ {
    let inside = move |time: &u64| (from..from + LENGTH_NS).contains(time);
    times.iter().copied().filter(inside)
}

/// Where stretches begin: windows cut into pieces, what is left of each falls away.
fn stretches(rows: &[Row]) -> Vec<u64> {
    let mut open = None;
    let mut found = Vec::new();
    for row in rows {
        match row.event.as_str() {
            "window_open" => open = Some(row.time_ns),
            "window_close" => {
                if let Some(from) = open.take() {
                    let pieces = (row.time_ns - from) / LENGTH_NS;
                    found.extend((0..pieces).map(|piece| from + piece * LENGTH_NS));
                }
            }
            _ => {}
        }
    }
    found
}

/// Every change of a CPU's owner. A switch is two rows where both threads are traced; idle is not, nor are threads that
/// the tracer does not know, whose name the other's row has.
fn owners(rows: &[Row]) -> Vec<Owner> {
    let mut owners: Vec<Owner> = Vec::new();
    for row in rows {
        let Some(cpu) = row.cpu else { continue };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (comm, reason) = match row.event.as_str() {
            "switch_out" if row.other_tid == Some(0) => (String::new(), text(&row.reason)),
            "switch_out" => (text(&row.other_comm), text(&row.reason)),
            // Why the one before went stands in its own row.
            "switch_in" => (text(&row.comm), String::new()),
            _ => continue,
        };
        let same = |last: &&mut Owner| last.at_ns == row.time_ns && last.cpu == cpu;
        match owners.last_mut().filter(same) {
            Some(last) => {
                last.comm = comm;
                if last.reason.is_empty() {
                    last.reason = reason;
                }
            }
            None => owners.push(Owner {
                at_ns: row.time_ns,
                cpu,
                comm,
                reason,
            }),
        }
    }
    owners
}

/// The changes of a stretch; who had a CPU before it has it at its start.
fn changes(owners: &[Owner], cpus: u32, from: u64) -> Vec<Owner> {
    let mut before: BTreeMap<u32, &str> = (0..cpus).map(|cpu| (cpu, "")).collect();
    let earlier = owners.iter().take_while(|owner| owner.at_ns < from);
    before.extend(earlier.map(|owner| (owner.cpu, owner.comm.as_str())));
    let start = before.into_iter().map(|(cpu, comm)| Owner {
        at_ns: from,
        cpu,
        comm: comm.to_owned(),
        reason: String::new(),
    });
    let inside = owners
        .iter()
        .filter(|owner| (from..from + LENGTH_NS).contains(&owner.at_ns))
        .map(|owner| Owner {
            at_ns: owner.at_ns,
            cpu: owner.cpu,
            comm: owner.comm.clone(),
            reason: owner.reason.clone(),
        });
    start.chain(inside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &str = "time_ns,event,cpu,tid,tgid,comm,reason,other_tid,other_comm";

    fn trace(rows: &str) -> String {
        format!(
            "{HEAD}{{\"scheduler\":null,\"kernel\":\"6.18\",\"cpus\":2,\"more\":1}}\n{COLUMNS}\n{rows}# end {{}}\n"
        )
    }

    #[test]
    fn takes_the_stretch_with_the_median_of_launches() {
        // Windows of 45, 90 and 39 ms: one stretch, two, none; with 1, 3 and 2 launches.
        let mut rows = String::new();
        for (at, event) in [
            (0, "window_open"),
            (1, "launch"),
            (45, "window_close"),
            (100, "window_open"),
            (101, "launch"),
            (102, "launch"),
            (103, "launch"),
            (141, "launch"),
            (142, "launch"),
            (190, "window_close"),
            (200, "window_open"),
            (239, "window_close"),
        ] {
            let cpu = if event == "launch" { "1" } else { "" };
            rows += &format!("{},{event},{cpu},9,9,launch-0,,,\n", at * 1_000_000);
        }
        let strip = typical(trace(&rows).as_bytes()).unwrap();
        assert_eq!(strip.head.stretches, 3);
        assert_eq!(strip.launches_us, [1000.0, 2000.0]);
        assert!(typical(trace("").as_bytes()).is_err());
        assert!(typical("time_ns\n".as_bytes()).is_err());
    }

    #[test]
    fn a_switch_is_one_change_with_the_reason_of_who_went() {
        let rows = "\
10,switch_in,1,9,9,launch-0,blocked,0,swapper/1
50,window_open,,0,0,,,,
1000,launch,1,9,9,launch-0,,,
1050,switch_out,1,9,9,launch-0,preempted,5,stress-ng-cpu
1050,switch_in,1,5,5,stress-ng-cpu,preempted,9,launch-0
3050,switch_out,1,5,5,stress-ng-cpu,blocked,0,swapper/1
4050,switch_out,0,7,7,fio,blocked,8,unknown
50000000,window_close,,0,0,,,,
";
        let strip = typical(trace(rows).as_bytes()).unwrap();
        let changes: Vec<(f64, u32, &str, &str)> = strip
            .changes
            .iter()
            .map(|c| (c.at_us, c.cpu, c.comm.as_str(), c.reason.as_str()))
            .collect();
        assert_eq!(
            changes,
            [
                (0.0, 0, "", ""),
                (0.0, 1, "launch-0", ""),
                (1.0, 1, "stress-ng-cpu", "preempted"),
                (3.0, 1, "", "blocked"),
                (4.0, 0, "unknown", "blocked"),
            ]
        );
    }
}
