// SPDX-License-Identifier: GPL-2.0-only
//! Tier `vm`: the scheduler on a real sched_ext kernel. `make test` runs these in the lab, one
//! after the other. `large` and `package` have guests of their own.

mod background;
mod bench;
mod callbacks;
mod cgroups;
mod clocks;
mod doctor;
mod everything;
mod hold;
mod identify;
mod in_time;
mod irq;
mod irq_load;
mod irq_storm;
mod killed;
mod known;
mod kthreads;
mod large;
mod launchers;
mod lifecycle;
mod machine;
mod metrics;
mod noise;
mod observed;
mod package;
mod policy;
mod realtime;
mod reload;
pub mod shared;
mod sharing;
mod signals;
mod stalls;
mod storms;
mod top;
mod trace;
mod verifier;
