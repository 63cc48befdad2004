// SPDX-License-Identifier: GPL-2.0-only
//! Reading a policy file.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use log::warn;

use crate::policy::cpuset::CpuSet;
use crate::policy::{Document, pending};

/// Reads a policy for a machine with `online` CPUs; warnings go to the log.
pub fn read(path: &Path, online: &CpuSet) -> Result<Document> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading policy {}", path.display()))?;
    let file = path.display().to_string();
    let document = Document::parse(&text)
        .and_then(|document| document.check_on(online).map(|()| document))
        .map_err(|error| anyhow!("the policy is refused\n{}", error.in_file(&file)))?;
    for warning in &document.warnings {
        warn!("{file}:{warning}");
    }
    Ok(document)
}

/// Says once which keys of the policy this build does not act on.
pub fn warn_of_pending(path: &Path, document: &Document) {
    for (key, line) in pending::keys(document) {
        warn!(
            "{}:{line}: {key}: this build does not act on it yet",
            path.display()
        );
    }
}
