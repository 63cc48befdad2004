// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler's BPF source, compiled natively, in a deterministic model of the kernel and of machines. It links
//! neither the scheduler's user space nor the bench, and neither links it.

pub mod abi;
pub mod above;
pub mod affinity;
pub mod audit;
pub mod boosted;
pub mod callbacks;
pub mod cell;
pub mod cgroups;
pub mod changes;
pub mod compare;
pub mod cookies;
pub mod costs;
pub mod dsq;
pub mod events;
pub mod hackbench;
pub mod happen;
pub mod higher;
pub mod history;
pub mod idle;
pub mod interleave;
pub mod interrupts;
pub mod kfuncs;
pub mod machine;
pub mod memory;
pub mod meter;
pub mod native;
pub mod nested;
pub mod op;
pub mod overhead;
pub mod profiled;
pub mod program;
pub mod random;
pub mod recorded;
pub mod replay;
pub mod report;
pub mod scenario;
pub mod setup;
pub mod shrink;
pub mod simulation;
pub mod situation;
pub mod state;
pub mod switch;
pub mod sysfs;
pub mod timeline;
pub mod trace;
pub mod wake;
pub mod weights;

#[cfg(test)]
mod kin;
#[cfg(test)]
mod lending;
#[cfg(test)]
mod more_mutants;
#[cfg(test)]
mod mutants;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turns;
#[cfg(test)]
mod wakers;
