// SPDX-License-Identifier: GPL-2.0-only
//! Tier `vm`: the scheduler on a real sched_ext kernel. `make test` runs these in the lab, one
//! after the other. `smt`, `numa` and `pins` have machines of their own.

mod background;
mod doctor;
mod everything;
mod identify;
mod irq;
mod irq_load;
mod launchers;
mod lifecycle;
mod machine;
mod metrics;
mod numa;
mod pins;
mod policy;
mod reload;
mod sharing;
mod smt;
mod storms;
mod top;
mod verifier;
