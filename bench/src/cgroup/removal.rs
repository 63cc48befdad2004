// SPDX-License-Identifier: GPL-2.0-only
//! Removes a cgroup and kills the processes in it. The watchdog calls this too, for a runner that died.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Killed processes leave their cgroup a moment later.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// Kills all processes in a cgroup, those that have left their process group too, and removes it.
pub fn kill_and_remove(folder: &Path) -> Result<()> {
    // Since Linux 5.14; before, the groups were all that could be killed.
    let kill = File::options().write(true).open(folder.join("cgroup.kill"));
    let _ = kill.and_then(|mut file| file.write_all(b"1"));
    let deadline = Instant::now() + EMPTY_TIMEOUT;
    loop {
        match fs::remove_dir(folder) {
            Err(error) if folder.exists() && Instant::now() >= deadline => {
                return Err(error)
                    .with_context(|| format!("cannot remove the cgroup {}", folder.display()));
            }
            Err(_) if folder.exists() => std::thread::sleep(POLL),
            _ => return Ok(()),
        }
    }
}
