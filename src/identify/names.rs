// SPDX-License-Identifier: GPL-2.0-only
//! Finds threads whose name, executable or arguments match a rule. A thread is looked at again only
//! after an exec or a rename, of which the kernel tells.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::policy::Rule;
use crate::policy::rule::ThreadFacts;
use crate::proc::{Program, Stat, numbers_in};

use super::backlog::Backlog;
use super::rest::spending;
use super::rules::Rules;

/// How often a process that starts threads meanwhile is gone through again, and all processes where others start.
const MAX_ROUNDS: usize = 8;

/// The rules that ask for names, by their number.
pub struct Names {
    proc: PathBuf,
    rules: Vec<(usize, Rule)>,
    /// Must the executable or the arguments be known?
    of_process: bool,
    /// Who started a program or was renamed: anybody can have that done in a loop.
    waiting: Backlog,
}

/// A thread and the rules that it matches by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// The thread.
    pub tid: u32,
    /// When it started, as `/proc/TID/stat` has it.
    pub start_ticks: u64,
    /// A bit for each rule.
    pub rules: u64,
}

impl Names {
    /// Of `rules`, for the processes below `proc`, which is `/proc`. `None`: no rule asks for names.
    pub fn new(rules: &Rules, proc: &Path) -> Option<Self> {
        let rules: Vec<_> = rules
            .judged
            .iter()
            .enumerate()
            .filter(|(_, judged)| judged.by_name())
            .map(|(number, judged)| (number, judged.rule.clone()))
            .collect();
        let of_process = rules
            .iter()
            .any(|(_, rule)| rule.exe.is_some() || rule.cmdline.is_some());
        (!rules.is_empty()).then(|| Self {
            proc: proc.to_path_buf(),
            rules,
            of_process,
            waiting: Backlog::default(),
        })
    }

    /// Process `tgid` has started a program, or a thread of it was renamed.
    pub fn push(&mut self, tgid: u32) {
        self.waiting.push(tgid);
    }

