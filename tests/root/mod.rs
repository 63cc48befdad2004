// SPDX-License-Identifier: GPL-2.0-only
//! Tier `root`: probes in this kernel, under whatever scheduler it has.

pub mod cgroups;
mod containers;
mod contexts;
mod cost;
mod crash;
mod feed;
mod gpu_check;
pub mod handoff;
mod hints;
mod hip;
mod identify;
mod instances;
mod late;
mod measure;
mod numbers;
mod place;
mod precedence;
mod rules;
mod runtime;
mod scale;
mod scarce;
mod serving;
mod standing;
mod trace;
mod traced_cell;
mod triggers;
mod trust;
mod watching;
