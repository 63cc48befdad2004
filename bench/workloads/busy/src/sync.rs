// SPDX-License-Identifier: GPL-2.0-only
//! How a thread waits for the GPU.

use std::ffi::c_uint;

use serde::{Deserialize, Serialize};

/// The context's `CU_CTX_SCHED_*` flag.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Sync {
    Auto,
    Spin,
    Yield,
    #[default]
    Block,
}

impl Sync {
    pub fn flag(self) -> c_uint {
        match self {
            Self::Auto => 0,
            Self::Spin => 1,
            Self::Yield => 2,
            Self::Block => 4,
        }
    }
}
