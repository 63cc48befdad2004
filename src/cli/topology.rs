// SPDX-License-Identifier: GPL-2.0-only
//! `topology`: what the machine is made of, which CPUs are preferred, and why.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use crate::policy::cpuset::CpuSet;
use crate::sched;
use crate::topology::capacity::Kind;
use crate::topology::choose::{Choice, PreferredRules, Row, choose};
use crate::topology::demand::Demand;
use crate::topology::irq_load::{IrqLoad, IrqRules, IrqVerdict, IrqVerdicts};
use crate::topology::pci::{Devices, PciDevice};
use crate::topology::{Cpu, SYSFS, Topology, proc_stat};

use super::output::{Failure, print};
use super::policy;

/// How long interrupts are watched: a hundred of the ticks that `/proc/stat` counts in.
const SAMPLE: Duration = Duration::from_secs(1);

/// `scx_gpuaware topology`
#[derive(Debug, Args)]
pub struct Options {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Policy file, TOML.
    #[arg(short, long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// CPUs that launchers are to prefer, such as 2-3,8 [default: chosen].
    #[arg(long, value_name = "LIST")]
    preferred_cpus: Option<CpuSet>,
    /// Launch and handoff threads to choose for, runnable at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Read a recorded sysfs tree; it has no interrupt load.
    #[arg(long, value_name = "DIR", hide = true)]
    sysfs: Option<PathBuf>,
}

/// Prints the machine and the choice.
pub fn run(options: &Options) -> Result<(), Failure> {
    let (topology, root) = match &options.sysfs {
        Some(root) => (
            Topology::read(root).map_err(Failure::Input)?,
            root.as_path(),
        ),
        None => {
            let root = Path::new(SYSFS);
            (Topology::read(root)?.within(&sched::allowed_cpus()), root)
        }
    };
    let rules = rules(options, &topology.online()).map_err(Failure::Input)?;
    let irq = match options.sysfs {
        Some(_) => IrqVerdicts::default(),
        None => sample_interrupts(&rules)?,
    };
    let devices = Devices::read(root);
    let demand = Demand {
        launch: options.threads,
        handoff: 0,
    };
    let choice = choose(&topology, &devices, &irq, demand, &rules, None);
    let report = Report::new(&topology, &devices, &irq, &choice);
    let text = if options.json {
        serde_json::to_string_pretty(&report).context("writing JSON")? + "\n"
    } else {
        report.text()
    };
    Ok(print(&text)?)
}

/// What the policy says; the flag wins.
fn rules(options: &Options, online: &CpuSet) -> Result<PreferredRules> {
    let flag = options.preferred_cpus.as_ref();
    let document = policy::chosen(options.policy.as_deref(), flag, online)?;
    let mut rules = PreferredRules::from(&document.policy);
    rules.cpus = flag.cloned().or(rules.cpus);
    Ok(rules)
}

fn sample_interrupts(rules: &PreferredRules) -> Result<IrqVerdicts> {
    let read = || std::fs::read_to_string("/proc/stat").context("reading /proc/stat");
    let mut load = IrqLoad::new(IrqRules::new(rules.irq_heavy_percent));
    let began = Instant::now();
    load.observe(began.elapsed(), proc_stat::irq_times(&read()?));
    std::thread::sleep(SAMPLE);
    load.observe(began.elapsed(), proc_stat::irq_times(&read()?));
    Ok(load.verdicts())
}

/// The JSON, documented in docs/topology.md. CPU sets are Linux CPU lists.
#[derive(Serialize)]
struct Report {
    preferred: Preferred,
    cpus: Vec<CpuReport>,
    offline: String,
    gpus: Vec<DeviceReport>,
    nics: Vec<DeviceReport>,
}

#[derive(Serialize)]
struct Preferred {
    cpus: String,
    ranked: Vec<u32>,
    reason: String,
}

#[derive(Serialize)]
struct CpuReport {
    cpu: u32,
    core: String,
    llc: usize,
    node: u32,
    kind: Kind,
    capacity: u32,
    irq_percent: Option<f64>,
    irq_heavy: bool,
    allowed: bool,
    preferred: bool,
    score: i32,
    reason: String,
}

