// SPDX-License-Identifier: GPL-2.0-only
//! Tier `vm`: the scheduler on a real sched_ext kernel. `make test` runs these in the lab, one
//! after the other.

mod background;
mod doctor;
mod identify;
mod irq;
mod launchers;
mod lifecycle;
mod machine;
mod metrics;
mod policy;
mod reload;
mod sharing;
mod top;
