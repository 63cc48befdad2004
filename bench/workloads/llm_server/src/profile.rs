// SPDX-License-Identifier: GPL-2.0-only
//! A profile: what a step of the engine costs the CPU and the GPU, and how much fits. Reading only.

use std::path::Path;

use busy::Sync;
use serde::{Deserialize, Serialize};

/// Profiles that need no file.
const BUILT_IN: &[(&str, &str)] = &[("chat", include_str!("../profiles/chat.toml"))];

/// Bad input: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub description: String,
    pub sync: Sync,
    pub launches_per_step: u32,
    pub launch_gap_ns: u64,
    pub kernel_ns: u64,
    pub prefill_ns_per_token: u64,
    pub decode_ns_per_sequence: u64,
    pub step_cpu_us: u64,
    pub max_num_seqs: usize,
    pub max_num_batched_tokens: u32,
    pub block_tokens: u32,
    pub weights_percent: f64,
    pub kv_tokens_per_percent: u32,
}

impl Profile {
    /// A built-in profile by name, or a TOML file by its path.
    pub fn read(name: &str) -> Result<Self, UsageError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(name, text);
        }
        let known: Vec<&str> = BUILT_IN.iter().map(|(known, _)| *known).collect();
        let text = std::fs::read_to_string(Path::new(name)).map_err(|error| {
            UsageError(format!(
                "--profile: expected {} or the path of a profile, got {name:?}: {error}",
                known.join(", ")
            ))
        })?;
        Self::parse(name, &text)
    }

    fn parse(name: &str, text: &str) -> Result<Self, UsageError> {
        let profile: Self = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text[..offset].matches('\n').count() + 1;
            UsageError(format!("{name}:{line}: {}", error.message()))
        })?;
        profile
            .check()
            .map_err(|error| UsageError(format!("{name}: {error}")))?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), String> {
        for (key, value) in [
            ("launches_per_step", u64::from(self.launches_per_step)),
            ("max_num_seqs", self.max_num_seqs as u64),
            (
                "max_num_batched_tokens",
                u64::from(self.max_num_batched_tokens),
            ),
            ("block_tokens", u64::from(self.block_tokens)),
            (
                "kv_tokens_per_percent",
                u64::from(self.kv_tokens_per_percent),
            ),
        ] {
            if !(1..=1_000_000).contains(&value) {
                return Err(format!("{key}: expected 1 to 1000000, got {value}"));
            }
        }
        if !(0.0..100.0).contains(&self.weights_percent) {
            let got = self.weights_percent;
            return Err(format!(
                "weights_percent: expected 0 to below 100, got {got}"
            ));
        }
        Ok(())
    }

    /// Blocks of KV cache that fit beside the weights, and the bytes of a GPU with `total_bytes`
    /// that they take.
    pub fn kv_cache(&self, utilization: f64, total_bytes: u64) -> Result<(u32, u64), UsageError> {
        let percent = utilization * 100.0 - self.weights_percent;
        let tokens = percent * f64::from(self.kv_tokens_per_percent);
        let blocks = (tokens / f64::from(self.block_tokens)).floor();
        if blocks < 1.0 {
            return Err(UsageError(format!(
                "--gpu-memory-utilization: expected more than {:.2}, which the weights alone take, got {utilization}",
                self.weights_percent / 100.0
            )));
        }
        Ok((blocks as u32, (total_bytes as f64 * percent / 100.0) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilization_settles_the_kv_cache() {
        let chat = Profile::read("chat").unwrap();
        // 35, 20 and 5 percent of the memory are left: the seeds' L0, L1 and L2.
        let blocks = |share| chat.kv_cache(share, 1 << 34).map(|(blocks, _)| blocks);
        assert_eq!(blocks(0.9).unwrap(), 280);
        assert_eq!(blocks(0.75).unwrap(), 160);
        assert_eq!(blocks(0.6).unwrap(), 40);
        let error = blocks(0.5).unwrap_err().to_string();
        assert!(error.contains("expected more than 0.55"), "{error}");
    }

    #[test]
    fn mistakes_have_their_line() {
        let good = BUILT_IN[0].1;
        let error = |from: &str, to: &str| {
            Profile::parse("p.toml", &good.replace(from, to))
                .unwrap_err()
                .to_string()
        };
        let text = error("kernel_ns = 28_000", "kernel_ms = 28");
        assert!(
            text.starts_with("p.toml:8: unknown field `kernel_ms`"),
            "{text}"
        );
        let text = error("max_num_seqs = 32", "max_num_seqs = 0");
        assert_eq!(text, "p.toml: max_num_seqs: expected 1 to 1000000, got 0");
        let text = Profile::read("/no/such").unwrap_err().to_string();
        assert!(
            text.starts_with("--profile: expected chat or the path"),
            "{text}"
        );
    }
}
