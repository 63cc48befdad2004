// SPDX-License-Identifier: GPL-2.0-only
//! Tier `gpu`: the workload on a genuine driver.

use crate::process::lab_folder;
use crate::tier;

#[test]
fn workload_runs_on_the_genuine_driver() {
    if !tier::gpu() {
        return;
    }
    let folder = lab_folder();
    let output = std::process::Command::new(folder.join("gpu_launch"))
        .args(["--profile", "qwen3", "--tokens", "20"])
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .expect("starting gpu_launch");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(result["tokens"], 20);
    assert_eq!(result["failures"], 0);
    let device = result["driver"]["device_name"].as_str().expect("a name");
    assert!(!device.contains("emulated"), "{device}");
}
