// SPDX-License-Identifier: GPL-2.0-only
//! The time that the user gives for all of a tuning, and what is left of it.

use std::time::{Duration, Instant};

use crate::words::in_words;

/// One part in so many is for each step before the first candidate is tried.
const EARLY_PART: u32 = 10;

/// From the beginning of a tuning until its candidates are known; from then on its state has what is spent.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    all: Duration,
    began: Instant,
}

impl Budget {
    pub fn begin(all: Duration) -> Self {
        Self {
            all,
            began: Instant::now(),
        }
    }

    pub fn spent(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn left(&self) -> Duration {
        self.all.saturating_sub(self.spent())
    }

    /// What recording may take, and what sifting in the simulator may.
    pub fn early_part(&self) -> Duration {
        self.all / EARLY_PART
    }

    pub fn say(&self, step: &str) {
        say_left(step, self.left(), self.all);
    }
}

/// Each step is said with the time that is left when it begins.
pub fn say_left(step: &str, left: Duration, all: Duration) {
    eprintln!("\n{step}: {} of {} left", in_words(left), in_words(all));
}
