// SPDX-License-Identifier: GPL-2.0-only
//! What the measurements of identification have in common. With `GPUAWARE_RUNS=FOLDER` each leaves its raw
//! results there, in a JSON file of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use scx_gpuaware::identify::Identify;
use tempfile::NamedTempFile;

use crate::process::{Process, gpu_launch};

/// Leaves the raw results of measurement `name` where it is asked for.
pub fn record(name: &str, results: &serde_json::Value) {
    let Some(folder) = std::env::var_os("GPUAWARE_RUNS") else {
        return;
    };
    let file = Path::new(&folder).join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(results).unwrap();
    std::fs::write(&file, text + "\n")
        .unwrap_or_else(|error| panic!("GPUAWARE_RUNS: {}: {error}", file.display()));
}

/// CPU time of this thread, which identification runs on.
pub fn own_cpu_time() -> Duration {
    let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
    nix::time::clock_gettime(clock).map(Duration::from).unwrap()
}

/// Runs identification for `time`, as often as it asks to be.
pub fn serve(identify: &mut Identify<'_>, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let wait = identify.step().expect("a step of identification");
        std::thread::sleep(wait);
    }
}

/// `gpu_launch` with its result in a file: a pipe has no room for that of a minute.
pub struct Launcher {
    pub process: Process,
    result: NamedTempFile,
}

impl Launcher {
    /// On the libcuda in `folder`.
    pub fn start(args: &str, folder: &Path) -> Self {
        let result = NamedTempFile::new().unwrap();
        let mut command = gpu_launch(args);
        command
            .env("LD_LIBRARY_PATH", folder)
            .stdout(result.reopen().unwrap());
        Self {
            process: Process::start(command),
            result,
        }
    }

    /// What it printed, after the end.
    pub fn result(&self) -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(self.result.path()).unwrap()).unwrap()
    }

    /// TID and time of the first launch of each thread that launched.
    pub fn first_launches(&self) -> BTreeMap<i32, u64> {
        let result = self.result();
        let threads = result["threads_detail"].as_array().unwrap().iter();
        threads
            .map(|thread| {
                let tid = thread["tid"].as_i64().unwrap() as i32;
                (tid, thread["first_launch_monotonic_ns"].as_u64().unwrap())
            })
            .collect()
    }
}

/// Mean and half of the 95 % interval (Student's) of ten or twenty values.
pub fn mean_with_interval(values: &[f64]) -> (f64, f64) {
    let t = match values.len() {
        10 => 2.262,
        20 => 2.093,
        other => panic!("Student's t of {other} values"),
    };
    let nr = values.len() as f64;
    let mean = values.iter().sum::<f64>() / nr;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / (nr - 1.0);
    (mean, t * (variance / nr).sqrt())
}
