// SPDX-License-Identifier: GPL-2.0-only
//! Files of sysfs, one value each, below a root path: [`super::SYSFS`] or a recorded tree.

use std::path::Path;

use anyhow::{Context, Result};

use crate::policy::cpuset::CpuSet;

/// The CPU list in `path`. sysfs prints an empty line for no CPU.
///
/// # Errors
/// The file is missing or holds no CPU list; names it.
pub fn list(path: &Path) -> Result<CpuSet> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    if text.trim().is_empty() {
        return Ok(CpuSet::default());
    }
    text.parse().with_context(|| path.display().to_string())
}

/// The text in `path`. Reading fails for more reasons than absence: `carrier` of an interface that
/// is down is `EINVAL`.
pub fn text(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The decimal number in `path`.
pub fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

/// The hexadecimal number in `path`, written with `0x`.
pub fn hex(path: &Path) -> Option<u32> {
    u32::from_str_radix(text(path)?.strip_prefix("0x")?, 16).ok()
}

/// Names of the entries of `dir`, sorted; none if it does not exist.
pub fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
