// SPDX-License-Identifier: GPL-2.0-only
//! README's strip: who runs on the lab's CPUs for 40 ms, under EEVDF and under the subject. Cut from what the tracer
//! recorded (`bench/strip.sh`), kept as CSV in `bench/runs/strip`, drawn as SVG.

mod cut;
mod draw;
mod model;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::replace::put;
pub use draw::draw;
pub use model::Strip;

pub const FOLDER: &str = "bench/runs/strip";
/// The traces, in the order of the panels.
const NAMES: [&str; 2] = ["eevdf", "gpuaware"];

fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.csv"))
}

/// The strips that the repository keeps.
pub fn read(root: &Path) -> Result<Vec<Strip>> {
    let read = |name| {
        let file = file(&root.join(FOLDER), name);
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Strip::parse(&text).with_context(|| format!("{} is no strip", file.display()))
    };
    NAMES.into_iter().map(read).collect()
}

/// Cuts new strips out of the traces in `from`: of each the stretch with the median number of launches.
pub fn cut(from: &Path, root: &Path) -> Result<()> {
    let to = root.join(FOLDER);
    fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
    for name in NAMES {
        let trace = file(from, name);
        let open = fs::File::open(&trace)
            .with_context(|| format!("cannot read {}: bench/strip.sh makes it", trace.display()))?;
        let strip = cut::typical(std::io::BufReader::new(open))
            .with_context(|| format!("{} cannot be cut", trace.display()))?;
        put(&file(&to, name), strip.to_csv()?)?;
    }
    Ok(())
}
