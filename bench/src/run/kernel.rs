// SPDX-License-Identifier: GPL-2.0-only
//! What of a kernel's build and settings decides when a thread runs: its tick, whether and when it preempts, groups
//! that nobody asked for. Facts of a run, because figures depend on them.

use std::fs;
use std::io::Read;

use flate2::read::GzDecoder;

const SCHED_DEBUG: &str = "/sys/kernel/debug/sched";

/// Facts by name. What is not known is left out.
pub fn facts() -> Vec<(&'static str, Option<String>)> {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let config = config(&release).map(|text| Config { text });
    let config = config.as_ref();
    let mode = read(&format!("{SCHED_DEBUG}/preempt"));
    let slice = read(&format!("{SCHED_DEBUG}/base_slice_ns"));
    vec![
        ("HZ", config.and_then(|config| config.value("HZ"))),
        (
            "preemption",
            mode.and_then(|mode| chosen(&mode))
                .or_else(|| config.and_then(Config::preemption)),
        ),
        (
            "tick",
            config.and_then(|config| config.tick(&read("/sys/devices/system/cpu/nohz_full"))),
        ),
        (
            "autogroup",
            read("/proc/sys/kernel/sched_autogroup_enabled").map(|on| switch(on == "1")),
        ),
        (
            "EEVDF's slice",
            slice
                .and_then(|ns| ns.parse::<f64>().ok())
                .map(|ns| format!("{:.1} ms", ns / 1e6)),
        ),
    ]
}

/// The running kernel's build configuration, where distributions and the kernel itself keep it.
fn config(release: &str) -> Option<String> {
    if let Ok(text) = fs::read_to_string(format!("/boot/config-{release}")) {
        return Some(text);
    }
    let mut text = String::new();
    let packed = fs::File::open("/proc/config.gz").ok()?;
    GzDecoder::new(packed).read_to_string(&mut text).ok()?;
    Some(text)
}

struct Config {
    text: String,
}

impl Config {
    fn value(&self, name: &str) -> Option<String> {
        let prefix = format!("CONFIG_{name}=");
        let line = self
            .text
            .lines()
            .find_map(|line| line.strip_prefix(&prefix))?;
        Some(line.trim_matches('"').to_owned())
    }

    fn has(&self, name: &str) -> bool {
        self.value(name).as_deref() == Some("y")
    }

    /// As built; the command line may say something else, which debugfs shows.
    fn preemption(&self) -> Option<String> {
        let modes = [
            ("PREEMPT_RT", "rt"),
            ("PREEMPT_LAZY", "lazy"),
            ("PREEMPT_VOLUNTARY", "voluntary"),
            ("PREEMPT_NONE", "none"),
            ("PREEMPT", "full"),
        ];
        let mode = modes.into_iter().find(|(option, _)| self.has(option))?;
        Some(format!("{} (as built)", mode.1))
    }

    /// When the tick stops.
    fn tick(&self, nohz_full: &Option<String>) -> Option<String> {
        if self.has("HZ_PERIODIC") {
            return Some("always".to_owned());
        }
        let full = nohz_full
            .as_deref()
            .filter(|cpus| !cpus.is_empty() && *cpus != "(null)");
        let stops = self.has("NO_HZ_FULL") || self.has("NO_HZ_IDLE");
        stops.then(|| match full {
            Some(cpus) => format!("stops on idle CPUs, and on CPUs {cpus} while one task runs"),
            None => "stops on idle CPUs".to_owned(),
        })
    }
}

/// The one in parentheses: `none voluntary (full) lazy`.
fn chosen(modes: &str) -> Option<String> {
    let (_, rest) = modes.split_once('(')?;
    Some(rest.split_once(')')?.0.to_owned())
}

fn switch(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debian() -> Config {
        let text = "# CONFIG_HZ_PERIODIC is not set\nCONFIG_NO_HZ_FULL=y\n# CONFIG_NO_HZ is not set\n\
                    CONFIG_PREEMPT_LAZY=y\nCONFIG_HZ_250=y\nCONFIG_HZ=250\n";
        Config {
            text: text.to_owned(),
        }
    }

    #[test]
    fn reads_the_tick_and_the_preemption_of_a_build() {
        let config = debian();
        assert_eq!(config.value("HZ").as_deref(), Some("250"));
        assert_eq!(config.preemption().as_deref(), Some("lazy (as built)"));
        assert_eq!(config.tick(&None).as_deref(), Some("stops on idle CPUs"));
        assert_eq!(
            config.tick(&Some("1".to_owned())).as_deref(),
            Some("stops on idle CPUs, and on CPUs 1 while one task runs")
        );
        let empty = Config {
            text: String::new(),
        };
        assert_eq!(
            (empty.value("HZ"), empty.preemption(), empty.tick(&None)),
            (None, None, None)
        );
    }

    #[test]
    fn the_mode_in_force_is_the_one_in_parentheses() {
        assert_eq!(
            chosen("none voluntary (full) lazy").as_deref(),
            Some("full")
        );
        assert_eq!(chosen("full"), None);
    }
}
