// SPDX-License-Identifier: GPL-2.0-only
//! For whom the names, executables and arguments are right that rules ask for. The kernel says who
//! started a program or was renamed; nobody else is looked at again.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::policy::Rule;
use crate::policy::rule::ThreadFacts;

use super::rules::Rules;

/// How often a process that starts threads meanwhile is gone through again.
const MAX_ROUNDS: usize = 8;

/// The rules that ask for names, by their number.
pub struct Names {
    proc: PathBuf,
    rules: Vec<(usize, Rule)>,
    /// Must the executable or the arguments be known?
    of_process: bool,
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

/// What `/proc/TID/stat` says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stat {
    comm: String,
    start_ticks: u64,
}

/// What all threads of a process share.
#[derive(Debug, Default)]
struct Program {
    exe: String,
    cmdline: String,
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
        })
    }

    /// Every process there is.
    pub fn all_processes(&self) -> Vec<u32> {
        numbers_in(&self.proc)
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
            for tid in numbers_in(&tasks) {
                if seen.insert(tid)
                    && let Some(mut stat) = stat_of(&tasks.join(tid.to_string()))
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
        let folder = self.proc.join(tgid.to_string());
        let link = folder.join("exe");
        let exe = std::fs::read_link(&link).unwrap_or_default();
        let is_deleted = std::fs::metadata(&link).is_ok_and(|file| file.nlink() == 0);
        let cmdline = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        Program {
            exe: exe_name(exe.as_os_str().as_bytes(), is_deleted),
            cmdline: arguments(&cmdline),
        }
    }
}

fn numbers_in(folder: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn stat_of(folder: &Path) -> Option<Stat> {
    parse_stat(&std::fs::read(folder.join("stat")).ok()?)
}

/// `TID (COMM) STATE …`: the name may hold anything, so its end is the last parenthesis.
fn parse_stat(stat: &[u8]) -> Option<Stat> {
    const START_TIME: usize = 19; // counted from the state
    let open = stat.iter().position(|&byte| byte == b'(')?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let comm = unescape(stat.get(open + 1..close)?);
    let rest = std::str::from_utf8(&stat[close + 1..]).ok()?;
    let start = rest.split_ascii_whitespace().nth(START_TIME)?;
    Some(Stat {
        comm: String::from_utf8_lossy(&comm).into_owned(),
        start_ticks: start.parse().ok()?,
    })
}

/// The kernel writes a newline and a backslash of a name as `\n` and `\\`.
fn unescape(comm: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(comm.len());
    let mut bytes = comm.iter().copied();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => b'\n',
                Some(other) => other,
                None => b'\\',
            },
            other => other,
        });
    }
    plain
}

fn exe_name(link: &[u8], is_deleted: bool) -> String {
    let link = match is_deleted {
        true => link.strip_suffix(b" (deleted)").unwrap_or(link),
        false => link,
    };
    String::from_utf8_lossy(link).into_owned()
}

/// Arguments end with a NUL each; a program that writes its own title may leave any number of them.
fn arguments(cmdline: &[u8]) -> String {
    let text = String::from_utf8_lossy(cmdline);
    text.trim_end_matches('\0').replace('\0', " ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::policy::Policy;
    use proptest::prelude::*;

    fn names(text: &str, proc: &Path) -> Option<Names> {
        let policy = Policy::parse(&format!("[class.handoff]\nmatch = [{text}]\n")).unwrap();
        Names::new(&Rules::new(&policy), proc)
    }

    fn stat_line(comm: &[u8], start: u64) -> Vec<u8> {
        let rest: Vec<_> = (4..22).map(|field| field.to_string()).collect();
        let mut line = b"12 (".to_vec();
        line.extend(comm);
        line.extend(format!(") S {} {start} 0 0\n", rest.join(" ")).bytes());
        line
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
    fn processes_that_vanish_meanwhile_match_nothing_by_mistake() {
        let proc = Path::new("/proc");
        let rules = "{ cmdline = \"vanish *\" }, { comm = \"nobody-is-this\" }";
        let names = names(rules, proc).unwrap();
        let stop = AtomicBool::new(false);
        let matched = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut command = std::process::Command::new("true");
                    command.arg0("vanish").arg("now");
                    command.status().unwrap();
                }
            });
            let (mut matched, end) = (0, Instant::now() + Duration::from_secs(20));
            while matched < 20 && Instant::now() < end {
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

    #[test]
    fn only_a_file_that_is_gone_is_called_deleted() {
        assert_eq!(exe_name(b"/bin/x (deleted)", true), "/bin/x");
        assert_eq!(exe_name(b"/bin/x (deleted)", false), "/bin/x (deleted)");
    }

    proptest! {
        #[test]
        fn any_name_is_read_back(comm in proptest::collection::vec(1u8.., 0..16), start: u64) {
            let mut escaped = Vec::new();
            for &byte in &comm {
                match byte {
                    b'\n' => escaped.extend(b"\\n"),
                    b'\\' => escaped.extend(b"\\\\"),
                    _ => escaped.push(byte),
                }
            }
            let stat = parse_stat(&stat_line(&escaped, start)).unwrap();
            prop_assert_eq!(stat.comm, String::from_utf8_lossy(&comm));
            prop_assert_eq!(stat.start_ticks, start);
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>, is_deleted: bool) {
            parse_stat(&bytes);
            prop_assert!(!arguments(&bytes).contains('\0'));
            prop_assert!(exe_name(&bytes, is_deleted).len() <= 3 * bytes.len());
        }
    }
}
