// SPDX-License-Identifier: GPL-2.0-only
//! The threads of the machine, their CPUs and what rules ask for: reads `/proc`, keeps which thread
//! has been looked at, sets affinities. Decides nothing.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;

use crate::policy::cpuset::{CpuSet, MAX_CPU};
use crate::policy::rule::ThreadFacts;
use crate::proc::{self, PROC, Program, Stat, numbers_in};

/// A thread that is younger may not have given itself its name, nor its brothers theirs.
const YOUNGEST_MS: u64 = 100;
/// Until this age it is looked at every time: programs name their threads while they start.
const YOUNG_MS: u64 = 10_000;
/// Later every so many times.
const OLD_LOOKS: u64 = 60;

/// A thread, as it was when it was last looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    pub tid: i32,
    pub tgid: i32,
    /// TGID of the process that started its process.
    pub parent: i32,
    pub comm: String,
    /// When it started, in clock ticks since the boot. With the TID it names a thread for good.
    pub started: u64,
    /// It was not looked at before.
    pub is_new: bool,
}

/// What rules go by, of one thread.
#[derive(Debug, Default)]
pub struct Facts {
    /// Its cgroup's folder, relative to the root of the hierarchy, if it can be seen.
    pub cgroup: Option<PathBuf>,
    cgroup_text: Option<String>,
    program: Program,
}

impl Facts {
    pub fn read(thread: &Thread) -> Self {
        let folder = Path::new(PROC).join(thread.tid.to_string());
        let cgroup = proc::cgroup(&folder);
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        Self {
            cgroup_text: cgroup.as_ref().map(text),
            cgroup,
            program: Program::read(&folder),
        }
    }

    pub fn with_name<'a>(&'a self, comm: &'a str) -> ThreadFacts<'a> {
        ThreadFacts {
            cgroup: self.cgroup_text.as_deref(),
            comm,
            exe: &self.program.exe,
            cmdline: &self.program.cmdline,
        }
    }
}

/// Which threads there are, and which are due for a look.
#[derive(Debug, Default)]
pub struct Threads {
    seen: HashMap<i32, Seen>,
    nr_looks: u64,
}

#[derive(Debug)]
struct Seen {
    is_kernel: bool,
    parent: i32,
    started: u64,
}

impl Threads {
    /// The threads of programs that are due, in the order in which they started. Those that are gone are
    /// forgotten.
    pub fn look(&mut self) -> Vec<Thread> {
        self.nr_looks += 1;
        self.walk(ticks(YOUNGEST_MS))
    }

    /// All threads of programs, also the youngest.
    pub fn all(&mut self) -> Vec<Thread> {
        self.seen.clear();
        self.walk(0)
    }

    fn walk(&mut self, youngest: u64) -> Vec<Thread> {
        let now = now_ticks();
        let mut due = Vec::new();
        let mut alive = HashSet::new();
        for tgid in numbers_in(Path::new(PROC)) {
            if self.seen.get(&tgid).is_some_and(|seen| seen.is_kernel) {
                alive.insert(tgid);
                continue;
            }
            for tid in numbers_in(Path::new(&format!("{PROC}/{tgid}/task"))) {
                alive.insert(tid);
                if self.is_due(tid, now) {
                    due.extend(self.look_at(tgid, tid, now.saturating_sub(youngest)));
                }
            }
        }
        self.seen.retain(|tid, _| alive.contains(tid));
        due.sort_by_key(|thread: &Thread| (thread.started, thread.tid));
        due
    }

    fn is_due(&self, tid: i32, now: u64) -> bool {
        self.seen.get(&tid).is_none_or(|seen| {
            !seen.is_kernel
                && (now < seen.started + ticks(YOUNG_MS)
                    || (self.nr_looks + tid.unsigned_abs() as u64).is_multiple_of(OLD_LOOKS))
        })
    }

    fn look_at(&mut self, tgid: i32, tid: i32, latest_start: u64) -> Option<Thread> {
        let stat = Stat::read(Path::new(&format!("{PROC}/{tgid}/task/{tid}")))?;
        let is_kernel = stat.is_kernel();
        if !is_kernel && stat.start_ticks > latest_start {
            return None;
        }
        let seen = Seen {
            is_kernel,
            parent: stat.parent,
            started: stat.start_ticks,
        };
        let before = self.seen.insert(tid, seen);
        (!is_kernel).then(|| Thread {
            tid,
            tgid,
            parent: stat.parent,
            comm: stat.comm,
            started: stat.start_ticks,
            is_new: before.is_none_or(|before| before.started != stat.start_ticks),
        })
    }

