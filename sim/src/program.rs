// SPDX-License-Identifier: GPL-2.0-only
//! What tasks do: programs that say, step by step, what a task wants of the kernel.

use std::sync::Arc;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::dsq::TaskId;
use crate::hackbench::{Passer, Passing, begin_turns};
use crate::op::Op;
use crate::recorded::{Player, Recorded, Step};
use crate::timeline::{Next, Timeline};
pub use crate::timeline::{Sync, Tokens};

/// What a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Never sleeps.
    Loop,
    /// The same with a system call whenever it has worked for so long.
    Calls(u64),
    /// Runs and sleeps in turn, for `runs` rounds; 0: for ever.
    Periodic {
        run_ns: u64,
        sleep_ns: u64,
        runs: u64,
    },
    /// Launches for so long a token, then waits for the GPU.
    Launcher {
        launch_ns: u64,
        gpu_ns: u64,
        sync: Sync,
    },
    /// The same with a timeline of the GPU, which works while the task launches. One that blocks is woken by its driver's
    /// thread, a [`Program::EventHandler`].
    Tokens {
        tokens: Tokens,
        handler: TaskId,
    },
    /// Wakes that launcher after the interrupt of its GPU.
    EventHandler {
        launcher: TaskId,
    },
    /// Waits for its partner, works and wakes it; `ahead` times without waiting.
    Pair {
        partner: TaskId,
        work_ns: u64,
        ahead: u64,
    },
    /// Makes threads of [`Program::Passing`] for a turn, and for the next one when all are done.
    Turns {
        first: TaskId,
        count: u64,
        work_ns: u64,
    },
    Passing(Passing),
    /// What the scenario has recorded under that number.
    Recorded(usize),
}

/// How long a turn of a loop of sched_yield() takes.
const YIELD_NS: u64 = 20_000;
/// What an event handler does for each interrupt.
const HANDLER_NS: u64 = 20_000;
/// A piece of what a program that never sleeps does.
const PIECE_NS: u64 = 50_000_000;

/// A program on its way.
#[derive(Debug)]
pub struct Progress {
    program: Program,
    rng: Pcg64Mcg,
    step: u64,
    until_ns: u64,
    is_armed: bool,
    timeline: Timeline,
    passer: Passer,
    player: Option<Player>,
    /// Rounds, tokens or messages so far.
    pub done: u64,
    /// When tokens came to their ends, of those with a timeline.
    pub ends_ns: Vec<u64>,
}

impl Progress {
    pub fn new(program: Program, rng: Pcg64Mcg) -> Self {
        Self {
            program,
            rng,
            step: 0,
            until_ns: 0,
            is_armed: false,
            timeline: Timeline::default(),
            passer: Passer::default(),
            player: None,
            done: 0,
            ends_ns: Vec::new(),
        }
    }

    /// One that was recorded, with what.
    pub fn playing(mut self, recorded: Arc<Recorded>) -> Self {
        self.player = Some(Player::new(recorded));
        self
    }

    pub fn is_recorded(&self) -> bool {
        self.player.is_some()
    }

    /// Give or take a tenth.
    fn about(&mut self, ns: u64) -> u64 {
        let tenth = ns / 10;
        self.rng.random_range(ns - tenth..=ns + tenth).max(1)
    }

    pub fn next(&mut self, now_ns: u64) -> Op {
        self.step += 1;
        match self.program {
            Program::Loop => Op::Run(PIECE_NS),
            Program::Calls(_) if self.step.is_multiple_of(2) => Op::Call,
            Program::Calls(work_ns) => Op::Run(work_ns),
            Program::Periodic {
                run_ns,
                sleep_ns,
                runs,
            } => self.periodic(run_ns, sleep_ns, runs),
            Program::Launcher {
                launch_ns,
                gpu_ns,
                sync,
            } => self.launcher(launch_ns, gpu_ns, sync, now_ns),
            Program::Pair {
                partner,
                work_ns,
                ahead,
            } => self.pair(partner, work_ns, ahead),
            Program::Tokens { tokens, handler } => self.tokens(tokens, handler, now_ns),
            Program::EventHandler { launcher } => self.event_handler(launcher),
            Program::Turns {
                first,
                count,
                work_ns,
            } => begin_turns(self.step, first, count, work_ns),
            Program::Passing(passing) => match self.passer.next(passing) {
                Op::Run(ns) => Op::Run(self.about(ns)),
                op => op,
            },
            Program::Recorded(_) => self.play(),
        }
    }

    fn play(&mut self) -> Op {
        let player = self.player.as_mut();
        match player.map(|player| player.next(&mut self.rng, &mut self.done)) {
            Some(Step::Run(ns)) => Op::Run(ns),
            Some(Step::Yield) => Op::Yield,
            Some(Step::Wake { first, count, from }) => Op::WakeOne { first, count, from },
            Some(Step::Sleep(ns)) => Op::Sleep(ns),
            Some(Step::Await(ns)) => Op::Await(ns),
            None => Op::Exit,
        }
    }

    fn periodic(&mut self, run_ns: u64, sleep_ns: u64, runs: u64) -> Op {
        if self.step % 2 == 1 {
            if runs > 0 && self.done == runs {
                return Op::Exit;
            }
            return Op::Run(self.about(run_ns));
        }
        self.done += 1;
        Op::Sleep(self.about(sleep_ns))
    }

