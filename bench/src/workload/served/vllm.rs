// SPDX-License-Identifier: GPL-2.0-only
//! vLLM as `make vllm` installs it, and how its worker is made to launch instead of to compute.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::folders;
use crate::matrix::{Driver, Launches};
use crate::workload::driver;

/// The model that `make vllm` makes, as matrices name it.
const MADE: &str = "made";
/// A server of that model: no weights to load, nothing to compile.
pub const ARGUMENTS: [&str; 7] = [
    "--load-format",
    "dummy",
    "--dtype",
    "float32",
    "--max-model-len",
    "4096",
    "--enforce-eager",
];
/// Nothing is fetched or sent; threads stay where the scheduler puts them; one OpenMP thread, since nothing is computed.
const ENVIRONMENT: [(&str, &str); 5] = [
    ("HF_HUB_OFFLINE", "1"),
    ("VLLM_NO_USAGE_STATS", "1"),
    ("VLLM_CPU_KVCACHE_SPACE", "1"),
    ("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
    ("OMP_NUM_THREADS", "1"),
];

fn installed() -> Result<PathBuf> {
    Ok(folders::cache_dir()?.join("vllm"))
}

/// What the PATH has, else what `make vllm` has installed.
pub fn program() -> OsString {
    let own = || installed().ok().map(|folder| folder.join("bin/vllm"));
    let found = folders::on_path("vllm").or_else(|| own().filter(|file| file.is_file()));
    found.map_or_else(|| "vllm".into(), OsString::from)
}

/// The one that has the plugin.
///
/// # Errors
/// There is none.
pub fn with_plugin() -> Result<OsString> {
    let own = installed()?.join("bin/vllm");
    if !own.is_file() {
        bail!(
            "expected vLLM with our plugin in {}: run make vllm",
            own.display()
        );
    }
    Ok(own.into())
}

/// What `vllm serve` is told to load.
///
/// # Errors
/// The made model is asked for and not there.
pub fn model(name: &str) -> Result<OsString> {
    if name != MADE {
        return Ok(name.into());
    }
    let folder = installed()?.join("model");
    if !folder.join("config.json").is_file() {
        bail!(
            "model = {MADE:?}: expected it in {}: run make vllm",
            folder.display()
        );
    }
    Ok(folder.into())
}

/// Has the plugin launch through the driver that is asked for; `lab` has the emulated one and the plugin's library.
///
/// # Errors
/// The driver that is asked for is not there.
pub fn launch_instead(command: &mut Command, launches: &Launches, lab: &Path) -> Result<()> {
    command.envs(ENVIRONMENT);
    command.env("GPU_STEP_LIBRARY", lab.join("libgpu_step.so"));
    command.env("GPU_STEP_PROFILE", &launches.profile);
    let asked = match launches.driver {
        Driver::Auto => driver::automatic(),
        driver => driver,
    };
    if asked == Driver::Emulated {
        command.env("GPU_STEP_CUDA", driver::emulated(lab)?);
    }
    Ok(())
}
