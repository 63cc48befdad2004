// SPDX-License-Identifier: GPL-2.0-only
//! vLLM as `make vllm` installs it, and how its worker is made to launch instead of to compute.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use serde::Deserialize;

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

/// Where the plugin's threads are to say that they launch, a file each.
const REPORT: &str = "GPU_STEP_REPORT";

/// What the plugin writes there.
#[derive(Deserialize)]
struct Launcher {
    tid: i64,
}

/// Whoever launches in the place of a model is to say so in `folder`; other servers ignore it.
pub fn launchers_say_so_in(command: &mut Command, folder: &Path) {
    command.env(REPORT, folder);
}

/// The threads that have said so.
pub fn launchers_in(folder: &Path) -> Vec<i64> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let launchers = texts.filter_map(|text| serde_json::from_str::<Launcher>(&text).ok());
    let mut tids: Vec<i64> = launchers.map(|launcher| launcher.tid).collect();
    tids.sort_unstable();
    tids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_those_that_have_said_so() {
        let folder = tempfile::tempdir().unwrap();
        assert!(launchers_in(folder.path()).is_empty());
        for (name, text) in [
            ("12.json", "{\"pid\": 5, \"tid\": 12}"),
            ("7.json", "{\"pid\": 5, \"tid\": 7}"),
            // Another one is writing.
            ("9.json", "{\"pid\": 5"),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(launchers_in(folder.path()), [7, 12]);
    }
}
