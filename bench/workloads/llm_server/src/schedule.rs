// SPDX-License-Identifier: GPL-2.0-only
//! Continuous batching as vLLM does it: which sequences take part in a step, with how many tokens,
//! and who gives his KV cache back when it runs out. Pure; the engine runs the steps.

use std::collections::VecDeque;

/// What bounds a step.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub max_num_seqs: usize,
    pub max_num_batched_tokens: u32,
    pub blocks: u32,
    pub block_tokens: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    pub id: u64,
    pub prompt_tokens: u32,
    pub max_tokens: u32,
    generated: u32,
    /// Tokens whose keys and values are in the cache.
    computed: u32,
    blocks: u32,
}

/// One step: how many tokens are computed for whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Sequence and tokens; the running ones in their order.
    parts: Vec<(u64, u32)>,
}

/// A sequence's new token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub id: u64,
    /// Counted from 1.
    pub index: u32,
    pub last: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    pub running: usize,
    pub waiting: usize,
    pub used_blocks: u32,
    /// Sequences that had to give their cache back and be computed again.
    pub preemptions: u64,
}

#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    free: u32,
    preemptions: u64,
}

impl Sequence {
    pub fn new(id: u64, prompt_tokens: u32, max_tokens: u32) -> Self {
        Self {
            id,
            prompt_tokens: prompt_tokens.max(1),
            max_tokens: max_tokens.max(1),
            generated: 0,
            computed: 0,
            blocks: 0,
        }
    }

    fn to_compute(&self) -> u32 {
        self.prompt_tokens + self.generated - self.computed
    }
}

impl Step {
    /// Tokens beyond one a sequence: the prompts' part.
    pub fn prefill_tokens(&self) -> u32 {
        self.parts.iter().map(|(_, tokens)| tokens - 1).sum()
    }

    pub fn sequences(&self) -> usize {
        self.parts.len()
    }
}

