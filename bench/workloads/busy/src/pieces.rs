// SPDX-License-Identifier: GPL-2.0-only
//! Two fixed pieces of work, which tell how fast a machine is: one in registers, one that waits for memory.

use std::hint::black_box;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Of [`work()`]: some 25 us, so that a thread that waits for the CPU meanwhile does not notice.
pub const STEPS: u32 = 20_000;
/// Of [`Memory::load()`]: as short. One after the other, from lines that no one finds in a cache of his own.
pub const LOADS: usize = 128;
/// Of 64 bytes: 32 MiB, more than a core's own caches hold and as much as many a cache that cores share.
const LINES: usize = 512 * 1024;
const WORDS_A_LINE: usize = 16;
/// The same order in every run.
const SEED: u64 = 0x9ACE;

/// Four independent chains in registers: slows down when another thread shares the core.
pub fn work() {
    let mut chains = black_box([1_u64, 2, 3, 4]);
    for _ in 0..STEPS {
        for chain in &mut chains {
            *chain ^= *chain << 13;
            *chain ^= *chain >> 7;
        }
    }
    black_box(chains);
}

/// Lines in one ring, each with the number of the next: nobody knows where it is before the load before it is done.
#[derive(Debug)]
pub struct Memory {
    words: Vec<u32>,
    at: usize,
}

impl Memory {
    #[allow(clippy::new_without_default, reason = "32 MiB are not for nothing")]
    pub fn new() -> Self {
        // One ring through all of them, by Sattolo. Any order does that no prefetcher guesses.
        let mut next: Vec<u32> = (0..LINES as u32).collect();
        let mut rng = Pcg64Mcg::seed_from_u64(SEED);
        for line in (1..LINES).rev() {
            next.swap(line, rng.random_range(0..line));
        }
        let mut words = vec![0; LINES * WORDS_A_LINE];
        for (line, next) in next.into_iter().enumerate() {
            words[line * WORDS_A_LINE] = next;
        }
        Self { words, at: 0 }
    }

    /// Goes on from where the last call ended.
    pub fn load(&mut self) {
        for _ in 0..LOADS {
            self.at = self.words[self.at * WORDS_A_LINE] as usize;
        }
        self.at = black_box(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loads_come_to_every_line() {
        let mut memory = Memory::new();
        let mut lines = 0;
        while lines == 0 || memory.at != 0 {
            memory.at = memory.words[memory.at * WORDS_A_LINE] as usize;
            lines += 1;
        }
        assert_eq!(lines, LINES);
    }
}
