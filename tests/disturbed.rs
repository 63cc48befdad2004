// SPDX-License-Identifier: GPL-2.0-only
//! Tests that hold shares and times to bounds fail where a hypervisor or other processes keep the machine's CPUs for
//! themselves. Such a failure says nothing of what is tested, so the test runs again. One on a quiet machine counts at once.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use nix::libc;
use serde::Deserialize;

const MOST_RUNS: usize = 4;
/// The share of all CPUs' time that others may have.
const TOLERATED: f64 = 0.01;
/// How often the lab's host says what it does is less.
const LOOK: Duration = Duration::from_secs(2);
const MOST_LOOKS: usize = 30;

/// Runs `test`, and again where it failed while the machine was disturbed, when it is quiet.
pub fn unless_disturbed(test: impl Fn()) {
    repeat(test, Sample::take, |reason| {
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        // Not eprintln!, which the test runner captures.
        let _ = writeln!(
            std::io::stderr(),
            "DISTURBED {name}: {reason} while it failed; once more"
        );
        let is_quiet = || {
            let before = Sample::take();
            std::thread::sleep(LOOK);
            before.disturbed_until(&Sample::take()).is_none()
        };
        let _ = (0..MOST_LOOKS).find(|_| is_quiet());
    });
}

fn repeat(test: impl Fn(), look: impl Fn() -> Sample, again: impl Fn(&str)) {
    for run in 1.. {
        let before = look();
        let Err(failure) = catch_unwind(AssertUnwindSafe(&test)) else {
            return;
        };
        let disturbed = before.disturbed_until(&look());
        let Some(reason) = disturbed.filter(|_| run < MOST_RUNS) else {
            resume_unwind(failure)
        };
        again(&reason);
    }
}

/// What the machine has done for others since it started; in the lab, what its host has.
#[derive(Debug, Clone, Deserialize)]
struct Sample {
    #[serde(skip, default = "Instant::now")]
    at: Instant,
    cpus: f64,
    outside_ticks: f64,
    steal_ticks: f64,
}

impl Sample {
    fn take() -> Self {
        match std::env::var_os("GPUAWARE_LAB_HOST_LOAD") {
            Some(path) => {
                // Past what the guest's kernel keeps of the host's files.
                let mut options = File::options();
                options.read(true).custom_flags(libc::O_DIRECT);
                let mut text = String::with_capacity(512);
                let mut file = options.open(path).expect("what the host does");
                file.read_to_string(&mut text).expect("what the host does");
                serde_json::from_str(&text).expect("what the host does")
            }
            None => Self::of(&std::fs::read_to_string("/proc/stat").expect("/proc/stat")),
        }
    }

    /// Of proc_stat(5); which processes are others' is not in it.
    fn of(stat: &str) -> Self {
        let lines = stat.lines().filter(|line| line.starts_with("cpu"));
        let steal = stat.split_whitespace().nth(8).map(str::parse);
        Self {
            at: Instant::now(),
            cpus: (lines.count() - 1) as f64,
            outside_ticks: 0.0,
            steal_ticks: steal.and_then(Result::ok).unwrap_or(0.0),
        }
    }

    /// Why what happened from `self` until `end` does not count.
    fn disturbed_until(&self, end: &Self) -> Option<String> {
        let ticks = (end.at - self.at).as_secs_f64() * 100.0 * self.cpus;
        let steal = (end.steal_ticks - self.steal_ticks) / ticks;
        let outside = (end.outside_ticks - self.outside_ticks) / ticks;
        (steal + outside > TOLERATED).then(|| {
            format!(
                "a hypervisor took {:.1} % and other processes {:.1} % of the CPUs' time",
                steal * 100.0,
                outside * 100.0
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Runs a test that passes at run `passes_at` on a machine of which a tenth is stolen until run `disturbed_until`.
    fn runs(passes_at: usize, disturbed_until: usize) -> (usize, bool) {
        let nr_runs = Cell::new(0);
        let nr_looks = Cell::new(0);
        let start = Instant::now();
        let look = || {
            let looks = nr_looks.replace(nr_looks.get() + 1);
            let (run, ends) = (looks / 2, looks % 2);
            let stolen = if run < disturbed_until { 10.0 } else { 0.5 };
            Sample {
                at: start + Duration::from_secs(looks as u64),
                cpus: 1.0,
                outside_ticks: 0.0,
                steal_ticks: stolen * ends as f64,
            }
        };
        let test = || {
            nr_runs.set(nr_runs.get() + 1);
            if nr_runs.get() < passes_at {
                resume_unwind(Box::new("failed"));
            }
        };
        let passed = catch_unwind(AssertUnwindSafe(|| repeat(test, look, |_| ()))).is_ok();
        (nr_runs.get(), passed)
    }

    #[test]
    fn only_failures_on_a_disturbed_machine_are_repeated() {
        assert_eq!(runs(1, 0), (1, true));
        assert_eq!(runs(2, 0), (1, false));
        assert_eq!(runs(2, 1), (2, true));
        assert_eq!(runs(3, 1), (2, false));
        assert_eq!(runs(9, 9), (MOST_RUNS, false));
    }

    #[test]
    fn steal_and_cpus_are_those_of_all() {
        let sample = Sample::of(
            "cpu  1 2 3 4 5 6 7 80 0 0\ncpu0 1 2 3 4 5 6 7 40 0 0\ncpu1 1 2 3 4 5 6 7 40 0 0\nintr 1\n",
        );
        assert_eq!((sample.cpus, sample.steal_ticks), (2.0, 80.0));
    }
}
