// SPDX-License-Identifier: GPL-2.0-only
//! The choice of a libcuda, and of its GPUs.

use std::fmt::{self, Display};
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// Which libcuda the workload gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// The machine's own where there is one with a GPU, else the emulated one.
    #[default]
    Auto,
    Emulated,
    Real,
}

impl Driver {
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Emulated => "emulated",
            Self::Real => "real",
        }
    }
}

/// On how many GPUs a workload launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number of GPUs, at least 1, or \"all\""
)]
pub enum Gpus {
    Count(NonZeroU32),
    Word(All),
}

/// Those that the driver has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum All {
    All,
}

impl Default for Gpus {
    fn default() -> Self {
        Self::Count(NonZeroU32::MIN)
    }
}

impl Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Word(All::All) => f.write_str("all"),
        }
    }
}
