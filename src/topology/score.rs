// SPDX-License-Identifier: GPL-2.0-only
//! How good each CPU is for a launcher, by itself: 100 less what speaks against it, each flaw with its
//! price and its words. How CPUs get on with each other is `super::units`'s. Pure.
//!
//! The prices put any one flaw below no flaw, and interrupts below every other single flaw: they cost
//! tail latency, the others cost a few percent or, for an efficiency core, a known factor.

use std::collections::BTreeMap;
use std::fmt;

use crate::policy::cpuset::CpuSet;

use super::capacity::{FULL, Kind};
use super::irq_load::IrqVerdicts;
use super::pci::{Devices, PciDevice};
use super::{Cpu, Topology};

/// Score of a CPU that nothing speaks against.
pub const PERFECT: i32 = 100;

const IRQ_HEAVY: i32 = 40;
const EFFICIENCY_CORE: i32 = 35;
const FAR_FROM_GPU_MAX: i32 = 30;
const CPU_0: i32 = 20;
const SHARED_CORE: i32 = 10;
const FAR_FROM_NIC: i32 = 2;
/// A performance core that is slower than the fastest: at most a tie-break, the price of a tenth.
const SLOWER_MAX: i32 = 3;

/// Something that speaks against a CPU.
#[derive(Debug, Clone, PartialEq)]
pub enum Flaw {
    /// Interrupts take this share of its time.
    IrqHeavy {
        /// Share, percent.
        load_percent: f64,
    },
    /// Slower by design.
    EfficiencyCore,
    /// On another node than every GPU.
    FarFromGpu {
        /// The CPU's node.
        node: u32,
        /// The nearest node that has a GPU.
        gpu_node: u32,
        /// Firmware's distance between them.
        distance: u32,
    },
    /// CPU 0, or a thread of its core.
    Cpu0 {
        /// It is CPU 0 itself.
        itself: bool,
    },
    /// Whole cores are wanted, and the rest of this one is out of reach.
    SharedCore {
        /// CPUs of the core that may not be used.
        others: CpuSet,
    },
    /// A little slower than the fastest of its kind.
    Slower {
        /// In 1/1024 of the fastest.
        capacity: u32,
    },
    /// On another node than every network card.
    FarFromNic,
}

impl Flaw {
    /// What it costs.
    pub fn price(&self) -> i32 {
        match self {
            Self::IrqHeavy { .. } => IRQ_HEAVY,
            Self::EfficiencyCore => EFFICIENCY_CORE,
            // Nodes of one package are 11 or 12 apart, packages 20 to 32.
            Self::FarFromGpu { distance, .. } => {
                (2 * (*distance as i32 - 10)).clamp(2, FAR_FROM_GPU_MAX)
            }
            Self::Cpu0 { .. } => CPU_0,
            Self::SharedCore { .. } => SHARED_CORE,
            Self::Slower { capacity } => {
                (FULL.saturating_sub(*capacity) as i32 / 32).clamp(1, SLOWER_MAX)
            }
            Self::FarFromNic => FAR_FROM_NIC,
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IrqHeavy { load_percent } => {
                write!(f, "interrupts take {load_percent:.1} % of its time")
            }
            Self::EfficiencyCore => f.write_str("efficiency core"),
            Self::FarFromGpu { node, gpu_node, .. } => {
                write!(f, "node {node}, the nearest GPU is on node {gpu_node}")
            }
            Self::Cpu0 { itself: true } => {
                f.write_str("CPU 0, where interrupts and housekeeping gather")
            }
            Self::Cpu0 { itself: false } => f.write_str("same core as CPU 0"),
            Self::SharedCore { others } => {
                write!(f, "CPU {others} of its core is out of reach")
            }
            Self::Slower { capacity } => {
                write!(f, "{} % as fast as the fastest", capacity * 100 / FULL)
            }
            Self::FarFromNic => f.write_str("no network card on its node"),
        }
    }
}

/// The flaws of one CPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Grade {
    /// The gravest first.
    pub flaws: Vec<Flaw>,
}

impl Grade {
    /// [`PERFECT`] less all prices.
    pub fn score(&self) -> i32 {
        PERFECT - self.flaws.iter().map(Flaw::price).sum::<i32>()
    }

    /// The score with interrupts left out: what the CPU is worth when they are over.
    pub fn lasting_score(&self) -> i32 {
        let price = |flaw: &Flaw| match flaw {
            Flaw::IrqHeavy { .. } => 0,
            lasting => lasting.price(),
        };
        PERFECT - self.flaws.iter().map(price).sum::<i32>()
    }
}

