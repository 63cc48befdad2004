// SPDX-License-Identifier: GPL-2.0-only
//! A cgroup for commands: made, entered by them before they run, removed afterwards. Schedulers that know tasks by
//! their cgroup look at its name. It may have a cpuset, and a weight or none at all (`cpu.idle`).

pub mod removal;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::watchdog::{Cleanup, Guarded};

/// How the names of cgroups begin that are nobody else's.
const OWN: &str = "gpuaware-bench-";
/// Those that were made here and are in use: two of one folder may live at a time, and the first one made it.
static IN_USE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Removed when dropped, if it was not there before; processes that are left in it are killed.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    /// Whether it was made here, and is removed when this process dies as well.
    made: Option<Guarded>,
    /// What was added to the parent's list of controllers for this one.
    controllers: Vec<Controller>,
}

/// A controller that the cgroups below a folder have as long as this lives.
#[derive(Debug)]
struct Controller {
    file: PathBuf,
    remove: String,
    _guarded: Guarded,
}

impl Cgroup {
    /// Makes `relative`, one folder below the root of the hierarchy. One that a bench that died has left is made anew:
    /// it has settings that no arm asks for. Somebody else's stays as it is.
    pub fn make(relative: &str) -> Result<Self> {
        Self::make_below(&hierarchy()?, relative)
    }

    fn make_below(root: &Path, relative: &str) -> Result<Self> {
        let path = root.join(relative);
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        // One run at a time makes cgroups, so what nobody uses here is of one that is gone.
        if relative.starts_with(OWN) && !in_use.contains(&path) && path.exists() {
            removal::kill_and_remove(&path).context("a run that died has left it")?;
        }
        let made = match fs::create_dir(&path) {
            Ok(()) => {
                in_use.insert(path.clone());
                Some(Guarded::new(Cleanup::Cgroup(path.clone())))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot make the cgroup {}", path.display()));
            }
        };
        Ok(Self {
            path,
            made,
            controllers: Vec::new(),
        })
    }

    /// Confines it to `cpus`, a Linux list; `isolated`: as a partition on CPUs that nobody else may use and
    /// the kernel does not balance.
    pub fn confine(&mut self, cpus: &str, isolated: bool) -> Result<()> {
        self.add_controller("cpuset")?;
        write(&self.path.join("cpuset.cpus"), cpus)?;
        if isolated {
            let file = self.path.join("cpuset.cpus.partition");
            write(&file, "isolated")?;
            let state = fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            if state.trim() != "isolated" {
                bail!("{}: the kernel says {:?}", file.display(), state.trim());
            }
        }
        Ok(())
    }

    /// Gives it a share of the CPUs: `weight` of all weights beside it.
    pub fn weigh(&mut self, weight: u32) -> Result<()> {
        self.add_controller("cpu")?;
        write(&self.path.join("cpu.weight"), &weight.to_string())
    }

    /// Sets `cpu.idle`: it runs on CPUs that no other cgroup wants.
    pub fn make_idle(&mut self) -> Result<()> {
        self.add_controller("cpu")?;
        write(&self.path.join("cpu.idle"), "1")
    }

    fn add_controller(&mut self, name: &str) -> Result<()> {
        let root = self.path.parent().context("a cgroup without a parent")?;
        let file = root.join("cgroup.subtree_control");
        let before =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        if before.split_whitespace().any(|known| known == name) {
            return Ok(());
        }
        let remove = format!("-{name}");
        let guarded = Guarded::new(Cleanup::File {
            path: file.clone(),
            text: remove.clone(),
        });
        write(&file, &format!("+{name}"))?;
        self.controllers.push(Controller {
            file,
            remove,
            _guarded: guarded,
        });
        Ok(())
    }

