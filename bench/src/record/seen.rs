// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel and the scheduler said of who ran in a cell.

use serde::{Deserialize, Serialize};

use crate::sched_attr::Policy;

/// The sched_ext scheduler that was loaded during the whole cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerSeen {
    pub ops: String,
    /// What the program answers to `--version`.
    #[serde(default)]
    pub version: Option<String>,
    pub enable_seq: u64,
}

/// How the kernel schedules a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadSeen {
    pub tid: i32,
    pub comm: String,
    pub policy: Option<Policy>,
    pub nice: i32,
    pub priority: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_us: Option<u64>,
    pub cpus: String,
}

/// What the scheduler said of the launching threads near the end of the window.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MarksSeen {
    /// Every launching thread was marked as one.
    pub marked: bool,
    /// From the first launch of a thread until its mark, the slowest thread's; absent if unmarked.
    pub delay_ms: Option<f64>,
    pub marks: serde_json::Value,
}
