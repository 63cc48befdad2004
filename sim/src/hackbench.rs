// SPDX-License-Identifier: GPL-2.0-only
//! Threads that pass messages in turns, as hackbench does: all begin together, some have more messages than others, so
//! that fewer and fewer are left, and the next turn begins when the last one is done.

use crate::dsq::TaskId;
use crate::op::Op;

/// One of two threads of which one sends to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passing {
    pub partner: TaskId,
    /// Who begins turns.
    pub main: TaskId,
    /// CPU time of a message.
    pub work_ns: u64,
    /// Of a turn.
    pub messages: u64,
    /// As many are sent before one has been received; 0: this one receives.
    pub ahead: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Start,
    /// Before the message of that number.
    Take(u64),
    Work(u64),
    Pass(u64),
    /// All are sent, and so many of the last ones received.
    Drain(u64),
}

/// Where a thread is in its turn.
#[derive(Debug)]
pub struct Passer {
    at: At,
    /// Messages of all turns.
    pub passed: u64,
}

impl Default for Passer {
    fn default() -> Self {
        Self {
            at: At::Start,
            passed: 0,
        }
    }
}

impl Passer {
    pub fn next(&mut self, what: Passing) -> Op {
        let sends = what.ahead > 0;
        let (at, op) = match self.at {
            At::Start => (At::Take(0), Op::Wait),
            At::Take(message) if sends && message < what.ahead => {
                (At::Pass(message), Op::Run(what.work_ns))
            }
            At::Take(message) => (At::Work(message), Op::Wait),
            At::Work(message) => (At::Pass(message), Op::Run(what.work_ns)),
            At::Pass(message) => {
                self.passed += 1;
                let is_last = message + 1 == what.messages;
                let next = if is_last {
                    At::Drain(0)
                } else {
                    At::Take(message + 1)
                };
                (next, wake(what.partner, true))
            }
            At::Drain(received) if sends && received < what.ahead.min(what.messages) => {
                (At::Drain(received + 1), Op::Wait)
            }
            At::Drain(_) => (At::Start, wake(what.main, false)),
        };
        self.at = at;
        op
    }
}

/// What the thread that begins turns does in step `step`, from 1 on: it makes `count` threads, the first of which is
/// `first`, and waits for all.
pub fn begin_turns(step: u64, first: TaskId, count: u64, work_ns: u64) -> Op {
    let at = (step - 1) % (1 + 2 * count);
    match at {
        0 => Op::Run(work_ns),
        at if at <= count => wake(first + at as usize - 1, false),
        _ => Op::Wait,
    }
}

const fn wake(task: TaskId, sync: bool) -> Op {
    Op::Wake { task, sync }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `messages` of two threads for two turns, and says how far ahead the sender was at most.
    fn two_turns(messages: u64, ahead: u64) -> u64 {
        let of = |partner, ahead| Passing {
            partner,
            main: 9,
            work_ns: 5,
            messages,
            ahead,
        };
        let specs = [of(1, ahead), of(0, 0)];
        let mut passers = [Passer::default(), Passer::default()];
        let (mut tokens, mut waits) = ([1, 1], [false, false]);
        let (mut ended, mut most) = (0, 0);
        // The sender first, as long as it can.
        for _ in 0..1000 {
            let Some(who) = (0..2).find(|&who| !waits[who] || tokens[who] > 0) else {
                break;
            };
            if std::mem::take(&mut waits[who]) {
                tokens[who] -= 1;
            }
            match passers[who].next(specs[who]) {
                Op::Wait => waits[who] = true,
                Op::Wake { task: 9, .. } => {
                    ended += 1;
                    // The main thread begins the second turn when both are done.
                    if ended == 2 {
                        tokens = tokens.map(|of_one| of_one + 1);
                    }
                }
                Op::Wake { task, .. } => tokens[task] += 1,
                _ => {}
            }
            most = most.max(passers[0].passed - passers[1].passed);
        }
        assert_eq!((ended, tokens), (4, [0, 0]), "no wakeup is left over");
        assert_eq!(passers.map(|one| one.passed), [2 * messages; 2]);
        most
    }

    #[test]
    fn a_sender_is_ahead_by_what_its_socket_holds() {
        assert_eq!(two_turns(7, 3), 3);
        assert_eq!(two_turns(2, 5), 2);
    }

    #[test]
    fn who_begins_turns_wakes_all_and_waits_for_all() {
        let ops: Vec<Op> = (1..=6).map(|step| begin_turns(step, 4, 2, 70)).collect();
        let turn = [
            Op::Run(70),
            wake(4, false),
            wake(5, false),
            Op::Wait,
            Op::Wait,
            Op::Run(70),
        ];
        assert_eq!(ops, turn);
    }
}