    /// Says of the processes that wait what [`Names::of_process`] says, in turn and for a twentieth of a CPU's time at
    /// most; `now` is when that begins.
    pub fn look(
        &mut self,
        now: Duration,
        renamed: &HashMap<u32, String>,
        mut say: impl FnMut(Named),
    ) {
        if self.waiting.is_empty() || !self.waiting.is_due(now) {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.look(now, spending(), |tgid| {
            self.of_process(tgid, renamed, &mut say)
        });
        self.waiting = waiting;
    }

    fn all_processes(&self) -> Vec<u32> {
        numbers_in(&self.proc)
    }

    /// The same of every process there is. One that was not looked at yet may start others: until none is new.
    pub fn of_all(&self, mut say: impl FnMut(Named)) {
        let mut seen = HashSet::new();
        for _ in 0..MAX_ROUNDS {
            let before = seen.len();
            for tgid in self.all_processes() {
                if seen.insert(tgid) {
                    self.of_process(tgid, &HashMap::new(), &mut say);
                }
            }
            if seen.len() == before {
                return;
            }
        }
    }

    /// Says of every thread of process `tgid` what it matches. The kernel tells of new names, in
    /// `renamed`, before it writes them. A thread that starts meanwhile may inherit what its parent
    /// was before: the process is gone through until no thread is new.
    pub fn of_process(
        &self,
        tgid: u32,
        renamed: &HashMap<u32, String>,
        mut say: impl FnMut(Named),
    ) {
        let tasks = self.proc.join(format!("{tgid}/task"));
        let program = self.program(tgid);
        let mut seen = HashSet::new();
        for _ in 0..MAX_ROUNDS {
            let before = seen.len();
            for tid in numbers_in::<u32>(&tasks) {
                if seen.insert(tid)
                    && let Some(mut stat) = Stat::read(&tasks.join(tid.to_string()))
                {
                    if let Some(comm) = renamed.get(&tid) {
                        stat.comm.clone_from(comm);
                    }
                    say(self.named(tid, &stat, &program));
                }
            }
            if seen.len() == before {
                return;
            }
        }
    }

    fn named(&self, tid: u32, stat: &Stat, program: &Program) -> Named {
        let facts = ThreadFacts {
            comm: &stat.comm,
            exe: &program.exe,
            cmdline: &program.cmdline,
            ..ThreadFacts::default()
        };
        let rules = self
            .rules
            .iter()
            .filter(|(_, rule)| rule.names_hold(&facts));
        Named {
            tid,
            start_ticks: stat.start_ticks,
            rules: rules.fold(0, |bits, (number, _)| bits | 1 << number),
        }
    }

    fn program(&self, tgid: u32) -> Program {
        if !self.of_process {
            return Program::default();
        }
        Program::read(&self.proc.join(tgid.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::policy::Policy;
    use crate::proc::tests::stat_line;

    fn names(text: &str, proc: &Path) -> Option<Names> {
        let policy = Policy::parse(&format!("[class.handoff]\nmatch = [{text}]\n")).unwrap();
        Names::new(&Rules::new(&policy), proc)
    }

    fn add_thread(proc: &Path, tgid: u32, tid: u32, comm: &str) {
        let folder = proc.join(format!("{tgid}/task/{tid}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("stat"), stat_line(comm.as_bytes(), 77)).unwrap();
    }

    #[test]
    fn nobody_asks_for_names() {
        assert!(names("{ wakes = \"launch\" }", Path::new("/proc")).is_none());
    }

    #[test]
    fn all_terms_must_hold_for_the_thread_itself() {
        let proc = tempfile::tempdir().unwrap();
        add_thread(proc.path(), 5, 5, "python3");
        add_thread(proc.path(), 5, 6, "EngineCore_0");
        std::fs::write(proc.path().join("5/cmdline"), "vllm\0serve\0model\0\0").unwrap();
        std::os::unix::fs::symlink("/usr/bin/python3", proc.path().join("5/exe")).unwrap();
        let said = |rules: &str| {
            let mut said = Vec::new();
            let names = names(rules, proc.path()).unwrap();
            names.of_process(5, &HashMap::new(), |named| {
                said.push((named.tid, named.rules))
            });
            said.sort_unstable();
            said
        };
        let rule = "{ comm = \"EngineCore*\", exe = \"**/python3\", cmdline = \"vllm serve *\" }";
        assert_eq!(said(rule), [(5, 0), (6, 1)]);
        let rules = "{ comm = \"EngineCore*\", exe = \"/bin/x\" }, { cmdline = \"*model\" }";
        assert_eq!(said(rules), [(5, 2), (6, 2)]);
    }

    #[test]
    fn a_renamed_thread_matches_by_its_new_name() {
        let proc = tempfile::tempdir().unwrap();
        add_thread(proc.path(), 5, 6, "old");
        let names = names("{ comm = \"new*\" }", proc.path()).unwrap();
        let rules_of = |renamed: &[(u32, &str)]| {
            let renamed = renamed.iter().map(|&(tid, comm)| (tid, comm.to_owned()));
            let mut rules = None;
            names.of_process(5, &renamed.collect(), |named| rules = Some(named.rules));
            rules
        };
        assert_eq!(rules_of(&[(6, "new name")]), Some(1));
        assert_eq!(rules_of(&[(7, "new name")]), Some(0));
    }

    #[test]
    fn of_a_flood_of_names_some_are_looked_up_at_a_time_and_all_in_the_end() {
        const MANY: u32 = 3000;
        let proc = tempfile::tempdir().unwrap();
        (0..MANY).for_each(|tgid| add_thread(proc.path(), tgid, tgid, "new"));
        let mut names = names("{ comm = \"new\" }", proc.path()).unwrap();
        (0..MANY).for_each(|tgid| names.push(tgid));
        let (mut now, mut rounds) = (Duration::ZERO, Vec::new());
        let look = |names: &mut Names, now| {
            let mut said = Vec::new();
            names.look(now, &HashMap::new(), |named| said.push(named.tid));
            said
        };
        rounds.push(look(&mut names, now));
        assert!(rounds[0].len() < MANY as usize, "all at once");
        assert!(look(&mut names, now).is_empty(), "no rest in between");
        while !names.waiting.is_empty() {
            now += Duration::from_secs(60);
            rounds.push(look(&mut names, now));
        }
        assert_eq!(rounds.concat(), (0..MANY).collect::<Vec<_>>());
    }

    #[test]
    fn processes_that_vanish_meanwhile_match_nothing_by_mistake() {
        let proc = Path::new("/proc");
        let rules = "{ cmdline = \"vanish *\" }, { comm = \"nobody-is-this\" }";
        let names = names(rules, proc).unwrap();
        let stop = AtomicBool::new(false);
        let matched = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // As long as a look takes: some are seen, and some vanish while they are looked at.
                    let mut command = std::process::Command::new("sleep");
                    command.arg0("vanish").arg("0.005");
                    command.status().unwrap();
                }
            });
            let (mut matched, end) = (0, Instant::now() + Duration::from_secs(60));
            while matched < 200 && Instant::now() < end {
                for tgid in names.all_processes() {
                    names.of_process(tgid, &HashMap::new(), |named| {
                        assert!(named.rules <= 1, "nobody has that name");
                        matched += named.rules;
                    });
                }
            }
            stop.store(true, Ordering::Relaxed);
            matched
        });
        assert!(matched >= 20, "{matched}");
    }

    #[test]
    fn processes_that_are_gone_match_nothing() {
        let names = names("{ comm = \"*\" }", Path::new("/nonexistent")).unwrap();
        names.of_process(5, &HashMap::new(), |named| panic!("{named:?}"));
        assert!(names.all_processes().is_empty());
    }
}
