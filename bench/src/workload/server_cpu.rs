// SPDX-License-Identifier: GPL-2.0-only
//! How many CPUs a server kept busy in the measured window, all its threads together: what it reports itself is of
//! one thread and of its whole life.

use std::time::Instant;

use crate::procstat;

#[derive(Debug, Default)]
pub struct ServerCpu {
    began: Option<(Instant, f64)>,
    cpus: Option<f64>,
}

impl ServerCpu {
    /// `pid` is the server's first process; none of one that somebody else has started.
    pub fn window_begins(&mut self, pid: Option<u32>) {
        self.began = pid.map(|pid| (Instant::now(), procstat::cpu_s(pid)));
    }

    pub fn window_ends(&mut self, pid: Option<u32>) {
        self.cpus = self.began.zip(pid).map(|((at, before), pid)| {
            let used = procstat::cpu_s(pid) - before;
            // Processes that ended meanwhile took what they had used with them.
            used.max(0.0) / at.elapsed().as_secs_f64().max(1e-6)
        });
    }

    pub fn cpus(&self) -> Option<f64> {
        self.cpus
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_busy_child_counts_for_its_parent_and_nothing_counts_unknown() {
        let mut server = ServerCpu::default();
        let mut shell = Command::new("sh")
            .args(["-c", "(while :; do :; done) & read end; kill $!"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Some(shell.id());
        std::thread::sleep(Duration::from_millis(100));
        server.window_begins(pid);
        // As much as it gets on a busy machine; a tick is 10 ms.
        let limit = Instant::now() + Duration::from_secs(60);
        while server.cpus() <= Some(0.0) && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(100));
            server.window_ends(pid);
        }
        drop(shell.stdin.take());
        shell.wait().unwrap();
        let cpus = server.cpus().unwrap();
        assert!(cpus > 0.0 && cpus < 1.5, "{cpus}");
        server.window_begins(None);
        server.window_ends(pid);
        assert_eq!(server.cpus(), None);
    }
}
