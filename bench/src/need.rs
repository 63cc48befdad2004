// SPDX-License-Identifier: GPL-2.0-only
//! What an arm needs from the machine, and whether it is there. What is missing is the reason in the arm's rows.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{kernel_release, program};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Need {
    /// A kernel with sched_ext, and no CPU that `isolcpus=` keeps out of the scheduling domains.
    SchedExt,
    /// CPUs that the kernel shows as isolated: the preferred ones.
    IsolatedCpus,
    /// A kernel whose own scheduler is EEVDF.
    Eevdf,
    /// A kernel whose EEVDF takes a slice for each thread.
    CustomSlice,
    /// A kernel from before EEVDF.
    Cfs,
    /// A GPU that NVIDIA's management library answers for.
    Nvml,
    /// More than one NUMA node.
    Numa,
    /// A program of `make peers`, or on the PATH.
    Program(String),
}

/// The needs without an argument, as they stand in files.
static WORDS: [(&str, Need); 7] = [
    ("sched_ext", Need::SchedExt),
    ("isolated_cpus", Need::IsolatedCpus),
    ("eevdf", Need::Eevdf),
    ("custom_slice", Need::CustomSlice),
    ("cfs", Need::Cfs),
    ("nvml", Need::Nvml),
    ("numa", Need::Numa),
];
const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
const COMMAND_LINE: &str = "/proc/cmdline";
/// The driver's folder for each GPU that it drives.
const NVIDIA_GPUS: &str = "/proc/driver/nvidia/gpus";
const NODES: &str = "/sys/devices/system/node";

fn words() -> [&'static str; 7] {
    WORDS.each_ref().map(|(word, _)| *word)
}

impl TryFrom<String> for Need {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some((_, need)) = WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(need.clone());
        }
        let program = text.strip_prefix("program:");
        match program.filter(|name| !name.is_empty()) {
            Some(name) => Ok(Self::Program(name.to_owned())),
            None => Err(format!(
                "expected {} or program:NAME, got {text:?}",
                words().join(", ")
            )),
        }
    }
}

impl From<Need> for String {
    fn from(need: Need) -> Self {
        if let Need::Program(name) = &need {
            return format!("program:{name}");
        }
        let word = WORDS.iter().find(|(_, known)| *known == need);
        word.map_or_else(Self::new, |(word, _)| (*word).to_owned())
    }
}

impl Need {
    /// Why it is not met on this boot, where the launcher's CPUs are `preferred`; `None`: it is.
    pub fn unmet(&self, preferred: &str) -> Option<String> {
        match self {
            Self::Program(name) => program::find(name)
                .is_none()
                .then(|| format!("{name} is not installed: run make peers")),
            Self::SchedExt => sched_ext(),
            Self::IsolatedCpus => {
                let isolated = read(ISOLATED);
                (isolated != preferred).then(|| {
                    format!("needs a boot with isolcpus={preferred}; isolated now: {isolated:?}")
                })
            }
            Self::Eevdf => {
                let kernel = kernel();
                (!kernel_release::has_eevdf(&kernel)).then(|| {
                    format!(
                        "needs Linux 6.6 or newer, which has EEVDF; this is {kernel}, with CFS: see the arm cfs"
                    )
                })
            }
            Self::CustomSlice => {
                let kernel = kernel();
                (!kernel_release::has_custom_slice(&kernel)).then(|| {
                    format!("needs Linux 6.12 or newer, which takes a slice for each thread; this is {kernel}")
                })
            }
            Self::Cfs => {
                let kernel = kernel();
                kernel_release::has_eevdf(&kernel)
                    .then(|| format!("needs a kernel before 6.6, which has CFS; this is {kernel}"))
            }
            Self::Nvml => (entries(NVIDIA_GPUS, |_| true) == 0)
                .then(|| format!("needs a GPU with NVIDIA's driver: nothing in {NVIDIA_GPUS}")),
            Self::Numa => {
                let nodes = entries(NODES, is_node);
                (nodes < 2)
                    .then(|| format!("needs two NUMA nodes or more; this machine has {nodes}"))
            }
        }
    }
}

fn sched_ext() -> Option<String> {
    if !Path::new("/sys/kernel/sched_ext").exists() {
        return Some("this kernel has no sched_ext".to_owned());
    }
    // Newer kernels list the CPUs of isolated cpusets there too, beside which sched_ext loads.
    let isolated = !read(ISOLATED).is_empty() && isolates_domains(&read(COMMAND_LINE));
    isolated.then(|| "sched_ext refuses to load on a boot with isolcpus=".to_owned())
}

/// Does an `isolcpus=` take CPUs out of the scheduling domains, as it does with the flag `domain` or without flags?
fn isolates_domains(command_line: &str) -> bool {
    // What comes after it is for the first program.
    let parameters = command_line
        .split_whitespace()
        .take_while(|word| *word != "--")
        .map(|word| word.trim_matches('"'));
    let mut values = parameters.filter_map(|word| word.strip_prefix("isolcpus="));
    values.any(|value| {
        let flags: Vec<_> = value
            .split(',')
            .map(|flag| flag.trim_matches('"'))
            .collect();
        let others = flags
            .iter()
            .any(|flag| ["managed_irq", "nohz"].contains(flag));
        flags.contains(&"domain") || !others
    })
}

fn kernel() -> String {
    read("/proc/sys/kernel/osrelease")
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// How many entries of the folder have such a name; none if there is no such folder.
fn entries(folder: &str, wanted: impl Fn(&str) -> bool) -> usize {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    names
        .filter(|entry| entry.file_name().to_str().is_some_and(&wanted))
        .count()
}

fn is_node(name: &str) -> bool {
    let number = name.strip_prefix("node");
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(text: &str) -> Need {
        Need::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn needs_are_written_as_they_are_read() {
        for text in words().into_iter().chain(["program:x"]) {
            assert_eq!(String::from(need(text)), text);
        }
        let error = Need::try_from("program:".to_owned()).unwrap_err();
        assert!(error.starts_with("expected sched_ext, "), "{error}");
    }

    #[test]
    fn what_is_missing_says_how_to_get_it() {
        let unmet = |text: &str| need(text).unmet("1");
        assert_eq!(
            unmet("program:scx_nobody_wrote_this").as_deref(),
            Some("scx_nobody_wrote_this is not installed: run make peers")
        );
        assert_eq!(unmet("program:sh"), None);
        // A kernel has one of the two, whichever this machine's is.
        let kernels = [unmet("eevdf"), unmet("cfs")];
        assert_eq!(kernels.iter().flatten().count(), 1, "{kernels:?}");
    }

    #[test]
    fn only_isolation_from_scheduling_keeps_sched_ext_away() {
        for line in [
            "quiet isolcpus=1",
            "isolcpus=managed_irq,domain,1",
            "isolcpus=\"domain,1\"",
        ] {
            assert!(isolates_domains(line), "{line}");
        }
        for line in [
            "quiet",
            "isolcpus=managed_irq,1",
            "isolcpus=nohz,managed_irq,1-3",
            "nohz_full=1",
            "quiet -- isolcpus=1",
        ] {
            assert!(!isolates_domains(line), "{line}");
        }
    }

    #[test]
    fn counts_nodes_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["node0", "node1", "node", "possible", "nodes2"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert_eq!(entries(dir.path().to_str().unwrap(), is_node), 2);
        assert_eq!(entries("/no/such/folder", |_| true), 0);
    }
}
