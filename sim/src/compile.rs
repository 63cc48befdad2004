// SPDX-License-Identifier: GPL-2.0-only
//! Compiles scx_gpuaware from another folder than the one that this program was built with: a change to it is tried
//! without building anything else.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// As in build.rs.
const METERED: [&str; 2] = [
    "-fsanitize-coverage=bb,no-prune,trace-pc-guard",
    "shim/meter.c",
];

/// The shared object of `source`, a path below `sim/`, with scx_gpuaware as it is in `bpf`.
pub fn compile(source: &str, bpf: &Path, metered: bool) -> Result<Vec<u8>> {
    let bpf = bpf
        .canonicalize()
        .with_context(|| bpf.display().to_string())?;
    ensure!(
        bpf.join("gpuaware.bpf.c").is_file(),
        "{}: expected a folder with gpuaware.bpf.c, as bpf/ of a checkout",
        bpf.display()
    );
    let folder = tempfile::tempdir().context("making a folder for the object")?;
    let object = folder.path().join("scheduler.so");
    let mut command = Command::new(env!("SIM_CLANG"));
    command.args(env!("SIM_CFLAGS").split(' ')).arg("-Ishim");
    command.arg("-I").arg(&bpf).arg("-o").arg(&object);
    command.args([source, "shim/runtime.c"]);
    if metered {
        command.args(METERED);
    }
    let status = command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .context(concat!(
            env!("SIM_CLANG"),
            ": set BPF_CLANG or run make setup"
        ))?;
    ensure!(
        status.success(),
        "{source} with {}: {status}",
        bpf.display()
    );
    std::fs::read(&object).with_context(|| object.display().to_string())
}

/// scx_gpuaware as it is in `bpf`.
pub fn gpuaware(bpf: &Path, metered: bool) -> Result<Vec<u8>> {
    compile("schedulers/gpuaware.bpf.c", bpf, metered)
}
