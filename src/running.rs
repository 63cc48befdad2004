// SPDX-License-Identifier: GPL-2.0-only
//! One scx_gpuaware at a time, as the scheduler or as `feed`: both have the same pins, and take what they find of
//! them, of affinities and of sockets for what a killed run has left. Whoever holds the lock owns all of that.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, Flock, FlockArg, fcntl};
use nix::libc;

use crate::bpffs;

/// Held while an instance runs; the kernel drops the lock however that ends. Only root can open it, as whoever can open
/// it can lock it.
const LOCK: &str = "/run/scx_gpuaware/lock";
/// Where pins are is locked too: a container may have the host's, and a /run of its own.
const PINS: &str = bpffs::PLACE;

/// As what it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Scheduler,
    Feed,
}

impl Role {
    const ALL: [Self; 2] = [Self::Scheduler, Self::Feed];

    fn name(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Feed => "feed",
        }
    }
}

/// This process is the one that runs, until this is dropped.
#[derive(Debug)]
#[allow(dead_code, reason = "these have the locks")]
pub struct Running(File, Option<Flock<File>>);

impl Running {
    /// Becomes the one that runs. Nothing that another one has is touched before.
    ///
    /// # Errors
    /// Another one runs; not enough rights.
    pub fn start(role: Role) -> Result<Self> {
        Self::start_at(Path::new(LOCK), Path::new(PINS), role)
    }

    fn start_at(path: &Path, pins: &Path, role: Role) -> Result<Self> {
        let shown = path.display();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("making {}", folder.display()))?;
        }
        // What is in it is the other one's until the lock is ours.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path);
        let mut file = file.with_context(|| format!("opening {shown}: this needs root"))?;
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole(libc::F_WRLCK))) {
            Ok(_) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => bail!(
                "scx_gpuaware already runs, {}: stop it first",
                owner(&file).unwrap_or_else(|| format!("it holds {shown}"))
            ),
            Err(errno) => return Err(errno).with_context(|| format!("locking {shown}")),
        }
        let pins = lock_pins(pins)?;
        let text = format!("{} {}\n", role.name(), std::process::id());
        file.set_len(0)
            .and_then(|()| file.write_all(text.as_bytes()))
            .with_context(|| format!("writing {shown}"))?;
        Ok(Self(file, pins))
    }
}

/// Locks the folder of pins, if it is there: whoever needs it says what it lacks.
fn lock_pins(folder: &Path) -> Result<Option<Flock<File>>> {
    let Ok(open) = File::open(folder) else {
        return Ok(None);
    };
    match Flock::lock(open, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => bail!(
            "scx_gpuaware already runs, in another container or on its host: it has its pins in {}: stop it first",
            folder.display()
        ),
        Err((_, errno)) => Err(errno).with_context(|| format!("locking {}", folder.display())),
    }
}

/// What the instance that runs here does, if one runs.
pub fn role() -> Option<Role> {
    role_at(Path::new(LOCK))
}

/// Asks without taking the lock: taking it could refuse an instance that starts now.
fn role_at(path: &Path) -> Option<Role> {
    let file = File::open(path).ok()?;
    let mut lock = whole(libc::F_RDLCK);
    fcntl(&file, FcntlArg::F_OFD_GETLK(&mut lock)).ok()?;
    if libc::c_int::from(lock.l_type) == libc::F_UNLCK {
        return None;
    }
    let text = text(&file)?;
    let mut roles = Role::ALL.into_iter();
    roles.find(|role| text.starts_with(role.name()))
}

/// A lock of all of a file, which goes with the open file and not with any of the process's.
fn whole(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// In words, for an error.
fn owner(file: &File) -> Option<String> {
    let text = text(file)?;
    let (role, pid) = text.trim().split_once(' ')?;
    Some(format!("as {role} with PID {pid}"))
}

fn text(mut file: &File) -> Option<String> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(64).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_the_second_says_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/lock");
        assert_eq!(role_at(&path), None);
        let pins = dir.path();
        let first = Running::start_at(&path, pins, Role::Feed).unwrap();
        assert_eq!(role_at(&path), Some(Role::Feed));
        for _ in 0..2 {
            let error = Running::start_at(&path, pins, Role::Scheduler).unwrap_err();
            let expected = format!("as feed with PID {}", std::process::id());
            assert!(error.to_string().contains(&expected), "{error}");
        }
        let other = dir.path().join("container/lock");
        let error = Running::start_at(&other, pins, Role::Scheduler).unwrap_err();
        assert!(error.to_string().contains("has its pins in"), "{error}");
        assert_eq!(role_at(&path), Some(Role::Feed), "the first loses nothing");
        drop(first);
        assert_eq!(role_at(&path), None, "what is left is nobody's");
        let _next = Running::start_at(&path, pins, Role::Scheduler).unwrap();
        assert_eq!(role_at(&path), Some(Role::Scheduler));
    }
}
