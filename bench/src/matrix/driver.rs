// SPDX-License-Identifier: GPL-2.0-only
//! The choice of a libcuda.

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
