// SPDX-License-Identifier: GPL-2.0-only
//! `policy check`, `policy show`, `policy diff`, `policy init`, `policy schema`; and reading a policy file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use log::warn;

use crate::policy::cpuset::CpuSet;
use crate::policy::difference::differences;
use crate::policy::effective::{AsToml, Effective, entries};
use crate::policy::report::in_file;
use crate::policy::template::{Machine, render};
use crate::policy::{Document, json_schema};
use crate::topology::choose::{PreferredRules, choose};
use crate::topology::demand::Demand;
use crate::topology::irq_load::IrqVerdicts;
use crate::topology::pci::Devices;
use crate::topology::{SYSFS, Topology};

use super::output::{Failure, print, say};

/// What to do with policies.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Check policy files, without loading anything.
    Check(Check),
    /// Print the policy in effect and where each value comes from.
    Show(Show),
    /// Say in words what one policy does otherwise than another.
    Diff(Diff),
    /// Print a commented policy for this machine.
    Init,
    /// Print the JSON Schema of a policy file.
    Schema,
}

/// `policy check`
#[derive(Debug, Args)]
pub struct Check {
    /// Policy files, TOML.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// CPUs of the machine that the policies are for [default: those that are online here].
    #[arg(long, value_name = "LIST")]
    online: Option<CpuSet>,
}

/// `policy show`
#[derive(Debug, Args)]
pub struct Show {
    /// Policy file, TOML [default: none, all keys have their defaults].
    #[arg(short, long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// CPUs that launchers prefer, as the scheduler would be told.
    #[arg(long, value_name = "LIST")]
    preferred_cpus: Option<CpuSet>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// `policy diff`
#[derive(Debug, Args)]
pub struct Diff {
    /// The policy before: a file, TOML, or "default" for no policy at all.
    #[arg(value_name = "A")]
    old: PathBuf,
    /// The policy after, the same.
    #[arg(value_name = "B")]
    new: PathBuf,
    /// CPUs of the machine that the policies are for [default: those that are online here].
    #[arg(long, value_name = "LIST")]
    online: Option<CpuSet>,
}

/// What stands for no policy file.
const DEFAULT: &str = "default";

/// Runs a subcommand of `policy`.
pub fn run(action: &Action) -> Result<(), Failure> {
    match action {
        Action::Check(args) => check(args).map_err(Failure::Input),
        Action::Show(args) => show(args),
        Action::Diff(args) => diff(args),
        Action::Init => Ok(init()?),
        Action::Schema => {
            let schema = serde_json::to_string_pretty(&json_schema()).context("writing JSON")?;
            Ok(print(&format!("{schema}\n"))?)
        }
    }
}

/// The online CPUs of this machine.
pub fn online() -> Result<CpuSet> {
    Ok(Topology::read(Path::new(SYSFS))?.online())
}

/// Reads a policy for a machine with `online` CPUs. Its warnings are the caller's to print.
///
/// # Errors
/// The file cannot be read, or the policy is refused, with all its diagnostics.
pub fn read(path: &Path, online: &CpuSet) -> Result<Document> {
    let shown = path.display();
    let bytes = std::fs::read(path).with_context(|| format!("reading policy {shown}"))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        let column = 1 + before.iter().rev().take_while(|&&byte| byte != b'\n').count();
        anyhow!("the policy is refused\n{shown}:{line}: error: byte {column} of the line is no UTF-8: save the file as UTF-8")
    })?;
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Document::parse(text)
        .and_then(|document| document.check_on(online).map(|()| document))
        .map_err(|error| {
            let file = path.display().to_string();
            anyhow!("the policy is refused\n{}", error.in_file(&file))
        })
}

/// The policy of a command that takes `--policy` and `--preferred-cpus`, both checked. The document does not
/// know the flag; it wins.
///
/// # Errors
/// As [`read`]; the flag names CPUs that are not online.
pub fn chosen(file: Option<&Path>, flag: Option<&CpuSet>, online: &CpuSet) -> Result<Document> {
    check_preferred(flag, online)?;
    match file {
        Some(path) => read(path, online),
        None => Document::parse("").map_err(|error| anyhow!(error)),
    }
}

