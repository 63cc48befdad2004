// SPDX-License-Identifier: GPL-2.0-only
//! A launcher whose GPU works while it launches: a launch that comes late delays the token only if the GPU has nothing
//! left to do by then.

use serde::Deserialize;

/// How a launcher waits for its GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sync {
    Block,
    Spin,
    Yield,
}

/// What a token is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    pub launches: u64,
    /// CPU time of each.
    pub launch_ns: u64,
    /// GPU time of each, and of a token's last one.
    pub kernel_ns: u64,
    pub last_kernel_ns: u64,
    /// CPU time after the GPU is done.
    pub cpu_ns: u64,
    pub sync: Sync,
}

/// So much of what a task does is one event.
const PIECE_NS: u64 = 100_000;

/// What a launcher does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Work for so long.
    Work(u64),
    /// A token has come to its end; then as above.
    End(u64),
    /// Wait for the GPU.
    Until(u64),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Launching,
    Waiting,
    Finishing,
}

/// Where a launcher and its GPU are.
#[derive(Debug, Default)]
pub struct Timeline {
    phase: Phase,
    /// Launches of this token, and those that are on their way.
    launched: u64,
    piece: u64,
    /// When the GPU will have nothing left to do.
    free_ns: u64,
}

impl Timeline {
    pub fn next(&mut self, tokens: Tokens, now_ns: u64) -> Next {
        self.launch(tokens, now_ns);
        match self.phase {
            Phase::Launching => Next::Work(self.piece(tokens)),
            Phase::Waiting if now_ns < self.free_ns => Next::Until(self.free_ns),
            Phase::Waiting if tokens.cpu_ns > 0 => {
                self.phase = Phase::Finishing;
                Next::Work(tokens.cpu_ns)
            }
            Phase::Waiting | Phase::Finishing => {
                (self.phase, self.launched) = (Phase::Launching, 0);
                Next::End(self.piece(tokens))
            }
        }
    }

    /// What was on its way is with the GPU now.
    fn launch(&mut self, tokens: Tokens, now_ns: u64) {
        if self.piece == 0 {
            return;
        }
        let first_ns = now_ns.saturating_sub((self.piece - 1) * tokens.launch_ns);
        let kernels_ns = self.piece * tokens.kernel_ns;
        let last_ns = now_ns + tokens.kernel_ns;
        self.free_ns = (self.free_ns.max(first_ns) + kernels_ns).max(last_ns);
        self.launched += self.piece;
        self.piece = 0;
        if self.launched >= tokens.launches {
            self.free_ns += tokens.last_kernel_ns.saturating_sub(tokens.kernel_ns);
            self.phase = Phase::Waiting;
        }
    }

    /// How long the next few launches take.
    fn piece(&mut self, tokens: Tokens) -> u64 {
        let fit = (PIECE_NS / tokens.launch_ns.max(1)).max(1);
        self.piece = fit.min(tokens.launches - self.launched);
        self.piece * tokens.launch_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: Tokens = Tokens {
        launches: 4,
        launch_ns: 60_000,
        kernel_ns: 100_000,
        last_kernel_ns: 150_000,
        cpu_ns: 5_000,
        sync: Sync::Block,
    };

    /// When the GPU is done with a token whose launches take so much longer each.
    fn done_ns(late_ns: u64) -> u64 {
        let (mut timeline, mut now_ns) = (Timeline::default(), 0);
        loop {
            match timeline.next(TOKENS, now_ns) {
                Next::Work(ns) => now_ns += ns + late_ns,
                Next::Until(until_ns) => return until_ns,
                Next::End(_) => panic!("it has not waited"),
            }
        }
    }

    #[test]
    fn the_gpu_hides_a_delay_that_is_shorter_than_its_work() {
        // The first kernel cannot begin earlier; then they follow each other.
        assert_eq!(done_ns(0), 60_000 + 3 * 100_000 + 150_000);
        assert_eq!(done_ns(30_000), 30_000 + done_ns(0));
        assert_eq!(done_ns(200_000), 4 * 260_000 + 150_000);
    }

    #[test]
    fn a_token_ends_after_the_cpu_time_that_follows_the_gpus() {
        let mut timeline = Timeline::default();
        let mut now_ns = 0;
        while !matches!(timeline.next(TOKENS, now_ns), Next::Until(_)) {
            now_ns += 60_000;
        }
        assert_eq!(timeline.next(TOKENS, 1_000_000), Next::Work(5_000));
        assert_eq!(timeline.next(TOKENS, 1_005_000), Next::End(60_000));
        assert_eq!(timeline.next(TOKENS, 1_065_000), Next::Work(60_000));
    }
}
