// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler and interrupts do to the threads that launch GPU work, measured.

pub mod schema;
