// SPDX-License-Identifier: GPL-2.0-only
//! `/proc` as this program reads it: threads, their programs and cgroups, mounts. One parser for rules, pins,
//! screens and checks, so that a term of the policy means the same everywhere.
//!
//! Names, paths and arguments may have any bytes. What is no UTF-8 in text that globs are matched against
//! and people read becomes U+FFFD; paths that are opened keep their bytes. What is gone reads as absent.

pub mod mounts;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::sys::stat::{major, minor};

/// Where it is mounted.
pub const PROC: &str = "/proc";

/// What `/proc/TID/stat` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stat {
    /// Name of the thread.
    pub comm: String,
    /// TGID of the process that started its process.
    pub parent: i32,
    /// `PF_…` of linux/sched.h.
    pub flags: u64,
    /// When it started, in clock ticks since the boot.
    pub start_ticks: u64,
    /// The CPU that it runs on or ran on last.
    pub cpu: Option<u32>,
    /// `SCHED_…`
    pub policy: Option<u32>,
}

impl Stat {
    /// Of the thread whose folder this is.
    pub fn read(folder: &Path) -> Option<Self> {
        Self::parse(&std::fs::read(folder.join("stat")).ok()?)
    }

    /// `TID (COMM) STATE …`: the name is not escaped, unlike in `status`, and may hold anything, so its end is the
    /// last parenthesis.
    pub fn parse(stat: &[u8]) -> Option<Self> {
        /// The state is field 3 of proc_pid_stat(5).
        const FIRST: usize = 3;
        let open = stat.iter().position(|&byte| byte == b'(')?;
        let close = stat.iter().rposition(|&byte| byte == b')')?;
        let comm = stat.get(open + 1..close)?;
        let rest = std::str::from_utf8(&stat[close + 1..]).ok()?;
        let fields: Vec<_> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - FIRST).copied();
        Some(Self {
            comm: String::from_utf8_lossy(comm).into_owned(),
            parent: field(4)?.parse().ok()?,
            flags: field(9)?.parse().ok()?,
            start_ticks: field(22)?.parse().ok()?,
            cpu: field(39).and_then(|cpu| cpu.parse().ok()),
            policy: field(41).and_then(|policy| policy.parse().ok()),
        })
    }

    /// Is it a thread of the kernel?
    pub fn is_kernel(&self) -> bool {
        const PF_KTHREAD: u64 = 0x0020_0000;
        self.flags & PF_KTHREAD != 0
    }
}

/// What all threads of a process share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// Its executable, whether or not the file is still there.
    pub exe: String,
    /// Its arguments, joined by blanks.
    pub cmdline: String,
}

impl Program {
    /// Of the process or thread whose folder this is.
    pub fn read(folder: &Path) -> Self {
        let link = folder.join("exe");
        let exe = std::fs::read_link(&link).unwrap_or_default();
        let cmdline = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        Self {
            exe: exe_name(exe.as_os_str().as_bytes(), || {
                std::fs::metadata(&link).is_ok_and(|file| file.nlink() == 0)
                    || !is_there(&folder.join("root"), &exe)
            }),
            cmdline: arguments(&cmdline),
        }
    }
}

/// The folder in the cgroup v2 hierarchy, relative to its root, of the thread whose folder this is. `None`: there is no
/// such hierarchy, or the cgroup is outside this process's cgroup namespace, whose root paths begin at.
pub fn cgroup(folder: &Path) -> Option<PathBuf> {
    cgroup_in(&std::fs::read(folder.join("cgroup")).ok()?)
}

