// SPDX-License-Identifier: GPL-2.0-only
//! Memory of the GPU for a genuine server: one that has ended holds it for some seconds more, until its driver has
//! cleaned up.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::interrupt;
use crate::matrix::Server;

const LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(500);

/// The share of its GPU's memory that `server` takes; `None`: none.
pub fn wanted(server: &Server) -> Option<f64> {
    match server {
        Server::Vllm {
            gpu_memory_utilization,
            instead: None,
        } => Some(*gpu_memory_utilization),
        _ => None,
    }
}

/// Why the GPU that a server would take has not `share` of its memory free; `None`: it has, or nobody knows.
pub fn lacking(share: f64) -> Option<String> {
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    let visible = of("CUDA_VISIBLE_DEVICES");
    let first = first_of(&visible);
    // CUDA counts the fastest first, nvidia-smi along the bus.
    if first.parse::<u32>().is_ok_and(|number| number > 0)
        && of("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    {
        return None;
    }
    let asked = Command::new("nvidia-smi")
        .args([
            "--query-gpu=memory.free,memory.total",
            "--format=csv,noheader,nounits",
            "-i",
            first,
        ])
        .stdin(Stdio::null())
        .output();
    too_full(first, &String::from_utf8_lossy(&asked.ok()?.stdout), share)
}

/// Until the memory that `server` takes is free.
///
/// # Errors
/// It is not after a minute, or the user wishes to stop.
pub fn wait_until_free(server: &Server) -> Result<()> {
    let Some(share) = wanted(server) else {
        return Ok(());
    };
    let end = Instant::now() + LIMIT;
    while let Some(why) = lacking(share) {
        interrupt::check()?;
        if Instant::now() >= end {
            bail!("after a minute of waiting, {why}");
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// The GPU that a server takes, by its number or UUID, of what `CUDA_VISIBLE_DEVICES` lists.
fn first_of(visible: &str) -> &str {
    match visible.split(',').next().map(str::trim) {
        None | Some("") => "0",
        Some(first) => first,
    }
}

/// From nvidia-smi's line, free and total MiB of GPU `name`: whether it has that share.
fn too_full(name: &str, text: &str, share: f64) -> Option<String> {
    let (free, total) = text.lines().next()?.split_once(',')?;
    let (free, total): (f64, f64) = (free.trim().parse().ok()?, total.trim().parse().ok()?);
    (free < share * total).then(|| {
        format!(
            "GPU {name}: expected {share} of its {total:.0} MiB to be free, {free:.0} are: end what uses it \
             (nvidia-smi lists that), or set gpu_memory_utilization"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_somebody_else_fills_is_named() {
        let said = too_full("1", "1000, 81559\n", 0.9).unwrap();
        assert!(
            said.starts_with("GPU 1: expected 0.9 of its 81559 MiB to be free, 1000 are"),
            "{said}"
        );
        for text in ["81000, 81559\n", "", "[N/A], 5\n"] {
            assert_eq!(too_full("0", text, 0.9), None);
        }
    }

    #[test]
    fn the_first_visible_gpu_is_looked_at() {
        let firsts = ["", "1", "3,1", " GPU-8f6e , 1"].map(first_of);
        assert_eq!(firsts, ["0", "1", "3", "GPU-8f6e"]);
    }
}
