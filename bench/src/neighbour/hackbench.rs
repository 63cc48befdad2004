// SPDX-License-Identifier: GPL-2.0-only
//! hackbench: threads that send each other short messages over sockets, wakeup after wakeup. It ends by itself when
//! all are sent, so a shell starts it again and again, and its own account is how often it was done.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::program::{self, Own, Terms};
use super::stress_ng::ticks_of;
use crate::process::Supervised;
use crate::procstat::ProcessStat;

const GROUPS: u32 = 2;
/// Senders in a group, and receivers.
const PAIRS: u32 = 10;
/// Messages from each sender to each receiver. Few: the last turn is waited for, and is short of CPU time.
const LOOPS: u32 = 200;

fn groups() -> u32 {
    GROUPS * program::size()
}

/// Of a turn: every sender sends to all receivers of its group.
fn messages() -> u32 {
    groups() * PAIRS * PAIRS * LOOPS
}

pub(super) fn command(terms: &Terms) -> Command {
    // Threads, so that a killed hackbench leaves no workers behind. The shell minds the signal between two turns.
    let groups = groups();
    let script = format!(
        "trap 'exit 0' INT; while hackbench --threads --groups {groups} --fds {PAIRS} --loops {LOOPS}; do :; done; exit 1"
    );
    let mut command = terms.command("sh");
    command.args(["-c", &script]);
    command
}

pub(super) fn start(output: &Path, terms: &Terms) -> Result<Supervised> {
    let out = fs::File::create(output).context("cannot create hackbench's output")?;
    let log =
        fs::File::create(output.with_extension("log")).context("cannot create hackbench's log")?;
    let mut command = command(terms);
    command.stdin(Stdio::null()).stdout(out).stderr(log);
    terms.spawn("hackbench", &mut command)
}

/// CPU time so far, in clock ticks: of the turns that have ended, and of the one that is under way.
pub(super) fn worker_ticks(shell: u32) -> Result<u64> {
    let stat = ProcessStat::of(shell).context("cannot read hackbench's CPU time")?;
    Ok(stat.reaped_ticks + ticks_of_children(shell)?)
}

fn ticks_of_children(shell: u32) -> Result<u64> {
    let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"))
        .context("cannot list hackbench's processes")?;
    Ok(ticks_of(&children))
}

/// Reads the times that all turns took: messages in all, of this machine's noise.
pub(super) fn parse(text: &str) -> Result<Own> {
    turns(text, messages())
}

fn turns(text: &str, messages: u32) -> Result<Own> {
    let mut turns = 0u32;
    let mut seconds = 0.0;
    for line in text.lines().filter_map(|line| line.strip_prefix("Time: ")) {
        turns += 1;
        seconds += line
            .trim()
            .parse::<f64>()
            .with_context(|| format!("{line:?} is no time"))?;
    }
    if turns == 0 {
        bail!("no turn was finished");
    }
    Ok(Own {
        total: f64::from(turns) * f64::from(messages),
        seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_turns_of_an_interrupted_run() {
        let own = turns(
            include_str!("../../tests/data/neighbour/hackbench.txt"),
            40_000,
        )
        .unwrap();
        assert_eq!(own.total, 5.0 * 40_000.0);
        assert!((own.seconds - 0.234).abs() < 1e-9, "{own:?}");
    }

    #[test]
    fn refuses_a_run_without_a_finished_turn() {
        let text =
            "Running in threaded mode with 2 groups using 20 file descriptors each (== 40 tasks)\n";
        let error = parse(text).unwrap_err().to_string();
        assert_eq!(error, "no turn was finished");
        assert!(parse("Time: soon\n").is_err());
    }
}
