// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts that take time from whoever runs on their CPU, and the scheduler's programs that time them.

use crate::events::Event;
use crate::native::{Handler, Handlers};
use crate::state::{Context, Kernel};

/// Of a device, on the CPU where they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupts {
    pub cpu: usize,
    /// From one to the next.
    pub period_ns: u64,
    /// How long the handler takes.
    pub lasts_ns: u64,
}

impl Kernel {
    /// An interrupt comes to `cpu`: nobody gets on there until it is over, whoever runs and whoever is next.
    pub fn interrupt(&mut self, cpu: usize, lasts_ns: u64) {
        self.settle(cpu);
        self.run_handler(cpu, |handlers| handlers.entry);
        let run = &mut self.cpus[cpu];
        // One that comes while another one is handled is handled after it.
        run.irq_until_ns = run.irq_until_ns.max(self.now_ns) + lasts_ns;
        run.irq_ns += lasts_ns;
        run.worked_ns = run.worked_ns.max(self.now_ns) + lasts_ns;
        self.events
            .push(self.now_ns + lasts_ns, Event::InterruptEnds(cpu));
        self.plan_done(cpu);
    }

    pub fn interrupt_ends(&mut self, cpu: usize) {
        self.run_handler(cpu, |handlers| handlers.exit);
    }

    fn run_handler(&mut self, cpu: usize, which: fn(Handlers) -> Handler) {
        let Some(handlers) = self.handlers else {
            return;
        };
        self.enter(cpu, Context::Unlocked);
        // SAFETY: a program of the loaded scheduler, which takes no arguments that it looks at.
        unsafe { which(handlers)() };
        self.leave();
    }
}
