// SPDX-License-Identifier: GPL-2.0-only
//! Which processes to look at, and when: often while they are young, rarely when they are old. Pure.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

/// Age at which a process that started a program is looked at. The last gap repeats.
const LOOKS_MS: [u64; 10] = [
    20, 120, 300, 600, 1_200, 3_000, 8_000, 20_000, 50_000, 110_000,
];

/// The processes to look at next.
#[derive(Debug, Default)]
pub struct Looks {
    due: BinaryHeap<Reverse<(Duration, u32, usize)>>,
    /// Time of the last start of a program, which outdates earlier entries in `due`.
    started: HashMap<u32, Duration>,
}

impl Looks {
    /// Process `tgid` started a program at `now`, or was found running.
    pub fn started(&mut self, tgid: u32, now: Duration) {
        self.started.insert(tgid, now);
        self.due
            .push(Reverse((now + Duration::from_millis(LOOKS_MS[0]), tgid, 0)));
    }

    /// The process is gone.
    pub fn ended(&mut self, tgid: u32) {
        self.started.remove(&tgid);
    }

    /// Takes the next process that is due at `now`. The caller says [`Looks::ended`] if it does
    /// not exist any more.
    pub fn next(&mut self, now: Duration) -> Option<u32> {
        while let Some(&Reverse((at, tgid, look))) = self.due.peek() {
            if at > now {
                return None;
            }
            self.due.pop();
            let Some(&started) = self.started.get(&tgid) else {
                continue;
            };
            if at != started + look_at(look) {
                continue; // of an earlier program
            }
            self.due
                .push(Reverse((started + look_at(look + 1), tgid, look + 1)));
            return Some(tgid);
        }
        None
    }
}

fn look_at(look: usize) -> Duration {
    let last = LOOKS_MS.len() - 1;
    let repeats = look.saturating_sub(last) as u64;
    let gap = LOOKS_MS[last] - LOOKS_MS[last - 1];
    Duration::from_millis(LOOKS_MS[look.min(last)] + repeats * gap)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Steps through time and lists when `tgid` is looked at.
    fn looks_until(looks: &mut Looks, from: u64, to: u64) -> Vec<u64> {
        let mut times = Vec::new();
        for now in (from..to).step_by(10) {
            while looks.next(ms(now)).is_some() {
                times.push(now);
            }
        }
        times
    }

    #[test]
    fn looks_often_at_young_processes_and_rarely_at_old_ones() {
        let mut looks = Looks::default();
        looks.started(7, ms(0));
        let times = looks_until(&mut looks, 0, 300_000);
        assert_eq!(times[..6], [20, 120, 300, 600, 1200, 3000]);
        assert_eq!(times[9..], [110_000, 170_000, 230_000, 290_000]);
    }

    #[test]
    fn a_new_program_starts_the_looks_anew() {
        let mut looks = Looks::default();
        looks.started(7, ms(0));
        looks_until(&mut looks, 0, 5_000);
        looks.started(7, ms(5_000));
        assert_eq!(looks_until(&mut looks, 5_000, 5_500), [5_020, 5_120, 5_300]);
    }

    #[test]
    fn forgets_processes_that_ended() {
        let mut looks = Looks::default();
        looks.started(7, ms(0));
        looks.ended(7);
        assert!(looks_until(&mut looks, 0, 1_000).is_empty());
        assert!(looks.due.is_empty());
    }
}