    /// The next look is at thread `tid` too, as if it were new.
    pub fn forget(&mut self, tid: i32) {
        self.seen.remove(&tid);
    }

    /// When thread `tid` started, if it has been seen and lives.
    pub fn started(&self, tid: i32) -> Option<u64> {
        self.seen.get(&tid).map(|seen| seen.started)
    }

    /// Process `tgid` and those that it comes from, nearest first.
    pub fn line_of(&self, tgid: i32) -> Vec<i32> {
        let parent = |tgid: &i32| self.seen.get(tgid).map(|seen| seen.parent);
        // Nobody is his own ancestor, but the entries are of different moments.
        std::iter::successors(Some(tgid), parent).take(64).collect()
    }
}

/// Clock ticks since the boot.
pub fn now_ticks() -> u64 {
    let clock = nix::time::ClockId::CLOCK_BOOTTIME;
    let now = nix::time::clock_gettime(clock).map(std::time::Duration::from);
    ticks(now.map_or(0, |now| now.as_millis() as u64))
}

fn ticks(ms: u64) -> u64 {
    // SAFETY: takes and returns plain integers.
    let per_second = unsafe { nix::libc::sysconf(nix::libc::_SC_CLK_TCK) };
    ms * u64::try_from(per_second).unwrap_or(100) / 1000
}

/// The CPUs that the cpuset of cgroup `path` allows, below `root` where cgroup v2 is mounted. `None`: there are
/// no cpusets, and every online CPU is allowed.
pub fn cpuset_of(root: Option<&Path>, path: &Path) -> Option<CpuSet> {
    let root = root?;
    let folder = root.join(path);
    let above = folder.ancestors().take_while(|path| path.starts_with(root));
    above
        .filter_map(|path| fs::read_to_string(path.join("cpuset.cpus.effective")).ok())
        .find_map(|list| list.parse().ok())
}

/// The CPUs that thread `tid` may run on, online ones only.
pub fn affinity(tid: i32) -> io::Result<CpuSet> {
    let mask = nix::sched::sched_getaffinity(Pid::from_raw(tid))?;
    let allowed = |&cpu: &u32| mask.is_set(cpu as usize).unwrap_or(false);
    Ok(CpuSet::new((0..=MAX_CPU).filter(allowed)))
}

/// Keeps thread `tid` on `cpus`; `None`: on whatever its cpuset allows, now and later.
pub fn set_affinity(tid: i32, cpus: Option<&CpuSet>) -> io::Result<()> {
    let mut mask = nix::sched::CpuSet::new();
    for cpu in 0..=MAX_CPU {
        if cpus.is_none_or(|cpus| cpus.contains(cpu)) {
            mask.set(cpu as usize)?;
        }
    }
    Ok(nix::sched::sched_setaffinity(Pid::from_raw(tid), &mask)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_found_once_it_had_time_to_name_itself_and_forgotten_when_it_ends() {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("pin-newcomer".to_owned());
        let thread = thread.spawn(move || {
            tell.send(nix::unistd::gettid().as_raw()).unwrap();
            let _ = wait.recv();
        });
        let tid = told.recv().unwrap();
        let mut threads = Threads::default();
        let mut finds = || threads.look().into_iter().find(|thread| thread.tid == tid);
        assert_eq!(finds(), None);
        std::thread::sleep(std::time::Duration::from_millis(YOUNGEST_MS + 50));
        let found = finds().unwrap();
        assert_eq!((found.comm.as_str(), found.is_new), ("pin-newcomer", true));
        assert!(!finds().unwrap().is_new, "young ones are looked at again");
        drop(stop);
        thread.unwrap().join().unwrap();
        threads.look();
        assert_eq!(threads.started(tid), None);
    }

    #[test]
    fn the_nearest_cpuset_counts() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("a/b")).unwrap();
        assert_eq!(cpuset_of(Some(root.path()), Path::new("a/b")), None);
        for (folder, cpus) in [("", "0-7\n"), ("a", "2-3\n")] {
            let file = root.path().join(folder).join("cpuset.cpus.effective");
            std::fs::write(file, cpus).unwrap();
        }
        let cpus = |path: &str| {
            cpuset_of(Some(root.path()), Path::new(path))
                .unwrap()
                .to_string()
        };
        assert_eq!(cpus("a/b"), "2-3");
        assert_eq!(cpus(""), "0-7");
    }
}
