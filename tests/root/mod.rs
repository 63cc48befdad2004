// SPDX-License-Identifier: GPL-2.0-only
//! Tier `root`: probes in this kernel, under whatever scheduler it has.

mod cgroups;
mod handoff;
mod hints;
mod identify;
mod place;
mod rules;
mod scale;
mod trace;
