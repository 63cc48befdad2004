// SPDX-License-Identifier: GPL-2.0-only
//! Single threads of a workload, by their names: what an arm does to them once they are there, and how the kernel
//! schedules them in the end.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use globset::Glob;
use nix::unistd::Pid;

use crate::arm::ThreadSettings;
use crate::cpus;
use crate::interrupt;
use crate::procstat::{self, Tree};
use crate::record::ThreadSeen;
use crate::sched_attr;

/// For a thread that its program has yet to start.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

struct Thread {
    tid: Pid,
    comm: String,
}

/// Does to the threads of a process and its descendants what the arm says; waits until there is one for each.
///
/// # Errors
/// No thread has such a name, or the kernel refuses.
pub fn apply(settings: &[ThreadSettings], process: u32) -> Result<()> {
    apply_within(TIMEOUT, settings, process)
}

fn apply_within(limit: Duration, settings: &[ThreadSettings], process: u32) -> Result<()> {
    let deadline = Instant::now() + limit;
    for wanted in settings {
        let name = Glob::new(&wanted.comm)
            .with_context(|| format!("workload.threads: {:?} is no glob", wanted.comm))?
            .compile_matcher();
        loop {
            interrupt::check()?;
            let all = threads(process);
            let named = all.iter().filter(|thread| name.is_match(&thread.comm));
            if change_all(named, wanted)? {
                break;
            }
            if Instant::now() >= deadline {
                let names: BTreeSet<&str> = all.iter().map(|thread| thread.comm.as_str()).collect();
                bail!(
                    "workload.threads: no thread of the workload is named {:?}; there is: {}",
                    wanted.comm,
                    names.into_iter().collect::<Vec<_>>().join(", ")
                );
            }
            std::thread::sleep(POLL);
        }
    }
    Ok(())
}

/// Changes each of `threads`. Were there any? One that ends meanwhile does not count.
fn change_all<'a>(
    threads: impl Iterator<Item = &'a Thread>,
    wanted: &ThreadSettings,
) -> Result<bool> {
    let mut any = false;
    for thread in threads {
        let changed = change(thread, wanted);
        if changed.is_err() && !Path::new(&format!("/proc/{}", thread.tid)).exists() {
            continue;
        }
        changed?;
        any = true;
    }
    Ok(any)
}

fn change(thread: &Thread, wanted: &ThreadSettings) -> Result<()> {
    let refused = |what: &str| format!("cannot give thread {} {what}", thread.comm);
    if let Some(list) = &wanted.cpus {
        let cpus = cpus::parse_list(list).map_err(anyhow::Error::msg)?;
        let cpus: Vec<usize> = cpus.into_iter().collect();
        cpus::allow(thread.tid, &cpus).with_context(|| refused(&format!("the CPUs {list}")))?;
    }
    let change = wanted.change();
    if change == sched_attr::Change::default() {
        return Ok(());
    }
    sched_attr::change(thread.tid, change).with_context(|| refused(&format!("{change:?}")))
}

/// How the kernel schedules the threads of a process and its descendants.
pub fn seen(process: u32) -> Vec<ThreadSeen> {
    let look = |thread: Thread| {
        let attributes = sched_attr::of(thread.tid).ok()?;
        let cpus = cpus::allowed(thread.tid).ok()?.into_iter().collect();
        Some(ThreadSeen {
            tid: thread.tid.as_raw(),
            comm: thread.comm,
            policy: attributes.policy,
            nice: attributes.nice,
            priority: attributes.priority,
            slice_us: attributes.slice.map(|slice| slice.as_micros() as u64),
            cpus: cpus::format_list(&cpus),
        })
    };
    // A thread that ends meanwhile is left out.
    threads(process).into_iter().filter_map(look).collect()
}

fn threads(process: u32) -> Vec<Thread> {
    let named = |tid: i64| {
        let comm = procstat::text(format!("/proc/{tid}/comm"))?;
        Some(Thread {
            tid: Pid::from_raw(i32::try_from(tid).ok()?),
            comm: comm.trim_end().to_owned(),
        })
    };
    Tree::of(process).tids().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A process that sleeps, killed when dropped.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            Self(Command::new("sleep").arg("1000").spawn().unwrap())
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn settings(text: &str) -> ThreadSettings {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn threads_with_such_a_name_become_what_the_arm_says() {
        let sleeper = Sleeper::start();
        let allowed = cpus::allowed(Pid::from_raw(0)).unwrap();
        let text = format!("comm = \"sl*p\"\ncpus = \"{}\"\nnice = 5", allowed[0]);
        apply(&[settings(&text)], sleeper.0.id()).unwrap();
        let [thread] = &seen(sleeper.0.id())[..] else {
            panic!("one thread")
        };
        assert_eq!((thread.comm.as_str(), thread.nice), ("sleep", 5));
        assert_eq!(thread.cpus, allowed[0].to_string());
    }

    #[test]
    fn a_name_that_nobody_has_is_an_error_that_says_who_is_there() {
        let sleeper = Sleeper::start();
        let wanted = [settings("comm = \"launch-*\"\nnice = 5")];
        let error = apply_within(Duration::ZERO, &wanted, sleeper.0.id()).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("no thread of the workload is named \"launch-*\"; there is: "),
            "{error}"
        );
    }

    #[test]
    fn threads_whose_name_is_no_utf_8_are_seen() {
        let (ready, wait) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let named = std::thread::spawn(move || {
            nix::sys::prctl::set_name(c"odd\xff").unwrap();
            ready.send(()).unwrap();
            let _ = ends.recv();
        });
        wait.recv().unwrap();
        let seen = seen(std::process::id());
        drop(end);
        named.join().unwrap();
        let names: Vec<&str> = seen.iter().map(|thread| thread.comm.as_str()).collect();
        assert!(names.contains(&"odd\u{fffd}"), "{names:?}");
    }

    #[test]
    fn a_thread_that_ends_meanwhile_is_none() {
        let mut sleeper = Sleeper::start();
        let thread = Thread {
            tid: Pid::from_raw(sleeper.0.id() as i32),
            comm: "sleep".to_owned(),
        };
        sleeper.0.kill().unwrap();
        sleeper.0.wait().unwrap();
        let wanted = settings("comm = \"sleep\"\nnice = 5");
        assert!(!change_all([&thread].into_iter(), &wanted).unwrap());
    }

    #[test]
    fn says_which_cpus_the_kernel_refuses() {
        let sleeper = Sleeper::start();
        let error = apply(
            &[settings("comm = \"sleep\"\ncpus = \"8191\"")],
            sleeper.0.id(),
        );
        let error = format!("{:#}", error.unwrap_err());
        assert!(
            error.starts_with("cannot give thread sleep the CPUs 8191"),
            "{error}"
        );
    }
}
