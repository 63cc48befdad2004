// SPDX-License-Identifier: GPL-2.0-only
//! What the machine is that is tuned for: `scx_gpuaware topology` and `doctor` are asked there, and read here.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::datafile::DataError;
use crate::plan::Where;
use crate::process::{self, Supervised};
use crate::simulator::{Chooser, Wish};
use crate::words::quote;

/// What proposals depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Online CPUs, a list, and how many they are.
    pub online: String,
    pub cpus: usize,
    pub cores: usize,
    pub nodes: usize,
    pub gpus: usize,
    /// What the default prefers for one launcher.
    pub preferred: String,
    /// CPUs that spend much of their time in interrupts, and whether preferred ones are among them.
    pub irq_heavy: BTreeSet<usize>,
    pub irq_on_preferred: bool,
    /// What doctor warns of.
    pub warnings: Vec<String>,
    /// What doctor says keeps the scheduler from working.
    pub problems: Vec<String>,
    /// Such a machine for the simulator; `None`: it is one already.
    #[serde(default)]
    pub shape: Option<String>,
}

#[derive(Deserialize)]
struct Topology {
    preferred: Preferred,
    cpus: Vec<Cpu>,
    gpus: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Preferred {
    cpus: String,
}

#[derive(Deserialize)]
struct Cpu {
    cpu: usize,
    core: String,
    llc: usize,
    node: usize,
    irq_heavy: bool,
    preferred: bool,
}

#[derive(Deserialize)]
struct Check {
    check: String,
    verdict: String,
    found: String,
}

/// The machine that the cells run on.
pub struct Place<'a> {
    pub on: Where,
    pub cpus: usize,
    pub kernel: &'a str,
    pub target: &'a Path,
}

/// Looks at it.
///
/// # Errors
/// The lab does not boot, or the scheduler's program does not say what is expected.
pub fn look(place: &Place) -> Result<Seen> {
    let program = place.target.join("release/scx_gpuaware");
    let both = format!(
        "{0} topology --json && {{ {0} doctor --json || true; }}",
        quote(&program.to_string_lossy())
    );
    let mut command = match place.on {
        Where::Host | Where::Sim => Command::new("sh"),
        Where::Lab => {
            let own = std::env::current_exe().context("cannot find this program's own file")?;
            let mut command = Command::new(own);
            command.args([
                "lab",
                "--disk-mib",
                "0",
                "--restarts",
                "2",
                "--kernel",
                place.kernel,
            ]);
            command.args(["--cpus", &place.cpus.to_string(), "--", "sh"]);
            command
        }
    };
    command.args(["-c", &both]);
    let name = "the look at the machine";
    let looked = process::capture(name, &mut command, |look: &mut Supervised| {
        // The lab has a guest and files of its own to clean up.
        look.wait().inspect_err(|_| look.ask_to_end())
    });
    let (status, text) = looked?;
    if !status.success() {
        bail!("looking at the machine failed: {status}");
    }
    read(&String::from_utf8_lossy(&text))
}

/// A machine that is simulated. It has no interrupts that come with load, and doctor is not asked there.
///
/// # Errors
/// It has one CPU, or the scheduler's program does not say what is expected.
pub fn simulated(chooser: &Chooser) -> Result<Seen> {
    let topology = chooser.topology(&Wish::default())?;
    let seen = read(&(topology + "[]"))?;
    if seen.cpus < 2 {
        let expected = "--machine: expected two CPUs at least, one for the rest";
        return Err(DataError::Usage(expected.to_owned()).into());
    }
    Ok(Seen {
        shape: None,
        ..seen
    })
}

/// From what `topology --json` and `doctor --json` print, one after the other.
fn read(text: &str) -> Result<Seen> {
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    let mut next = |what: &str| {
        let document = documents
            .next()
            .with_context(|| format!("{what} printed nothing"))?;
        document.with_context(|| format!("cannot read what {what} printed"))
    };
    let topology: Topology = serde_json::from_value(next("scx_gpuaware topology")?)
        .context("scx_gpuaware topology printed something else")?;
    let checks: Vec<Check> = serde_json::from_value(next("scx_gpuaware doctor")?)
        .context("scx_gpuaware doctor printed something else")?;
    let count =
        |of: fn(&Cpu) -> String| topology.cpus.iter().map(of).collect::<BTreeSet<_>>().len();
    let said = |verdict: &str| {
        let checks = checks.iter().filter(|check| check.verdict == verdict);
        checks
            .map(|check| format!("{}: {}", check.check, check.found))
            .collect()
    };
    let heavy = || topology.cpus.iter().filter(|cpu| cpu.irq_heavy);
    let online: BTreeSet<usize> = topology.cpus.iter().map(|cpu| cpu.cpu).collect();
    let (cpus, gpus) = (online.len(), topology.gpus.len());
    let cores = count(|cpu| cpu.core.clone());
    let llcs = count(|cpu| cpu.llc.to_string());
    let nodes = count(|cpu| cpu.node.to_string());
    let threads = cpus.div_ceil(cores.max(1));
    Ok(Seen {
        shape: Some(format!("{cpus}x{llcs}x{nodes}x{threads}x{gpus}")),
        online: crate::cpus::format_list(&online),
        cpus,
        cores,
        nodes,
        gpus,
        preferred: topology.preferred.cpus,
        irq_heavy: heavy().map(|cpu| cpu.cpu).collect(),
        irq_on_preferred: heavy().any(|cpu| cpu.preferred),
        warnings: said("warning"),
        problems: said("problem"),
    })
}

impl Seen {
    /// In one line.
    pub fn words(&self) -> String {
        let heavy = if self.irq_heavy.is_empty() {
            "no CPU is busy with interrupts".to_owned()
        } else {
            let among = if self.irq_on_preferred {
                ", a preferred one among them"
            } else {
                ""
            };
            format!(
                "CPU {} busy with interrupts{among}",
                crate::cpus::format_list(&self.irq_heavy)
            )
        };
        format!(
            "{} CPUs ({}), {} cores, {} NUMA node(s), {} GPU(s) on PCI; preferred by default for one launcher: {}; {heavy}",
            self.cpus, self.online, self.cores, self.nodes, self.gpus, self.preferred
        )
    }
}

#[cfg(test)]
pub mod samples {
    use super::*;

    pub const TWO_CPUS: &str = r#"
        {"preferred": {"cpus": "1", "reason": "x"}, "offline": "", "gpus": [], "nics": [], "cpus": [
          {"cpu": 0, "core": "0", "llc": 0, "node": 0, "irq_heavy": true, "preferred": false},
          {"cpu": 1, "core": "1", "llc": 0, "node": 0, "irq_heavy": false, "preferred": true}]}
        [{"check": "gpus", "verdict": "warning", "found": "none", "remedy": null},
         {"check": "btf", "verdict": "ok", "found": "there", "remedy": null}]"#;

    pub fn two_cpus() -> Seen {
        read(TWO_CPUS).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_topology_and_doctor_print() {
        let seen = samples::two_cpus();
        assert_eq!((seen.cpus, seen.cores, seen.nodes, seen.gpus), (2, 2, 1, 0));
        assert_eq!(seen.shape.as_deref(), Some("2x1x1x1x0"));
        assert_eq!(
            (seen.online.as_str(), seen.preferred.as_str()),
            ("0-1", "1")
        );
        assert_eq!(
            (seen.irq_heavy.clone(), seen.irq_on_preferred),
            ([0].into(), false)
        );
        assert_eq!(seen.warnings, ["gpus: none"]);
        assert!(seen.problems.is_empty());
        assert!(read("").is_err() && read("{}").is_err());
    }
}
