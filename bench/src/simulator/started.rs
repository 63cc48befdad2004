// SPDX-License-Identifier: GPL-2.0-only
//! The simulator's program, and what it says when it ends badly.

use std::path::{Path, PathBuf};
use std::process::Output;

pub fn program(target: &Path) -> PathBuf {
    target.join("release/gpuaware-sim")
}

/// Its last words, or those of the scheduler's program, without the program's name.
pub fn why(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().next_back().unwrap_or("it said nothing").trim();
    let line = line.trim_start_matches("gpuaware-sim: ");
    line.trim_start_matches("scx_gpuaware: error: ").to_owned()
}