    fn launcher(&mut self, launch_ns: u64, gpu_ns: u64, sync: Sync, now_ns: u64) -> Op {
        if self.step == 1 {
            return Op::Run(self.about(launch_ns));
        }
        if self.step == 2 {
            let gpu_ns = self.about(gpu_ns);
            self.until_ns = now_ns + gpu_ns;
            if sync == Sync::Block {
                self.finish_token();
                return Op::Sleep(gpu_ns);
            }
        }
        if now_ns >= self.until_ns {
            self.finish_token();
            return self.launcher_again(launch_ns);
        }
        match sync {
            Sync::Spin => Op::Run(self.until_ns - now_ns),
            // Each turn is a yield and the little that is done between two.
            _ if self.step.is_multiple_of(2) => Op::Yield,
            _ => Op::Run(YIELD_NS),
        }
    }

    fn finish_token(&mut self) {
        self.done += 1;
        self.step = 0;
    }

    fn launcher_again(&mut self, launch_ns: u64) -> Op {
        self.step = 1;
        Op::Run(self.about(launch_ns))
    }

    fn pair(&mut self, partner: TaskId, work_ns: u64, ahead: u64) -> Op {
        match self.step % 3 {
            1 if self.done >= ahead => Op::Wait,
            1 => {
                self.step += 1;
                Op::Run(self.about(work_ns))
            }
            2 => Op::Run(self.about(work_ns)),
            _ => {
                self.done += 1;
                Op::Wake {
                    task: partner,
                    sync: true,
                }
            }
        }
    }

    fn event_handler(&mut self, launcher: TaskId) -> Op {
        match self.step % 3 {
            1 => Op::Wait,
            2 => Op::Run(self.about(HANDLER_NS)),
            _ => Op::Wake {
                task: launcher,
                sync: false,
            },
        }
    }

    fn tokens(&mut self, tokens: Tokens, handler: TaskId, now_ns: u64) -> Op {
        if std::mem::take(&mut self.is_armed) {
            return Op::Wait;
        }
        match self.timeline.next(tokens, now_ns) {
            Next::Work(ns) => Op::Run(self.about(ns)),
            Next::End(ns) => {
                self.done += 1;
                self.ends_ns.push(now_ns);
                Op::Run(self.about(ns))
            }
            Next::Until(until_ns) => match tokens.sync {
                Sync::Block => {
                    self.is_armed = true;
                    Op::Arm {
                        task: handler,
                        ns: until_ns - now_ns,
                    }
                }
                Sync::Spin => Op::Run(until_ns - now_ns),
                Sync::Yield if self.step.is_multiple_of(2) => Op::Yield,
                Sync::Yield => Op::Run(YIELD_NS),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn progress(program: Program) -> Progress {
        Progress::new(program, Pcg64Mcg::seed_from_u64(1))
    }

    #[test]
    fn a_launcher_that_blocks_launches_and_sleeps_in_turn() {
        let mut launcher = progress(Program::Launcher {
            launch_ns: 1000,
            gpu_ns: 5000,
            sync: Sync::Block,
        });
        for done in 1..4 {
            assert!(matches!(launcher.next(0), Op::Run(900..=1100)));
            assert!(matches!(launcher.next(0), Op::Sleep(4500..=5500)));
            assert_eq!(launcher.done, done);
        }
    }

    #[test]
    fn a_launcher_that_yields_does_so_until_the_gpu_is_done() {
        let mut launcher = progress(Program::Launcher {
            launch_ns: 1000,
            gpu_ns: 200_000,
            sync: Sync::Yield,
        });
        launcher.next(0);
        let mut now_ns = 0;
        let mut yields = 0;
        while launcher.done == 0 {
            match launcher.next(now_ns) {
                Op::Run(ns) => now_ns += ns,
                Op::Yield => yields += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!((8..=12).contains(&yields), "{yields}");
    }

    #[test]
    fn of_a_pair_one_begins_and_the_other_waits() {
        let pair = |ahead| {
            progress(Program::Pair {
                partner: 7,
                work_ns: 100,
                ahead,
            })
        };
        let wake = Op::Wake {
            task: 7,
            sync: true,
        };
        let mut first = pair(1);
        assert!(matches!(first.next(0), Op::Run(_)));
        assert_eq!([first.next(0), first.next(0)], [wake, Op::Wait]);
        assert_eq!(pair(0).next(0), Op::Wait);
        let mut stream = pair(3);
        let ops: Vec<Op> = (0..7).map(|_| stream.next(0)).collect();
        let waits = ops.iter().filter(|op| **op == Op::Wait).count();
        assert_eq!((waits, ops[6]), (1, Op::Wait), "three are under way");
    }

    #[test]
    fn a_task_with_a_number_of_rounds_ends() {
        let mut short = progress(Program::Periodic {
            run_ns: 10,
            sleep_ns: 10,
            runs: 2,
        });
        let ops: Vec<Op> = (0..5).map(|_| short.next(0)).collect();
        assert_eq!(ops[4], Op::Exit);
    }
}