#[derive(Serialize)]
struct DeviceReport {
    address: String,
    vendor: &'static str,
    id: String,
    node: Option<u32>,
    local_cpus: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<String>,
}

impl Report {
    fn new(topology: &Topology, devices: &Devices, irq: &IrqVerdicts, choice: &Choice) -> Self {
        let allowed = &topology.allowed;
        let cpus = topology.cpus.iter().zip(&choice.rows);
        let device = |it: &PciDevice| DeviceReport::new(it, topology);
        Self {
            preferred: Preferred {
                cpus: choice.cpus.to_string(),
                ranked: choice.ranked.clone(),
                reason: choice.reason.clone(),
            },
            cpus: cpus
                .map(|(cpu, row)| CpuReport::new(cpu, row, irq.of(cpu.id), allowed))
                .collect(),
            offline: topology.offline.to_string(),
            gpus: devices.gpus.iter().map(device).collect(),
            nics: devices.nics.iter().map(device).collect(),
        }
    }

    fn text(&self) -> String {
        let mut lines = vec![format!(
            "{:>4} {:>9} {:>4} {:>4} {:<11} {:>8} {:>6} {:>5} {:<9}  WHY",
            "CPU", "CORE", "LLC", "NODE", "KIND", "CAPACITY", "IRQ %", "SCORE", "PREFERRED"
        )];
        lines.extend(self.cpus.iter().map(CpuReport::line));
        if !self.offline.is_empty() {
            lines.push(format!("offline: CPU {}", self.offline));
        }
        let device = |what: &str, device: &DeviceReport| format!("{what} {}", device.line());
        lines.extend(self.gpus.iter().map(|gpu| device("GPU", gpu)));
        lines.extend(self.nics.iter().map(|nic| device("NIC", nic)));
        let Preferred { cpus, reason, .. } = &self.preferred;
        lines.push(format!("preferred: CPU {cpus} ({reason})"));
        lines.join("\n") + "\n"
    }
}

impl CpuReport {
    fn new(cpu: &Cpu, row: &Row, irq: Option<IrqVerdict>, allowed: &CpuSet) -> Self {
        Self {
            cpu: cpu.id,
            core: cpu.core.to_string(),
            llc: cpu.llc,
            node: cpu.node,
            kind: cpu.kind,
            capacity: cpu.capacity,
            irq_percent: irq.map(|verdict| (verdict.load_percent * 100.0).round() / 100.0),
            irq_heavy: irq.is_some_and(|verdict| verdict.heavy),
            allowed: allowed.contains(cpu.id),
            preferred: row.preferred,
            score: row.score,
            reason: row.reason.clone(),
        }
    }

    fn line(&self) -> String {
        let kind = match self.kind {
            Kind::Performance => "performance",
            Kind::Efficiency => "efficiency",
        };
        let irq = self
            .irq_percent
            .map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1}"));
        format!(
            "{:>4} {:>9} {:>4} {:>4} {kind:<11} {:>8} {irq:>6} {:>5} {:<9}  {}",
            self.cpu,
            self.core,
            self.llc,
            self.node,
            self.capacity,
            self.score,
            if self.preferred { "yes" } else { "no" },
            self.reason
        )
    }
}

impl DeviceReport {
    fn new(device: &PciDevice, topology: &Topology) -> Self {
        Self {
            address: device.address.clone(),
            vendor: device.vendor_name(),
            id: format!("{:04x}:{:04x}", device.vendor, device.device),
            node: device.near_node(topology),
            local_cpus: device.local_cpus.to_string(),
            interfaces: device.interfaces.clone(),
        }
    }

    fn line(&self) -> String {
        let node = self
            .node
            .map_or_else(|| "node unknown".to_owned(), |node| format!("node {node}"));
        let vendor = self.vendor;
        let names = self.interfaces.join(" ");
        let line = format!("{} {vendor} {}  {node}  {names}", self.address, self.id);
        line.trim_end().to_owned()
    }
}
