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

const PROC: &str = "/proc";
/// `PF_KTHREAD` of the kernel's flags in `/proc/PID/stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;
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
    pub cgroup: String,
    exe: String,
    cmdline: String,
}

impl Facts {
    pub fn read(thread: &Thread) -> Self {
        let file = |name: &str| PathBuf::from(format!("{PROC}/{}/{name}", thread.tid));
        let exe = fs::read_link(file("exe")).unwrap_or_default();
        let cmdline = fs::read(file("cmdline")).unwrap_or_default();
        let arguments: Vec<_> = cmdline
            .split(|&byte| byte == 0)
            .filter(|argument| !argument.is_empty())
            .map(String::from_utf8_lossy)
            .collect();
        Self {
            cgroup: cgroup_of(thread.tid),
            exe: exe.to_string_lossy().into_owned(),
            cmdline: arguments.join(" "),
        }
    }

    pub fn with_name<'a>(&'a self, comm: &'a str) -> ThreadFacts<'a> {
        ThreadFacts {
            cgroup: &self.cgroup,
            comm,
            exe: &self.exe,
            cmdline: &self.cmdline,
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
        for tgid in numbers(Path::new(PROC)) {
            if self.seen.get(&tgid).is_some_and(|seen| seen.is_kernel) {
                alive.insert(tgid);
                continue;
            }
            for tid in numbers(Path::new(&format!("{PROC}/{tgid}/task"))) {
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
        let text = fs::read_to_string(format!("{PROC}/{tgid}/task/{tid}/stat")).ok()?;
        let (mut thread, flags) = parse_stat(&text, tgid)?;
        let is_kernel = flags & KERNEL_THREAD != 0;
        if !is_kernel && thread.started > latest_start {
            return None;
        }
        let seen = Seen {
            is_kernel,
            parent: thread.parent,
            started: thread.started,
        };
        let before = self.seen.insert(tid, seen);
        thread.is_new = before.is_none_or(|before| before.started != thread.started);
        (!is_kernel).then_some(thread)
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

/// The entries of `folder` that are numbers; none if it vanishes meanwhile.
fn numbers(folder: &Path) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// A thread and its flags. The name may have blanks and parentheses.
fn parse_stat(text: &str, tgid: i32) -> Option<(Thread, u64)> {
    let (tid, rest) = text.split_once(" (")?;
    let (comm, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<_> = rest.split(' ').collect();
    let thread = Thread {
        tid: tid.parse().ok()?,
        tgid,
        parent: fields.get(1)?.parse().ok()?,
        comm: comm.to_owned(),
        started: fields.get(19)?.parse().ok()?,
        is_new: true,
    };
    Some((thread, fields.get(6)?.parse().ok()?))
}

fn cgroup_of(tid: i32) -> String {
    let text = fs::read_to_string(format!("{PROC}/{tid}/cgroup")).unwrap_or_default();
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"));
    path.unwrap_or_default().to_owned()
}

/// The CPUs that the cpuset of cgroup `path` allows, below `root` where cgroup v2 is mounted. `None`: there are
/// no cpusets, and every online CPU is allowed.
pub fn cpuset_of(root: Option<&Path>, path: &str) -> Option<CpuSet> {
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
    fn reads_a_name_with_blanks_and_parentheses() {
        let text = "12 (a) (b c) S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2";
        let (thread, flags) = parse_stat(text, 11).unwrap();
        assert_eq!((thread.tid, thread.tgid, thread.parent), (12, 11, 7));
        assert_eq!((thread.comm.as_str(), thread.started), ("a) (b c", 4711));
        assert_eq!(flags & KERNEL_THREAD, 0);
    }

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
        assert_eq!(cpuset_of(Some(root.path()), "a/b"), None);
        for (folder, cpus) in [("", "0-7\n"), ("a", "2-3\n")] {
            let file = root.path().join(folder).join("cpuset.cpus.effective");
            std::fs::write(file, cpus).unwrap();
        }
        let cpus = |path: &str| cpuset_of(Some(root.path()), path).unwrap().to_string();
        assert_eq!(cpus("a/b"), "2-3");
        assert_eq!(cpus(""), "0-7");
    }
}