/// The policy that the flags ask for, read and validated; now, and again at every reload.
///
/// # Errors
/// As [`chosen`].
pub fn in_effect(file: Option<&Path>, flag: Option<&CpuSet>) -> Result<Effective> {
    let document = chosen(file, flag, &online()?)?;
    if let Some(path) = file {
        for line in warnings(path, &document).lines() {
            warn!("{line}");
        }
    }
    Ok(Effective::of(&document, flag))
}

/// Refuses CPUs named by `--preferred-cpus` that this machine does not have.
fn check_preferred(cpus: Option<&CpuSet>, online: &CpuSet) -> Result<()> {
    let missing = cpus.map_or_else(CpuSet::default, |cpus| cpus.difference(online));
    if !missing.is_empty() {
        bail!("--preferred-cpus: CPU {missing} is not online: this machine has {online}");
    }
    Ok(())
}

fn warnings(path: &Path, document: &Document) -> String {
    in_file(&document.warnings, &path.display().to_string())
}

fn check(args: &Check) -> Result<()> {
    let online = match &args.online {
        Some(cpus) => cpus.clone(),
        None => online()?,
    };
    let mut refused = Vec::new();
    for path in &args.files {
        match read(path, &online) {
            Ok(document) => {
                for line in warnings(path, &document).lines() {
                    say(&format!("{line}\n"));
                }
                print(&format!("{}: ok\n", path.display()))?;
            }
            Err(error) => refused.push(format!("{error:#}")),
        }
    }
    if refused.is_empty() {
        return Ok(());
    }
    bail!("{}", refused.join("\n"))
}

fn show(args: &Show) -> Result<(), Failure> {
    let online = online()?;
    let flag = args.preferred_cpus.as_ref();
    let document = chosen(args.policy.as_deref(), flag, &online).map_err(Failure::Input)?;
    let entries = entries(&document, flag);
    if args.json {
        let json = serde_json::to_string_pretty(&entries).context("writing JSON")?;
        return Ok(print(&format!("{json}\n"))?);
    }
    let file = args.policy.as_deref().unwrap_or(Path::new("")).display();
    let file = file.to_string();
    let (entries, file) = (&entries, file.as_str());
    Ok(print(&AsToml { entries, file }.to_string())?)
}

fn diff(args: &Diff) -> Result<(), Failure> {
    let online = match &args.online {
        Some(cpus) => cpus.clone(),
        None => online()?,
    };
    let effective = |path: &Path| -> Result<Effective, Failure> {
        let file = (path != Path::new(DEFAULT)).then_some(path);
        let document = chosen(file, None, &online).map_err(Failure::Input)?;
        Ok(Effective::of(&document, None))
    };
    let (old, new) = (effective(&args.old)?, effective(&args.new)?);
    let sentences = differences(&old, &new);
    if sentences.is_empty() {
        return Ok(print("no difference\n")?);
    }
    Ok(print(&(sentences.join("\n") + "\n"))?)
}

fn init() -> Result<()> {
    let topology = Topology::read(Path::new(SYSFS))?;
    let devices = Devices::read(Path::new(SYSFS));
    let mut llcs: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    let mut cores = Vec::new();
    for cpu in &topology.cpus {
        llcs.entry(cpu.llc).or_default().push(cpu.id);
        if !cores.contains(&&cpu.core) {
            cores.push(&cpu.core);
        }
    }
    let rules = PreferredRules::default();
    let no_irqs = IrqVerdicts::default();
    let choice = choose(&topology, &devices, &no_irqs, Demand::ONE, &rules, None);
    let machine = Machine {
        online: topology.online(),
        nr_cores: cores.len(),
        llcs: llcs.into_values().map(CpuSet::new).collect(),
        near_gpus: near_gpus(&topology, &devices),
        preferred: choice.cpus,
    };
    print(&render(&machine))
}

/// The CPUs on the node of each GPU whose node is known, each set once.
fn near_gpus(topology: &Topology, devices: &Devices) -> Vec<CpuSet> {
    let nodes = devices
        .gpus
        .iter()
        .filter_map(|gpu| gpu.near_node(topology));
    let mut sets: Vec<CpuSet> = Vec::new();
    for node in nodes {
        let on_node = topology.cpus.iter().filter(|cpu| cpu.node == node);
        let cpus = CpuSet::new(on_node.map(|cpu| cpu.id));
        if !cpus.is_empty() && !sets.contains(&cpus) {
            sets.push(cpus);
        }
    }
    sets
}