    /// Lets `command` and its children run in it from their first instruction on.
    pub fn take(&self, command: &mut Command) -> Result<()> {
        let file = self.path.join("cgroup.procs");
        let procs = File::options()
            .write(true)
            .open(&file)
            .with_context(|| format!("cannot open {}", file.display()))?;
        // SAFETY: the closure runs between fork and exec and makes one async-signal-safe call
        // (write); it neither allocates nor takes a lock.
        unsafe {
            // 0 is the process that writes.
            command.pre_exec(move || Ok(nix::unistd::write(&procs, b"0").map(drop)?));
        }
        Ok(())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if self.made.is_none() {
            return;
        }
        if let Err(error) = removal::kill_and_remove(&self.path) {
            eprintln!("gpuaware-bench: warning: {error:#}");
        }
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.remove(&self.path);
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // Somebody else may use it by now: then it stays.
        let _ = fs::write(&self.file, &self.remove);
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {text:?} to {}", file.display()))
}

/// Where the hierarchy of cgroup v2 is.
///
/// # Errors
/// Nowhere.
pub fn hierarchy() -> Result<PathBuf> {
    let mounts = fs::read("/proc/self/mounts").context("cannot read the mounts")?;
    // Somebody may have mounted something on a path with any bytes.
    mount_point(&String::from_utf8_lossy(&mounts)).context("no cgroup v2 hierarchy is mounted")
}

/// The first cgroup2 in the text of a table of mounts that none mounted later hides.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    let mount = |line: &'_ str| {
        let mut fields = line.split(' ').skip(1);
        Some((PathBuf::from(fields.next()?), fields.next()? == "cgroup2"))
    };
    let mounts: Vec<_> = mounts.lines().filter_map(mount).collect();
    let shown = mounts.iter().enumerate().find(|(at, (point, is_cgroup2))| {
        let mut later = mounts[at + 1..].iter();
        *is_cgroup2 && !later.any(|(later, _)| point.starts_with(later))
    });
    Some(shown?.1.0.clone())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn finds_the_unified_hierarchy() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid 0 0\n";
        assert_eq!(mount_point(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_point("proc /proc proc rw 0 0\n"), None);
        let hidden = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n\
                      tmpfs /sys/fs tmpfs rw 0 0\n\
                      cgroup2 /mnt/cgroup cgroup2 rw 0 0\n";
        assert_eq!(mount_point(hidden), Some("/mnt/cgroup".into()));
    }

    #[test]
    fn what_a_dead_run_has_left_is_made_anew_and_what_is_in_use_or_foreign_stays() {
        // Folders of any file system will do.
        let root = tempfile::tempdir().unwrap();
        let make = |name: &str| Cgroup::make_below(root.path(), name).unwrap();
        let settings = |name: &str| {
            let mode = fs::metadata(root.path().join(name)).unwrap().permissions();
            mode.mode() & 0o777
        };
        let leave = |name: &str| {
            let folder = root.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::set_permissions(&folder, Permissions::from_mode(0o500)).unwrap();
        };
        let (own, foreign) = ("gpuaware-bench-workload", "system.slice");
        leave(own);
        let first = make(own);
        assert!(first.made.is_some());
        assert_ne!(settings(own), 0o500);
        // A server stands in it while another workload starts.
        let file = root.path().join(own).join("cgroup.procs");
        fs::write(&file, "").unwrap();
        let second = make(own);
        assert!(second.made.is_none() && file.exists());
        drop(second);
        assert!(file.exists());
        fs::remove_file(&file).unwrap();
        drop(first);
        assert!(!root.path().join(own).exists());
        assert!(make(own).made.is_some());
        leave(foreign);
        let taken = make(foreign);
        assert!(taken.made.is_none());
        drop(taken);
        assert_eq!(settings(foreign), 0o500);
    }

    #[test]
    fn a_command_runs_in_it_and_it_is_gone_afterwards() {
        let name = format!("gpuaware-bench-test-{}", std::process::id());
        let cgroup = match Cgroup::make(&name) {
            Ok(cgroup) => cgroup,
            Err(error) => {
                let required = std::env::var("GPUAWARE_REQUIRE").unwrap_or_default();
                assert!(
                    !required.split(',').any(|tier| tier.trim() == "root"),
                    "tier root is required (GPUAWARE_REQUIRE) and cannot run: {error:#}"
                );
                let skipped = "SKIPPED: needs a cgroup v2 hierarchy and root";
                // Not eprintln!, which the test runner captures.
                let _ = writeln!(io::stderr(), "{skipped}: {error:#}");
                return;
            }
        };
        let mut command = Command::new("cat");
        command.arg("/proc/self/cgroup");
        cgroup.take(&mut command).unwrap();
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&format!("0::/{name}\n")), "{text}");
        // A process that has left its process group and has no parent that waits for it.
        let mut stray = Command::new("setsid");
        stray.args(["sh", "-c", "sleep 1000 & echo $!"]);
        cgroup.take(&mut stray).unwrap();
        let stray = stray.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let path = cgroup.path.clone();
        while fs::read_to_string(path.join("cgroup.procs"))
            .unwrap()
            .is_empty()
        {}
        drop(cgroup);
        assert!(!path.exists());
        drop(stray.wait_with_output());
    }
}