impl Scheduler {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: VecDeque::new(),
            running: Vec::new(),
            free: limits.blocks,
            preemptions: 0,
        }
    }

    /// Tokens of the longest sequence that can ever run.
    pub fn max_model_len(limits: &Limits) -> u32 {
        limits.blocks.saturating_mul(limits.block_tokens)
    }

    pub fn add(&mut self, sequence: Sequence) {
        self.waiting.push_back(sequence);
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    pub fn load(&self) -> Load {
        Load {
            running: self.running.len(),
            waiting: self.waiting.len(),
            used_blocks: self.limits.blocks - self.free,
            preemptions: self.preemptions,
        }
    }

    /// Forgets a sequence whose client is gone.
    pub fn abort(&mut self, id: u64) {
        self.waiting.retain(|sequence| sequence.id != id);
        if let Some(at) = self.running.iter().position(|sequence| sequence.id == id) {
            self.free += self.running.remove(at).blocks;
        }
    }

    /// Settles the next step: first those that run, in order of arrival, then as many that wait as
    /// fit. Nobody is admitted in a step that had to preempt somebody.
    pub fn next_step(&mut self) -> Step {
        let mut step = Step::default();
        let mut budget = self.limits.max_num_batched_tokens;
        let mut preempted = false;
        let mut at = 0;
        while at < self.running.len() && budget > 0 {
            let tokens = self.running[at].to_compute().min(budget);
            while at < self.running.len() && !self.grow(at, tokens) {
                preempted = true;
                self.preempt_the_last();
            }
            if let Some(sequence) = self.running.get(at) {
                step.parts.push((sequence.id, tokens));
                budget -= tokens;
            }
            at += 1;
        }
        while !preempted && budget > 0 && self.running.len() < self.limits.max_num_seqs {
            let Some(sequence) = self.waiting.pop_front() else {
                break;
            };
            let tokens = sequence.to_compute().min(budget);
            let (id, last) = (sequence.id, self.running.len());
            self.running.push(sequence);
            if !self.grow(last, tokens) {
                self.waiting.extend(self.running.pop());
                self.waiting.rotate_right(1);
                break;
            }
            step.parts.push((id, tokens));
            budget -= tokens;
        }
        step
    }

    /// The step has been computed: every sequence whose tokens are all in the cache has a new one.
    pub fn finish(&mut self, step: &Step) -> Vec<Token> {
        let mut tokens = Vec::new();
        for &(id, computed) in &step.parts {
            let Some(at) = self.running.iter().position(|sequence| sequence.id == id) else {
                continue;
            };
            let sequence = &mut self.running[at];
            sequence.computed += computed;
            if sequence.to_compute() > 0 {
                continue;
            }
            sequence.generated += 1;
            let last = sequence.generated >= sequence.max_tokens;
            tokens.push(Token {
                id,
                index: sequence.generated,
                last,
            });
            if last {
                self.free += self.running.remove(at).blocks;
            }
        }
        tokens
    }

    /// Gives running sequence `at` the blocks for `tokens` more; `false`: there are too few.
    fn grow(&mut self, at: usize, tokens: u32) -> bool {
        let sequence = &mut self.running[at];
        let needed = (sequence.computed + tokens).div_ceil(self.limits.block_tokens);
        let more = needed.saturating_sub(sequence.blocks);
        if more > self.free {
            return false;
        }
        self.free -= more;
        sequence.blocks += more;
        true
    }

    /// The latest arrival gives its cache back and will be computed again from its prompt.
    fn preempt_the_last(&mut self) {
        if let Some(mut sequence) = self.running.pop() {
            self.free += sequence.blocks;
            self.preemptions += 1;
            sequence.blocks = 0;
            sequence.computed = 0;
            self.waiting.push_front(sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduler(blocks: u32) -> Scheduler {
        Scheduler::new(Limits {
            max_num_seqs: 2,
            max_num_batched_tokens: 32,
            blocks,
            block_tokens: 16,
        })
    }

    fn run(scheduler: &mut Scheduler) -> (Step, Vec<Token>) {
        let step = scheduler.next_step();
        let tokens = scheduler.finish(&step);
        (step, tokens)
    }

    #[test]
    fn a_prompt_is_computed_then_every_step_gives_a_token() {
        let mut scheduler = scheduler(100);
        scheduler.add(Sequence::new(1, 10, 2));
        let (step, tokens) = run(&mut scheduler);
        assert_eq!((step.prefill_tokens(), step.sequences()), (9, 1));
        assert_eq!(
            tokens,
            [Token {
                id: 1,
                index: 1,
                last: false
            }]
        );
        let (step, tokens) = run(&mut scheduler);
        assert_eq!((step.prefill_tokens(), step.sequences()), (0, 1));
        assert_eq!(
            tokens,
            [Token {
                id: 1,
                index: 2,
                last: true
            }]
        );
        assert!(scheduler.is_idle());
        assert_eq!(scheduler.load().used_blocks, 0);
    }

    #[test]
    fn a_long_prompt_takes_several_steps_beside_those_who_decode() {
        let mut scheduler = scheduler(100);
        scheduler.add(Sequence::new(1, 1, 9));
        run(&mut scheduler);
        scheduler.add(Sequence::new(2, 60, 9));
        // Budget 32: one for the decoder, 31 for the prompt; then 29 are left.
        let (step, tokens) = run(&mut scheduler);
        assert_eq!(step.parts, [(1, 1), (2, 31)]);
        assert_eq!(tokens.len(), 1, "the prompt is not through");
        let (step, tokens) = run(&mut scheduler);
        assert_eq!(step.parts, [(1, 1), (2, 29)]);
        assert_eq!(tokens.len(), 2);
    }

    #[test]
    fn a_third_sequence_waits_for_its_turn() {
        let mut scheduler = scheduler(100);
        for id in 1..=3 {
            scheduler.add(Sequence::new(id, 4, 1));
        }
        let (step, tokens) = run(&mut scheduler);
        assert_eq!(step.sequences(), 2, "max_num_seqs");
        assert!(tokens.iter().all(|token| token.last));
        assert_eq!(scheduler.load().waiting, 1);
        assert_eq!(run(&mut scheduler).1[0].id, 3);
    }

    #[test]
    fn without_cache_the_latest_gives_way_and_is_computed_again() {
        let mut scheduler = scheduler(2);
        scheduler.add(Sequence::new(1, 15, 9));
        scheduler.add(Sequence::new(2, 15, 9));
        run(&mut scheduler);
        run(&mut scheduler);
        assert_eq!(scheduler.load().used_blocks, 2);
        // Both need a second block now: the first gets the second's.
        let (step, _) = run(&mut scheduler);
        assert_eq!(step.parts, [(1, 1)]);
        let load = scheduler.load();
        assert_eq!((load.running, load.waiting, load.preemptions), (1, 1, 1));
        let mut seen = Vec::new();
        for _ in 0..40 {
            seen.extend(run(&mut scheduler).1);
        }
        // Nothing is lost and nothing comes twice: tokens 3 to 9 of the second.
        let second: Vec<u32> = seen.iter().filter(|t| t.id == 2).map(|t| t.index).collect();
        assert_eq!(second, [3, 4, 5, 6, 7, 8, 9]);
        assert!(scheduler.is_idle());
        assert_eq!(scheduler.load().used_blocks, 0);
    }

    #[test]
    fn an_aborted_sequence_frees_its_cache() {
        let mut scheduler = scheduler(2);
        scheduler.add(Sequence::new(1, 20, 9));
        scheduler.add(Sequence::new(2, 20, 9));
        run(&mut scheduler);
        scheduler.abort(1);
        assert_eq!(scheduler.load().used_blocks, 0);
        scheduler.abort(2);
        assert!(scheduler.is_idle());
    }
}
