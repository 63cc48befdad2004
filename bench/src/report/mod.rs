// SPDX-License-Identifier: GPL-2.0-only
use std::path::Path;
use anyhow::Result;
pub fn write(_dir: &Path, _print: bool) -> Result<()> { Ok(()) }