/// Grades the CPUs of one machine.
#[derive(Debug)]
pub struct Grader<'a> {
    topology: &'a Topology,
    irq: Option<&'a IrqVerdicts>,
    whole_cores: bool,
    /// GPUs on each node, as far as their node is known.
    gpus: BTreeMap<u32, Vec<&'a PciDevice>>,
    /// Network cards on each node, likewise.
    nics: BTreeMap<u32, Vec<&'a PciDevice>>,
}

impl<'a> Grader<'a> {
    /// `irq`: `None` if interrupts do not matter. `whole_cores`: a core that is out of reach in
    /// part is a flaw.
    pub fn new(
        topology: &'a Topology,
        devices: &'a Devices,
        irq: Option<&'a IrqVerdicts>,
        whole_cores: bool,
    ) -> Self {
        Self {
            topology,
            irq,
            whole_cores,
            gpus: by_node(topology, &devices.gpus),
            nics: by_node(topology, &devices.nics),
        }
    }

    /// GPUs near `node`.
    pub fn gpus_on(&self, node: u32) -> &[&'a PciDevice] {
        self.gpus.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The grade of an online CPU.
    pub fn grade(&self, cpu: &Cpu) -> Grade {
        let mut flaws: Vec<Flaw> = [
            self.irq_heavy(cpu),
            (cpu.kind == Kind::Efficiency).then_some(Flaw::EfficiencyCore),
            self.far_from_gpu(cpu),
            cpu.core.contains(0).then_some(Flaw::Cpu0 {
                itself: cpu.id == 0,
            }),
            self.shared_core(cpu),
            slower(cpu),
            self.far_from_nic(cpu),
        ]
        .into_iter()
        .flatten()
        .collect();
        flaws.sort_by_key(|flaw| std::cmp::Reverse(flaw.price()));
        Grade { flaws }
    }

    fn irq_heavy(&self, cpu: &Cpu) -> Option<Flaw> {
        let verdict = self.irq?.of(cpu.id).filter(|verdict| verdict.heavy)?;
        Some(Flaw::IrqHeavy {
            load_percent: verdict.load_percent,
        })
    }

    fn far_from_gpu(&self, cpu: &Cpu) -> Option<Flaw> {
        let distance = |node: u32| self.topology.distance(cpu.node, node);
        let gpu_node = self.gpus.keys().copied().min_by_key(|&it| distance(it))?;
        (gpu_node != cpu.node).then(|| Flaw::FarFromGpu {
            node: cpu.node,
            gpu_node,
            distance: distance(gpu_node),
        })
    }

    fn shared_core(&self, cpu: &Cpu) -> Option<Flaw> {
        let others = cpu.core.difference(&self.topology.allowed);
        (self.whole_cores && !others.is_empty()).then_some(Flaw::SharedCore { others })
    }

    fn far_from_nic(&self, cpu: &Cpu) -> Option<Flaw> {
        let known = !self.nics.is_empty();
        (known && !self.nics.contains_key(&cpu.node)).then_some(Flaw::FarFromNic)
    }
}

fn slower(cpu: &Cpu) -> Option<Flaw> {
    let differs = cpu.kind == Kind::Performance && cpu.capacity < FULL;
    differs.then_some(Flaw::Slower {
        capacity: cpu.capacity,
    })
}

fn by_node<'a>(topology: &Topology, devices: &'a [PciDevice]) -> BTreeMap<u32, Vec<&'a PciDevice>> {
    let mut nodes: BTreeMap<u32, Vec<&PciDevice>> = BTreeMap::new();
    for device in devices {
        if let Some(node) = device.near_node(topology) {
            nodes.entry(node).or_default().push(device);
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_weigh_more_than_any_other_single_flaw() {
        let heavy = Flaw::IrqHeavy { load_percent: 6.0 };
        let far = Flaw::FarFromGpu {
            node: 0,
            gpu_node: 1,
            distance: 255,
        };
        let others = CpuSet::new([1]);
        for flaw in [
            Flaw::EfficiencyCore,
            far,
            Flaw::Cpu0 { itself: true },
            Flaw::SharedCore { others },
            Flaw::Slower { capacity: 900 },
            Flaw::FarFromNic,
        ] {
            assert!(flaw.price() < heavy.price(), "{flaw}");
            assert!(flaw.price() > 0, "{flaw}");
        }
    }

    #[test]
    fn a_near_package_is_better_than_a_far_one() {
        let price = |distance| {
            let (node, gpu_node) = (0, 1);
            Flaw::FarFromGpu {
                node,
                gpu_node,
                distance,
            }
            .price()
        };
        assert!(price(12) < price(20) && price(20) <= price(32));
    }
}
