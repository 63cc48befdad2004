// SPDX-License-Identifier: GPL-2.0-only
//! Who spins on memory that another process shares with him, a launcher's. The kernel says who spins, `/proc` what
//! memory he has.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::bpf::intf;
use crate::proc::Stat;

use super::libcuda::{Inode, mappings};
use super::rest::{Rest, cpu_time};

/// Anybody can spin: who finds no room says so again within a second.
const MOST: usize = 1024;
/// What `/proc/PID/maps` calls memory that processes share: by name, by file descriptor, by inheritance, of System V.
const SHARED: [&[u8]; 4] = [b"/dev/shm/", b"/memfd:", b"/dev/zero", b"/SYSV"];

/// Those who spin and were not looked at yet.
#[derive(Debug, Default)]
pub struct Spinners {
    /// Process and thread.
    waiting: BTreeSet<(u32, u32)>,
    /// From looking, which goes through all tasks and reads mappings.
    rest: Rest,
}

impl Spinners {
    /// Thread `tid` of process `tgid` spins.
    pub fn push(&mut self, tgid: u32, tid: u32) {
        if self.waiting.len() < MOST {
            self.waiting.insert((tgid, tid));
        }
    }

    /// Of those who spin the ones whose process shares memory with one of `launchers`, which are processes, by what is
    /// below `proc`, which is `/proc`; not a launcher's own other threads.
    ///
    /// # Errors
    /// Those of `launchers`.
    pub fn look(
        &mut self,
        now: Duration,
        proc: &Path,
        launchers: impl FnOnce() -> Result<BTreeSet<u32>>,
    ) -> Result<Vec<intf::gpuaware_spinner>> {
        if self.waiting.is_empty() || !self.rest.is_over(now) {
            return Ok(Vec::new());
        }
        let start = cpu_time();
        let launchers = launchers()?;
        let memory = |tgid: u32| shared_memory(&proc.join(format!("{tgid}/maps")));
        let of_launchers: BTreeSet<Inode> = launchers.iter().copied().flat_map(memory).collect();
        let mut shares = HashMap::new();
        let mut found = Vec::new();
        for (tgid, tid) in std::mem::take(&mut self.waiting) {
            let shares = *shares.entry(tgid).or_insert_with(|| {
                !launchers.contains(&tgid) && !memory(tgid).is_disjoint(&of_launchers)
            });
            let stat = Stat::read(&proc.join(format!("{tgid}/task/{tid}")));
            if let Some(stat) = stat.filter(|_| shares) {
                found.push(intf::gpuaware_spinner {
                    tid: tid as i32,
                    pad: 0,
                    start_ticks: stat.start_ticks,
                });
            }
        }
        self.rest.begin(now, cpu_time().saturating_sub(start));
        Ok(found)
    }
}

/// What the process whose `/proc/PID/maps` this is shares with others. Nothing where it is gone.
fn shared_memory(maps: &Path) -> BTreeSet<Inode> {
    let text = std::fs::read(maps).unwrap_or_default();
    let is_shared = |path: &[u8]| SHARED.iter().any(|prefix| path.starts_with(prefix));
    let mappings = mappings(&text, is_shared).into_iter();
    mappings.map(|mapping| mapping.inode).collect()
}

#[cfg(test)]
mod tests {
    use crate::proc::tests::{host, stat_line};

    use super::*;

    const LIBRARY: &str = "7f00-7f10 r-xp 00000000 fe:00 7    /usr/lib/libcuda.so.1\n";

    fn maps(inode: u32) -> String {
        format!("{LIBRARY}7f20-7f30 rw-s 00000000 00:1a {inode}    /dev/shm/psm_{inode}\n")
    }

    fn stat(tid: u64) -> String {
        String::from_utf8(stat_line(b"spins", 100 + tid)).unwrap()
    }

    fn tids(found: &[intf::gpuaware_spinner]) -> Vec<(i32, u64)> {
        let each = found.iter();
        each.map(|spinner| (spinner.tid, spinner.start_ticks))
            .collect()
    }

    #[test]
    fn who_shares_memory_with_a_launcher_of_another_process_is_found() {
        let [shares, other] = [maps(5), maps(6)];
        let stats = [1, 2, 3, 4].map(stat);
        let host = host(&[
            ("proc/1/maps", &shares),
            ("proc/1/task/1/stat", &stats[0]),
            ("proc/2/maps", &shares),
            ("proc/2/task/2/stat", &stats[1]),
            ("proc/2/task/3/stat", &stats[2]),
            ("proc/4/maps", &other),
            ("proc/4/task/4/stat", &stats[3]),
        ]);
        let mut spinners = Spinners::default();
        // Its own thread, two of another process, one that shares a library only, and one that is gone.
        for (tgid, tid) in [(1, 1), (2, 2), (2, 3), (4, 4), (9, 9)] {
            spinners.push(tgid, tid);
        }
        let proc = host.path().join("proc");
        let look = |spinners: &mut Spinners, seconds| {
            let launchers = || Ok(BTreeSet::from([1]));
            let now = Duration::from_secs(seconds);
            tids(&spinners.look(now, &proc, launchers).unwrap())
        };
        assert_eq!(look(&mut spinners, 1), [(2, 102), (3, 103)]);
        assert_eq!(look(&mut spinners, 10), [], "looked at");
    }

    #[test]
    fn who_spins_is_looked_at_now_and_then() {
        let mut spinners = Spinners::default();
        let mut looks = 0;
        for step in 0..1000 {
            spinners.push(1, 1);
            let launchers = || {
                looks += 1;
                Ok(BTreeSet::new())
            };
            let now = Duration::from_millis(1000 + step);
            let found = spinners.look(now, Path::new("/nowhere"), launchers);
            assert!(found.unwrap().is_empty());
        }
        assert!((2..=10).contains(&looks), "{looks} in a second");
    }
}