/// The same from the text of a `/proc/TID/cgroup`.
fn cgroup_in(text: &[u8]) -> Option<PathBuf> {
    let mut lines = text.split(|&byte| byte == b'\n');
    let path = lines.find_map(|line| line.strip_prefix(b"0::/"))?;
    let is_outside = path == b".." || path.starts_with(b"../");
    (!is_outside).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

/// Of `/dev/nvidiaN`, whose minor number is N.
pub const NVIDIA_MAJOR: u32 = 195;
/// From here on NVIDIA's devices are of the driver, not of a GPU.
const NVIDIA_MODESET_MINOR: u64 = 254;

/// NVIDIA's GPUs that the process with this folder has open: the N of the host's `/dev/nvidiaN`, whatever a container
/// calls it. None, too, if this process may not look.
pub fn gpus_open(process: &Path) -> BTreeSet<u32> {
    devices_open(process)
        .into_iter()
        .filter_map(gpu_of)
        .collect()
}

/// N, if the device with this number is `/dev/nvidiaN`.
fn gpu_of(device: u64) -> Option<u32> {
    let is_gpu = major(device) == u64::from(NVIDIA_MAJOR) && minor(device) < NVIDIA_MODESET_MINOR;
    is_gpu.then(|| minor(device) as u32)
}

/// Numbers of the character devices that a process has open.
fn devices_open(process: &Path) -> BTreeSet<u64> {
    let fds: Vec<u32> = numbers_in(&process.join("fd"));
    let device = |fd: u32| {
        let path = process.join(format!("fd/{fd}"));
        // A file on a network that is gone would keep whoever asks.
        if !std::fs::read_link(&path).ok()?.starts_with("/dev") {
            return None;
        }
        let file = std::fs::metadata(&path).ok()?;
        file.file_type().is_char_device().then(|| file.rdev())
    };
    fds.into_iter().filter_map(device).collect()
}

/// The entries of `folder` that are numbers, such as processes and threads; none if it vanishes meanwhile.
pub fn numbers_in<T: FromStr>(folder: &Path) -> Vec<T> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Is there a file of that name, below the root that its process sees? One that was replaced may have another name left.
fn is_there(root: &Path, exe: &Path) -> bool {
    root.join(exe.strip_prefix("/").unwrap_or(exe)).exists()
}

/// Few links end so: only of those `is_deleted` is asked.
fn exe_name(link: &[u8], is_deleted: impl FnOnce() -> bool) -> String {
    let name = link.strip_suffix(b" (deleted)");
    let name = name.filter(|_| is_deleted()).unwrap_or(link);
    String::from_utf8_lossy(name).into_owned()
}

/// Arguments end with a NUL each; a program that writes its own title may leave any number of them.
fn arguments(cmdline: &[u8]) -> String {
    let text = String::from_utf8_lossy(cmdline);
    text.trim_end_matches('\0').replace('\0', " ")
}

#[cfg(test)]
pub mod tests {
    use proptest::prelude::*;

    use super::*;
    use nix::sys::stat::makedev;

    /// A host as a tree of files.
    pub fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    /// A line of `/proc/TID/stat`, up to the start of the thread.
    pub fn stat_line(comm: &[u8], start: u64) -> Vec<u8> {
        let rest: Vec<_> = (4..22).map(|field| field.to_string()).collect();
        let mut line = b"12 (".to_vec();
        line.extend(comm);
        line.extend(format!(") S {} {start} 0 0\n", rest.join(" ")).bytes());
        line
    }

    #[test]
    fn reads_this_thread() {
        let stat = Stat::read(Path::new("/proc/thread-self")).unwrap();
        assert!(!stat.is_kernel() && stat.cpu.is_some() && stat.policy.is_some());
        assert_eq!(stat.parent, nix::unistd::getppid().as_raw());
        assert!(Stat::read(Path::new("/proc/2")).is_none_or(|kernel| kernel.is_kernel()));
        let program = Program::read(Path::new("/proc/self"));
        let exe = std::env::current_exe().unwrap();
        assert_eq!(program.exe, exe.to_string_lossy());
        assert_eq!(cgroup(Path::new("/nonexistent")), None);
    }

    #[test]
    fn a_name_is_what_its_thread_has_given_itself() {
        let name = b"a\\n\n) \xff(";
        let thread = std::thread::spawn(|| {
            let name = [&name[..], b"\0"].concat();
            // SAFETY: PR_SET_NAME reads the text, which ends with a NUL.
            unsafe { nix::libc::prctl(nix::libc::PR_SET_NAME, name.as_ptr()) };
            Stat::read(Path::new("/proc/thread-self"))
        });
        let comm = thread.join().unwrap().unwrap().comm;
        assert_eq!(comm, String::from_utf8_lossy(name));
    }

    #[test]
    fn a_name_may_have_blanks_and_parentheses() {
        let text = b"12 (a) (b c) S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.comm.as_str(), stat.parent), ("a) (b c", 7));
        assert_eq!((stat.start_ticks, stat.is_kernel()), (4711, false));
    }

    #[test]
    fn only_a_file_that_is_gone_is_called_deleted() {
        assert_eq!(exe_name(b"/bin/x (deleted)", || true), "/bin/x");
        assert_eq!(exe_name(b"/bin/x (deleted)", || false), "/bin/x (deleted)");
        assert_eq!(
            exe_name(b"/bin/\xff", || unreachable!("it has no such end")),
            "/bin/\u{fffd}"
        );
    }

    #[test]
    fn an_executable_that_was_replaced_is_still_called_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // In a process of its own: what a test beside starts meanwhile would have it open for writing.
        let mut copy = std::process::Command::new("cp");
        assert!(
            copy.arg("/bin/sleep")
                .arg(at("x"))
                .status()
                .unwrap()
                .success()
        );
        std::fs::hard_link(at("x"), at("other")).unwrap();
        let mut runs = std::process::Command::new(at("x"))
            .arg("60")
            .spawn()
            .unwrap();
        std::fs::copy("/bin/sleep", at("new")).unwrap();
        std::fs::rename(at("new"), at("x")).unwrap();
        let program = Program::read(&Path::new(PROC).join(runs.id().to_string()));
        runs.kill().unwrap();
        runs.wait().unwrap();
        assert_eq!(program.exe, at("x").to_string_lossy());
    }

    #[test]
    fn reads_the_folder_of_the_unified_hierarchy() {
        let folder = cgroup_in(b"5:cpu:/x\n0::/gpu.slice/a \xff\r\n").unwrap();
        assert_eq!(folder.as_os_str().as_bytes(), b"gpu.slice/a \xff\r");
        assert_eq!(cgroup_in(b"5:cpu:/x\n"), None);
        // As it is read in a cgroup namespace of a cgroup beside it, or above it.
        assert_eq!(cgroup_in(b"0::/../b\n"), None);
        assert_eq!(cgroup_in(b"0::/..\n"), None);
        assert_eq!(cgroup_in(b"0::/..b\n"), Some("..b".into()));
    }

    #[test]
    fn devices_are_told_by_their_numbers() {
        let process = tempfile::tempdir().unwrap();
        std::fs::create_dir(process.path().join("fd")).unwrap();
        for (fd, target) in [(0, "/dev/null"), (1, "/dev/zero"), (2, "/dev"), (3, "/")] {
            let link = process.path().join(format!("fd/{fd}"));
            std::os::unix::fs::symlink(target, link).unwrap();
        }
        let [null, zero] = [3, 5].map(|minor| makedev(1, minor));
        assert_eq!(devices_open(process.path()), [null, zero].into());
        assert!(gpus_open(process.path()).is_empty());
        assert!(gpus_open(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn gpus_are_told_from_the_drivers_other_devices() {
        const CONTROL: u64 = 255;
        let of = |minor| gpu_of(makedev(NVIDIA_MAJOR.into(), minor));
        assert_eq!([0, 10, 253].map(of), [Some(0), Some(10), Some(253)]);
        assert_eq!([NVIDIA_MODESET_MINOR, CONTROL].map(of), [None, None]);
        assert_eq!(gpu_of(makedev(510, 0)), None, "nvidia-uvm");
    }

    proptest! {
        #[test]
        fn any_name_is_read_back(comm in proptest::collection::vec(1u8.., 0..16), start: u64) {
            let stat = Stat::parse(&stat_line(&comm, start)).unwrap();
            prop_assert_eq!(stat.comm, String::from_utf8_lossy(&comm));
            prop_assert_eq!(stat.start_ticks, start);
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>, is_deleted: bool) {
            Stat::parse(&bytes);
            cgroup_in(&bytes);
            prop_assert!(!arguments(&bytes).contains('\0'));
            prop_assert!(exe_name(&bytes, || is_deleted).len() <= 3 * bytes.len());
        }
    }
}
