// SPDX-License-Identifier: GPL-2.0-only
//! Which processes to look at, and when: often while they are young, rarely when they are old.
//! Pure but for [`Strangers`], which reads `/proc`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use nix::unistd::Pid;

/// Age at which a process that started a program is looked at. The last gap repeats.
const LOOKS_MS: [u64; 10] = [
    20, 120, 300, 600, 1_200, 3_000, 8_000, 20_000, 50_000, 110_000,
];

/// The processes to look at next.
#[derive(Debug, Default)]
pub struct Looks {
    due: BinaryHeap<Reverse<(Duration, u32, usize)>>,
    /// Time of the last start of a program, which outdates earlier entries in `due`.
    started: HashMap<u32, Duration>,
}

impl Looks {
    /// Process `tgid` started a program at `now`, or was found running.
    pub fn started(&mut self, tgid: u32, now: Duration) {
        self.started.insert(tgid, now);
        self.due
            .push(Reverse((now + Duration::from_millis(LOOKS_MS[0]), tgid, 0)));
    }

    /// The process is gone.
    pub fn ended(&mut self, tgid: u32) {
        self.started.remove(&tgid);
    }

    /// Takes the next process that is due at `now`. The caller says [`Looks::ended`] if it does
    /// not exist any more.
    pub fn next(&mut self, now: Duration) -> Option<u32> {
        while let Some(&Reverse((at, tgid, look))) = self.due.peek() {
            if at > now {
                return None;
            }
            self.due.pop();
            let Some(&started) = self.started.get(&tgid) else {
                continue;
            };
            if at != started + look_at(look) {
                continue; // of an earlier program
            }
            self.due
                .push(Reverse((started + look_at(look + 1), tgid, look + 1)));
            return Some(tgid);
        }
        None
    }
}

fn look_at(look: usize) -> Duration {
    let last = LOOKS_MS.len() - 1;
    let repeats = look.saturating_sub(last) as u64;
    let gap = LOOKS_MS[last] - LOOKS_MS[last - 1];
    Duration::from_millis(LOOKS_MS[look.min(last)] + repeats * gap)
}

/// Whose CPU time is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Runner {
    /// All threads of a process, of which none has a mark: hundreds of processes with dozens of
    /// threads each are asked for one number each.
    Process(u32),
    Thread(u32),
}

/// CPU time of the threads of GPU processes that have no mark.
#[derive(Debug, Default)]
pub struct Strangers {
    run_ns: HashMap<Runner, u64>,
}

impl Strangers {
    /// Did an unmarked thread of one of `processes` run since the last call? One that was not
    /// there then does not count: its start was announced by itself. `marked` are the threads that
    /// have a mark, by process; `proc` is `/proc`; `process_ns` tells the CPU time of a process.
    pub fn ran(
        &mut self,
        proc: &Path,
        processes: impl Iterator<Item = u32>,
        marked: &HashMap<u32, HashSet<u32>>,
        process_ns: impl Fn(u32) -> Option<u64>,
    ) -> bool {
        let mut now = HashMap::new();
        for tgid in processes {
            let Some(marked) = marked.get(&tgid) else {
                now.extend(process_ns(tgid).map(|run_ns| (Runner::Process(tgid), run_ns)));
                continue;
            };
            let tasks = std::fs::read_dir(proc.join(format!("{tgid}/task")));
            for task in tasks.into_iter().flatten().flatten() {
                let tid = task.file_name().to_str().and_then(|tid| tid.parse().ok());
                let Some(tid) = tid.filter(|tid| !marked.contains(tid)) else {
                    continue;
                };
                // A kernel without schedstat: assume that it ran.
                let run_ns = read_run_ns(&task.path().join("schedstat")).unwrap_or(u64::MAX);
                now.insert(Runner::Thread(tid), run_ns);
            }
        }
        let ran = now.iter().any(|(who, &run_ns)| {
            run_ns == u64::MAX || self.run_ns.get(who).is_some_and(|&before| before != run_ns)
        });
        self.run_ns = now;
        ran
    }
}

/// CPU time of all threads of process `tgid` so far; `None`: it is gone.
pub fn process_ns(tgid: u32) -> Option<u64> {
    let pid = Pid::from_raw(tgid.try_into().ok()?);
    let clock = nix::time::clock_getcpuclockid(pid).ok()?;
    let time = nix::time::clock_gettime(clock).ok()?;
    Some(Duration::from(time).as_nanos() as u64)
}

fn read_run_ns(schedstat: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(schedstat).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_schedstat_is_read_without_harm(bytes: Vec<u8>) {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &bytes).unwrap();
            read_run_ns(file.path());
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Steps through time and lists when `tgid` is looked at.
    fn looks_until(looks: &mut Looks, from: u64, to: u64) -> Vec<u64> {
        let mut times = Vec::new();
        for now in (from..to).step_by(10) {
            while looks.next(ms(now)).is_some() {
                times.push(now);
            }
        }
        times
    }

    #[test]
    fn looks_often_at_young_processes_and_rarely_at_old_ones() {
        let mut looks = Looks::default();
        looks.started(7, ms(0));
        let times = looks_until(&mut looks, 0, 300_000);
        assert_eq!(times[..6], [20, 120, 300, 600, 1200, 3000]);
        assert_eq!(times[9..], [110_000, 170_000, 230_000, 290_000]);
    }

    #[test]
    fn a_new_program_starts_the_looks_anew() {
        let mut looks = Looks::default();
        looks.started(7, ms(0));
        looks_until(&mut looks, 0, 5_000);
        looks.started(7, ms(5_000));
        assert_eq!(looks_until(&mut looks, 5_000, 5_500), [5_020, 5_120, 5_300]);
    }

    #[test]
    fn forgets_processes_that_ended() {
        let mut looks = Looks::default();
        looks.started(7, ms(0));
        looks.ended(7);
        assert!(looks_until(&mut looks, 0, 1_000).is_empty());
        assert!(looks.due.is_empty());
    }

    #[test]
    fn strangers_are_threads_that_ran_without_a_mark() {
        let proc = tempfile::tempdir().unwrap();
        let write = |tid: u32, run_ns: u64| {
            let dir = proc.path().join(format!("1/task/{tid}"));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("schedstat"), format!("{run_ns} 5 3\n")).unwrap();
        };
        let mut strangers = Strangers::default();
        let mut ran = |marked: &[u32], process_ns: u64| {
            let marked = HashMap::from([(1, marked.iter().copied().collect())]);
            let processes = [1, 2, 99].into_iter();
            let clock = |tgid| (tgid == 2).then_some(process_ns);
            strangers.ran(proc.path(), processes, &marked, clock)
        };
        write(1, 100);
        write(2, 100);
        assert!(!ran(&[2], 7), "a thread that was never seen");
        write(2, 900);
        assert!(!ran(&[2], 7), "only the marked one ran");
        write(1, 101);
        assert!(ran(&[2], 7));
        assert!(!ran(&[1, 2], 7));
        assert!(ran(&[1, 2], 8), "a process without a mark");
        assert!(!ran(&[1, 2], 8));
    }

    #[test]
    fn a_process_that_runs_has_a_clock_and_one_that_is_gone_has_none() {
        let own = std::process::id();
        let before = process_ns(own).unwrap();
        while process_ns(own).unwrap() == before {}
        assert_eq!(process_ns(u32::MAX), None);
        const NO_PID: u32 = 1 << 22; // the kernel's limit
        assert_eq!(process_ns(NO_PID), None);
    }
}
