// SPDX-License-Identifier: GPL-2.0-only
//! The namespaces of this process that decide what BPF is to it: whose root it is, for the kernel loads programs of
//! the host's root only, whether its numbers of processes are the kernel's, and whether it sees all cgroups.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Result, bail};

/// Inode numbers of the namespaces that the kernel starts with, of linux/proc_ns.h.
const INITIAL_USER: &str = "user:[4026531837]";
const INITIAL_PID: &str = "pid:[4026531836]";
const INITIAL_CGROUP: &str = "cgroup:[4026531835]";

/// The user namespace that this process is in, in words; `None`: that of the host. `/proc` is below `root`.
pub fn user(root: &Path) -> Option<String> {
    let map = std::fs::read_to_string(root.join("proc/self/uid_map")).unwrap_or_default();
    let map = map.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_initial = match std::fs::read_link(root.join("proc/self/ns/user")) {
        Ok(namespace) => namespace == Path::new(INITIAL_USER),
        Err(_) => map.is_empty() || map == "0 0 4294967295",
    };
    (!is_initial).then(|| format!("a user namespace (uid_map: {map})"))
}

/// What to do where `/proc` is not this process's own.
pub const MOUNT_PROC: &str = "mount -t proc proc /proc, or unshare --mount-proc";

/// Fails if `/proc` has the numbers of another PID namespace than this process's, as after `unshare --pid` alone: the
/// processes that it lists are others here, or nobody.
///
/// # Errors
/// It has.
pub fn check_proc() -> Result<()> {
    if has_own_proc(Path::new("/")) {
        return Ok(());
    }
    bail!(
        "/proc is of another PID namespace than this process, so the numbers in it are other processes': expected its own; \
         {MOUNT_PROC}"
    )
}

/// Has `/proc`, below `root`, the numbers of this process's PID namespace? Where it does not tell, yes.
pub fn has_own_proc(root: &Path) -> bool {
    match std::fs::read_link(root.join("proc/self")) {
        Ok(number) => {
            let number = number
                .to_str()
                .and_then(|number| number.parse::<u32>().ok());
            number.is_none_or(|number| number == std::process::id())
        }
        // There this process has no number.
        Err(error) => error.kind() != ErrorKind::NotFound || !root.join("proc/stat").exists(),
    }
}

/// Is this process in the PID namespace that the kernel starts with?
pub fn has_initial_pids(root: &Path) -> bool {
    is_initial(root, "pid", INITIAL_PID)
}

/// Is this process in the cgroup namespace that the kernel starts with? In another one the paths in `/proc/PID/cgroup`
/// begin at its root, and a hierarchy that is mounted there has the folders below that.
pub fn has_initial_cgroups(root: &Path) -> bool {
    is_initial(root, "cgroup", INITIAL_CGROUP)
}

/// Where `/proc` does not tell, yes.
fn is_initial(root: &Path, kind: &str, initial: &str) -> bool {
    let namespace = std::fs::read_link(root.join("proc/self/ns").join(kind));
    namespace.map_or(true, |namespace| namespace == Path::new(initial))
}

/// Fails unless this process is root of the host, which `what` needs, and sees its own `/proc`.
///
/// # Errors
/// Another user, or the root of a user namespace; a `/proc` of another PID namespace.
pub fn check_root(what: &str) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("{what} needs root: try sudo");
    }
    if let Some(namespace) = user("/".as_ref()) {
        bail!(
            "{what} needs root of the host, and this is root of {namespace}: the kernel refuses its BPF programs; \
             start it on the host, or in a container without a user namespace of its own"
        );
    }
    check_proc()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn host(user: Option<&str>, map: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("proc/self");
        std::fs::create_dir_all(process.join("ns")).unwrap();
        std::fs::write(process.join("uid_map"), map).unwrap();
        if let Some(user) = user {
            symlink(user, process.join("ns/user")).unwrap();
        }
        root
    }

    #[test]
    fn the_root_of_a_user_namespace_is_not_the_hosts() {
        let all = "         0          0 4294967295\n";
        for (link, map) in [(Some(INITIAL_USER), all), (None, all), (None, "")] {
            assert_eq!(user(host(link, map).path()), None);
        }
        let mapped = "         0       1000          1\n         1     100000      65536\n";
        for link in [Some("user:[4026532701]"), None] {
            let found = user(host(link, mapped).path()).unwrap();
            assert_eq!(found, "a user namespace (uid_map: 0 1000 1 1 100000 65536)");
        }
        // Some containers map everybody to himself.
        assert!(user(host(Some("user:[4026532701]"), all).path()).is_some());
    }

    #[test]
    fn a_proc_of_another_namespace_has_another_number_of_this_process() {
        let root = tempfile::tempdir().unwrap();
        assert!(has_own_proc(root.path()), "where /proc does not tell");
        let proc = root.path().join("proc");
        std::fs::create_dir(&proc).unwrap();
        for (number, is_own) in [(std::process::id(), true), (std::process::id() + 1, false)] {
            symlink(number.to_string(), proc.join("self")).unwrap();
            assert_eq!(has_own_proc(root.path()), is_own);
            std::fs::remove_file(proc.join("self")).unwrap();
        }
        std::fs::write(proc.join("stat"), "").unwrap();
        assert!(!has_own_proc(root.path()), "where it has no number");
    }

    #[test]
    fn a_container_has_numbers_and_cgroups_of_its_own() {
        let root = host(None, "");
        let link = |kind, to| symlink(to, root.path().join("proc/self/ns").join(kind)).unwrap();
        assert!(has_initial_pids(root.path()), "where /proc does not tell");
        assert!(
            has_initial_cgroups(root.path()),
            "where /proc does not tell"
        );
        link("pid", "pid:[4026532702]");
        assert!(!has_initial_pids(root.path()) && has_initial_cgroups(root.path()));
        link("cgroup", "cgroup:[4026532703]");
        assert!(!has_initial_cgroups(root.path()));
    }
}
