// SPDX-License-Identifier: GPL-2.0-only
//! Tier `root`: probes in this kernel, under whatever scheduler it has.

mod handoff;
mod identify;
mod place;
mod rules;
mod trace;
